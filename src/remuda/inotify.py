"""The kernel's notifications of changed files, without waiting for them.

Linux only: callers poll elsewhere. This is what watchers share. They differ in how they wait: `keeper/watch`
has one file, which may not exist yet; `boss/evidence/watches` collects the changes of hundreds for a moment;
`inbox/receipts` and `keeper/history_stream` block, the latter also on a socket.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from errno import ENOENT, ENOSPC, ENOTDIR
from pathlib import Path

CLOSE_WRITE = 0x8
MODIFY, ATTRIB, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x2, 0x4, 0x80, 0x100, 0x200, 0x400, 0x800
OVERFLOW = 0x4000

_HEAD = struct.Struct("iIII")
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class Inotify:
    """Watches files. Raises `OSError` without inotify, or when the user's limit is reached."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("inotify is Linux's")
        import ctypes

        self._errno = ctypes.get_errno
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.inotify_init1(_FLAGS)
        if self.fd < 0:
            raise OSError(self._errno(), "inotify_init1")

    def add(self, path: Path, mask: int) -> int | None:
        """Watch a path. Returns the number of the watch; None if the path does not exist.

        Raises `OSError` for any other failure, such as the limit of watches: the path would not be watched.
        """
        watch: int = self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask)
        if watch >= 0:
            return watch
        code = self._errno()
        if code in (ENOENT, ENOTDIR):
            return None
        reason = "no more inotify watches are allowed" if code == ENOSPC else os.strerror(code)
        raise OSError(code, reason, str(path))

    def remove(self, watch: int) -> None:
        self._libc.inotify_rm_watch(self.fd, watch)

    def drain(self) -> bool:
        """Drop all events. Returns whether there were any."""
        try:
            return bool(os.read(self.fd, 65536))
        except BlockingIOError:
            return False

    def read(self) -> Iterator[tuple[int, int, str]]:
        """Yield the events: the watch, the mask, and for a folder the name of the file in it.

        After an `OVERFLOW`, which has no watch, some events were lost.
        """
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            yield watch, mask, os.fsdecode(data[at - length : at].rstrip(b"\0"))

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
