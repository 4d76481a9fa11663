"""remuda run for help and completion, with click. `run_once` runs it without click."""

from __future__ import annotations

import click

from .output import print_lines
from .run_once import ALIASES, OPTIONS

_HELP = """Send one prompt to a warm agent of 'remuda pool serve' and print the answer.

    Each request is a new conversation, in this folder and with this environment. If no pool is served, it
    runs cold, as 'remuda print' does, and reports that on standard error. PROMPT - reads standard input.

    'remuda ask' does the same with the flags of claude -p. 'remuda help pool' has the details.

    \b
    Examples:
      remuda run "what does this repository do?"
      git diff | remuda run - --json --timeout 10m
      remuda run "run the tests" --allowed-tools Bash --stream
    """


def _option(flag: str) -> click.Option:
    kind, metavar, text = OPTIONS[flag]
    names = [flag, *(alias for alias, meant in ALIASES.items() if meant == flag and alias.startswith("-"))]
    if kind == "flag":
        return click.Option(names, is_flag=True, help=text)
    if isinstance(kind, tuple):
        return click.Option(names, type=click.Choice(kind), help=text)
    value_type = click.Path() if metavar in ("PATH", "FOLDER") else click.STRING
    return click.Option(names, type=value_type, metavar=metavar, multiple=kind == "many", help=text)


class _Run(click.Command):
    """`run_once` parses the words; click only lists the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # for completion
            return super().parse_args(ctx, args)
        ctx.obj = list(args)
        return []

    def invoke(self, ctx: click.Context) -> int:
        from .run_once import main

        code = main(ctx.obj)
        if code is None:
            print_lines(ctx.get_help().splitlines())
        return code or 0


command = _Run(
    "run",
    help=_HELP,
    params=[click.Argument(["prompt"], required=False, metavar="PROMPT|-"), *map(_option, OPTIONS)],
)
