"""Find and remove what calls, and workers of pools, left whose keeper was killed.

Such a session ends with the process that began it, and its keeper removes its files. If both were killed, or
the keeper first, files of the session stay, and its agent has only lost its terminal.
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
from remuda.proctree import is_alive

MIN_AGE = 60.0
"""Seconds since the last change of a session that is swept: a younger one may just be starting."""
_NAME = re.compile(r"(print-(\d+)-[0-9a-f]{6}|pool-[0-9a-f]{12})\.(?:json|log|log\.1|inbox|d|pid|sock)")
_GRACE = 1.5
_KILL_TIMEOUT = 2.0
_POLL_INTERVAL = 0.02


def leftovers(folder: Path, *, min_age: float = 0.0) -> Iterator[SessionPaths]:
    """Yield the sessions of calls and pools that are over and have left files."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    newest: dict[str, float] = {}
    for entry in entries:
        if (name := _NAME.fullmatch(entry)) and not (name[2] and is_alive(int(name[2]))):
            newest[name[1]] = max(newest.get(name[1], 0.0), _changed(folder / entry))
    for session, changed in sorted(newest.items()):
        paths = SessionPaths(folder, session)
        if time.time() - changed >= min_age and _is_over(paths):
            yield paths


def _is_over(paths: SessionPaths) -> bool:
    """Whether its record says that nothing of it should stay, no keeper has it, and no message waits.

    The keeper of a call may have been killed before it wrote a record. Such a session has no history, unlike
    a session of the user's.
    """
    from remuda.keeper.hidden import find_hidden_keeper, is_alive
    from remuda.keeper.record import SessionRecord

    if paths.record.exists():
        record = SessionRecord.load(paths.record)
        is_ours = record is not None and record.ephemeral and not is_alive(paths)
    else:
        is_kept = read_holder(paths) is not None or find_hidden_keeper(paths) is not None
        is_ours = paths.name.startswith("print-") and not paths.history.exists() and not is_kept
    return is_ours and not _has_messages(paths)


def _has_messages(paths: SessionPaths) -> bool:
    """Whether a message waits that is not the call's own prompt. True if unreadable."""
    if not paths.inbox.is_dir():
        return False
    from remuda.errors import RemudaError
    from remuda.inbox.journal import Inbox

    try:
        with Inbox(paths.inbox) as inbox:
            in_flight = inbox.overview().in_flight is not None
            return any(entry.id != paths.name for entry in inbox.waiting()[in_flight:])
    except (OSError, RemudaError):
        return True


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def sweep(folder: Path) -> None:
    """Remove old leftovers. Called at the start of every call, and of a pool's worker."""
    for paths in leftovers(folder, min_age=MIN_AGE):
        remove(paths)


def remove(paths: SessionPaths) -> None:
    """End what still runs of a session whose keeper is dead, and remove its files."""
    import shutil

    from remuda.keeper.record import remove_traces

    _end(paths)
    shutil.rmtree(paths.scratch, ignore_errors=True)
    remove_traces(paths)
    sweep_stale(paths)
    for left in (paths.pid, paths.socket, *paths.folder.glob(f".{paths.name}.*")):
        left.unlink(missing_ok=True)


def _end(paths: SessionPaths) -> None:
    """Wait for the agent, which ends in order when its terminal is gone. Then kill what is left."""
    from remuda.keeper.survivors import survivors_of

    deadline = time.monotonic() + _GRACE
    # Its keeper may have been killed before it wrote a record.
    while (left := survivors_of(paths, unrecorded=True)) and time.monotonic() < deadline + _KILL_TIMEOUT:
        for process in left if time.monotonic() >= deadline else ():
            process.signal(signal.SIGKILL)
        time.sleep(_POLL_INTERVAL)
