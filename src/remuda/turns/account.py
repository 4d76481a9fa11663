"""The limits of an account, shared by all keepers of this user: who hits one tells the others.

One small file per account under `<home>/accounts`, named by a digest; it holds until when, and why.
"""

from __future__ import annotations

import os
from pathlib import Path

from remuda import durable
from remuda.durable import read_regular
from remuda.paths import private_folder
from remuda.untrusted import dump_json, finite, parse_object

_LONGEST = 8 * 24 * 3600.0


class Account:
    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / f"{name}.json"
        self._seen: tuple[int, int] | None = None
        self._until = 0.0
        self.reason = ""

    def limited_for(self, now: float) -> float:
        """Seconds for which nothing should be sent; 0 when there is no limit known."""
        self._read()
        left = self._until - now
        return left if 0 < left <= _LONGEST else 0.0

    def limited_until(self, now: float) -> float | None:
        """The same as a time (seconds since the epoch); None when there is no limit known."""
        return self._until if self.limited_for(now) else None

    def _read(self) -> None:
        try:
            found = os.stat(self.path)
        except OSError:
            self._until = 0.0
            return
        if (found.st_ino, found.st_mtime_ns) == self._seen:
            return
        self._seen = (found.st_ino, found.st_mtime_ns)
        try:
            document = parse_object(read_regular(self.path))
            self._until, self.reason = finite(document.get("until")), str(document.get("reason", ""))
        except (OSError, ValueError):
            self._until = 0.0

    def limit(self, until: float, reason: str) -> None:
        """The later of two limits holds; one that lies too far ahead to count is replaced."""
        until = finite(until)
        self._read()
        if until <= self._until <= until + _LONGEST:
            return
        private_folder(self.path.parent)
        durable.replace_file(self.path, dump_json({"until": round(until, 3), "reason": reason}).encode())
