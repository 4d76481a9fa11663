"""Serve the application on a Unix socket and on loopback. Only this module imports uvicorn."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from remuda.admission.acceptor import AcceptedConnection, Acceptor, fitting
from remuda.admission.credentials import is_own_peer
from remuda.admission.rule import Limits
from remuda.boss.access import Access
from remuda.errors import InvalidOptions
from remuda.paths import peer_uid

from .gate import Arrival

log = logging.getLogger("remuda.boss.http")

HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT = 5.0
TCP_LIMITS = Limits(pending=64, trusted=192)
PRIVATE_LIMITS = Limits(pending=128, trusted=384)
CLOSE_TIMEOUT = 3
MESSAGE_BYTES = 1 << 20
"""A WebSocket message from a client: what a user pastes."""


Admits = Callable[[dict[str, Any]], bool]
IsProxy = Callable[[str], bool]


class _Pipelined(Exception):  # stops the parser; never leaves this module
    pass


class _Protocol(HttpToolsProtocol):
    """Refuses other users on the socket, and heads without an end.

    A request without the token is the last of its connection. What follows is not parsed: the limits count
    connections, and one of 256 KB held 5,000 requests.
    """

    def __init__(
        self,
        connection: AcceptedConnection,
        admits: Admits,
        upgrades: Admits,
        is_proxy: IsProxy,
        *args: Any,
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        self._connection = connection
        self._admits = admits
        self._upgrades = upgrades
        self._becomes_socket = False
        self._is_proxy = is_proxy
        self._is_last = False
        self._is_over = False
        self._head_bytes = 0
        self._reads_head = True
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        sock = transport.get_extra_info("socket")
        unix = sock.family == socket.AF_UNIX
        super().connection_made(transport)
        address = "" if unix or self.client is None else self.client[0]
        arrival = Arrival(
            unix,
            self.scheme == "https",
            self._is_proxy(address),
            address,
            cache(partial(is_own_peer, sock)) if not unix else lambda: True,
        )
        facts = {"arrival": arrival, "trust": self._connection.trust, "abort": transport.abort}
        self.app_state = {**self.app_state, **facts}
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
        self._becomes_socket = self._may_upgrade()
        super().on_headers_complete()
        if not self._becomes_socket and not self._admits(cast("dict[str, Any]", self.scope)):
            self._is_last, self.cycle.keep_alive = True, False

    def _may_upgrade(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        is_busy = cycle is not None and not cycle.response_complete
        if self._get_upgrade() != b"websocket" or self._is_last or is_busy:
            return False
        path = unquote(httptools.parse_url(self.url).path.decode("ascii"))
        scope: dict[str, Any] = {**self.scope, "path": path}
        scope["method"] = self.parser.get_method().decode("ascii")
        if scope["method"] != "GET" or not self._upgrades(scope):
            return False
        self.app_state["judged"] = scope["state"]["judged"]
        return True

    def _should_upgrade(self) -> bool:
        return self._becomes_socket

    def handle_websocket_upgrade(self) -> None:
        self.ws_protocol_class = partial(_socket_protocol(), self._connection)  # type: ignore[assignment]
        super().handle_websocket_upgrade()

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


@cache
def _socket_protocol() -> Callable[..., asyncio.Protocol]:
    """Made when the first terminal is opened: its library takes 30 ms to load."""
    from uvicorn.protocols.utils import ClientDisconnected
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class SocketProtocol(WebSocketsSansIOProtocol):
        def __init__(self, connection: AcceptedConnection, **named: Any) -> None:
            super().__init__(**named)
            self._connection = connection

        def connection_lost(self, exc: Exception | None) -> None:
            self._connection.leave()
            super().connection_lost(exc)

        async def send(self, message: Any) -> None:
            await self.writable.wait()
            if self.close_sent:  # for a message that was too large: uvicorn calls it an error of ours
                raise ClientDisconnected
            await super().send(message)

        def keepalive_timeout(self) -> None:
            """End it now: closing would wait for a client that does not read."""
            self.transport.abort()

        def handle_ping(self) -> None:
            if self.writable.is_set():
                super().handle_ping()
            else:  # pongs would wait in memory for a client that does not read
                self.conn.data_to_send()

    return SocketProtocol


def _is_ours(record: logging.LogRecord) -> bool:
    """A message of a WebSocket that is not text is an error of the client."""
    return not str(record.msg).startswith("Invalid UTF-8")


def load_tls(cert: str, key: str) -> ssl.SSLContext:
    """Raises `InvalidOptions` for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password it would be asked for on a terminal.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:  # a wrong pair of files is one of the first
        raise InvalidOptions(
            f"cannot use the certificate {cert} with the key {key}: {error}",
            hint="[boss] tls_cert and tls_key must be PEM files; the key without a password",
        ) from error
    return context


class HttpServer:
    """Serves from `open` to `close`, on sockets that already listen.

    Each socket has its own limit: connections over TCP take nothing from the private socket. `admits` gets
    the scope of each request before `app` does, and says whether more may follow. `upgrades` gets it before
    that, of a request to become a WebSocket.
    """

    def __init__(
        self,
        app: Any,
        admits: Admits,
        upgrades: Admits,
        sockets: list[socket.socket],
        access: Access | None = None,
        beyond: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`beyond` listens where `access` says, besides loopback, and speaks TLS with `tls`."""
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
            ws_max_size=MESSAGE_BYTES,
            ws_per_message_deflate=False,  # it would hold 64 KB and more for each terminal
        )
        config.load()
        # It warns about each request that is not HTTP: another user could fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").addFilter(_is_ours)
        self._config = config
        self._admits, self._upgrades = admits, upgrades
        self._server = Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._server.servers = []  # it accepts nothing itself
        self._access = access or Access()
        listeners = [*sockets, *([beyond] if beyond is not None else [])]
        wanted = [PRIVATE_LIMITS if one.family == socket.AF_UNIX else TCP_LIMITS for one in listeners]
        self._acceptors = [
            Acceptor(one, limits, self._make_protocol)
            for one, limits in zip(listeners, fitting(*wanted), strict=True)
        ]
        if beyond is not None:
            self._acceptors[-1].takes, self._acceptors[-1].tls = self._access.takes, tls

    def _make_protocol(self, connection: AcceptedConnection) -> asyncio.Protocol:
        is_proxy, state = self._access.is_proxy, self._server.server_state
        return _Protocol(connection, self._admits, self._upgrades, is_proxy, self._config, state, {})

    async def open(self) -> None:
        for acceptor in self._acceptors:
            acceptor.open()

    async def close(self) -> None:
        """Accept no more. Requests under way are answered within `CLOSE_TIMEOUT`."""
        for acceptor in self._acceptors:
            acceptor.close()
        await self._server.shutdown()
