"""Serving the application on a Unix socket and on loopback: the one module that knows uvicorn."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from remuda.paths import peer_uid

log = logging.getLogger("remuda.boss.http")

HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT = 10.0
CONNECTIONS = 512
CLOSE_TIMEOUT = 3


class _Protocol(HttpToolsProtocol):
    """Refuses other users on the socket, and heads without an end."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head_bytes = 0
        self._reads_head = True
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        sock = transport.get_extra_info("socket")
        unix = sock.family == socket.AF_UNIX
        self.app_state = {**self.app_state, "unix": unix}
        super().connection_made(transport)
        self._overdue = self.loop.call_later(HEAD_TIMEOUT, transport.abort)
        if unix and (uid := peer_uid(sock)) != os.getuid():
            log.warning("refused user %d on the socket", uid)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
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

    def on_headers_complete(self) -> None:
        self._reads_head = False
        self._in_time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._reads_head, self._head_bytes = True, 0
        self.scope["state"]["whole"] = True
        super().on_message_complete()

    def _in_time(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


class HttpServer:
    """Serves from `open` to `close`, on sockets that listen already."""

    def __init__(self, app: Any, sockets: list[socket.socket]) -> None:
        config = Config(
            app,
            http=_Protocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=CLOSE_TIMEOUT,
        )
        config.load()
        self._server = Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._sockets = sockets

    async def open(self) -> None:
        await self._server.startup(sockets=self._sockets)

    async def close(self) -> None:
        """Takes no more. What has begun is answered, if that takes no longer than `CLOSE_TIMEOUT`."""
        await self._server.shutdown(sockets=self._sockets)
