"""What the frames mean.

The types below 0x10 and 0x81 to 0x83 are Heimdall's and keep its meaning exactly. The others are ours; a
keeper sends them only to a peer that said HELLO.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from enum import IntEnum

from remuda import untrusted
from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.frozen import frozen
from remuda.patterns import pattern

from .frames import HEADER_BYTES, Frame, FrameReader, frame, header, short_headers

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any, Final

MODE_BINARY: Final = b"\x00"
PROTOCOL_VERSION: Final = 1
"""Version of our additions.

With another version, both peers still use Heimdall's part, and both report it.
"""


class Type(IntEnum):
    """Frame types. Client to keeper below 0x80, keeper to client above."""

    INPUT = 0x01
    SUBSCRIBE = 0x02
    STATUS = 0x03
    RESIZE = 0x04
    KILL = 0x05
    # ours
    HELLO = 0x10
    REQUEST = 0x11
    ACK = 0x12

    OUTPUT = 0x81
    STATUS_RESP = 0x82
    EXIT = 0x83
    # ours
    WELCOME = 0x90
    RESPONSE = 0x91
    EVENT = 0x92
    REPAINT = 0x93


ONE_KEY: Final = header(Type.INPUT, 1)
SHORT_OUTPUT: Final = short_headers(Type.OUTPUT)


class StateByte(IntEnum):
    """States in Heimdall's protocol; ours are mapped onto these."""

    IDLE = 0x00
    THINKING = 0x01
    STREAMING = 0x02
    TOOL_USE = 0x03
    ACTIVE = 0x04
    DEAD = 0xFF

    @classmethod
    def name_of(cls, value: int) -> str:
        try:
            return cls(value).name.lower()
        except ValueError:
            return "unknown"


_STATUS = struct.Struct(">IIBBI")
_SIZE = struct.Struct(">HH")
_CODE = struct.Struct(">i")
_COUNT = struct.Struct(">I")
_U32_MAX = 0xFFFFFFFF
_SUPERVISOR_HEADER = pattern(
    rb"\x81\x00(?:[\x00-\x0f]..|\x10\x00\x00)|\x82\x00\x00\x00[\x0e-\x1f]|\x83\x00\x00\x00\x04", re.DOTALL
)
"""OUTPUT of up to 1 MiB, STATUS_RESP of a likely length, EXIT. Text has no NUL after such a byte."""
_BEGUN_HEADER = pattern(rb"[\x81-\x83](?:\x00.{0,2})?\Z", re.DOTALL)


@frozen
class Status:
    """Return Heimdall's fifteen bytes. Durations saturate at what 32 bits hold."""

    pid: int
    idle_ms: int
    alive: bool
    state: int
    state_ms: int

    def to_payload(self) -> bytes:
        idle_ms, state_ms = min(self.idle_ms, _U32_MAX), min(self.state_ms, _U32_MAX)
        return _STATUS.pack(self.pid, idle_ms, self.alive, self.state, state_ms) + b"\x00"

    @classmethod
    def from_payload(cls, payload: bytes) -> Status:
        """Read at least 14 bytes: the reserved one may be missing, and more may follow one day."""
        if len(payload) < _STATUS.size:
            raise RemoteProtocolError(f"a status of {len(payload)} bytes is too short")
        pid, idle_ms, alive, state, state_ms = _STATUS.unpack_from(payload)
        return cls(pid, idle_ms, bool(alive), state, state_ms)


class HeimdallReader(FrameReader):
    """Cuts the stream of a Heimdall supervisor (1.0.0) into frames.

    When its program ends, it writes output that is still queued without a header, in front of the EXIT frame.
    Bytes that cannot be a frame of a supervisor are therefore output, up to the next that can.
    """

    def _frames(self) -> Iterator[Frame]:
        buffer = self.buffer
        while len(buffer) >= HEADER_BYTES:
            if _SUPERVISOR_HEADER.match(buffer):
                end = HEADER_BYTES + int.from_bytes(buffer[1:HEADER_BYTES], "big")
                if len(buffer) < end:
                    return
                frame = Frame(buffer[0], bytes(buffer[HEADER_BYTES:end]))
            else:
                following = _SUPERVISOR_HEADER.search(buffer)
                # Its header may be cut: what could be the beginning of one waits.
                begun = following or _BEGUN_HEADER.search(buffer)
                end = begun.start() if begun else len(buffer)
                frame = Frame(Type.OUTPUT, bytes(buffer[:end]))
            del buffer[:end]
            if frame.payload or frame.type != Type.OUTPUT:
                yield frame
            elif end == 0:
                return

    def rest(self) -> Iterator[Frame]:
        cut = HEADER_BYTES if _SUPERVISOR_HEADER.match(self.buffer) else 0
        data, self.buffer = bytes(self.buffer[cut:]), bytearray()
        if data:
            yield Frame(Type.OUTPUT, data)


def size_payload(cols: int, rows: int) -> bytes:
    return _SIZE.pack(cols, rows)


def parse_size(payload: bytes) -> tuple[int, int]:
    if len(payload) != _SIZE.size:
        raise RemoteProtocolError(f"a RESIZE carries 4 bytes, this one {len(payload)}")
    cols, rows = _SIZE.unpack(payload)
    return cols, rows


def exit_payload(code: int) -> bytes:
    return _CODE.pack(code)


def parse_exit(payload: bytes) -> int:
    if len(payload) != _CODE.size:
        raise RemoteProtocolError(f"an EXIT carries 4 bytes, this one {len(payload)}")
    code: int = _CODE.unpack(payload)[0]
    return code


def ack_payload(byte_count: int) -> bytes:
    return _COUNT.pack(byte_count)


def parse_ack(payload: bytes) -> int:
    if len(payload) != _COUNT.size:
        raise RemoteProtocolError(f"an ACK carries 4 bytes, this one {len(payload)}")
    count: int = _COUNT.unpack(payload)[0]
    return count


def json_frame(frame_type: Type, document: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise LocalProtocolError(f"cannot be written as JSON: {error}") from error
    # A lone surrogate is a byte of an argument that is not UTF-8; so written, it is JSON's own escape.
    return frame(frame_type, text.encode("utf-8", "backslashreplace"))


def parse_json(payload: bytes) -> dict[str, Any]:
    try:
        document = untrusted.parse_json(payload, depth=untrusted.OWN_DEPTH, keep_surrogates=True)
    except untrusted.BadJson as error:
        raise RemoteProtocolError(f"peer sent invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise RemoteProtocolError("peer sent JSON that is not an object")
    return document
