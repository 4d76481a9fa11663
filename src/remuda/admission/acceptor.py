"""Accept connections on a listening socket, under the rule of `Admission`."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from remuda.readable import is_readable
from remuda.tasks import TaskSet

from .credentials import is_own_peer
from .rule import Admission, Limits, fit

if TYPE_CHECKING:
    import ssl  # every keeper imports this module

log = logging.getLogger("remuda.admission")

BACKLOG = 1024
"""A flood fills this queue before we accept from it; a client that finds it full waits for a second."""
PENDING_TIMEOUT = 10.0
"""A connection that has not shown the token by then is dropped."""
# Few in each round of the loop: a connection's head is read a few rounds after it came, and until then it
# must not become the oldest of those that are pending.
_ENTERED_A_ROUND = 2
_ACCEPTED_A_ROUND = 16
_PAUSE = 0.25
_REPORT_INTERVAL = 60.0

Factory = Callable[["AcceptedConnection"], asyncio.BaseProtocol]


class AcceptedConnection:
    """One accepted connection. Its protocol calls `trust` once it has shown the token, `leave` at its end."""

    def __init__(self, acceptor: Acceptor, sock: socket.socket) -> None:
        self._acceptor = acceptor
        self.sock = sock
        self._transport: asyncio.Transport | None = None
        self._is_dropped = False
        self._is_trusted = False
        self._overdue = asyncio.get_running_loop().call_later(PENDING_TIMEOUT, self.drop)

    def connected(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self._is_dropped:
            transport.abort()

    def trust(self) -> bool:
        """Mark it as trusted. Returns False when there are too many trusted ones already."""
        if not self._is_trusted and self._acceptor.admission.trust(self):
            self._overdue.cancel()
            self._is_trusted = True
        return self._is_trusted

    def leave(self) -> None:
        self._overdue.cancel()
        self._acceptor.admission.leave(self)

    def drop(self) -> None:
        self.leave()
        self._is_dropped = True
        if self._transport is not None:
            self._transport.abort()


class Acceptor:
    """Accepts from `open` to `close`. `make_protocol` gets each accepted connection."""

    def __init__(self, listener: socket.socket, limits: Limits, make_protocol: Factory) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        is_own = _is_own_tcp if listener.family != socket.AF_UNIX else _is_own_unix
        self.admission: Admission[AcceptedConnection] = Admission(limits, is_own)
        self.tls: ssl.SSLContext | None = None
        """Speak TLS with this."""
        self.takes: Callable[[str], bool] = _takes_all
        """Whether to accept from that address."""
        self._tasks = TaskSet()
        self._pause: asyncio.TimerHandle | None = None
        self._dropped = 0
        self._report_at = 0.0

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept no more. Connections that are open stay open."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        self._report()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        entered = 0
        for _ in range(_ACCEPTED_A_ROUND):
            if entered == _ENTERED_A_ROUND:
                return
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is left, or no memory
                self._make_room(error)
                return
            if not self.takes(address[0] if isinstance(address, tuple) else ""):
                sock.close()
                continue
            entered += self._enter(AcceptedConnection(self, sock))

    def _make_room(self, error: OSError) -> None:
        """Pause after an error: the listener stays readable, and we would try again at once, without end."""
        if not is_readable(self._listener.fileno(), 0):  # the kernel looks for a descriptor first
            return
        log.warning("cannot accept a connection: %s", error.strerror)
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(_PAUSE, self._resume)
        oldest = self.admission.oldest_pending()
        if oldest is not None:
            oldest.drop()

    def _enter(self, one: AcceptedConnection) -> bool:
        dropped = self.admission.enter(one, self._loop.time())
        if dropped is not None:
            dropped.drop()
            self._count_dropped()
        if dropped is one:
            one.sock.close()
            return False
        if one.sock.family != socket.AF_UNIX:  # or a small answer after another waits for 40 ms
            one.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tasks.start(self._connect(one))
        return True

    async def _connect(self, one: AcceptedConnection) -> None:
        def made() -> asyncio.BaseProtocol:
            return self._make_protocol(one)

        try:
            transport, _ = await self._loop.connect_accepted_socket(
                made,
                one.sock,
                ssl=self.tls,
                ssl_handshake_timeout=PENDING_TIMEOUT if self.tls is not None else None,
            )
        except BaseException as error:
            one.leave()
            one.sock.close()
            if self.tls is not None and isinstance(error, OSError):  # not TLS, or no version that both know
                return
            raise
        one.connected(transport)

    def _count_dropped(self) -> None:
        self._dropped += 1
        if self._loop.time() >= self._report_at:
            self._report()

    def _report(self) -> None:
        """Log dropped connections at intervals: a flood must not fill the log."""
        if self._dropped:
            log.warning("dropped %d connections that had shown no token: too many came", self._dropped)
            self._dropped, self._report_at = 0, self._loop.time() + _REPORT_INTERVAL


def fitting(*wanted: Limits) -> tuple[Limits, ...]:
    """Return the limits of `fit` for the descriptors that this process may open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return fit(wanted, soft if soft != resource.RLIM_INFINITY else 1 << 20)


def _takes_all(_address: str) -> bool:
    return True


def _is_own_tcp(one: AcceptedConnection) -> bool | None:
    return is_own_peer(one.sock)


def _is_own_unix(_: AcceptedConnection) -> bool:
    return True


# ── for servers that read streams ──

Serve = Callable[[AcceptedConnection, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def stream_protocol(serve: Serve, limit: int, tasks: TaskSet) -> Factory:
    """Make a protocol that runs `serve` for each connection, as one of `tasks`.

    `limit` is as in `asyncio.start_server`. `serve` may raise when the client goes away, and when its task is
    cancelled: the connection is closed.
    """

    def make(one: AcceptedConnection) -> asyncio.BaseProtocol:
        loop = asyncio.get_running_loop()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await serve(one, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, asyncio.CancelledError):
                pass
            finally:
                one.leave()
                writer.close()

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit, loop), connected, loop)

    return make
