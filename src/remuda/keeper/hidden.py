"""Find keepers whose pid file or socket was removed, and let them restore these files.

A keeper is recognised by the lock that it holds, also when the file has no name any more. Linux only:
elsewhere none is found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from remuda.errors import SessionExists
from remuda.paths import SessionPaths
from remuda.process_table import Process, lock_holders, lock_name
from remuda.proctree import start_ticks

from .claim import already_running, live_names, read_holder

_SUFFIX = ".pid"
_LOOK_INTERVAL = 0.05
_RECALL_LIMIT = 3.0


# ── who lives ──


def is_alive(paths: SessionPaths) -> bool:
    """Return whether a keeper runs for it. All processes are searched only if its record has no end."""
    if read_holder(paths) is not None:
        return True
    return _is_open(paths) and find_hidden_keeper(paths) is not None


def living_names(folder: Path) -> list[str]:
    """Return the names of `live_names` and hidden ones. Reads no record of a session that has ended."""
    names = set(live_names(folder))
    others = {_name_of(path): removed for _, path, removed in _holders(folder, names.__contains__)}
    without_socket = [(name, removed) for name, removed in others.items() if name not in names]
    return sorted([*names, *(name for name, removed in without_socket if _is_hidden(folder, name, removed))])


def _is_hidden(folder: Path, name: str, removed: bool) -> bool:
    """Return whether a keeper without a socket is neither starting nor ending."""
    paths = SessionPaths(folder, name)
    if not removed or paths.record.exists():
        return _is_open(paths)
    # All its files were removed. One that ends does so too, and is gone at once.
    return find_hidden_keeper(paths) is not None


def keepers_in(folder: Path) -> set[str]:
    """Return the names of all sessions in `folder` that have a keeper, whatever is left of their files."""
    return {_name_of(path) for _, path, _ in _holders(folder)}


def _name_of(path: str) -> str:
    return Path(path).name.removesuffix(_SUFFIX)


def _is_open(paths: SessionPaths) -> bool:
    """Return whether the session's record has no end."""
    from .record import SessionRecord  # slow to load, and rarely needed

    record = SessionRecord.load(paths.record)
    return record is not None and record.ended_at is None


def _holders(
    folder: Path, but: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[Process, str, bool]]:
    """Yield each keeper with its pid file, and whether that was removed.

    `but`: names whose holders are not searched: 500 keepers have 10,000 descriptors.
    """
    where = os.path.realpath(folder)
    locks = _locks(folder, but)
    return (one for one in lock_holders(_SUFFIX, locks) if os.path.dirname(one[1]) == where)


def _locks(folder: Path, wanted: Callable[[str], bool]) -> set[str]:
    """Return the pid files of these names, as the kernel lists them in its locks."""
    try:
        device = os.stat(folder).st_dev
        with os.scandir(folder) as entries:
            return {
                lock_name(device, one.inode())
                for one in entries
                if one.name.endswith(_SUFFIX) and wanted(one.name.removesuffix(_SUFFIX))
            }
    except OSError:
        return set()


# ── one whose files were removed ──


def find_hidden_keeper(paths: SessionPaths) -> Process | None:
    """Return a living keeper of that name whose pid file or socket was removed."""
    for process, path, removed in _holders(paths.folder, lambda name: name != paths.name):
        if os.path.basename(path) == paths.pid.name and (removed or not paths.socket.exists()):
            return process
    return None


def recall(paths: SessionPaths) -> Process | None:
    """Let a hidden keeper restore its files. Returns the keeper, if any, whether it did or not."""
    hidden = find_hidden_keeper(paths)
    if hidden is None:
        return None
    import signal  # slow to load, and rarely needed

    hidden.signal(signal.SIGHUP)  # one of an older version ignores it
    deadline = time.monotonic() + _RECALL_LIMIT
    while not is_back(paths) and time.monotonic() < deadline:
        time.sleep(_LOOK_INTERVAL)
        if find_hidden_keeper(paths) is None and not is_back(paths):
            return None  # it was about to end
    return hidden


def is_back(paths: SessionPaths) -> bool:
    return read_holder(paths) is not None and paths.socket.exists()


def check_hidden(paths: SessionPaths) -> None:
    """Raise `SessionExists` when a keeper of that name runs whose files were removed. It restores them."""
    if (hidden := recall(paths)) is None:
        return
    if is_back(paths):
        raise already_running(paths)
    raise SessionExists(
        f"session '{paths.name}' still runs, but its files were removed (keeper {hidden.pid})",
        hint=f"'remuda kill {paths.name}' ends it",
    )


def end_hidden(paths: SessionPaths, timeout: float) -> bool:
    """End a keeper that cannot restore its files, in order. Returns whether there was one and it ended."""
    hidden = find_hidden_keeper(paths)
    if hidden is None:
        return False
    import signal

    hidden.signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while start_ticks(hidden.pid) == hidden.started and time.monotonic() < deadline:
        time.sleep(_LOOK_INTERVAL)
    return start_ticks(hidden.pid) != hidden.started
