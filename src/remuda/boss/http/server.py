"""Serve the application on a Unix socket and on loopback. Only this module imports uvicorn."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, cast

from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from remuda.admission.acceptor import Acceptor, Connection, fitting
from remuda.admission.rule import Limits
from remuda.paths import peer_uid

log = logging.getLogger("remuda.boss.http")

HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT = 5.0
TCP_LIMITS = Limits(pending=64, trusted=192)
PRIVATE_LIMITS = Limits(pending=128, trusted=384)
CLOSE_TIMEOUT = 3


Admits = Callable[[dict[str, Any]], bool]


class _Pipelined(Exception):  # stops the parser; never leaves this module
    pass


class _Protocol(HttpToolsProtocol):
    """Refuses other users on the socket, and heads without an end.

    A request without the token is the last of its connection. What follows is not parsed: the limits count
    connections, and one of 256 KB held 5,000 requests.
    """

    def __init__(self, connection: Connection, admits: Admits, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._connection = connection
        self._admits = admits
        self._is_last = False
        self._is_over = False
        self._head_bytes = 0
        self._reads_head = True
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        sock = transport.get_extra_info("socket")
        unix = sock.family == socket.AF_UNIX
        self.app_state = {**self.app_state, "unix": unix, "trust": self._connection.trust}
        super().connection_made(transport)
        self._overdue = self.loop.call_later(HEAD_TIMEOUT, transport.abort)
        if unix and (uid := peer_uid(sock)) != os.getuid():
            log.warning("refused a connection of user %d on the socket", uid)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.leave()
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            self.flow.pause_reading()
            return
        if self._reads_head:
            self._head_bytes += len(data)
            # What comes in one piece may be a small head and much of a body.
            if self._head_bytes > HEAD_BYTES + len(data):
                self.transport.abort()
                return
        super().data_received(data)
        # A timer for each request would cost more than what it guards: most heads come in one piece.
        if self._reads_head and self._head_bytes and self._overdue is None:
            self._overdue = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)

    def on_message_begin(self) -> None:
        if self._is_last:
            raise _Pipelined
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._reads_head = False
        self._in_time()
        super().on_headers_complete()
        if not self._admits(cast("dict[str, Any]", self.scope)):
            self._is_last, self.cycle.keep_alive = True, False

    def on_message_complete(self) -> None:
        self._reads_head, self._head_bytes = True, 0
        self.scope["state"]["whole"] = True
        super().on_message_complete()
        if self._is_last:
            self._end_reading()

    def send_400_response(self, msg: str) -> None:
        if not self._is_last:
            super().send_400_response(msg)
        self._end_reading()  # the answer to the last request closes the connection

    def _end_reading(self) -> None:
        self._is_over = True
        self.flow.pause_reading()

    def _in_time(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


class HttpServer:
    """Serves from `open` to `close`, on sockets that already listen.

    Each socket has its own limit: connections over TCP take nothing from the private socket. `admits` gets
    the scope of each request before `app` does, and says whether more may follow.
    """

    def __init__(self, app: Any, admits: Admits, sockets: list[socket.socket]) -> None:
        config = Config(
            app,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=CLOSE_TIMEOUT,
        )
        config.load()
        # It warns about each request that is not HTTP: another user could fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._config = config
        self._admits = admits
        self._server = Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._server.servers = []  # it accepts nothing itself
        wanted = [PRIVATE_LIMITS if one.family == socket.AF_UNIX else TCP_LIMITS for one in sockets]
        self._acceptors = [
            Acceptor(one, limits, self._make_protocol)
            for one, limits in zip(sockets, fitting(*wanted), strict=True)
        ]

    def _make_protocol(self, connection: Connection) -> asyncio.Protocol:
        return _Protocol(connection, self._admits, self._config, self._server.server_state, {})

    async def open(self) -> None:
        for acceptor in self._acceptors:
            acceptor.open()

    async def close(self) -> None:
        """Accept no more. Requests under way are answered within `CLOSE_TIMEOUT`."""
        for acceptor in self._acceptors:
            acceptor.close()
        await self._server.shutdown()
