"""Read a file that is rotated: its writer moves it to `<path>.1`, and begins a new one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from remuda.durable import open_regular

_READ_BYTES = 1 << 16


class RotatedFile:
    """Yields the content of both files, the older one first, and later what was added since.

    A reader that is slower than two rotations misses the file between; `skipped` says so.
    """

    def __init__(self, path: Path) -> None:
        """Raises `FileNotFoundError` when there is none, `OSError` when it cannot be read."""
        self._path, self._older_path = path, path.with_name(f"{path.name}.1")
        self._fds: deque[int] = deque()
        self.skipped = False
        """Whether a file before the present one may have been missed."""
        self._open(after=None)
        if not self._fds:
            raise FileNotFoundError(path)

    def _open(self, after: tuple[int, int] | None) -> bool:
        """Open the files that follow the one with this identity; all if it is None. Return if it was met."""
        found: list[int] = []
        is_met = False
        # The newer one first: if the files rotate in between, the older one is the same file and is read
        # once.
        for path in (self._path, self._older_path):
            try:
                fd = open_regular(path)
            except FileNotFoundError:
                continue
            is_met |= _identity(fd) == after
            if _identity(fd) in [after, *map(_identity, found)]:
                os.close(fd)
            else:
                found.append(fd)
        self._fds.extend(reversed(found))
        return is_met

    def read(self) -> Iterator[bytes]:
        """Yield everything that is there now; `b""` where another file begins. Call it again for more."""
        while True:
            replaced = len(self._fds) > 1 or self._is_replaced()
            while data := os.read(self._fds[0], _READ_BYTES):
                yield data
            if not replaced:
                return
            self.skipped = False
            if len(self._fds) == 1:
                self.skipped = not self._open(after=_identity(self._fds[0]))
            if len(self._fds) == 1:
                return
            os.close(self._fds.popleft())
            yield b""

    def _is_replaced(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) != _identity(self._fds[0])

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def __enter__(self) -> RotatedFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
