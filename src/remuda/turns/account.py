"""The limits of an account, shared by all keepers of this user: a limit that one hits holds for all.

Each account has a small file under `<home>/accounts`, named by a digest: until when, and why. A second file
has the digest that other machines of a fleet know it by.
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
        self.shared_path = folder / f"{name}.shared"
        """Has its name on all machines."""
        self._seen: tuple[int, int] | None = None
        self._until = 0.0
        self.reason = ""

    def limited_for(self, now: float) -> float:
        """Return the seconds for which nothing should be sent; 0 without a known limit."""
        self._read()
        left = self._until - now
        return left if 0 < left <= _LONGEST else 0.0

    def limited_until(self, now: float) -> float | None:
        """Return the end of the limit in seconds since the epoch; None without a known limit."""
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

    def share(self, shared: str) -> None:
        """Note under which name other machines know this account."""
        if shared and not self.shared_path.exists():
            private_folder(self.path.parent)
            durable.replace_file(self.shared_path, shared.encode())

    def limit(self, until: float, reason: str) -> None:
        """Note a limit. The later of two counts, except one that is too far in the future."""
        until = finite(until)
        self._read()
        if until <= self._until <= until + _LONGEST:
            return
        private_folder(self.path.parent)
        durable.replace_file(self.path, dump_json({"until": round(until, 3), "reason": reason}).encode())
