"""One live consumer of an inbox: leases the next message, records how far it got, ends it.

Every call holds the inbox's lock while it runs and leaves the files in a valid state. The calls write to the
disk and may block: a keeper makes them in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import stop_hook
from .compaction import compact
from .locks import ConsumerLock
from .message import TakenBack, take_back
from .receipts import read_receipts
from .stop_hook import Files, Lock

_CONVERSATION = ("session_id", "transcript_path")


@dataclass(frozen=True, slots=True)
class Leased:
    """A message that is ours to deliver, and is in flight until it is ended."""

    id: str
    text: str
    attempt: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    leased_at: float = 0.0
    submitted: bool = False
    """Whether a receipt says that the agent took it in this attempt."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was saved with the lease."""

    @property
    def command(self) -> bool:
        return bool(self.fields.get("command"))

    @property
    def literal(self) -> bool:
        return bool(self.fields.get("literal"))

    @property
    def unwanted(self) -> bool:
        """Whether it was cancelled while it was in flight."""
        return bool(self.facts.get("unwanted"))


@dataclass(frozen=True, slots=True)
class Ahead:
    """Whether a message could be leased now; if not, when the next one is due (wall clock)."""

    ready: bool
    next_due: float | None = None
    expires: float | None = None
    """When the time to live of the next message runs out."""


