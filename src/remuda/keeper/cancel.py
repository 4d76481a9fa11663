"""Cancel a message, interrupt the running turn, or wait until a session rests, from outside the keeper.

If a keeper runs, it does so: only the keeper knows whether a message is being typed at this moment. Without a
keeper the files say what is waiting. The outcome is read from the receipts, never guessed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from remuda.agents.state import AT_REST
from remuda.duration import show_duration
from remuda.errors import (
    InboxBusy,
    InvalidOptions,
    MessageNotFound,
    NotSafe,
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    WaitTimeout,
)
from remuda.frozen import frozen
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import Trace, follow, trace
from remuda.inbox.stop_hook import UNWANTED
from remuda.paths import SessionPaths
from remuda.wire import connection as wire

from .claim import read_holder
from .client import KeeperClient
from .elsewhere import why_closed

# ── cancelling ──

DEFAULT_CANCEL_TIMEOUT = 30.0
_LOOK_INTERVAL = 0.1
_UNWANTED_BEFORE = "no longer wanted"
"""What a keeper of 0.1 writes for the same."""


class Fate(StrEnum):
    """The outcome of a cancel."""

    TAKEN_BACK = "taken_back"
    """The agent never saw the message."""
    NOT_RETRIED = "not_retried"
    """The agent saw the message and failed; it will not be retried."""
    INTERRUPTED = "interrupted"
    """The agent saw the message, and its turn was stopped."""
    ANSWERED = "answered"
    """The message was answered before the cancel."""
    ENDED = "ended"
    """The message had another end, before or during the cancel; its receipt says which."""


@frozen
class Cancelled:
    """The outcome of `Session.cancel` or `interrupt`.

    `message` is None for a turn that was started at the terminal; `reason` is that of the receipt.
    """

    fate: Fate
    message: str | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return {"id": self.message, "outcome": str(self.fate), "reason": self.reason}


def cancel_message(
    inbox: Path, message: str, session: SessionPaths | None, timeout: float = DEFAULT_CANCEL_TIMEOUT
) -> Cancelled:
    """Cancel a message, or interrupt its turn, and return when its last receipt is on the disk.

    `session` is the one whose inbox this is. A second call is harmless. Raises `MessageNotFound`; `NotSafe`
    for a message in flight with an agent that no keeper has; `WaitTimeout` when its turn does not stop.
    """
    receipt = trace(inbox, message)
    if receipt is None:
        raise MessageNotFound(f"message '{message}' not found in {inbox}")
    if receipt.ended:
        return _fate(receipt, asked=False)
    deadline = time.monotonic() + timeout
    while True:
        left = max(0.0, deadline - time.monotonic())
        if session is not None and read_holder(session) is not None:
            last = _through_keeper(inbox, message, session, left)
        else:
            last = _without_keeper(inbox, message, kept=session is not None)
        if last is not None:
            return _fate(last, asked=True)
        if not left:
            raise WaitTimeout(f"message {message} could not be cancelled in time; try again")
        time.sleep(_LOOK_INTERVAL)  # a keeper is starting or ending right now


class _KeeperGone(Exception):
    pass


def _through_keeper(inbox: Path, message: str, session: SessionPaths, timeout: float) -> Trace | None:
    """Return the message at its end. None when the keeper ended before that."""

    def attend(_found: Trace) -> None:
        if read_holder(session) is None:
            raise _KeeperGone

    try:
        with KeeperClient.connect(session.name, session.folder) as client:
            client.request("interrupt", id=message)
    except (SessionDead, SessionNotFound, SessionUnreachable):
        if read_holder(session) is None:
            return None
        raise
    except InvalidOptions:  # it runs a plain command, which never gets messages: no keeper holds the inbox
        return _without_keeper(inbox, message, kept=False)
    try:
        *_, last = follow(inbox, message, timeout, attend)
    except _KeeperGone:
        return None
    except WaitTimeout:
        raise WaitTimeout(
            f"message {message} has not ended within {show_duration(timeout, precise=True)} of the interrupt",
            hint=f"'remuda show {session.name}' shows what the agent is doing",
        ) from None
    return last


def _without_keeper(inbox: Path, message: str, *, kept: bool) -> Trace | None:
    """Return the message at its end. None when a keeper has the inbox now."""
    journal = Inbox(inbox)
    try:
        outcome = journal.take_back(message)
        if outcome == "in flight" and kept:
            # Its keeper was killed. Whether the agent saw the message is unknown, so it is not handed out
            # again.
            journal.recover("deadletter")
    except InboxBusy:
        return None
    if outcome == "in flight" and not kept:
        raise NotSafe(
            f"message {message} is in flight with an agent that Remuda did not start",
            hint="interrupt the agent in its own terminal",
        )
    last = trace(inbox, message)
    if last is None or not last.ended:
        raise MessageNotFound(f"message {message} is no longer in {inbox}")
    return last


def _fate(receipt: Trace, *, asked: bool) -> Cancelled:
    """Read the outcome from the receipts. `asked`: it had not ended before."""
    reason = receipt.reason
    if receipt.stage == "acked":
        return Cancelled(Fate.ANSWERED, receipt.id)
    if asked and reason.startswith((UNWANTED, _UNWANTED_BEFORE)):
        seen = any(one["stage"] == "submitted" for one in receipt.steps)
        return Cancelled(Fate.NOT_RETRIED if seen else Fate.TAKEN_BACK, receipt.id, reason)
    ends = [one.get("end") for one in receipt.steps if one["stage"] == "ended"]
    if asked and ends[-1:] == ["interrupted"]:
        return Cancelled(Fate.INTERRUPTED, receipt.id, reason)
    return Cancelled(Fate.ENDED, receipt.id, f"{receipt.stage}: {reason}" if reason else receipt.stage)


def cancel_turn(name: str, folder: Path, timeout: float = DEFAULT_CANCEL_TIMEOUT) -> Cancelled | None:
    """Interrupt the running turn of a session. Returns None if no turn runs.

    Raises `NotSafe` when a dialog is open in which no turn runs, `WaitTimeout` when the turn does not stop,
    and what connecting can raise.
    """
    session = SessionPaths.of(name, folder)
    with KeeperClient.connect(name, session.folder) as client:
        status = client.request("watch")
        if status.get("delivery") is None:
            raise InvalidOptions(
                f"session '{name}' runs a plain command, which has no turns",
                hint=f"'remuda attach {name}' lets you press Ctrl-C, 'remuda kill {name}' ends it",
            )
        if status.get("state") in AT_REST and not (status.get("delivery") or {}).get("in_flight"):
            return None
        message = client.request("interrupt", turn=True).get("id")
        if message is not None:
            return cancel_message(session.inbox, str(message), session, timeout)
        _until_rest(client, timeout)
        return Cancelled(Fate.INTERRUPTED)


def _until_rest(client: KeeperClient, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    state = str(client.request("status")["state"])
    while state not in AT_REST:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"session '{client.name}' is still {state} after the interrupt")
        try:
            for event in client.receive(left):
                if isinstance(event, wire.EventReceived) and event.document.get("event") == "state":
                    state = str(event.document["state"])
        except EOFError:
            raise SessionDead(f"session '{client.name}' ended while it was being interrupted") from None


# ── waiting for rest ──

# Nothing reports a message that becomes due, or a lock that another process releases.
_REST_INTERVAL = 5.0


def wait_for_rest(
    name: str, folder: Path, timeout: float | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Return the session's status when it rests and its inbox has nothing due. `say` gets what it waits for.

    Raises `WaitTimeout`, `SessionDead` and what connecting can raise.
    """
    inbox = Inbox(SessionPaths.of(name, folder).inbox)
    with KeeperClient.connect(name, folder) as client:
        return wait_until_resting(client, lambda: _has_due(inbox), timeout, say)


