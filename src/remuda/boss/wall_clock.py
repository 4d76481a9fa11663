"""The wall clock, and by how much it was set."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from remuda.untrusted import BadJson, dump_json, finite, parse_object

from .attention.redate import AHEAD, UNSEEN, step

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def since_boot() -> float:
    """Return seconds of a clock that cannot be set. It runs on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Return "" on a system that has none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class WallClock:
    """Without a `steady` clock only a wall clock that was set back is noticed."""

    def __init__(
        self,
        read: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        boot: str = "",
    ) -> None:
        self._read = read
        self._steady = steady
        self._boot = boot
        self._offset = read() - steady() if steady is not None else 0.0
        self._latest = 0.0
        self._before = 0.0
        self._by = 0.0

    def look(self) -> tuple[float, float]:
        """Return the time, and by how much the clock was set since the last call (usually 0)."""
        now = self._read()
        if self._steady is None:
            by = step(now - self._latest - UNSEEN) if now < self._latest - AHEAD else 0.0
            self._latest = now if by else max(now, self._latest)
        else:
            by = step(now - self._steady() - self._offset)
            by = by if abs(by) > AHEAD else 0.0
            self._offset += by
        if by:
            self._before, self._by = now - by, by
        return now, by

    def corrected(self, at: float, now: float) -> float:
        """Correct a date from outside: it may be from before the clock was set."""
        if self._by > 0 and at <= self._before:
            return at + self._by
        if at > now + AHEAD and at + self._by <= now:
            return at + self._by
        return at

    # ── from one boss to the next ──

    def note(self) -> str:
        """Return a note for `set_since` of the next boss; "" if it would not help."""
        known = self._steady is not None and self._boot
        return dump_json({"boot": self._boot, "offset": self._offset}) if known else ""

    def set_since(self, note: str | None, newest: float) -> float:
        """Return by how much the clock was set since the note was made. `newest` is the latest date we know.

        The note shows both directions until the machine reboots. After that only dates ahead of the clock
        show that it was set back.
        """
        now, steady = self._read(), self._steady() if self._steady is not None else UNSEEN
        by = 0.0
        if self._boot and (stored := _read_note(note)).get("boot") == self._boot:
            by = self._offset - finite(stored.get("offset"), self._offset)
        elif newest > now + AHEAD:
            by = now - steady - newest
        if newest + by > now + AHEAD:
            by = now - UNSEEN - newest
        by = step(by) if abs(by) > AHEAD else 0.0
        if by:
            self._before, self._by = now - by, by
        return by


def _read_note(note: str | None) -> dict[str, Any]:
    try:
        return parse_object(note or "{}")
    except BadJson:
        return {}
