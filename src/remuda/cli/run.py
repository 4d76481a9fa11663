"""remuda run: what click shows of it, for help and completion; `run_once` does it."""

from __future__ import annotations

import click

from .run_options import ALIASES, OPTIONS

_HELP = """Ask an agent one thing and print the answer, warm: through 'remuda pool serve'.

    Every call is a conversation of its own, in this folder and with this environment. Where no pool is served
    it runs cold, as 'remuda print' does, and says so on standard error. PROMPT is - for standard input.

    \b
    Examples:
      remuda run "what does this repository do?"          behind 'remuda pool serve --size 4 &'
      git diff | remuda run - --json --timeout 600
      remuda run "run the tests" --allowed-tools Bash --stream
      remuda run "now" --no-fallback || echo "no pool, or no answer"
    """


def _option(flag: str) -> click.Option:
    kind, metavar, text = OPTIONS[flag]
    names = [flag, *(alias for alias, meant in ALIASES.items() if meant == flag and alias.startswith("-"))]
    if kind == "flag":
        return click.Option(names, is_flag=True, help=text)
    if isinstance(kind, tuple):
        return click.Option(names, type=click.Choice(kind), help=text)
    shown = click.Path() if metavar in ("PATH", "FOLDER") else click.STRING
    return click.Option(names, type=shown, metavar=metavar, multiple=kind == "many", help=text)


class _Run(click.Command):
    """Its words are read elsewhere: `click` only has to know them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # for completion
            return super().parse_args(ctx, args)
        ctx.obj = list(args)
        return []

    def invoke(self, ctx: click.Context) -> int:
        from .run_once import main

        code = main(ctx.obj)
        if code is None:
            click.echo(ctx.get_help())
        return code or 0


command = _Run(
    "run",
    help=_HELP,
    params=[click.Argument(["prompt"], required=False, metavar="PROMPT|-"), *map(_option, OPTIONS)],
)
