"""Being told when a file changes, appears, or is replaced.

On Linux by inotify, with a watch on the file itself once it exists: the folder is shared by all sessions
of a user, and each of their changes would wake every keeper. Elsewhere by looking twice a second.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("remuda.keeper.watch")

_LINUX = sys.platform.startswith("linux")
_POLL_INTERVAL = 0.5
_MODIFY, _ATTRIB, _MOVED_TO, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x2, 0x4, 0x80, 0x100, 0x400, 0x800
_FILE_MASK = _MODIFY | _ATTRIB | _DELETE_SELF | _MOVE_SELF
_FOLDER_MASK = _CREATE | _MOVED_TO
_INIT_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


def watch(path: Path, changed: Callable[[], None]) -> FileWatch | PolledWatch:
    """Call `changed` now and whenever the file at `path` is not what it was, until the watch is closed."""
    if _LINUX:
        try:
            return FileWatch(path, changed)
        except OSError as error:  # the user's limit of inotify instances is reached
            log.warning("watching %s by polling: %s", path, error)
    return PolledWatch(path, changed)


class FileWatch:
    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._path = path
        self._changed = changed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_INIT_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._watch = -1
        self._on_file = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._readable)
        self._arm()
        self._changed()

    def _readable(self) -> None:
        try:
            os.read(self._fd, 65536)
        except BlockingIOError:
            return
        self._arm()
        self._changed()

    def _arm(self) -> None:
        """Watch the file, or the nearest folder above it that exists. A replaced file is a new one."""
        if self._add(self._path, _FILE_MASK):
            return
        for folder in self._path.parents:
            if self._add(folder, _FOLDER_MASK):
                # It may have appeared between the two calls.
                if folder == self._path.parent and self._path.exists():
                    self._add(self._path, _FILE_MASK)
                return

    def _add(self, path: Path, mask: int) -> bool:
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        if number < 0:
            return False
        if number != self._watch and self._watch >= 0:
            self._libc.inotify_rm_watch(self._fd, self._watch)
        self._watch = number
        return True

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class PolledWatch:
    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._path = path
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._seen: tuple[int, int, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look()
        changed()

    def _look(self) -> None:
        try:
            found = os.stat(self._path)
            now = (found.st_ino, found.st_size, found.st_mtime_ns)
        except OSError:
            now = None
        if now != self._seen:
            self._seen = now
            self._changed()
        self._timer = self._loop.call_later(_POLL_INTERVAL, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
