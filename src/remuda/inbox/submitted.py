"""A consumer that is also handed messages directly, by a client of its keeper, without the inbox file.

For inboxes that are not durable and whose messages are tried once: a message is lost if its keeper dies, as
its folder is then removed. Receipts, answers and dead letters are written as for every other message.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import stop_hook
from .consumer import Ahead, Consumer, Leased
from .message import Message, TakenBack, make_message
from .stop_hook import Lock, iso_time


@dataclass(slots=True)
class _Submitted:
    message: Message
    leased: Leased
    accepted: bool = False
    """Whether its receipt has begun."""


class SubmittedMessages(Consumer):
    """`submit` may be called from another thread than the rest."""

    def __init__(self, folder: Path, who: str) -> None:
        super().__init__(folder, who, durable=False)
        self._waiting: deque[_Submitted] = deque()
        self._in_flight: _Submitted | None = None

    def submit(self, prompt: str, message_id: str, *, command: bool = False) -> None:
        """Accept a message that is handed out before those in the file.

        Raises `InputError` or `InvalidOptions`, as `Inbox.put` does.
        """
        message = make_message(prompt, message_id=message_id, command=command)
        fields = {"command": True} if command else {}
        self._waiting.append(_Submitted(message, Leased(message.id, prompt, 1, fields)))

    # ── handing out ──

    def ahead(self) -> Ahead:
        return Ahead(True) if self._waiting else super().ahead()

    def lease(self, transport: str, **facts: Any) -> Leased | None:
        if not self._waiting:
            return super().lease(transport, **facts)
        submitted = self._waiting[0]
        self._receipt(submitted, "written", transport=transport)  # may fail: then this is called again
        submitted.leased = replace(submitted.leased, leased_at=time.time(), facts=facts)
        self._in_flight = self._waiting.popleft()
        return submitted.leased

    def orphan(self) -> Leased | None:
        return super().orphan() if self._in_flight is None else self._in_flight.leased

    def cancel(self, message: str, reason: str) -> TakenBack:
        if self._find(message) is not None:
            return "in flight"
        for submitted in list(self._waiting):
            if submitted.message.id == message:
                self._receipt(submitted, "dropped", reason=reason)
                self._waiting.remove(submitted)
                return "dropped"
        return super().cancel(message, reason)

    def note_unwanted(self, leased: Leased) -> None:
        if self._find(leased.id) is None:
            super().note_unwanted(leased)

    # ── on its way ──

    def note(self, leased: Leased, stage: str, **facts: Any) -> None:
        submitted = self._find(leased.id)
        if submitted is None:
            super().note(leased, stage, **facts)
        else:
            self._receipt(submitted, stage, **facts)

    # ── the end ──

    def acknowledge(self, leased: Leased, text: str, **facts: Any) -> None:
        submitted = self._find(leased.id)
        if submitted is None:
            super().acknowledge(leased, text, **facts)
            return
        with Lock(self._files):
            stop_hook.HookInbox(self._files).answer(leased.id, {"last_assistant_message": text, **facts})
        self._end(submitted, "acked")

    def give_back(self, leased: Leased, delay: float, reason: str, *, counts: bool, **facts: Any) -> str:
        if self._find(leased.id) is None:
            return super().give_back(leased, delay, reason, counts=counts, **facts)
        self.bury(leased, reason, **facts)  # it is tried once
        return "dead"

    def put_back(self, leased: Leased, reason: str = "the session was no longer ready") -> None:
        submitted = self._find(leased.id)
        if submitted is None:
            super().put_back(leased, reason)
            return
        self._receipt(submitted, "nacked", reason=reason, due=time.time())
        self._in_flight = None
        submitted.leased = replace(submitted.leased, attempt=leased.attempt + 1)
        self._waiting.appendleft(submitted)

    def bury(self, leased: Leased, reason: str, **facts: Any) -> None:
        submitted = self._find(leased.id)
        if submitted is None:
            super().bury(leased, reason, **facts)
            return
        line = submitted.message.line.decode().rstrip("\n")
        letter = {
            "delivered_at": iso_time(),
            "end_offset": 0,
            "entry_id": stop_hook.digest(line),
            "raw_line": line,
            "start_offset": 0,
            "reason": reason,
        }
        with Lock(self._files):
            self._files.append(self._files.dead_letters, letter)
        self._end(submitted, "dead", reason=reason, **facts)

    def drop(self, leased: Leased, reason: str, **facts: Any) -> None:
        submitted = self._find(leased.id)
        if submitted is None:
            super().drop(leased, reason, **facts)
        else:
            self._end(submitted, "dropped", reason=reason, **facts)

    # ── within ──

    def _find(self, message: str) -> _Submitted | None:
        """Return the submitted message that is in flight, if it has this id."""
        submitted = self._in_flight
        return submitted if submitted is not None and submitted.message.id == message else None

    def _end(self, submitted: _Submitted, stage: str, **facts: Any) -> None:
        self._receipt(submitted, stage, **facts)
        self._in_flight = None

    def _receipt(self, submitted: _Submitted, stage: str, **facts: Any) -> None:
        message, attempt = submitted.message, submitted.leased.attempt
        receipts = [{"id": message.id, "stage": stage, "at": time.time(), "attempt": attempt, **facts}]
        if not submitted.accepted:
            receipts.insert(0, {"id": message.id, "stage": "accepted", "at": message.sent_at})
        with Lock(self._files):
            self._files.append_all(self._files.receipts, receipts)
        submitted.accepted = True
