"""Call back when a file changes, appears, or is replaced.

On Linux by inotify, with a watch on the file itself once it exists: all sessions of a user share the folder,
and each of their changes would wake every keeper. Elsewhere, and when the user's limit of inotify is reached,
by polling twice a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from remuda.inotify import ATTRIB, CREATE, DELETE_SELF, MODIFY, MOVE_SELF, MOVED_TO, Inotify

log = logging.getLogger("remuda.keeper.watch")

_POLL_INTERVAL = 0.5
_FILE_MASK = MODIFY | ATTRIB | DELETE_SELF | MOVE_SELF
_FOLDER_MASK = CREATE | MOVED_TO


def watch(path: Path, changed: Callable[[], None]) -> FileWatch | PolledWatch:
    """Call `changed` now and whenever the file at `path` differs, until the watch is closed."""
    try:
        return FileWatch(path, changed)
    except OSError as error:
        log.warning("watching %s by polling: %s", path, error)
        return PolledWatch(path, changed)


class FileWatch:
    """Watches by inotify. Raises `OSError` when it cannot. If that happens later, it polls from then on."""

    def __init__(self, path: Path, changed: Callable[[], None], inotify: Inotify | None = None) -> None:
        self._path = path
        self._changed = changed
        self._inotify = inotify or Inotify()
        self._watch = -1
        self._polled: PolledWatch | None = None
        self._loop = asyncio.get_running_loop()
        try:
            self._arm()
        except OSError:
            self._inotify.close()
            raise
        self._loop.add_reader(self._inotify.fd, self._readable)
        self._changed()

    def _readable(self) -> None:
        if not self._inotify.drain():
            return
        try:
            self._arm()
        except OSError as error:
            log.warning("watching %s by polling from now on: %s", self._path, error)
            self.close()
            self._polled = PolledWatch(self._path, self._changed)
        else:
            self._changed()

    def _arm(self) -> None:
        """Watch the file, or the nearest folder above it that exists. A replaced file is a new one."""
        while not self._add(self._path, _FILE_MASK):
            # The file may have appeared between the check and the watch: no event would come for it.
            if not self._watch_above().exists():
                return

    def _watch_above(self) -> Path:
        """Watch the nearest folder that exists, and return the path that is missing in it."""
        for missing, folder in pairwise([self._path, *self._path.parents]):
            if self._add(folder, _FOLDER_MASK):
                return missing
        raise FileNotFoundError(f"no folder above {self._path} can be watched")

    def _add(self, path: Path, mask: int) -> bool:
        watch = self._inotify.add(path, mask)
        if watch is None:
            return False
        if watch != self._watch and self._watch >= 0:
            self._inotify.remove(self._watch)
        self._watch = watch
        return True

    def close(self) -> None:
        if self._polled is not None:
            self._polled.close()
        if self._inotify.fd >= 0:
            self._loop.remove_reader(self._inotify.fd)
            self._inotify.close()


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
            status = os.stat(self._path)
            now = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            now = None
        if now != self._seen:
            self._seen = now
            self._changed()
        self._timer = self._loop.call_later(_POLL_INTERVAL, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
