"""Frames: `[type: u8][length: u32 BE][payload]`.

`FrameReader` is fed what a socket gave and yields complete frames; it owns its buffer and its bound. A length
beyond the bound is the peer's error and ends the connection: nothing after it can be trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.frozen import frozen

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Final

_HEAD = struct.Struct(">BI")
HEADER_BYTES: Final = _HEAD.size
MAX_PAYLOAD_BYTES: Final = 1 << 20
SHORT_BYTES: Final = 256


@frozen
class Frame:
    type: int
    payload: bytes


def header(frame_type: int, payload_bytes: int) -> bytes:
    """Return the five bytes before a payload, for callers that write the payload without a copy."""
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise LocalProtocolError(f"a frame of {payload_bytes} bytes exceeds {MAX_PAYLOAD_BYTES}")
    return _HEAD.pack(frame_type, payload_bytes)


def frame(frame_type: int, payload: bytes = b"") -> bytes:
    return header(frame_type, len(payload)) + payload


def short_headers(frame_type: int) -> tuple[bytes, ...]:
    """Return the headers of all frames of a type whose payload is shorter than `SHORT_BYTES`, by its length.

    For hot paths: a short frame is made by adding, and recognised by `startswith`.
    """
    return tuple(header(frame_type, size) for size in range(SHORT_BYTES))


def split(frame_type: int, data: bytes, chunk_bytes: int = MAX_PAYLOAD_BYTES) -> Iterator[bytes]:
    """Return `data` as one or more frames of a type whose payloads simply follow each other."""
    for start in range(0, len(data), chunk_bytes):
        yield frame(frame_type, data[start : start + chunk_bytes])


class FrameReader:
    """Cuts a stream into frames. After an error it stays broken: feed it nothing more."""

    def __init__(self, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._max = max_payload_bytes
        self.buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet. At the end of a stream this must be 0."""
        return len(self.buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield all frames that are complete now: those before a broken one are still good.

        What is not taken from the iterator comes with the next call.
        """
        self.buffer += data
        return self._frames()

    def rest(self) -> Iterator[Frame]:
        """Return the frames in the waiting bytes at the end of the stream: none, for a frame that is cut."""
        return iter(())

    def _frames(self) -> Iterator[Frame]:
        buffer, start = self.buffer, 0
        try:
            while len(buffer) - start >= HEADER_BYTES:
                kind, length = _HEAD.unpack_from(buffer, start)
                if length > self._max:
                    raise RemoteProtocolError(
                        f"peer announced a frame of {length} bytes, more than {self._max}"
                    )
                end = start + HEADER_BYTES + length
                if len(buffer) < end:
                    break
                with memoryview(buffer) as view:
                    frame = Frame(kind, bytes(view[start + HEADER_BYTES : end]))
                start = end
                yield frame
        finally:
            del buffer[:start]
