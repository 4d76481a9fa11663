"""Sessions that get no messages because a budget is used up: one file that the boss writes and keepers read.

It is on disk, so that a pause outlives the boss and the keeper. A session that it does not name is never
held, whether a boss runs or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda import durable
from remuda.durable import read_regular
from remuda.paths import home, private_folder
from remuda.untrusted import dump_json, finite, one_line, parse_object

_LONGEST = 400


def holds_file() -> Path:
    return home() / "budget" / "holds.json"


class Holds:
    """Read again whenever the file has changed."""

    def __init__(self, path: Path, name: str, folder: str) -> None:
        self.path = path
        self._name = name
        # Most agents report the folder that a link leads to, and the boss writes what they report.
        self._folders = {folder, os.path.realpath(folder)}
        self._seen: tuple[int, int] | None = None
        self._entries: list[dict[str, Any]] = []

    def reason(self, session_id: str | None, now: float) -> str:
        """Return why the session gets no message now; empty if it does."""
        self._read()
        for entry in self._entries:
            if (not entry.get("until") or now < finite(entry["until"])) and self._is_meant(entry, session_id):
                return one_line(str(entry.get("reason", "budget")))[:_LONGEST]
        return ""

    def _is_meant(self, entry: Mapping[str, Any], session_id: str | None) -> bool:
        if isinstance(folder := entry.get("folder"), str):
            others = entry.get("except")
            apart = [one for one in others if isinstance(one, str)] if isinstance(others, list) else []
            return self._is_in(folder) and not any(self._is_in(one) for one in apart)
        if session_id is None or entry.get("session") == f"kept:{self._name}":
            return entry.get("name") == self._name
        return entry.get("session") == session_id

    def _is_in(self, folder: str) -> bool:
        return any(one == folder or one.startswith(folder.rstrip("/") + "/") for one in self._folders)

    def _read(self) -> None:
        try:
            found = os.stat(self.path)
        except OSError:
            self._seen, self._entries = None, []
            return
        if (found.st_ino, found.st_mtime_ns) == self._seen:
            return
        self._seen = (found.st_ino, found.st_mtime_ns)
        self._entries = load_holds(self.path)


def load_holds(path: Path) -> list[dict[str, Any]]:
    """Return the entries; none for a file that is missing or was damaged."""
    try:
        entries = parse_object(read_regular(path)).get("holds")
    except (OSError, ValueError):
        return []
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def save_holds(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    private_folder(path.parent)
    durable.replace_file(path, dump_json({"holds": list(entries)}).encode())
