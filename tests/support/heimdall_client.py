"""A client of Heimdall's protocol, written from its document alone. It shares no code with Remuda.

Strict on purpose: a frame type that the document does not name is an error, since a client that knows
only that document must never meet one.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

INPUT, SUBSCRIBE, STATUS, RESIZE, KILL = 0x01, 0x02, 0x03, 0x04, 0x05
OUTPUT, STATUS_RESP, EXIT = 0x81, 0x82, 0x83
KNOWN = {OUTPUT, STATUS_RESP, EXIT}

PATIENCE = 30.0
"""Only ever reached by a test that fails."""


class Status(NamedTuple):
    pid: int
    idle_ms: int
    alive: int
    state: int
    state_ms: int
    reserved: int


class Closed(Exception):
    """The supervisor closed the connection between two frames."""


class Desynchronised(Exception):
    """What came is not a frame of the document."""


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, len(payload)) + payload


class HeimdallClient:
    def __init__(self, path: str, *, receive_buffer_bytes: int | None = None) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._unread = bytearray()
        if receive_buffer_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            # With a timeout it would fail at once where the supervisor's backlog is full.
            self.sock.connect(path)
            self.sock.settimeout(PATIENCE)
            self.mode = self._exactly(1)
            if self.mode != b"\x00":
                raise Desynchronised(f"mode byte {self.mode!r}")
        except BaseException:
            self.sock.close()
            raise
        self.output = bytearray()
        """All OUTPUT payloads so far."""
        self.output_frames: list[bytes] = []

    # ── saying ──

    def send(self, kind: int, payload: bytes = b"") -> None:
        self.sock.sendall(frame(kind, payload))

    def type(self, data: bytes) -> None:
        self.send(INPUT, data)

    def subscribe(self) -> None:
        self.send(SUBSCRIBE)

    def resize(self, cols: int, rows: int) -> None:
        self.send(RESIZE, struct.pack(">HH", cols, rows))

    def kill(self) -> None:
        self.send(KILL)

    # ── hearing ──

    def _exactly(self, count: int) -> bytes:
        while len(self._unread) < count:
            try:
                piece = self.sock.recv(262_144)
            except ConnectionResetError:
                piece = b""
            if not piece:
                if self._unread:
                    raise Desynchronised(f"the stream ended within a frame, after {bytes(self._unread)!r}")
                raise Closed
            self._unread += piece
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def next_frame(self) -> tuple[int, bytes]:
        kind, length = struct.unpack(">BI", self._exactly(5))
        if kind not in KNOWN:
            raise Desynchronised(f"frame type 0x{kind:02x} of {length} bytes")
        payload = self._exactly(length) if length else b""
        if kind == OUTPUT:
            self.output += payload
            self.output_frames.append(payload)
        return kind, payload

    def until(self, wanted: int) -> bytes:
        """The payload of the next frame of that type; OUTPUT before it is collected."""
        while True:
            kind, payload = self.next_frame()
            if kind == wanted:
                return payload

    def status(self) -> Status:
        self.send(STATUS)
        payload = self.until(STATUS_RESP)
        assert len(payload) == 15, payload
        return Status(*struct.unpack(">IIBBIB", payload))

    def read_until(self, wanted: bytes) -> bytes:
        """All output, once `wanted` is in it."""
        searched = 0
        while self.output.find(wanted, searched) < 0:
            searched = max(0, len(self.output) - len(wanted))
            kind, _ = self.next_frame()
            assert kind != EXIT, f"ended without {wanted!r}: {bytes(self.output[-1000:])!r}"
        return bytes(self.output)

    def exit_code(self) -> int:
        """Reads on to the EXIT frame."""
        payload = self.until(EXIT)
        assert len(payload) == 4, payload
        (code,) = struct.unpack(">i", payload)
        return int(code)

    def at_end(self) -> bool:
        """Waits for the supervisor to close; False when another frame comes instead."""
        try:
            self.next_frame()
        except Closed:
            return True
        return False

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> HeimdallClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
