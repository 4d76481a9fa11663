"""remuda down"""

from __future__ import annotations

import os
import signal

import click

from remuda.boss.folder import BossFolder
from remuda.boss.lock import find_holder, wait_until_free
from remuda.errors import BossDown

from .common import json_option, print_json, seconds

_LONGEST = 15.0


@click.command("down")
@click.option("--force", is_flag=True, help="Kill it at once. It loses nothing by that either.")
@click.option(
    "--timeout", type=seconds, default=_LONGEST, show_default=True, help="Seconds to wait for its end."
)
@json_option
def command(force: bool, timeout: float, as_json: bool) -> None:
    """End the boss. Sessions go on, and what happens meanwhile is in the queue when it is started again.

    \b
    Examples:
      remuda down
      remuda down && remuda up --detach
    """
    path = BossFolder.default().lock
    holder = find_holder(path)
    if holder is None or not holder.pid:
        raise BossDown("the boss does not run")
    try:
        os.kill(holder.pid, signal.SIGKILL if force else signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended by itself
    wait_until_free(path, timeout)
    if as_json:
        print_json({"pid": holder.pid})
        return
    click.echo(f"the boss (pid {holder.pid}) has ended")