class Consumer:
    def __init__(self, folder: Path, who: str, *, durable: bool = True) -> None:
        self.folder = folder
        self._who = who
        self._files = Files(str(folder / "inbox.jsonl"), durable=durable)
        self._lock: ConsumerLock | None = None
        self.notices: list[str] = []

    def open(self) -> None:
        """Lock the inbox. Raises `InboxBusy` while another consumer lives."""
        if self._lock is None:
            self._lock = ConsumerLock.take(self.folder, self._who)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextmanager
    def _inbox(self, transport: str = "") -> Iterator[stop_hook.HookInbox]:
        with Lock(self._files):
            inbox = stop_hook.HookInbox(self._files, transport)
            try:
                inbox.open()
                yield inbox
            finally:
                self.notices += inbox.notices
                inbox.close()

    @contextmanager
    def _flight(self) -> Iterator[tuple[stop_hook.HookInbox, stop_hook.Json | None]]:
        """Open the inbox. Yields it with the message in flight, or None."""
        with self._inbox() as inbox:
            yield inbox, inbox.in_flight()

    # ── handing out ──

    def ahead(self) -> Ahead:
        """Check for a message. Changes nothing that a sender could see."""
        with self._inbox() as inbox:
            if inbox.reader is None:
                return Ahead(False)
            if (taken := inbox.queue.take(inbox.reader)) is not None:
                return Ahead(True, expires=stop_hook.number(taken[0].fields.get("expires")) or None)
            dues = [due for due in (inbox.queue.next_due(), self._torn_until(inbox)) if due is not None]
            return Ahead(False, min(dues, default=None))

    @staticmethod
    def _torn_until(inbox: stop_hook.HookInbox) -> float | None:
        """Return when a last line without its end counts, which is after some time without a write."""
        torn = inbox.reader is not None and inbox.reader.torn
        return time.time() + stop_hook.TORN_GRACE if torn else None

    def expire(self) -> None:
        """Bounce the next messages whose time to live is over, though nothing can be handed out now."""
        unfinished = True
        while unfinished:
            with self._inbox() as inbox:
                inbox.next_entry()
                unfinished = inbox.unfinished
            stop_hook.let_others_in()

    def peek(self) -> Leased | None:
        """Return what `lease` would return now. Nothing is saved."""
        with self._inbox() as inbox:
            taken = None if inbox.reader is None else inbox.queue.take(inbox.reader)
            if taken is None or inbox.verdict(*taken) is not None:
                return None
            entry, attempt = taken
            return Leased(entry.id, entry.text, attempt, entry.fields)

    def lease(self, transport: str, **facts: Any) -> Leased | None:
        """Return the next message, in flight from now on. None when none is due."""
        while True:
            with self._inbox(transport) as inbox:
                taken = inbox.next_entry()
                if taken is not None:
                    entry, attempt = taken
                    inbox.deliver(entry, attempt, transport=transport, **facts)
                    return Leased(entry.id, entry.text, attempt, entry.fields, time.time(), facts=facts)
                if not inbox.unfinished:
                    return None
            stop_hook.let_others_in()

    def orphan(self) -> Leased | None:
        """Return what was in flight when the last consumer died."""
        with self._inbox() as inbox:
            flight = inbox.in_flight()
            if flight is None:
                inbox.forget()
                return None
            if self._is_over(inbox, flight):
                return None
            lease = inbox.lease() or {}
            entry = inbox.entry_of(flight)
            message = str(lease.get("id") or entry.id)
            attempt = int(stop_hook.number(lease.get("attempt"))) or 1
            submitted = self._submitted(message, attempt)
            return Leased(
                id=message,
                text=entry.text,
                attempt=attempt,
                fields=entry.fields,
                leased_at=stop_hook.number(lease.get("at")),
                submitted=submitted is not None,
                facts={**(submitted or {}), **lease},
            )

    def _is_over(self, inbox: stop_hook.HookInbox, flight: stop_hook.Json) -> bool:
        """Return whether the last consumer died while it ended the message; if so, this completes the end."""
        lease = inbox.lease() or {}
        held = inbox.queue.find(int(flight["start_offset"]))
        returned = None if held is None else held.get("returned")
        acknowledged = held is None and inbox.queue.frontier >= int(flight["end_offset"])
        if acknowledged or (returned is not None and returned == lease.get("ticked")):
            inbox.forget()
            return True
        if inbox.finish(flight):
            return True
        if not self._is_answered(inbox, str(lease.get("id"))):
            return False
        inbox.acknowledge(flight)  # its answer is in the outbox
        return True

    def _is_answered(self, inbox: stop_hook.HookInbox, message: str) -> bool:
        """Return whether its answer is the last in the outbox.

        An earlier plain line may have had the same id.
        """
        last_answer = inbox.files.last_line(inbox.files.outbox) or {}
        return (
            last_answer.get("id") == message
            and "bounced" not in last_answer
            and all(one.get("stage") not in stop_hook.FINAL for one in read_receipts(self.folder, message))
        )

    def _submitted(self, message: str, attempt: int) -> Mapping[str, Any] | None:
        """Return the facts in the receipt of this attempt."""
        facts: Mapping[str, Any] | None = None
        for one in read_receipts(self.folder, message):
            if one.get("stage") in stop_hook.FINAL:  # of an earlier message with this id
                facts = None
            elif one.get("stage") == "submitted" and one.get("attempt") == attempt:
                facts = {key: one[key] for key in _CONVERSATION if one.get(key)}
        return facts

    def tidy(self) -> None:
        """Free disk space when the files have grown by some megabytes; if that fails, it is tried later."""
        if self._files.grown:
            self._files.grown = False
            try:
                compact(str(self.folder))
            except (OSError, stop_hook.InboxError) as error:
                self.notices.append(f"cannot free disk space: {error}")

    def cancel(self, message: str, reason: str) -> TakenBack:
        """Drop a waiting message. One that is in flight stays."""
        with self._inbox() as inbox:
            return take_back(inbox, message, reason)

    def note_unwanted(self, leased: Leased) -> None:
        """Save that it must not be retried: the next consumer after a crash obeys too."""
        with self._inbox() as inbox:
            lease = inbox.lease()
            if lease is not None and lease.get("id") == leased.id:
                self._files.replace(
                    self._files.lease, stop_hook.encode_json(lease | {"unwanted": True}).encode()
                )

    # ── on its way ──

    def note(self, leased: Leased, stage: str, **facts: Any) -> None:
        with self._inbox() as inbox:
            inbox.receipt(leased.id, stage, attempt=leased.attempt, **facts)

    # ── the end ──

    def acknowledge(self, leased: Leased, text: str, **facts: Any) -> None:
        """Acknowledge an answered message.

        The answer is in the outbox before the message leaves the inbox.
        """
        with self._flight() as (inbox, flight):
            if flight is not None:
                inbox.answer(leased.id, {"last_assistant_message": text, **facts})
                inbox.acknowledge(flight)

    def give_back(self, leased: Leased, delay: float, reason: str, *, counts: bool, **facts: Any) -> str:
        """Make it due again after `delay`. Returns the new stage, `nacked` or `dead`."""
        with self._flight() as (inbox, flight):
            if flight is None:
                return "gone"
            return inbox.nack(flight, delay, reason, count_attempt=counts, **facts)

    def put_back(self, leased: Leased, reason: str = "the session was no longer ready") -> None:
        """Undo the lease: the message was never handed over."""
        with self._flight() as (inbox, flight):
            if flight is not None:
                inbox.nack(flight, 0.0, reason, count_attempt=False)

    def bury(self, leased: Leased, reason: str, **facts: Any) -> None:
        """Make it a dead letter: kept, listed, and redriven only on request."""
        with self._flight() as (inbox, flight):
            if flight is not None:
                inbox.give_up(flight, reason, **facts)

    def drop(self, leased: Leased, reason: str, **facts: Any) -> None:
        with self._flight() as (inbox, flight):
            if flight is not None:
                inbox.acknowledge(flight, "dropped", reason=reason, **facts)
