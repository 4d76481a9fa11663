"""The tools that send messages to sessions, follow them and take them back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from remuda.agents.state import WAITING, State
from remuda.errors import (
    BossDown,
    HostUnreachable,
    HubUnreachable,
    InvalidOptions,
    MessageNotFound,
    NotSafe,
    RemudaError,
    SessionDead,
    SessionUnreachable,
    WaitTimeout,
)
from remuda.inbox.message import new_id
from remuda.inbox.receipts import sender_of
from remuda.keeper.elsewhere import own_host
from remuda.paths import SessionPaths, sessions_folder
from remuda.session import Session
from remuda.tasks import Check
from remuda.untrusted import one_line

from .caller import find_session
from .documents import (
    Document,
    cancel_document,
    receipt_document,
    shown_lines,
    why_early,
    with_sender,
    with_sender_elsewhere,
)
from .reach import Reach
from .tool_list import DEFAULT_WAIT

_ENDING_TIMEOUT = 2.0
_LOOK_INTERVAL = 0.02
_PROGRESS_LINES = 6
_NO_WAY = (BossDown, HubUnreachable, HostUnreachable, SessionUnreachable, WaitTimeout)


class _Early(Exception):  # ends a wait; never leaves this module
    pass


class MessageTools:
    """`tools` has them by their names."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._told: dict[str, object] = {}
        """By session: since when it waits for a human, if a wait has reported that."""
        self.tools: Mapping[str, Callable[..., Document]] = {
            "send": self._send,
            "receipt": self._receipt,
            "cancel": self._cancel,
            "interrupt": self._interrupt,
            "wait": self._wait,
        }

    def _send(
        self, _check: Check, text: str, session: str | None = None, in_reply_to: str | None = None
    ) -> Document:
        if (session is None) == (in_reply_to is None):
            raise InvalidOptions(
                "give session or in_reply_to", hint="session for a session of yours, in_reply_to to reply"
            )
        if in_reply_to is not None:
            target = self._sender_session(in_reply_to)
        else:
            assert session is not None
            target = self._reach.find(session, "send").session
        self._reach.spend_message()
        message = self.put(target, text, in_reply_to)
        result: Document = {"session": target.name, "message": message}
        if target.host is not None:
            if target.receipt(message).stage == "sent":
                result["note"] = f"the message waits at the hub: {target.host} has not taken it yet"
        elif not target.alive:
            result["note"] = "the session has ended: the message waits until it is started"
        return result

    def put(self, session: Session, text: str, in_reply_to: str | None = None) -> str:
        if session.host is not None:
            whole = with_sender_elsewhere(self._reach.caller, own_host() or "", text)
            return session.send(whole, sender=self._reach.caller.id).id
        message = new_id(time.time())
        whole = with_sender(self._reach.caller, message, text, in_reply_to)
        session.send(whole, sender=self._reach.caller.id, message_id=message)
        return message

    def _sender_session(self, message: str) -> Session:
        """Return the session that sent a message to the caller."""
        own = find_session(self._reach.caller.id)
        sender = None if own is None else sender_of(SessionPaths(sessions_folder(), own.name).inbox, message)
        if sender is None:
            raise MessageNotFound(
                f"no agent sent you a message {one_line(message)[:80]!r}",
                hint="answer in your turn instead: the sender reads that",
            )
        record = find_session(sender)
        if record is None:
            raise NotSafe(
                f"the sender of {message} has no session", hint="answer in your turn: the sender reads that"
            )
        return Session(record.name, folder=sessions_folder())

    def _receipt(self, _check: Check, session: str, message: str) -> Document:
        reached = self._reach.find(session, "read", message)
        return receipt_document(session, reached.session.receipt(message))

    def _cancel(self, _check: Check, session: str, message: str) -> Document:
        reached = self._reach.find(session, "control", message)
        cancelled = reached.session.cancel(message)
        assert cancelled is not None
        return {"session": session, "message": message, **cancel_document(cancelled.document())}

    def _interrupt(self, _check: Check, session: str) -> Document:
        cancelled = self._reach.find(session, "control").session.interrupt()
        if cancelled is None:
            return {"session": session, "interrupted": False, "note": "no turn runs"}
        document = cancelled.document()
        return {
            "session": session,
            "interrupted": True,
            "message": document["id"],
            **cancel_document(document),
        }

    def _wait(
        self, check: Check, session: str, message: str | None = None, timeout: float = DEFAULT_WAIT
    ) -> Document:
        found = self._reach.find(session, "read", message)
        reached, state = found.session, ""

        def attend() -> None:
            nonlocal state
            check()
            state, since = self._state_of(reached)
            if state == State.DEAD:
                raise _Early
            # Once for each request: who waits again would else come back at once, again and again.
            if state in WAITING and self._told.get(session) != since:
                self._told[session] = since
                raise _Early

        why, is_over = "", False
        try:
            if message is None:
                attend()
                reached._wait_idle(timeout, attend)
                why, is_over = "the session is idle", True
            else:
                reached._wait(message, timeout, attend)
                why, is_over = "the message has ended", True
        except (WaitTimeout, _Early, SessionDead, SessionUnreachable):
            pass
        state = self._state_of(reached)[0]
        result: Document = {
            "session": session,
            "ended": is_over,
            "why": why or why_early(state),
            "state": state,
        }
        if message is not None:
            result |= receipt_document(session, reached.receipt(message))
            if result["ended"]:
                result["why"] = "the message has ended"
        # One that replied to the session may wait for its answer, and not read its screen.
        if not result["ended"] and self._reach.may_reach("read", found):
            result["progress"] = self._last_lines(reached)
        return result

    @staticmethod
    def _state_of(session: Session) -> tuple[str, object]:
        """Return the state, and since when."""
        try:
            status = session.status()
            return str(status["state"]), status.get("since")
        except SessionDead:
            return str(State.DEAD), None
        except RemudaError as error:
            if session.host is not None:
                if not isinstance(error, _NO_WAY):
                    raise
                return "unreachable", None
            # A keeper that ends answers no more, and still has its lock for a moment.
            deadline = time.monotonic() + _ENDING_TIMEOUT
            while session.alive and time.monotonic() < deadline:
                time.sleep(_LOOK_INTERVAL)
            return "unreachable" if session.alive else str(State.DEAD), None

    @staticmethod
    def _last_lines(session: Session) -> list[str]:
        try:
            return [line for line in shown_lines(session.screen()) if line.strip()][-_PROGRESS_LINES:]
        except RemudaError:
            return []
