"""The writers' lock (`compaction.FileLock`), for whoever takes it again and again.

Its file stays open from one put to the next: to open it anew would be a good part of what a put costs beside
its fsync. Nothing of what the lock promises depends on that: an open file is used by one thread at a time, is
compared with what has its name now, and is not shared with a process that was forked.
"""

from __future__ import annotations

import os
from errno import EBADF
from fcntl import LOCK_EX, LOCK_UN, flock
from typing import NamedTuple

from .stop_hook import open_file

_MOST = 32
"""So many files are kept open, of all inboxes that a process writes to."""


class LockFile(NamedTuple):
    fd: int
    dev: int
    ino: int


_kept: dict[str, LockFile] = {}
"""By path, while nobody uses them: whoever takes one takes it out, which no two threads can do at once."""


def take(path: str) -> LockFile:
    """Waits for it. Raises FileNotFoundError when the folder is gone, also while this waited."""
    while True:
        kept = _kept.pop(path, None)
        file = kept or _open(path)
        try:
            flock(file.fd, LOCK_EX)
            there = os.stat(path)
            # It may have been removed meanwhile, and another be in its place.
            if there.st_ino == file.ino and there.st_dev == file.dev:
                return file
        except FileNotFoundError:
            pass
        except BaseException as error:
            if kept and isinstance(error, OSError) and error.errno == EBADF:
                continue  # a program that makes itself a daemon closes all that is open
            os.close(file.fd)
            raise
        os.close(file.fd)


def give_back(path: str, file: LockFile) -> None:
    # Not by closing it: a process that was forked meanwhile has it open too, and would hold it for life.
    flock(file.fd, LOCK_UN)
    if _kept.setdefault(path, file) is not file:  # another thread's is there
        os.close(file.fd)
    if len(_kept) > _MOST:
        _drop_oldest()


def drop(path: str) -> None:
    """Keep this one open no longer."""
    file = _kept.pop(path, None)
    if file is not None:
        os.close(file.fd)


def _open(path: str) -> LockFile:
    fd = open_file(path, os.O_RDWR | os.O_CREAT)
    found = os.fstat(fd)
    return LockFile(fd, found.st_dev, found.st_ino)


def _drop_oldest() -> None:
    try:
        drop(next(iter(_kept)))
    except (RuntimeError, StopIteration):  # another thread has just taken one, or given one back
        pass


def _drop_all() -> None:
    for path in list(_kept):
        drop(path)


os.register_at_fork(after_in_child=_drop_all)
