"""remuda down"""

from __future__ import annotations

import os
import signal

import click

from remuda.boss.folder import BossFolder
from remuda.boss.lock import find_holder, wait_until_free
from remuda.errors import BossDown

from .common import json_option, time_span
from .output import echo, print_json

_LONGEST = 15.0


@click.command("down")
@click.option("--force", is_flag=True, help="Kill it at once; nothing is lost.")
@click.option(
    "--timeout",
    type=time_span,
    metavar="TIME",
    default=_LONGEST,
    show_default=True,
    help="Wait up to TIME for it to stop.",
)
@json_option
def command(force: bool, timeout: float, as_json: bool) -> None:
    """Stop the boss. Sessions keep running, and the queue is complete again after its next start.

    \b
    Examples:
      remuda down
      remuda down && remuda up --detach
    """
    path = BossFolder.default().lock
    holder = find_holder(path)
    if holder is None or not holder.pid:
        raise BossDown("the boss is not running")
    try:
        os.kill(holder.pid, signal.SIGKILL if force else signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended by itself
    wait_until_free(path, timeout)
    if as_json:
        print_json({"pid": holder.pid})
        return
    echo(f"stopped the boss (pid {holder.pid})")
