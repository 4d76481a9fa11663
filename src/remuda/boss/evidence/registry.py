"""What running agents write about themselves: a file for each process, rewritten when its status changes.

A file of a process that was killed stays, and its pid may come to mean another process. So a file counts only
while the process that wrote it is alive. A file that disappears was removed by its own process, at its end. A
background agent goes on after that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from remuda.agents.sources import AgentSources, RegistryEntry
from remuda.durable import read_regular
from remuda.proctree import is_alive, start_ticks
from remuda.untrusted import BadJson, parse_object

from ..attention.model import Event, EventKind, Source
from .watches import Watches


class AgentRegistry:
    """Reads the registries of all agents. `report` gets the events; `skips` says which pids have a keeper."""

    def __init__(
        self, watches: Watches, report: Callable[[list[Event]], None], skips: Callable[[int], bool]
    ) -> None:
        self._watches = watches
        self._report = report
        self._skips = skips
        self._folders: dict[Path, AgentSources] = {}
        self._watched: dict[Path, int | None] = {}
        self._entries: dict[Path, RegistryEntry] = {}
        self._seen: dict[Path, tuple[int, int]] = {}

    def add_folder(self, folder: Path, sources: AgentSources, now: float) -> None:
        """Watch a folder. One that does not exist yet is polled."""
        if folder not in self._folders:
            self._folders[folder] = sources
            self.poll_folder(folder, now)

    def poll_folder(self, folder: Path, now: float) -> None:
        if self._watched.get(folder) is None:
            self._watched[folder] = self._watches.folder(folder, lambda name: self._changed(folder, name))
        names = {name for name in _listed(folder) if _pid_of(name)}
        for name in sorted(names):
            self._read(folder / name)
        for path in [one for one in self._entries if one.parent == folder and one.name not in names]:
            self._gone(path, now)

    def poll(self, now: float) -> None:
        for folder in self._folders:
            self.poll_folder(folder, now)

    def entry(self, pid: int) -> RegistryEntry | None:
        """Return what a living process says about itself now."""
        entries = (self._entries.get(folder / f"{pid}.json") for folder in self._folders)
        return next((entry for entry in entries if entry is not None), None)

    def has_session(self, session_id: str) -> bool:
        """Whether a living process is in that conversation."""
        return any(entry.session_id == session_id for entry in self._entries.values())

    def forget(self, pid: int) -> None:
        """Its process was killed: when someone removes its file, that says nothing about the agent."""
        for path in [path for path, entry in self._entries.items() if entry.pid == pid]:
            del self._entries[path]

    def has_file(self, pid: int) -> bool:
        return any((folder / f"{pid}.json").exists() for folder in self._folders)

    def _changed(self, folder: Path, name: str) -> None:
        if not name:
            self.poll_folder(folder, time.time())
        elif _pid_of(name):
            path = folder / name
            if path.exists():
                self._read(path)
            else:
                self._gone(path, time.time())

    def _read(self, path: Path) -> None:
        try:
            status = os.stat(path)
            if self._seen.get(path) == (status.st_ino, status.st_mtime_ns):
                return
            entry = self._folders[path.parent].read_registry(parse_object(read_regular(path, own=True)))
        except (OSError, BadJson):  # half written: its next change is read
            return
        if entry is None or not is_of_living(entry, _pid_of(path.name)):
            return
        self._seen[path] = (status.st_ino, status.st_mtime_ns)
        if not self._skips(entry.pid):
            self._entries[path] = entry
            self._report([entry.event])

    def _gone(self, path: Path, now: float) -> None:
        self._seen.pop(path, None)
        entry = self._entries.pop(path, None)
        if entry is not None and not entry.outlives_process:
            event_id = f"registry:{entry.pid}:gone:{now}"
            facts = {"why": "its process said goodbye"}
            self._report([Event(EventKind.ENDED, entry.session_id, now, Source.REGISTRY, event_id, facts)])


def is_of_living(entry: RegistryEntry, pid: int | None) -> bool:
    """Whether the process `pid` is alive and wrote this entry."""
    if pid is None or entry.pid != pid or not is_alive(pid):
        return False
    start = start_ticks(pid)
    return entry.process_start is None or start is None or entry.process_start == start


def _pid_of(name: str) -> int | None:
    stem = name.removesuffix(".json")
    return int(stem) if name.endswith(".json") and stem.isdecimal() and len(stem) < 11 else None


def _listed(folder: Path) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except OSError:
        return
