"""What agents say of themselves in their registry: one file for each process, rewritten when it changes.

A file of a process that was killed stays behind, and its number may come to mean another: a file counts
while the process lives that wrote it. One that is removed was removed by its own process, at its end; that of
a background agent says nothing of the agent's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from remuda.agents.claude.attention import is_background, registry_events
from remuda.durable import read_regular
from remuda.proctree import is_alive, start_ticks
from remuda.untrusted import BadJson, parse_object

from ..attention.model import Event, EventKind, Source
from .watches import Watches

Document = dict[str, Any]


class Registry:
    """`tell` hears events as they come; `skips` says of which processes others tell."""

    def __init__(
        self, watches: Watches, tell: Callable[[list[Event]], None], skips: Callable[[int], bool]
    ) -> None:
        self._watches = watches
        self._tell = tell
        self._skips = skips
        self._folders: dict[Path, int | None] = {}
        self._known: dict[Path, Document] = {}
        self._seen: dict[Path, tuple[int, int]] = {}

    def add_folder(self, folder: Path, now: float) -> None:
        """Also one that does not exist yet: it is looked for at times."""
        if folder not in self._folders:
            self._folders[folder] = None
            self.look(folder, now)

    def look(self, folder: Path, now: float) -> None:
        if self._folders[folder] is None:
            self._folders[folder] = self._watches.folder(folder, lambda name: self._changed(folder, name))
        names = {name for name in _listed(folder) if _pid_of(name)}
        for name in sorted(names):
            self._read(folder / name)
        for path in [one for one in self._known if one.parent == folder and one.name not in names]:
            self._gone(path, now)

    def look_at_all(self, now: float) -> None:
        for folder in self._folders:
            self.look(folder, now)

    def document(self, pid: int) -> Document | None:
        """What a living process says of itself now."""
        found = (self._known.get(folder / f"{pid}.json") for folder in self._folders)
        return next((known for known in found if known is not None), None)

    def has_session(self, session_id: str) -> bool:
        """Whether a living process is in that conversation."""
        return any(known.get("sessionId") == session_id for known in self._known.values())

    def forget(self, pid: int) -> None:
        """It was killed: whoever takes its file away says nothing of it."""
        for path in [path for path, known in self._known.items() if known.get("pid") == pid]:
            del self._known[path]

    def has_file(self, pid: int) -> bool:
        return any((folder / f"{pid}.json").exists() for folder in self._folders)

    def _changed(self, folder: Path, name: str) -> None:
        if not name:
            self.look(folder, time.time())
        elif _pid_of(name):
            path = folder / name
            if path.exists():
                self._read(path)
            else:
                self._gone(path, time.time())

    def _read(self, path: Path) -> None:
        try:
            found = os.stat(path)
            if self._seen.get(path) == (found.st_ino, found.st_mtime_ns):
                return
            document = parse_object(read_regular(path, own=True))
        except (OSError, BadJson):  # half written: its next change tells
            return
        if not is_of_living(document, _pid_of(path.name)):
            return
        self._seen[path] = (found.st_ino, found.st_mtime_ns)
        if not self._skips(int(document["pid"])):
            self._known[path] = document
            self._tell(registry_events(document))

    def _gone(self, path: Path, now: float) -> None:
        self._seen.pop(path, None)
        document = self._known.pop(path, None)
        session_id = document.get("sessionId") if document else None
        if document and isinstance(session_id, str) and session_id and not is_background(document):
            number = f"registry:{document['pid']}:gone:{now}"
            facts = {"why": "its process said goodbye"}
            self._tell([Event(EventKind.ENDED, session_id, now, Source.REGISTRY, number, facts)])


def is_of_living(document: Document, pid: int | None) -> bool:
    if pid is None or document.get("pid") != pid or not is_alive(pid):
        return False
    began = document.get("procStart")
    return began is None or (now := start_ticks(pid)) is None or str(began) == now


def _pid_of(name: str) -> int | None:
    stem = name.removesuffix(".json")
    return int(stem) if name.endswith(".json") and stem.isdecimal() and len(stem) < 11 else None


def _listed(folder: Path) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except OSError:
        return
