"""Messages as lines of JSON on a pipe: bytes in any pieces to messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from remuda.untrusted import BadJson, parse_json

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any, Final

    Message = dict[str, Any]
else:
    Message = dict

MAX_LINE_BYTES: Final = 64 << 20
"""A longer line is dropped. A message holds one tool result, a picture for example."""


class JsonLineReader:
    """Takes bytes in any pieces. Lines that are not messages are left out; `dropped` counts too long ones."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield from self._line()
        self._add(rest)

    def close(self) -> Iterator[Message]:
        """Take the end of the output: the last line may be complete without a newline."""
        if self._size:
            yield from self._line()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _line(self) -> Iterator[Message]:
        size, line = self._size, b"".join(self._pieces)
        self._size = 0
        self._pieces.clear()
        if size > self._max:
            self.dropped += 1
            return
        try:
            message = parse_json(line)
        except BadJson:
            return
        if isinstance(message, dict):
            yield message
