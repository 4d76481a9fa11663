"""The host's ends of tunnels: it connects to the keeper for a client elsewhere, and checks what that may do.

A client opens one by a request on the subject that it uses from then on, which has its name and its right.
Without the right to type everything passes a filter here, so that not even a changed client can type.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping
from typing import Any

from remuda.boss.http.terminal import find_paths
from remuda.boss.ports import BossParts
from remuda.errors import HostUnreachable, HubUnreachable, InvalidOptions, PermissionRefused, RemudaError
from remuda.keeper.aclient import reach
from remuda.keeper.history_stream import HistorySender
from remuda.paths import SessionPaths
from remuda.tasks import TaskSet, in_thread
from remuda.untrusted import finite

from . import exchange, subjects
from .hub import Hub
from .hub_types import HubRequest
from .tunnel import DATA, OPEN, PING, ReadOnlyFilter, TunnelEnd, end_packet

log = logging.getLogger("remuda.fleet.tunnel")

_MOST = 64


class TunnelHost:
    """Use from the boss's loop. `run` for each connection."""

    def __init__(self, boss: BossParts) -> None:
        self._boss = boss
        self._ends: dict[str, TunnelEnd] = {}
        """By the client and the id that it chose."""
        self._opening = 0

    async def run(self, hub: Hub) -> None:
        """Serve until the connection ends; all tunnels end with it."""
        tasks = TaskSet()

        async def handle(request: HubRequest) -> None:
            self._handle(hub, tasks, request)

        name = hub.member.name
        try:
            async with (
                hub.answering(f"io.{name}.read.*.*", handle),
                hub.answering(f"io.{name}.type.*.*", handle),
            ):
                await hub.closed.wait()
        finally:
            await tasks.aclose()

    def _handle(self, hub: Hub, tasks: TaskSet, request: HubRequest) -> None:
        end = self._ends.get(_key(request.subject))
        if request.headers.get("Status") == "503":
            if end is not None:
                end.end(HostUnreachable("the client is not connected to the hub"))
        elif request.data[:1] == OPEN:
            tasks.start(self._open(hub, tasks, request))
        elif end is not None:
            end.hear(request.data)
        elif request.data[:1] in (DATA, PING):
            gone = HostUnreachable(f"the boss of {hub.member.name} was restarted", hint="attach again")
            tasks.start(self._publish(hub, _out(request.subject), end_packet(gone)))

    async def _publish(self, hub: Hub, subject: str, packet: bytes) -> None:
        try:
            await hub.publish(subject, packet)
        except RemudaError as error:
            log.info("a packet could not be sent: %s", error)

    async def _open(self, hub: Hub, tasks: TaskSet, request: HubRequest) -> None:
        """Connect, have the tunnel known, and only then answer: what comes next is for it."""
        self._opening += 1
        try:
            end, name = await self._connect(hub, request)
            answer = exchange.write_answer({"session": name})
            tasks.start(self._run(_key(request.subject), end))
        except RemudaError as error:
            answer = exchange.write_error(error.code, error.message, error.hint)
        finally:
            self._opening -= 1
        if subjects.is_answer(request.reply, hub.member.name):
            try:
                await request.answer(answer)
            except RemudaError as error:
                log.info("an answer could not be sent: %s", error)

    async def _connect(self, hub: Hub, request: HubRequest) -> tuple[TunnelEnd, str]:
        _, host, kind, sender, number = request.subject.split(".")
        document = subjects.read(request.data[1:])
        if not subjects.is_from(sender, request.reply, request.headers):
            raise PermissionRefused("the sender of the request has no right to it")
        if finite(document.get("deadline")) < hub.now():
            raise PermissionRefused("the request came too late, and nothing was done")
        if len(self._ends) + self._opening > _MOST:
            raise HubUnreachable(f"{host} has too many clients of other hosts", hint="try again later")
        paths = find_paths(self._boss, str(document.get("session")))
        log.info("%s of %s for %s (%s)", document.get("what"), paths.name, sender, kind)
        back = subjects.bytes_subject(host, "out", sender, number)

        async def publish(packet: bytes, asks: bool) -> None:
            await hub.publish(back, packet, request.subject if asks else "")

        end = TunnelEnd(publish, sender, ReadOnlyFilter() if kind == "read" else bytes)
        sock = await self._source(document, paths)
        self._ends[_key(request.subject)] = end
        await asyncio.get_running_loop().create_unix_connection(lambda: end, sock=sock)
        return end, paths.name

    async def _source(self, document: Mapping[str, Any], paths: SessionPaths) -> socket.socket:
        if document.get("what") == "attach":
            return await reach(paths)
        if document.get("what") == "logs":
            return await self._send_history(document, paths)
        raise InvalidOptions(
            f"this host does not offer {str(document.get('what'))[:40]!r}", hint="upgrade Remuda there"
        )

    async def _send_history(self, document: Mapping[str, Any], paths: SessionPaths) -> socket.socket:
        """Return a socket that a thread writes to, which ends when this is closed."""
        lines = document.get("lines")
        if lines is not None and (not isinstance(lines, int) or lines < 0):
            raise InvalidOptions("lines must be a number from 0 on")
        sock, other = socket.socketpair()
        flags = {key: document.get(key) is True for key in ("keeper", "follow", "last")}
        sender = HistorySender(paths, other, lines=lines, **flags)
        try:
            await in_thread(lambda _: sender.open())
        except BaseException:
            sock.close()
            raise
        sock.setblocking(False)
        threading.Thread(target=sender.run, name="fleet-history", daemon=True).start()
        return sock

    async def _run(self, key: str, end: TunnelEnd) -> None:
        try:
            await end.run()
        finally:
            self._ends.pop(key, None)


def _key(subject: str) -> str:
    return ".".join(subject.split(".")[3:])


def _out(subject: str) -> str:
    """Return the subject of the other direction."""
    _, host, _, sender, number = subject.split(".")
    return subjects.bytes_subject(host, "out", sender, number)
