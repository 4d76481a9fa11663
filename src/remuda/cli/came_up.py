"""Whether an agent that was started got past its start, and if not, what it said."""

from __future__ import annotations

import contextlib
import time

from remuda.errors import RemudaError, SessionDead
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths
from remuda.wire import connection as wire

from .last_screen import show_last_screen

PLAIN_AGENTS = ("simple", "none")
"""What runs under these names is a command, which may well end at once."""
_START_LIMIT = 2.0
_END_LIMIT = 10.0


def check_came_up(paths: SessionPaths) -> None:
    """Return when the agent is past its start, or has not died for a while.

    Raises `SessionDead` for one that has ended before, when its last screen is printed.
    """
    if not _has_died(paths):
        return
    record = SessionRecord.load(paths.record)
    code = record.exit_code if record is not None else None
    show_last_screen(paths, err=True)
    raise SessionDead(
        f"'{paths.name}' ended before it was ready"
        + (f", with exit code {code}" if code is not None else ""),
        hint=f"'remuda logs {paths.name}' prints its output",
    )


def _has_died(paths: SessionPaths) -> bool:
    """Whether it ended in its start, and its keeper with it."""
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            state = client.request("watch")["state"]
            deadline = time.monotonic() + _START_LIMIT
            while state == "starting" and (left := deadline - time.monotonic()) > 0:
                state = _next_state(client, left) or state
            if state != "dead":
                return False
            with contextlib.suppress(EOFError):
                deadline = time.monotonic() + _END_LIMIT
                while (left := deadline - time.monotonic()) > 0:
                    _next_state(client, left)
    except (EOFError, SessionDead):
        pass
    except RemudaError:
        # It may have ended while it was asked. If it hangs or is busy, that shows when it is used.
        if not _is_free_soon(paths):
            return False
    record = SessionRecord.load(paths.record)
    return record is not None and not record.came_up


def _is_free_soon(paths: SessionPaths) -> bool:
    """Whether its keeper ends now: it hangs up before the name is free."""
    deadline = time.monotonic() + _START_LIMIT
    while read_holder(paths) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _next_state(client: KeeperClient, timeout: float) -> str:
    """What the next events say, empty when that is nothing. Raises `EOFError` when its keeper has ended."""
    state = ""
    for event in client.receive(timeout):
        if isinstance(event, wire.EventReceived):
            kind = event.document.get("event")
            state = "dead" if kind == "exited" else event.document["state"] if kind == "state" else state
    return state
