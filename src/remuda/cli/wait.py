"""remuda wait"""

from __future__ import annotations

from pathlib import Path

import click

from remuda.inbox.receipts import Trace
from remuda.keeper.rest import wait_for_rest

from .common import folder_option, json_option, time_span
from .inbox_target import Target, complete_inbox, find_what
from .output import echo, print_json
from .receipt import wait_for_end
from .redraw import Progress


@click.command("wait")
@click.argument("what", metavar="NAME|ID", shell_complete=complete_inbox)
@click.option("--timeout", type=time_span, metavar="TIME", help="Stop waiting after TIME (90, 45m, 2h30m).")
@click.option("--inbox", "path", type=click.Path(path_type=Path), help="Search this inbox for the message.")
@folder_option
@json_option
def command(what: str, timeout: float | None, path: Path | None, folder: Path | None, as_json: bool) -> int:
    """Wait until a message has ended, and print the answer; or until a session is idle and its inbox empty.

    The beginning of a NAME or an ID is enough. If the message has ended already, wait returns at once.

    \b
    Examples:
      remuda wait work --timeout 10m
      remuda wait m19a8c27f3b1-0d4be1f6a2
    """
    return wait_for(find_what(what, path, folder), timeout, as_json=as_json)


def wait_for(found: Target | Trace, timeout: float | None, *, as_json: bool) -> int:
    """Wait for the end of a message, or until a session is idle and its inbox is empty."""
    if isinstance(found, Trace):
        return wait_for_end(found.id, [found.folder], timeout, as_json=as_json)
    assert found.session is not None
    name = found.session
    with Progress() as progress:
        document = wait_for_rest(
            name,
            found.folder.parent,
            timeout,
            lambda why: progress.say(f"waiting until '{name}' is idle and its inbox empty; now {why}"),
        )
    if as_json:
        print_json(document)
    else:
        echo(str(document["state"]))
    return 0
