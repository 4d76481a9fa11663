"""What is left of calls, and of a pool's sessions, whose keeper was killed: finding it, and removing it.

Such a session ends with the process that began it, and its keeper removes all of it. Where both were killed,
or the keeper before its time, files of the session stay, and its agent has only lost its terminal.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from remuda.keeper.claim import read_holder, sweep_stale
from remuda.paths import SessionPaths
from remuda.proctree import is_alive, send_signal, with_variable

YOUNG = 60.0
_NAME = re.compile(r"(print-(\d+)-[0-9a-f]{6}|pool-[0-9a-f]{12})\.(?:json|log|log\.1|inbox|d|pid|sock)")
_POOLED = "pool-"
_GRACE = 1.5
_KILL_LIMIT = 2.0
_LOOK_INTERVAL = 0.02


def remains(folder: Path, *, older_than: float = 0.0) -> Iterator[SessionPaths]:
    """Sessions of calls and pools that are over, as far as anything is left of them."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    newest: dict[str, float] = {}
    for entry in entries:
        if (found := _NAME.fullmatch(entry)) and not (found[2] and is_alive(int(found[2]))):
            newest[found[1]] = max(newest.get(found[1], 0.0), _changed(folder / entry))
    for name, changed in sorted(newest.items()):
        paths = SessionPaths(folder, name)
        if time.time() - changed >= older_than and read_holder(paths) is None and _is_nobodys(paths):
            yield paths


def _is_nobodys(paths: SessionPaths) -> bool:
    """A call is known by its name alone. One that is named as a pool's may be a session of the user's."""
    if not paths.name.startswith(_POOLED):
        return True
    from remuda.keeper.record import SessionRecord

    record = SessionRecord.load(paths.record)
    return record is not None and record.ephemeral


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def sweep(folder: Path) -> None:
    """At the start of every call, and of a pool's session: what was left a while ago."""
    for paths in remains(folder, older_than=YOUNG):
        remove(paths)


def remove(paths: SessionPaths) -> None:
    """End what still runs of a session whose keeper is dead, and remove its files."""
    import shutil

    from remuda.keeper.record import remove_traces

    _end(paths.name)
    shutil.rmtree(paths.scratch, ignore_errors=True)
    remove_traces(paths)
    sweep_stale(paths)
    for left in (paths.pid, paths.socket, *paths.folder.glob(f".{paths.name}.*")):
        left.unlink(missing_ok=True)


def _end(name: str) -> None:
    """The end of its terminal was told to the agent, which ends by itself, in order; then nobody asks."""
    deadline = time.monotonic() + _GRACE
    while (left := list(processes_of(name))) and time.monotonic() < deadline + _KILL_LIMIT:
        for pid in left if time.monotonic() >= deadline else ():
            send_signal(pid, signal.SIGKILL)
        time.sleep(_LOOK_INTERVAL)


def processes_of(name: str) -> Iterator[int]:
    """All that the agent of that session started: each has the session's name in its environment."""
    return with_variable("REMUDA_SESSION", name)
