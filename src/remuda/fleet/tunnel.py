"""A stream of bytes between two machines over the hub: one end of it, on a socket.

A client's end is on the socket of a command, a host's end on that of a keeper. Both are the same: what the
socket gives is published, and what is heard is written to the socket. Nothing touches JetStream.

The receiver acknowledges what its socket took, and the sender has at most `WINDOW_BYTES` under way. So a
client that does not read stops its own end only: the keeper drops output for it, and paints the screen later.

    o JSON      open, a request: see `tunnel_host`
    d N bytes   the bytes from position N of the stream on
    a N         all up to position N was taken
    p           the end is alive; the server reports if no one listens
    e JSON      the end, and why
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from remuda.errors import HostUnreachable, RemoteProtocolError, RemudaError, from_code
from remuda.untrusted import BadJson, dump_json, one_line, parse_object
from remuda.wire.connection import ClientConnection, HelloReceived, KeeperConnection, RequestReceived
from remuda.wire.frames import FrameReader, frame
from remuda.wire.messages import Type

log = logging.getLogger("remuda.fleet.tunnel")

WINDOW_BYTES = 256 << 10
PING_INTERVAL = 4.0
SILENCE_TIMEOUT = 15.0
"""Seconds. An end that was silent for longer is gone."""
OPEN, DATA, ACK, PING, END = b"o", b"d", b"a", b"p", b"e"
_PACKET_BYTES = 64 << 10
_POSITION = struct.Struct(">Q")
_TEXT = 2000

Publish = Callable[[bytes, bool], Awaitable[None]]
"""Publishes a packet; with True, the server reports on the way back if no one listens."""


class TunnelEnd(asyncio.Protocol):
    """One end. It owns the transport of its socket; `run` until it ends.

    `check` gets what the socket's peer sends over the hub before it is written; it returns what may pass.
    """

    def __init__(self, publish: Publish, peer: str, check: Callable[[bytes], bytes] = bytes) -> None:
        self._publish = publish
        self._peer = peer
        self._check = check
        self._transport: asyncio.Transport | None = None
        self._waiting = bytearray()
        """What the socket gave, and was not published yet."""
        self._early = bytearray()
        """What came before the socket was handed over."""
        self._sent = self._acked = 0
        self._received = self._confirmed = 0
        self._is_full = False
        self._is_paused = False
        self._has_closed = False
        self._wake = asyncio.Event()
        self._heard_at = time.monotonic()
        self.reason: RemudaError | None = None
        """Why it ended, if not because one of the two programs closed its socket."""

    # ── the socket ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(bytes(self._early))
        self._early.clear()
        if self._has_closed:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= WINDOW_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake.set()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_closed = True
        self._wake.set()

    # ── the hub ──

    def hear(self, packet: bytes) -> None:
        """Take a packet of the other end."""
        self._heard_at = time.monotonic()
        kind, body = packet[:1], packet[1:]
        try:
            if kind == DATA:
                self._take(_POSITION.unpack_from(body)[0], body[_POSITION.size :])
            elif kind == ACK:
                (position,) = _POSITION.unpack(body)
                if not self._acked <= position <= self._sent:
                    raise RemoteProtocolError(f"{self._peer} acknowledged what was not sent")
                self._acked = position
                self._wake.set()
            elif kind == END:
                self.end(_read_reason(body))
            elif kind != PING:
                raise RemoteProtocolError(f"{self._peer} sent a packet that cannot be read")
        except struct.error:
            self.end(RemoteProtocolError(f"{self._peer} sent a packet that cannot be read"))
        except RemudaError as error:
            self.end(error)

    def _take(self, position: int, data: bytes) -> None:
        if position != self._received:
            raise RemoteProtocolError(f"bytes from {self._peer} were lost on the way")
        self._received += len(data)
        if self._received - self._confirmed > WINDOW_BYTES:
            raise RemoteProtocolError(f"{self._peer} sent more than was acknowledged")
        data = self._check(data)
        if self._transport is None:
            self._early += data
        elif not self._has_closed:
            self._transport.write(data)
        if self._received - self._confirmed >= WINDOW_BYTES // 4:
            self._wake.set()

    def end(self, reason: RemudaError | None) -> None:
        """End it now. What was written to the socket before is still delivered."""
        if not self._has_closed:
            self._has_closed = True
            self.reason = reason
        self._waiting.clear()
        if self._transport is not None:
            self._transport.close()
        self._wake.set()

    # ── between the two ──

    async def run(self) -> None:
        """Publish what the socket gives until either end is gone. Returns then; see `reason`."""
        try:
            while not self._is_done():
                await self._publish_some()
                if time.monotonic() - self._heard_at > SILENCE_TIMEOUT:
                    self.end(HostUnreachable(f"{self._peer} was not heard of for {SILENCE_TIMEOUT:g} s"))
            await self._publish(END + _write_reason(self.reason), False)
        except RemudaError as error:
            self.end(error)
        finally:
            self.end(self.reason)

    def _is_done(self) -> bool:
        return self._has_closed and not self._waiting

    async def _publish_some(self) -> None:
        """Publish what may be published now, or wait for a change."""
        if not self._is_full and self._received - self._confirmed >= WINDOW_BYTES // 4:
            self._confirmed = self._received
            await self._publish(ACK + _POSITION.pack(self._confirmed), False)
        room = WINDOW_BYTES - (self._sent - self._acked)
        if self._waiting and room > 0:
            piece = bytes(self._waiting[: min(room, _PACKET_BYTES)])
            del self._waiting[: len(piece)]
            position, self._sent = self._sent, self._sent + len(piece)
            await self._publish(DATA + _POSITION.pack(position) + piece, False)
            if self._is_paused and len(self._waiting) < WINDOW_BYTES // 2 and not self._has_closed:
                self._is_paused = False
                assert self._transport is not None
                self._transport.resume_reading()
            return
        self._wake.clear()
        if self._is_done():
            return
        try:
            async with asyncio.timeout(PING_INTERVAL):
                await self._wake.wait()
        except TimeoutError:
            await self._publish(PING, True)


def end_packet(reason: RemudaError) -> bytes:
    return END + _write_reason(reason)


def _write_reason(reason: RemudaError | None) -> bytes:
    if reason is None:
        return b"{}"
    document = {"code": reason.code, "message": reason.message[:_TEXT], "hint": reason.hint}
    return dump_json(document).encode()


def _read_reason(data: bytes) -> RemudaError | None:
    try:
        return read_error(parse_object(data))
    except BadJson:
        return RemoteProtocolError("the other host ended the connection")


def read_error(document: Mapping[str, Any]) -> RemudaError | None:
    """Return the error in an answer of another process; None if it has none."""
    if not isinstance(document.get("message"), str):
        return None
    hint = document.get("hint")
    return from_code(
        str(document.get("code")),
        one_line(document["message"][:_TEXT]),
        one_line(str(hint)[:_TEXT]) if hint else None,
    )


# ── the right to watch ──

_READING = (Type.SUBSCRIBE, Type.STATUS, Type.ACK)
_QUESTIONS = ("status", "screen", "history", "watch", "parcel", "asks", "ready", "cleanliness")
_REFUSED = ("resize", "kill", "interrupt", "submit", "answer")
"""The keeper refuses these to a client that is read-only, and says so."""


class ReadOnlyFilter:
    """Lets through what a client that only watches may send to a keeper, whatever it says of itself."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._connection = KeeperConnection()

    def __call__(self, data: bytes) -> bytes:
        return b"".join(self._pass(one.type, one.payload) for one in self._reader.feed(data))

    def _pass(self, kind: int, payload: bytes) -> bytes:
        whole = frame(kind, payload)
        if kind in _READING:
            return whole
        if kind not in (Type.HELLO, Type.REQUEST):
            return b""
        (event,) = self._connection.receive(whole)
        if isinstance(event, HelloReceived):
            window, client = event.window_bytes, event.client
            return ClientConnection.hello(client, read_only=True, window_bytes=window, raw=event.raw)
        if isinstance(event, RequestReceived) and event.op in (*_QUESTIONS, *_REFUSED):
            return whole if self._connection.hello is not None else b""
        return b""
