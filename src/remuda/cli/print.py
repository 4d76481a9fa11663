"""remuda print, remuda ask and remuda run.

`__main__` runs them without click; from here come their help and completion.
"""

from __future__ import annotations

import click

from remuda.oneshot.output import PrintProgram

from .output import print_lines
from .run_once import ALIASES, OPTIONS

_FLAGS = {
    "--backend terminal|stream": "run in a terminal (default), or stream-json",
    "--input-file FILE": "read the prompt from FILE",
    "--timeout TIME": "fail after TIME: 90, 45m, 2h30m (3600)",
    "--first-output-timeout TIME": "fail if the agent prints nothing (90)",
    "--stream-json-timeout TIME": "fail if no stream-json comes (0: never)",
    "--stop-hook-timeout TIME": "fail if no hook reports the end (120)",
    "--agent NAME": "run this agent; an unknown name is passed on",
    "--claude-binary PATH": "run the agent at PATH",
    "--demo": "run the scripted agent, without an account",
    "--ask": "wait for a human to answer permissions",
    "--pool[=SOCKET]": "use 'remuda pool serve' if it is running",
    "--pool-socket SOCKET": "the same",
    "--keep": "keep the session, for attach and send",
    "--no-inherit-hooks": "do not run your own hooks",
    "--pretrust-cwd": "trust this folder for good, not just once",
    "--show-child-output": "on a failure, print the agent's screen",
    "--config FILE": "read defaults from FILE",
    "--trace": "print each step on standard error",
    "--check": "test this machine without an account",
    "--check --clean": "also remove leftovers of killed runs",
}
_EXIT_CODES = {
    0: "answered",
    1: "the agent failed or refused",
    2: "wrong flags, or an internal error",
    4: "the prompt is empty or cannot be sent",
    124: "a timeout",
    130: "interrupted",
}
FLAGS = "\n".join(
    [
        "    \b\n    Flags that claude -p does not have ('remuda help print' lists all):",
        *(f"      {flag:29}{text}" for flag, text in _FLAGS.items()),
        "\n    \b\n    Exit codes:",
        *(f"      {code:<5}{text}" for code, text in _EXIT_CODES.items()),
    ]
)
"""The end of the help of `print` and `ask`."""

_HELP = f"""Send one prompt to Claude Code and print the answer, with the flags and output of claude -p.

    While it runs, 'remuda ls' lists it and 'remuda attach' opens it. Every wait has a timeout, and the error
    says what it waited for. 'remuda ask' does the same and uses a warm agent if a pool is served.

    Standard input is appended to the prompt if data arrives within three seconds.

    \b
    Examples:
      remuda print "what does this repository do?"
      git diff | remuda print "review this" --output-format json
      remuda print "run the tests" --allowedTools Bash --timeout 10m

{FLAGS}
    """


@click.command(
    "print",
    help=_HELP,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS…] [PROMPT]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> int:
    return carry_out(ctx, words)


def carry_out(ctx: click.Context, words: tuple[str, ...], *, ask: bool = False) -> int:
    from remuda.oneshot.print_request import parse
    from remuda.oneshot.run import run
    from remuda.pool.printing import through_pool

    request = parse(list(words), ask=ask)
    if request.wants == "help":
        text = ctx.get_help()
        if not PrintProgram.name.startswith("remuda "):  # installed as `claude-print`
            text = text.replace("remuda print", PrintProgram.name)
        print_lines(text.splitlines())
        return 0
    return run(request, through_pool=through_pool)


# ── remuda ask ──


_ASK_HELP = f"""Send one prompt to an agent and print the answer. Uses a warm agent if a pool is served.

    Takes everything that 'remuda print' takes, with the same output and exit codes. If 'remuda pool serve'
    runs and can carry out the request, an agent of the pool answers. Otherwise, and with --cold, a new agent
    is started.

    \b
    Examples:
      remuda ask "what does this repository do?"
      git diff | remuda ask "review this" --output-format json
      remuda ask "summarise" --cold      start a new agent, use no pool

{FLAGS}
    """


@click.command(
    "ask",
    help=_ASK_HELP,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS…] [PROMPT]")
@click.pass_context
def ask_command(ctx: click.Context, words: tuple[str, ...]) -> int:
    PrintProgram.name = "remuda ask"
    return carry_out(ctx, words, ask=True)


_RUN_HELP = """Send one prompt to a warm agent of 'remuda pool serve' and print the answer.

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


run_command = _Run(
    "run",
    help=_RUN_HELP,
    params=[click.Argument(["prompt"], required=False, metavar="PROMPT|-"), *map(_option, OPTIONS)],
)
