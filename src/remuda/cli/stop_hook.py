"""remuda stop-hook"""

from __future__ import annotations

import sys

import click

_HELP = """Hand out the next message of an inbox. Claude Code runs this after every answer.

    It reads the Stop payload on standard input, counts the message in flight as answered, and prints either
    {"decision":"block","reason":…} with the next message, or nothing: the agent may stop. Flags, files and
    exit codes are heartbeat-stop's, under which name it is installed too.

    \b
    --inbox FILE           the inbox; required
    --mode drain|persist   when it is empty: let the agent stop (default), or wait for the next message
    --wait SECONDS         persist: wait so long, then one idle tick (540)
    --idle-tick            persist: one idle tick after --idle-interval SECONDS (2), as heartbeat-stop
    --signal-file FILE     touched when the agent may stop, for 'remuda launch --exit-signal'
    recover                settle what a dead session left in flight, before the next one
      --on-orphan deadletter|retry|drop   set it aside (default), hand it out again, or forget it

    'remuda hooks install' puts it into the settings in its fastest form.

    \b
    Examples:
      remuda stop-hook --inbox run/inbox.jsonl < /dev/null
      remuda stop-hook recover --inbox run/inbox.jsonl --on-orphan retry
    """


@click.command(
    "stop-hook",
    help=_HELP,
    options_metavar="[recover] --inbox FILE",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def command(words: tuple[str, ...]) -> int:
    return run_words(list(words))


def run_words(words: list[str]) -> int:
    """The program of `inbox/stop_hook.py` on these words; its exit code."""
    from remuda.inbox import stop_hook

    sys.argv = ["remuda stop-hook", *words]
    try:
        stop_hook.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
