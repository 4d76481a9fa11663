"""remuda print"""

from __future__ import annotations

import click

_HELP = """Ask Claude Code one thing and print the answer: `claude -p`, as a session that can be watched.

    Prompts, flags, output and exit codes are those of claude -p. While it works, 'remuda ls' shows the call
    and 'remuda attach' opens it. It never hangs: every wait has an end, and says what it waited for.

    Standard input is read as well, behind the prompt, if anything comes there within three seconds.

    \b
    Examples:
      remuda print "what does this repository do?"
      git diff | remuda print "review this" --output-format json
      remuda print "run the tests" --allowedTools Bash --timeout 600
      remuda print "deploy" --ask                  leave permissions to whoever attaches
      remuda print "summarise" --backend stream    no terminal: faster, exact
      remuda print "summarise" --pool              an agent that is warm already: faster still

    \b
    Beside the flags of claude -p (docs/print.md has them all):
      --backend terminal|stream        how the agent runs
      --input-file FILE                read the prompt from there
      --timeout SECONDS                end the call after so long (3600)
      --first-output-timeout SECONDS   … when the agent has printed nothing at all (90)
      --stop-hook-timeout SECONDS      … when its turn is over and nobody tells (120)
      --claude-binary PATH             the program to run
      --ask                            a permission waits for a human, it is not refused
      --pool[=SOCKET]                  through 'remuda pool serve': warm; cold where none is served
      --keep                           leave the session running, for attach and send
      --no-inherit-hooks               your own hooks do not fire
      --pretrust-cwd                   write down that this folder is trusted
      --show-child-output              on a timeout, show the agent's screen
      --config FILE                    defaults: model, inherit_hooks, max_turns, timeout_secs
      --trace                          what happens when, on standard error
      --check                          try everything but the agent itself; needs no account
      --check --clean                  … and remove what is left of calls that were killed

    \b
    Exit codes:
      0 answered · 1 the agent failed or refused · 2 wrong flags, or an internal error
      4 no prompt, or one that cannot be given · 124 a limit ran out · 130 interrupted
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
    from remuda.oneshot.request import parse
    from remuda.oneshot.run import run
    from remuda.pool.printing import through_pool

    request = parse(list(words))
    if request.wants == "help":
        click.echo(ctx.get_help())
        return 0
    return run(request, through_pool=through_pool)
