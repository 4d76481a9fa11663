"""remuda dash"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper

import click

from remuda.boss.client import BossClient
from remuda.cli.common import configuration
from remuda.cli.open import start_boss
from remuda.errors import NotATerminal

from .feed import BossFeed


@click.command("dash")
@click.option("--local", is_flag=True, help="Show only agents of this machine, not of your fleet.")
def command(local: bool) -> int | None:
    """Show all agents on one screen: which ones wait, why, and what each is doing. Answer from there.

    On the left are the agents that wait for you, then all others. On the right is what the marked agent
    asks, its screen, its conversation, its messages with their receipts, and how its state is known.

    'a' then 'y' allows a permission request, 'n' then 'y' denies it. Enter opens the agent; Ctrl-\\ comes
    back. '/' filters, '?' lists all keys. Starts the boss if none runs.

    \b
    Examples:
      remuda dash
      remuda queue -i        the same
    """
    # Textual draws on standard error.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if os.environ.get("TERM") == "dumb":
        raise NotATerminal(
            "the dashboard cannot draw on this terminal: TERM is 'dumb'", hint="use 'remuda queue' instead"
        )
    if not all(one is not None and one.isatty() for one in streams):
        raise NotATerminal("the dashboard needs a terminal", hint="in a script use 'remuda queue --json'")
    start_boss(BossClient(), configuration(strict=False))
    feed = BossFeed(local=local)  # reads while Textual is being imported
    from .app import DashApp

    with _environment():
        app = DashApp(feed)
    app.run()
    return app.return_code or None


@contextmanager
def _environment() -> Iterator[None]:
    """Show Textual the environment as we read it, and programs that are run from here what it was."""
    before = dict(os.environ)
    for name in ("COLUMNS", "LINES"):  # the size of another terminal; Textual would draw for it
        os.environ.pop(name, None)
    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # an empty one means nothing
    if isinstance(sys.__stderr__, TextIOWrapper):
        sys.__stderr__.reconfigure(errors="replace")  # a locale without lines and arrows keeps the columns
    try:
        yield
    finally:
        if before.get("NO_COLOR"):
            os.environ["NO_COLOR"] = before["NO_COLOR"]  # Textual takes it away
