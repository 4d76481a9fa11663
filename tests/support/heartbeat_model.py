"""heartbeat-stop as its description states it, small and slow: what ours is compared with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

IDLE = "--- IDLE TICK ---"
Mode = Literal["drain", "persist"]
Policy = Literal["retry", "deadletter", "drop"]


@dataclass(frozen=True)
class Flight:
    start: int
    end: int
    raw: str

    @property
    def id(self) -> str:
        return hashlib.sha256(self.raw.encode()).hexdigest()

    @property
    def reason(self) -> str:
        """A line that is a JSON string is unwrapped, all else is verbatim."""
        try:
            text = json.loads(self.raw) if self.raw.startswith('"') else None
        except ValueError:
            text = None
        return text if isinstance(text, str) else self.raw


@dataclass
class Heartbeat:
    """One folder, and what each command does to it."""

    inbox: bytes | None = None
    offset: int | None = None
    flight: Flight | None = None
    responded: bool = False
    dead: list[Flight] = field(default_factory=list)
    signal: bool = False

    def tick(self, mode: Mode, *, with_signal: bool) -> str | None:
        """The reason of a block; None for an approval, which touches the signal file."""
        reason = self._reason(mode)
        if reason is None and with_signal:
            self.signal = True
        return reason

    def _reason(self, mode: Mode) -> str | None:
        if self.responded:
            if self.flight is None:
                return None  # an inconsistent state: fail open
            self.offset = max(self.offset or 0, self.flight.end)
            self.flight, self.responded = None, False
        found = self._next()
        if found is None:
            return IDLE if mode == "persist" else None
        self.flight, self.responded = found, True
        return found.reason

    def _next(self) -> Flight | None:
        """The complete rest is an entry when it has no end; a blank one moves the offset at once."""
        data = self.inbox or b""
        while (start := self.offset or 0) < len(data):
            newline = data.find(b"\n", start)
            end = len(data) if newline < 0 else newline + 1
            if raw := data[start:end].decode("utf-8", "replace").strip():
                return Flight(start, end, raw)
            self.offset = end
        return None

    def recover(self, policy: Policy) -> str:
        """What it prints."""
        flight, self.flight, self.responded = self.flight, None, False
        if flight is None:
            return "NothingToRecover"
        outcome = "StaleOrphanDeleted"
        if (self.offset or 0) < flight.end:
            outcome = {"retry": "ReQueued", "deadletter": "DeadLettered", "drop": "Dropped"}[policy]
            self.offset = flight.start if policy == "retry" else flight.end
            if policy == "deadletter":
                self.dead.append(flight)
        return f'{outcome} {{ entry_id: "{flight.id}" }}'

    def place(self, offset: int | None) -> int:
        """The first line from there on that is not blank: ours does not store the blank ones before it."""
        data, at = self.inbox or b"", offset or 0
        while at < len(data):
            newline = data.find(b"\n", at)
            end = len(data) if newline < 0 else newline + 1
            if data[at:end].decode("utf-8", "replace").strip():
                break
            at = end
        return at
