"""Locks on files, by flock. A lock ends with its process, so it proves that its owner lives.

A probe (`is_locked`) takes a shared lock for a moment. An owner waits for such probes
(`acquire`). Between opening a file and locking it, its last owner may have removed it, so each lock is
compared with the file that has the name now (`is_at`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable

_PROBE_TIMEOUT = 2.0
_RETRY_INTERVAL = 0.002


def try_lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file. Returns False if another process has it."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def lock(fd: int) -> None:
    """Lock an open file. Waits for its owner."""
    fcntl.flock(fd, fcntl.LOCK_EX)


def is_locked(fd: int) -> bool:
    """Return whether an owner has the file locked. If not, this leaves a shared lock until `fd` is closed.

    Shared, so that probes do not disturb each other.
    """
    return not try_lock(fd, fcntl.LOCK_SH)


def acquire(path: str | os.PathLike[str], has_live_owner: Callable[[int], bool]) -> int | None:
    """Create the file if needed, lock it, and return its descriptor; None if an owner has it.

    While the file is locked and `has_live_owner(fd)` is False, this waits up to 2 s for a probe to end.
    Raises OSError if the file cannot be opened.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock_after_probes(fd, has_live_owner):
            os.close(fd)
            return None
        if is_at(fd, path):
            return fd
        os.close(fd)


def _lock_after_probes(fd: int, has_live_owner: Callable[[int], bool]) -> bool:
    deadline = time.monotonic() + _PROBE_TIMEOUT
    while not try_lock(fd):
        if has_live_owner(fd) or time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_INTERVAL)
    return True


def is_at(fd: int, path: str | os.PathLike[str]) -> bool:
    """Return whether the open file is still the one at `path`: it may have been removed or replaced."""
    here = os.fstat(fd)
    return file_identity(path) == (here.st_dev, here.st_ino)


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return device and inode of the file, None if it does not exist."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return None
    return there.st_dev, there.st_ino


class FileLock:
    """A lock that waits for its owner: `with FileLock(path, open_file)`."""

    def __init__(self, path: str, open_file: Callable[[str, int], int]) -> None:
        self._path = path
        self._open_file = open_file
        self._fd = -1

    def __enter__(self) -> None:
        """Wait for the lock. Raises FileNotFoundError if the folder is gone, also while waiting."""
        while True:
            self._fd = self._open_file(self._path, os.O_RDWR | os.O_CREAT)
            lock(self._fd)
            if is_at(self._fd, self._path):
                return
            os.close(self._fd)

    def __exit__(self, *exc: object) -> None:
        # Unlocked and not only closed: a process that was forked since has the file open too.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
