"""The last bytes of a session's output, in pieces: what a plain Heimdall client is shown first."""

from __future__ import annotations

import re
from collections import deque

PIECE_BYTES = 4096
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x09\x0b-\x1f]"
)


class Ring:
    """Keeps pieces until they exceed the bound, then drops pieces, oldest first.

    A read of the terminal can be larger than the bound; it is kept in pieces of at most 4 KiB, so that one
    more byte never costs more than one piece of history.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._pieces: deque[bytes] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def append(self, data: bytes) -> None:
        # Only the end of a long read can be kept.
        skip = max(0, (len(data) - self._max) // PIECE_BYTES) * PIECE_BYTES
        for start in range(skip, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self._pieces.append(piece)
            self.size_bytes += len(piece)
        while self.size_bytes > self._max:
            self.size_bytes -= len(self._pieces.popleft())

    def snapshot(self) -> bytes:
        return b"".join(self._pieces)


def plain_text(output: bytes) -> str:
    """Return a program's output as text for people, without control sequences."""
    return _ESCAPES.sub(b"", output).decode(errors="replace")
