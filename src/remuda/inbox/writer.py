"""Appending to an inbox that others append to as well, and being sure of it.

A put is an fsync and what Python does around it, which on a quick disk is no small part: here nothing is
looked at twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from . import stop_hook, writer_lock
from .compaction import WRITER_LOCK, FileLock
from .stop_hook import Files

_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_TORN_LOOK = 0.05
_SIGURG = 23  # `signal` is not imported for it: every command that puts a message imports this module


class Writer:
    """Of one inbox. Whoever appends holds `lock()`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._path = files.inbox
        self._lock = f"{files.folder}/{WRITER_LOCK}"
        self.synced: tuple[int, int] | None = None
        """The file whose name, with that of its folder, is known to be on the disk."""
        self._left: tuple[int, int, int, int] | None = None
        """Which file the last put left, how long and when: while it is so, a line of ours is its last."""

    def lock(self) -> FileLock:
        return FileLock(self._lock)

    def close(self) -> None:
        writer_lock.drop(self._lock)

    def put(self, line: bytes) -> None:
        lock = writer_lock.take(self._lock)
        try:
            self.append(line)
        finally:
            writer_lock.give_back(self._lock, lock)

    def append(self, line: bytes) -> int:
        """On the disk, with its name; where its line ends. Raises FileNotFoundError when the file went."""
        fd = os.open(self._path, _APPEND, 0o600)
        try:
            found = os.fstat(fd)
            as_left = self._left == (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            data = line if as_left or not _is_torn(fd, found) else b"\n" + line
            # In one write, so that no other writer's line can get into it. On a full disk part of it stays
            # behind: a broken envelope, which no consumer hands out.
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._files.durable:
                os.fsync(fd)
            # While it is open: the number of a file that is gone may be another's at once.
            there = os.stat(self._path)
            end = found.st_size + len(data)
            if there.st_ino == found.st_ino and there.st_dev == found.st_dev and there.st_size == end:
                self._left = (found.st_dev, found.st_ino, end, there.st_mtime_ns)
            else:
                self._left, end = None, self._look_again(fd, there, line)
        finally:
            os.close(fd)
        if self.synced != (found.st_dev, found.st_ino):
            # Whoever made the file, a foreign writer or one that was killed, may not have done this.
            self._files.sync()
            self.synced = (found.st_dev, found.st_ino)
        self._files.crossed(end - len(data), end)
        return end

    def _look_again(self, fd: int, there: os.stat_result, line: bytes) -> int:
        """Others were at it meanwhile. Where the line ends, which is not where it was to be expected."""
        if not os.path.samestat(os.fstat(fd), there) and not self.is_in_place(line):
            # It was removed or replaced: what was written there nobody will read.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.lseek(fd, 0, os.SEEK_CUR)

    def is_in_place(self, line: bytes) -> bool:
        """Whether the file of now has it too, and for good: an editor may have read it and saved its own."""
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if line not in stop_hook.read_all(fd):
                return False
            os.fsync(fd)
            return True
        finally:
            os.close(fd)


def _is_torn(fd: int, found: os.stat_result) -> bool:
    """Whether the last line has no end. A writer who is at it is given the time to end it."""
    if _ends(fd, found.st_size):
        return False
    deadline = time.monotonic() + stop_hook.TORN_GRACE
    while time.time() - found.st_mtime < stop_hook.TORN_GRACE and time.monotonic() <= deadline:
        time.sleep(_TORN_LOOK)
        found = os.fstat(fd)
        if _ends(fd, found.st_size):
            return False
    return True


def _ends(fd: int, size: int) -> bool:
    return not size or os.pread(fd, 1, size - 1) in (b"\n", b"\0")


def has_writer(path: str) -> bool:
    """Whether somebody has this file open for writing. False also where the system cannot tell."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A lease is given for a file that nobody writes to. Whoever opens it meanwhile waits for its end, and
        # we are sent a signal: one that nobody minds (SIGURG), and not SIGIO, which would end us.
        fcntl.fcntl(fd, fcntl.F_SETSIG, _SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except (OSError, AttributeError):  # a filesystem, or a system, without leases
        pass
    finally:
        os.close(fd)
    return False
