"""The client's ends of tunnels: a socket on which commands of this machine reach sessions of other hosts.

A program connects, sends one line of JSON and gets one back. Then the socket is as that of a keeper:

    {"host": "build7", "session": "work", "what": "attach", "types": true}
    {"id": "...", "session": "work"}    or    {"error": {"code": ..., "message": ..., "hint": ...}}

When it is closed, `{"why": ID}` on another connection returns why.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from remuda.boss.daemon import listen_on_path
from remuda.errors import HostUnreachable, HubUnreachable, InvalidOptions, RemudaError
from remuda.paths import peer_uid
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, dump_json, parse_object

from . import subjects
from .hub import Hub
from .hub_types import HubRequest
from .remote import RemoteHosts
from .tunnel import DATA, PING, TunnelEnd, end_packet

log = logging.getLogger("remuda.fleet.tunnel")

_MOST = 256
_LINE_BYTES = 16 << 10
_OPEN_TIMEOUT = 10.0
_REASONS = 256

Document = dict[str, Any]


class TunnelSocket:
    """Use from the boss's loop. `open` once, `run` for each connection, `close` at the end."""

    def __init__(self, path: Path, remote: RemoteHosts, connected: Callable[[], Awaitable[Hub]]) -> None:
        self._path = path
        self._remote = remote
        self._connected = connected
        self._ends: dict[str, TunnelEnd] = {}
        """By the subject on which the host sends."""
        self._reasons: dict[str, RemudaError | None] = {}
        self._tasks = TaskSet()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        listener = listen_on_path(self._path)
        self._server = await loop.create_unix_server(lambda: _Caller(self._serve, self._tasks), sock=listener)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        await self._tasks.aclose()

    async def run(self, hub: Hub) -> None:
        """Serve until the connection ends; all tunnels end with it."""

        async def handle(request: HubRequest) -> None:
            self._handle(hub, request)

        try:
            async with hub.answering(f"io.*.out.{hub.member.name}.*", handle):
                await hub.closed.wait()
        finally:
            for end in list(self._ends.values()):
                end.end(HubUnreachable("the connection to the hub was lost"))

    def _handle(self, hub: Hub, request: HubRequest) -> None:
        end = self._ends.get(request.subject)
        _, host, _, sender, number = request.subject.split(".")
        if request.headers.get("Status") == "503":
            if end is not None:
                end.end(HostUnreachable(f"{host} is not connected to the hub any more"))
        elif end is not None:
            end.hear(request.data)
        elif request.data[:1] in (DATA, PING):  # for a client of an earlier run
            gone = HostUnreachable(f"the boss of {sender} was restarted")
            back = subjects.bytes_subject(host, "read", sender, number)
            self._tasks.start(self._publish(hub, back, end_packet(gone)))

    async def _publish(self, hub: Hub, subject: str, packet: bytes) -> None:
        try:
            await hub.publish(subject, packet)
        except RemudaError as error:
            log.info("a packet could not be sent: %s", error)

    async def _serve(self, document: Document, transport: asyncio.Transport) -> None:
        """Answer one caller, and be its end of the tunnel."""
        try:
            if "why" in document:
                reason = self._reasons.get(str(document["why"]))
                transport.write(_line({"error": _error(reason) if reason is not None else None}))
                transport.close()
                return
            end, number, name = await self._open(document)
        except RemudaError as error:
            transport.write(_line({"error": _error(error)}))
            transport.close()
            return
        transport.write(_line({"id": number, "session": name}))
        end.connection_made(transport)
        transport.set_protocol(end)
        if transport.is_closing():
            end.connection_lost(None)
        else:
            transport.resume_reading()
        try:
            await end.run()
        finally:
            self._reasons[number] = end.reason
            while len(self._reasons) > _REASONS:
                self._reasons.pop(next(iter(self._reasons)))
            self._ends = {subject: one for subject, one in self._ends.items() if one is not end}

    async def _open(self, document: Document) -> tuple[TunnelEnd, str, str]:
        host, types = str(document.get("host")), document.get("types") is True
        if len(self._ends) >= _MOST:
            raise InvalidOptions(f"{_MOST} sessions of other hosts are in use", hint="detach from some")
        hub = await self._connected()
        number, kind = secrets.token_hex(16), "type" if types else "read"
        there = subjects.bytes_subject(subjects.check_host(host), kind, hub.member.name, number)
        back = subjects.bytes_subject(host, "out", hub.member.name, number)

        async def publish(packet: bytes, asks: bool) -> None:
            await hub.publish(there, packet, back if asks else "")

        end = self._ends[back] = TunnelEnd(publish, host)
        asked = {key: document.get(key) for key in ("what", "session", "keeper", "lines", "follow", "last")}
        try:
            answer = await self._remote.open_tunnel(hub, host, there, asked, _OPEN_TIMEOUT, types=types)
        except BaseException:
            del self._ends[back]
            raise
        if hub.closed.is_set():
            end.end(HubUnreachable("the connection to the hub was lost"))
        return end, number, str(answer["session"])


class _Caller(asyncio.Protocol):
    """Reads the first line of a program that connected."""

    def __init__(
        self, serve: Callable[[Document, asyncio.Transport], Awaitable[None]], tasks: TaskSet
    ) -> None:
        self._serve = serve
        self._tasks = tasks
        self._line = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if (uid := peer_uid(transport.get_extra_info("socket"))) != os.getuid():
            log.warning("refused a connection from uid %d", uid)
            transport.abort()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._line += data
        if len(self._line) > _LINE_BYTES:
            self._transport.abort()
        elif self._line.endswith(b"\n"):
            self._transport.pause_reading()
            try:
                document = parse_object(bytes(self._line))
            except BadJson:
                self._transport.abort()
                return
            self._tasks.start(self._answer(document, self._transport))

    async def _answer(self, document: Document, transport: asyncio.Transport) -> None:
        try:
            await self._serve(document, transport)
        except asyncio.CancelledError:
            transport.close()
            raise


def _line(document: Document) -> bytes:
    return dump_json(document).encode() + b"\n"


def _error(error: RemudaError) -> Document:
    return {"code": error.code, "message": error.message, "hint": error.hint}
