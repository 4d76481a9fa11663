"""remuda stop-hook"""

from __future__ import annotations

import sys

import click

from remuda.inbox import stop_hook


@click.command(
    "stop-hook",
    help="\n\n".join(f"\b\n{paragraph}" for paragraph in stop_hook.HELP.split("\n\n")),
    options_metavar="[recover] --inbox FILE",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def command(words: tuple[str, ...]) -> int:
    return run_words(list(words))


def run_words(words: list[str]) -> int:
    """Run the program of `inbox/stop_hook.py` on these words and return its exit code."""
    sys.argv = ["remuda stop-hook", *words]
    try:
        stop_hook.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
