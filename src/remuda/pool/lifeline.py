"""What keeps an agent alive: a pipe's end that its holder, or its keeper, listens to."""

from __future__ import annotations

import os


class Lifeline:
    """Closed by hand, by the end of the process, or when nobody has it any more. Not for two threads."""

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd

    def open(self) -> int:
        """The other end, for the holder."""
        read, self._fd = os.pipe()
        return read

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close
