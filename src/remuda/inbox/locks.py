"""The locks of an inbox besides that of the Stop hook: the consumer's, and the writers'.

A consumer that lives long, such as a keeper, holds the consumer lock for its lifetime. The Stop hook does
not: its runs alternate, and do nothing while another process holds this lock.

A writer holds the writers' lock for one put. Its file stays open between puts: opening it each time would be
a good part of what a put costs besides its fsync. The guarantees of the lock do not depend on that: one
thread at a time uses an open file, compares it with the file that has the name now, and does not share it
with a forked process. `lockfile.FileLock` on the same path is the same lock, opened each time.
"""

from __future__ import annotations

import os
from errno import EBADF
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path
from typing import NamedTuple

from remuda.errors import FolderUnusable, InboxBusy
from remuda.lockfile import try_lock
from remuda.paths import private_folder

from .stop_hook import Files, Lock, consumer_of, encode_json, open_file

_MAX_OPEN = 32
"""How many lock files stay open, of all inboxes that a process writes to."""


# ── the consumer's ──


class ConsumerLock:
    """The sole right to hand out the messages of an inbox, until `release` or the end of the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, folder: Path | str, who: str) -> ConsumerLock:
        """Lock the inbox without waiting. Raises `InboxBusy` with the name of the consumer that has it.

        `who` is the name that others see, such as "the keeper of session x".
        """
        folder = private_folder(Path(folder))
        files = Files(str(folder / "inbox.jsonl"))
        try:
            # With the Stop hook's lock: its runs probe ours only while they hold theirs, and a probe locks
            # the file for an instant.
            with Lock(files):
                return cls(_lock_consumer(files, who))
        except OSError as error:
            raise FolderUnusable(f"cannot write to the inbox {folder}: {error.strerror}") from error

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> ConsumerLock:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def find_consumer(folder: Path | str) -> str | None:
    """Return who hands out the messages of this inbox, with its pid; None if no live process does."""
    files = Files(str(Path(folder) / "inbox.jsonl"))
    if not os.path.exists(files.consumer):
        return None
    with Lock(files):
        return consumer_of(files)


def _lock_consumer(files: Files, who: str) -> int:
    fd = open_file(files.consumer, os.O_RDWR | os.O_CREAT)
    try:
        if not try_lock(fd):
            busy = consumer_of(files) or "another consumer"
            raise InboxBusy(f"the inbox {files.folder} is served by {busy}", hint="stop that consumer first")
        os.ftruncate(fd, 0)
        os.pwrite(fd, encode_json({"pid": os.getpid(), "who": who}).encode() + b"\n", 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


# ── the writers' ──


class OpenLock(NamedTuple):
    fd: int
    dev: int
    ino: int


_open_locks: dict[str, OpenLock] = {}
"""By path, while not in use: a thread that takes one removes it, which no two threads can do at once."""


def lock_writer(path: str) -> OpenLock:
    """Wait for the writers' lock. Raises FileNotFoundError if the folder is gone, also while waiting."""
    while True:
        kept = _open_locks.pop(path, None)
        file = kept or _open(path)
        try:
            flock(file.fd, LOCK_EX)
            there = os.stat(path)
            # Another process may have removed or replaced the file since.
            if there.st_ino == file.ino and there.st_dev == file.dev:
                return file
        except FileNotFoundError:
            pass
        except BaseException as error:
            if kept and isinstance(error, OSError) and error.errno == EBADF:
                continue  # a program that becomes a daemon closes all its descriptors
            os.close(file.fd)
            raise
        os.close(file.fd)


def unlock_writer(path: str, file: OpenLock) -> None:
    # Not by closing it: a process that was forked since has the file open too, and would keep the lock.
    flock(file.fd, LOCK_UN)
    if _open_locks.setdefault(path, file) is not file:  # another thread has put one back
        os.close(file.fd)
    if len(_open_locks) > _MAX_OPEN:
        _close_oldest()


def close_writer_lock(path: str) -> None:
    """Close the lock file that stays open between puts, if any."""
    file = _open_locks.pop(path, None)
    if file is not None:
        os.close(file.fd)


def _open(path: str) -> OpenLock:
    fd = open_file(path, os.O_RDWR | os.O_CREAT)
    created = os.fstat(fd)
    return OpenLock(fd, created.st_dev, created.st_ino)


def _close_oldest() -> None:
    try:
        close_writer_lock(next(iter(_open_locks)))
    except (RuntimeError, StopIteration):  # another thread has just taken one, or put one back
        pass


def _close_all() -> None:
    for path in list(_open_locks):
        close_writer_lock(path)


os.register_at_fork(after_in_child=_close_all)
