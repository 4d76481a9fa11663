"""Wait until the agent of a new session has come up, or has died."""

from __future__ import annotations

import contextlib
import time

from remuda.errors import RemudaError, SessionDead
from remuda.paths import SessionPaths
from remuda.wire import connection as wire

from .claim import read_holder
from .client import KeeperClient
from .record import SessionRecord

START_LIMIT = 2.0
_END_LIMIT = 10.0


def has_died(paths: SessionPaths, limit: float = START_LIMIT) -> bool:
    """Wait until the agent has started, for `limit` seconds. Return whether it ended, and its keeper too."""
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            if not dies_at_start(client, limit):
                return False
            with contextlib.suppress(EOFError):
                deadline = time.monotonic() + _END_LIMIT
                while (left := deadline - time.monotonic()) > 0:
                    _next_state(client, left)
    except (EOFError, SessionDead):
        pass
    except RemudaError:
        # It may have ended during the request. If it hangs or is busy, that shows when it is used.
        if not _is_free_soon(paths):
            return False
    record = SessionRecord.load(paths.record)
    return record is not None and not record.came_up


def dies_at_start(client: KeeperClient, limit: float = START_LIMIT) -> bool:
    """Wait a limited time while the agent starts. Raises `EOFError` if its keeper has ended."""
    state = client.request("watch")["state"]
    deadline = time.monotonic() + limit
    while state == "starting" and (left := deadline - time.monotonic()) > 0:
        state = _next_state(client, left) or state
    return bool(state == "dead")


def _is_free_soon(paths: SessionPaths) -> bool:
    """Whether the keeper ends now: it closes its socket before the name is free."""
    deadline = time.monotonic() + START_LIMIT
    while read_holder(paths) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _next_state(client: KeeperClient, timeout: float) -> str:
    """Return the state in the next events, or an empty string. Raises `EOFError` if the keeper has ended."""
    state = ""
    for event in client.receive(timeout):
        if isinstance(event, wire.EventReceived):
            kind = event.document.get("event")
            state = "dead" if kind == "exited" else event.document["state"] if kind == "state" else state
    return state
