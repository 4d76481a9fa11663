"""Wait until a session rests and nothing waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.errors import SessionDead, WaitTimeout
from remuda.inbox.journal import Inbox
from remuda.paths import SessionPaths

from .client import KeeperClient

_RESTING = ("idle", "interrupted", "error", "limited")
# Nothing reports a message that becomes due, or a lock that another process releases.
_LOOK_INTERVAL = 5.0


def wait_for_rest(
    name: str, folder: Path, timeout: float | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Return the session's status when it rests and its inbox has nothing due. `say` gets what it waits for.

    Raises `WaitTimeout`, `SessionDead` and what connecting can raise.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    inbox = Inbox(SessionPaths.of(name, folder).inbox)
    with KeeperClient.connect(name, folder) as client:
        document = client.request("watch")
        while not (_rests(document) and not _has_due(inbox)):
            say(_why(document))
            left = _LOOK_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"session '{name}' is not idle: {_why(document)}")
            try:
                for _ in client.receive(min(left, _LOOK_INTERVAL)):
                    pass
            except EOFError:
                raise SessionDead(f"session '{name}' ended before it was idle") from None
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
        return f"{state}, messages wait: it runs a plain command, which cannot take messages"
    return f"{state}, messages wait: {delivery.get('held') or 'the next one is about to be delivered'}"