def wait_until_resting(
    client: KeeperClient, has_due: Callable[[], bool], timeout: float | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """As `wait_for_rest`, on a connection. `has_due` says whether a message is due in its inbox."""
    deadline = None if timeout is None else time.monotonic() + timeout
    document = client.request("watch")
    while not (_is_at_rest(document) and not has_due()):
        say(_why(document))
        left = _REST_INTERVAL if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"session '{client.name}' is not idle: {_why(document)}")
        try:
            for _ in client.receive(min(left, _REST_INTERVAL)):
                pass
        except EOFError:
            lost = why_closed(client.tunnel) if client.tunnel is not None else None
            raise lost or SessionDead(f"session '{client.name}' ended before it was idle") from None
        document = client.describe()
    return document


def _is_at_rest(document: dict[str, Any]) -> bool:
    delivery = document.get("delivery") or {}
    return document.get("state") in AT_REST and not document.get("dissent") and not delivery.get("in_flight")


def _has_due(inbox: Inbox) -> bool:
    if not inbox.folder.is_dir():
        return False
    overview = inbox.overview()
    return overview.waiting > overview.delayed or overview.in_flight is not None


def _why(document: dict[str, Any]) -> str:
    state, delivery = str(document.get("state")), document.get("delivery")
    if not _is_at_rest(document):
        held = (delivery or {}).get("held")
        return f"{state}, {held}" if held else state
    if delivery is None:
        return f"{state}, messages wait: it runs a plain command, which cannot take messages"
    return f"{state}, messages wait: {delivery.get('held') or 'the next one is about to be delivered'}"
