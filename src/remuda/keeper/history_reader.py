"""Read what a keeper recorded of its session's output (see `history`). Needs no keeper."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from remuda.durable import open_regular
from remuda.paths import SessionPaths
from remuda.terminal.history import Begun, Gap, HistoryEvent, HistoryParser, Output, Painted, Resized
from remuda.terminal.screen import Screen, open_screen

_READ_BYTES = 1 << 16


class HistoryReader:
    """Yields the content of the files, oldest first, and later what was added since."""

    def __init__(self, paths: SessionPaths) -> None:
        """Open the history.

        Raises `FileNotFoundError` when there is none, `OSError` when it cannot be read.
        """
        self._path = paths.history
        self._fds: deque[int] = deque()
        # The newer one first: if the files rotate in between, the older one is the same file and is read
        # once.
        for path in (paths.history, paths.older_history):
            try:
                self._fds.appendleft(open_regular(path))
            except FileNotFoundError:
                continue
        if not self._fds:
            raise FileNotFoundError(paths.history)
        if len(self._fds) == 2 and _identity(self._fds[0]) == _identity(self._fds[1]):
            os.close(self._fds.popleft())
        self._parser = HistoryParser()
        self._known = False
        self._damaged = False

    @property
    def damaged(self) -> bool:
        """Whether part of the history could not be understood."""
        return self._damaged or self._parser.damaged

    def read(self) -> Iterator[HistoryEvent]:
        """Yield everything that is there now. Call it again for what comes later."""
        while True:
            replaced = len(self._fds) > 1 or self._is_replaced()
            while data := os.read(self._fds[0], _READ_BYTES):
                yield from filter(self._is_needed, self._parser.feed(data))
            if not replaced:
                return
            if len(self._fds) == 1:
                try:
                    self._fds.append(open_regular(self._path))
                except FileNotFoundError:
                    return
            os.close(self._fds.popleft())
            self._damaged = self.damaged
            self._parser = HistoryParser()

    def _is_replaced(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) != _identity(self._fds[0])

    def _is_needed(self, event: HistoryEvent) -> bool:
        """Return whether to yield it. Only readers that lack what led to a screen need its picture."""
        known = self._known
        if isinstance(event, Begun | Painted):
            self._known = True
        elif isinstance(event, Gap):
            self._known = False
        return not (known and isinstance(event, Painted))

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def __enter__(self) -> HistoryReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def last_screen(paths: SessionPaths) -> Screen | None:
    """Return the last screen of a session by its history; None without history, or without an emulator."""
    try:
        with HistoryReader(paths) as reader:
            return _played(reader.read())
    except OSError:
        return None


def _played(events: Iterator[HistoryEvent]) -> Screen | None:
    screen = open_screen(80, 24)
    for event in events:
        if screen is None:
            break
        if isinstance(event, Begun | Resized):
            if isinstance(event, Begun):
                screen.feed(b"\x18\x1bc")  # may begin in the middle of a sequence
            screen.resize(max(event.cols, 1), max(event.rows, 1))
        elif isinstance(event, Output | Painted):
            screen.feed(event.data)
            screen.take_replies()
            screen.take_signals()
    return screen
