"""remuda wait"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from remuda.errors import MessageNotFound, SessionDead, SessionNotFound, WaitTimeout
from remuda.inbox.journal import Inbox
from remuda.keeper.client import KeeperClient
from remuda.names import is_name
from remuda.paths import SessionPaths

from .common import find_folder, folder_option, json_option, print_json
from .inbox_put import time_span
from .inbox_target import complete_inbox
from .progress import Progress
from .receipt import inbox_folders, wait_for_end

_RESTING = ("idle", "interrupted", "error", "limited")
# A message that waits for its time, or a lock of another process: nothing of ours tells of it.
_LOOK_INTERVAL = 5.0


@click.command("wait")
@click.argument("what", metavar="NAME|ID", shell_complete=complete_inbox)
@click.option("--timeout", type=time_span, metavar="TIME", help="Give up after so long.")
@click.option("--inbox", "path", type=click.Path(path_type=Path), help="Look for the message in this inbox.")
@folder_option
@json_option
def command(what: str, timeout: float | None, path: Path | None, folder: Path | None, as_json: bool) -> int:
    """Wait for the end of a message, or until a session is idle and its inbox is empty.

    A message that ended before you asked is told at once. Its answer is printed.

    \b
    Examples:
      remuda wait work --timeout 10m
      remuda wait m19a8c27f3b1-0d4be1f6a2
    """
    try:
        return wait_for_end(what, inbox_folders(path, folder), timeout, as_json=as_json)
    except MessageNotFound:
        if path is not None or not is_name(what):
            raise
    try:
        document = _until_drained(what, find_folder(folder), timeout)
    except SessionNotFound:
        raise MessageNotFound(
            f"there is no message and no session '{what}'", hint="'remuda ls' shows the sessions"
        ) from None
    if as_json:
        print_json(document)
    else:
        click.echo(str(document["state"]))
    return 0


def _until_drained(name: str, folder: Path, timeout: float | None) -> dict[str, Any]:
    deadline = None if timeout is None else time.monotonic() + timeout
    inbox = Inbox(SessionPaths.of(name, folder).inbox)
    with KeeperClient.connect(name, folder) as client, Progress() as progress:
        document = client.request("watch")
        while not (_rests(document) and not _has_due(inbox)):
            progress.say(f"{name}: {_why(document)}")
            left = _LOOK_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"session '{name}' is not at rest: {_why(document)}")
            try:
                for _ in client.receive(min(left, _LOOK_INTERVAL)):
                    pass
            except EOFError:
                raise SessionDead(f"session '{name}' ended while it was waited for") from None
            document = client.describe()
    return document


def _rests(document: dict[str, Any]) -> bool:
    delivery = document.get("delivery") or {}
    return document.get("state") in _RESTING and not document.get("dissent") and not delivery.get("in_flight")


def _has_due(inbox: Inbox) -> bool:
    if not inbox.folder.is_dir():
        return False
    overview = inbox.overview()
    return overview.waiting > overview.delayed or overview.in_flight is not None


def _why(document: dict[str, Any]) -> str:
    state, delivery = str(document.get("state")), document.get("delivery")
    if not _rests(document):
        held = (delivery or {}).get("held")
        return f"{state}, {held}" if held else state
    if delivery is None:
        return f"{state}, messages wait: it runs a plain command, which is never given any"
    return f"{state}, messages wait: {delivery.get('held') or 'the next is about to be handed over'}"
