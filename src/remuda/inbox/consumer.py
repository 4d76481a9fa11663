"""One live consumer of an inbox: leases the next message, writes down how far it got, ends it.

Every call takes the inbox's lock for as long as it lasts and leaves the files in a lawful state. They write
to the disk and may block: a keeper calls them from a thread of its own.
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
from .receipts import read_receipts
from .stop_hook import Files, Lock
from .waiting import TakenBack, take_back

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
    """What was written down with the lease."""

    @property
    def command(self) -> bool:
        return bool(self.fields.get("command"))

    @property
    def literal(self) -> bool:
        return bool(self.fields.get("literal"))

    @property
    def unwanted(self) -> bool:
        """Whether somebody took it back while it was in flight."""
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
        """Raises `InboxBusy` while another consumer lives."""
        if self._lock is None:
            self._lock = ConsumerLock.take(self.folder, self._who)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextmanager
    def _inbox(self, transport: str = "") -> Iterator[stop_hook.Inbox]:
        with Lock(self._files):
            inbox = stop_hook.Inbox(self._files, transport)
            try:
                inbox.open()
                yield inbox
            finally:
                self.notices += inbox.notices
                inbox.close()

    # ── handing out ──

    def ahead(self) -> Ahead:
        """A look that changes nothing a sender could see."""
        with self._inbox() as inbox:
            if inbox.reader is None:
                return Ahead(False)
            if (taken := inbox.queue.take(inbox.reader)) is not None:
                return Ahead(True, expires=stop_hook.number(taken[0].fields.get("expires")) or None)
            dues = [due for due in (inbox.queue.next_due(), self._torn_until(inbox)) if due is not None]
            return Ahead(False, min(dues, default=None))

    @staticmethod
    def _torn_until(inbox: stop_hook.Inbox) -> float | None:
        """A last line without its end counts after a while of quiet."""
        torn = inbox.reader is not None and inbox.reader.torn
        return time.time() + stop_hook.TORN_GRACE if torn else None

    def expire(self) -> None:
        """Bounce what waits to be next and has waited too long, though nothing can be handed out now."""
        unfinished = True
        while unfinished:
            with self._inbox() as inbox:
                inbox.next_entry()
                unfinished = inbox.unfinished
            stop_hook.let_others_in()

    def peek(self) -> Leased | None:
        """What `lease` would give now. Nothing is written down."""
        with self._inbox() as inbox:
            taken = None if inbox.reader is None else inbox.queue.take(inbox.reader)
            if taken is None or inbox.verdict(*taken) is not None:
                return None
            entry, attempt = taken
            return Leased(entry.id, entry.text, attempt, entry.fields)

    def lease(self, transport: str, **facts: Any) -> Leased | None:
        """The next message, in flight from now on. None when there is none that is due."""
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
        """What was in flight when the last consumer died."""
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

    def _is_over(self, inbox: stop_hook.Inbox, flight: stop_hook.Json) -> bool:
        """Whether the last consumer died at its end, with the cleaning up left to do; that is done here."""
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

    def _is_answered(self, inbox: stop_hook.Inbox, message: str) -> bool:
        """Whether its answer is the last in the outbox. A plain line's id may have been another's before."""
        said = inbox.files.last_line(inbox.files.outbox) or {}
        return (
            said.get("id") == message
            and "bounced" not in said
            and all(one.get("stage") not in stop_hook.FINAL for one in read_receipts(self.folder, message))
        )

    def _submitted(self, message: str, attempt: int) -> Mapping[str, Any] | None:
        """What the receipt of this attempt says."""
        found: Mapping[str, Any] | None = None
        for one in read_receipts(self.folder, message):
            if one.get("stage") in stop_hook.FINAL:  # of the other that had its id
                found = None
            elif one.get("stage") == "submitted" and one.get("attempt") == attempt:
                found = {key: one[key] for key in _CONVERSATION if one.get(key)}
        return found

    def tidy(self) -> None:
        """Give disk space back when the files have grown by some megabytes; if that fails, another time."""
        if self._files.grown:
            self._files.grown = False
            try:
                compact(str(self.folder))
            except (OSError, stop_hook.InboxError) as error:
                self.notices.append(f"cannot free disk space: {error}")

    def cancel(self, message: str, reason: str) -> TakenBack:
        """Drop one that waits. One that is in flight is not touched."""
        with self._inbox() as inbox:
            return take_back(inbox, message, reason)

    def note_unwanted(self, leased: Leased) -> None:
        """Write down that it is not to be tried again: also the consumer after a crash keeps to it."""
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
        """Answered. The answer is in the outbox before the message is gone from the inbox."""
        with self._inbox() as inbox:
            flight = inbox.in_flight()
            if flight is not None:
                inbox.answer(leased.id, {"last_assistant_message": text, **facts})
                inbox.acknowledge(flight)

    def give_back(self, leased: Leased, delay: float, reason: str, *, counts: bool, **facts: Any) -> str:
        """Due again after `delay`; the stage it is in now, `nacked` or `dead`."""
        with self._inbox() as inbox:
            flight = inbox.in_flight()
            if flight is None:
                return "gone"
            return inbox.nack(flight, delay, reason, count_attempt=counts, **facts)

    def put_back(self, leased: Leased, reason: str = "the session was no longer ready") -> None:
        """It was never handed over: as if it had not been leased."""
        with self._inbox() as inbox:
            flight = inbox.in_flight()
            if flight is not None:
                inbox.nack(flight, 0.0, reason, count_attempt=False)

    def bury(self, leased: Leased, reason: str, **facts: Any) -> None:
        """A dead letter: kept, listed, and redriven only on purpose."""
        with self._inbox() as inbox:
            flight = inbox.in_flight()
            if flight is not None:
                inbox.give_up(flight, reason, **facts)

    def drop(self, leased: Leased, reason: str, **facts: Any) -> None:
        with self._inbox() as inbox:
            flight = inbox.in_flight()
            if flight is not None:
                inbox.acknowledge(flight, "dropped", reason=reason, **facts)
