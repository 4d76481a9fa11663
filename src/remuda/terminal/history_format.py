"""What a program printed, as records for a file. No I/O: bytes in, events out.

A file of history begins with `MAGIC`. Records follow, framed as on the wire: a type, a length, a payload. A
record that is cut at the end was being written when its writer was killed, and is left out.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from remuda.errors import RemoteProtocolError
from remuda.frozen import frozen
from remuda.wire.frames import MAX_PAYLOAD_BYTES, FrameReader, frame, header

MAGIC: Final = b"remuda history 1\n"
_BEGUN = struct.Struct(">dHH")
_SIZE = struct.Struct(">HH")
_COUNT = struct.Struct(">Q")


class Kind(IntEnum):
    """The types of records. A reader skips types that it does not know."""

    BEGUN = 1
    OUTPUT = 2
    RESIZED = 3
    GAP = 4
    PAINTED = 5
    POSITION = 6


@frozen
class Begun:
    """A program was started at that time, on a blank terminal of that size."""

    at: float
    cols: int
    rows: int


@frozen
class Output:
    data: bytes


@frozen
class Resized:
    cols: int
    rows: int


@frozen
class Gap:
    """This many bytes of output are missing here."""

    byte_count: int


@frozen
class Painted:
    """The complete screen at this point, for a reader that did not see what led to it."""

    data: bytes


@frozen
class Position:
    """This many bytes of output came before this point, in older files and in gaps. Each file has it once."""

    byte_count: int


HistoryEvent = Begun | Output | Resized | Gap | Painted


def begun_record(at: float, cols: int, rows: int) -> bytes:
    return frame(Kind.BEGUN, _BEGUN.pack(at, cols, rows))


def output_header(byte_count: int) -> bytes:
    """Return the head of an output record, for callers that write the output without a copy."""
    return header(Kind.OUTPUT, byte_count)


def resized_record(cols: int, rows: int) -> bytes:
    return frame(Kind.RESIZED, _SIZE.pack(cols, rows))


def gap_record(byte_count: int) -> bytes:
    return frame(Kind.GAP, _COUNT.pack(byte_count))


def position_record(byte_count: int) -> bytes:
    return frame(Kind.POSITION, _COUNT.pack(byte_count))


def painted_record(data: bytes) -> bytes:
    """Return nothing for a screen that is too large for a record: it is a help, not the history."""
    return frame(Kind.PAINTED, data) if len(data) <= MAX_PAYLOAD_BYTES else b""


def position_after(event: HistoryEvent | Position, position: int | None) -> int | None:
    """Return the position after an event, if the one before it was this. None if it is unknown."""
    if isinstance(event, Position):
        return event.byte_count
    if position is None:
        return None
    if isinstance(event, Output):
        return position + len(event.data)
    return position + (event.byte_count if isinstance(event, Gap) else 0)


class HistoryParser:
    """Makes events of the bytes of one file. After damage it yields nothing more."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._magic = b""
        self.damaged = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of a record that is not complete."""
        return self._reader.pending_bytes

    def feed(self, data: bytes) -> Iterator[HistoryEvent | Position]:
        if missing := len(MAGIC) - len(self._magic):
            self._magic, data = self._magic + data[:missing], data[missing:]
            self.damaged = not MAGIC.startswith(self._magic)
        if self.damaged:
            return
        try:
            for one in self._reader.feed(data):
                event = _parse(one.type, one.payload)
                if event is not None:
                    yield event
        except (RemoteProtocolError, struct.error):
            self.damaged = True


def _parse(kind: int, payload: bytes) -> HistoryEvent | Position | None:
    if kind == Kind.OUTPUT:
        return Output(payload)
    if kind == Kind.PAINTED:
        return Painted(payload)
    if kind == Kind.BEGUN:
        return Begun(*_BEGUN.unpack(payload))
    if kind == Kind.RESIZED:
        return Resized(*_SIZE.unpack(payload))
    if kind == Kind.GAP:
        return Gap(*_COUNT.unpack(payload))
    if kind == Kind.POSITION:
        return Position(*_COUNT.unpack(payload))
    return None


# ── the last bytes ──

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
