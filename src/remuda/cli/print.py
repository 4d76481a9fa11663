"""remuda print and remuda ask"""

from __future__ import annotations

import click

from remuda.oneshot.output import Program

from .output import print_lines

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
    from remuda.oneshot.request import parse
    from remuda.oneshot.run import run
    from remuda.pool.printing import through_pool

    request = parse(list(words), ask=ask)
    if request.wants == "help":
        print_lines(ctx.get_help().splitlines())
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
    Program.name = "remuda ask"
    return carry_out(ctx, words, ask=True)
