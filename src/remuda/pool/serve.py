"""A pool for other processes of this user: one client on a Unix socket.

Each connection carries one request. Folder and environment come with the request; none of the server's own is
used. A peer that closes its connection cancels its request; a peer that does not read is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from remuda._version import __version__
from remuda.errors import (
    ClientClosed,
    LocalProtocolError,
    PoolExhausted,
    RemoteProtocolError,
    RemudaError,
)
from remuda.paths import peer_uid

from .client import Client
from .codec import error_message, result_document
from .pool_socket import PoolPeer, PoolSocket, RequestHandler
from .protocol import MAX_FRAME_BYTES, Message, hello
from .types import Done, RunResult

LOG = logging.getLogger("remuda.pool.serve")
_CLOSING = "the pool is shutting down"
_LAST_REQUEST_TIMEOUT = 1.0
"""Seconds that a connected peer has to send its request when the server ends; it is then refused."""
_STEPS_TO_A_PEER = 10
"""Iterations of the loop, and some more, from an accepted connection to `_connected`."""


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """Limits for peers, in numbers and in seconds."""

    max_connections: int = 128
    max_queue: int = 256
    """Requests that wait for a worker."""
    max_body_bytes: int = MAX_FRAME_BYTES
    first_word_timeout: float = 10.0
    request_timeout: float = 60.0
    """For a complete request to arrive."""
    slow_timeout: float = 30.0
    """For a peer to read what waits for it."""
    linger_timeout: float = 10.0
    """For a peer that still sends to read why it was refused."""
    alive_interval: float = 5.0
    """While a request runs, something is sent to its peer at least this often."""


class PoolServer:
    """Serves `client` on `listener` from `open` to `close`."""

    def __init__(
        self, client: Client, listener: socket.socket, limits: ServeLimits, facts: Mapping[str, Any]
    ) -> None:
        self._client, self._listener, self._limits = client, listener, limits
        pool = {name: client.stats()[name] for name in ("backend", "pool_size")}
        self._facts = {"server_version": __version__, "pid": os.getpid(), **pool, **facts}
        """Sent to every peer in the hello."""
        self._since = time.monotonic()
        self._peers: dict[asyncio.Task[None], PoolPeer] = {}
        self._requests = 0
        self._served = 0
        self._server: asyncio.Server | None = None
        self._closed = asyncio.Event()
        self.asked_to_stop = asyncio.Event()
        """Set when a peer has asked the server to end."""
        self._closing = False

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, sock=self._listener)

    def refuse(self) -> None:
        """Refuse new requests from now on; running ones go on."""
        self._closing = True

    async def close(self) -> None:
        """Disconnect all peers, when nothing runs any more. Bounded by the time a peer may take to read."""
        self._closing = True
        if self._server is not None:
            await self._accept_backlog()
            self._server.close()
        self._closed.set()
        if newcomers := [task for task, peer in self._peers.items() if not peer.has_request]:
            await asyncio.wait(newcomers, timeout=_LAST_REQUEST_TIMEOUT)
        for task, peer in self._peers.items():
            if not peer.has_request:
                task.cancel()
        if self._peers:
            await asyncio.wait(self._peers, timeout=self._limits.first_word_timeout)
        for task in self._peers:
            task.cancel()
        await asyncio.gather(*self._peers, return_exceptions=True)

    async def _accept_backlog(self) -> None:
        """Accept who connected before the socket was gone, so that they get an error and not a reset."""
        backlog = select.poll()
        backlog.register(self._listener, select.POLLIN)
        quiet = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_REQUEST_TIMEOUT):
                while quiet < _STEPS_TO_A_PEER:
                    quiet = 0 if backlog.poll(0) else quiet + 1
                    await asyncio.sleep(0)

    # ── one connection ──

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid != os.getuid():
            LOG.warning("refused a connection from uid %d", uid)
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        peer = PoolPeer(
            reader,
            writer,
            max_bytes=self._limits.max_body_bytes,
            slow_timeout=self._limits.slow_timeout,
            alive_interval=self._limits.alive_interval,
        )
        refused = sum(one.refused for one in self._peers.values())
        peer.refused = len(self._peers) - refused >= self._limits.max_connections
        if peer.refused and refused >= self._limits.max_connections:
            writer.transport.abort()
            return
        self._peers[task] = peer
        try:
            await self._serve_peer(peer)
        except (ConnectionError, TimeoutError) as error:
            LOG.debug("client disconnected: %s", error)
        except asyncio.CancelledError:
            await self._refuse_unserved(peer)
        finally:
            await peer.close()
            del self._peers[task]

    async def _refuse_unserved(self, peer: PoolPeer) -> None:
        """At the end of the server: send an error to a peer that has not sent a request."""
        if not peer.has_request and not peer.has_error:
            with contextlib.suppress(ConnectionError):
                await peer.send(error_message(ClientClosed(_CLOSING), begun=False))

    async def _serve_peer(self, peer: PoolPeer) -> None:
        try:
            if peer.refused:
                raise PoolExhausted(
                    f"the pool already has {self._limits.max_connections} connections",
                    hint="raise --max-connections of 'remuda pool serve'",
                )
            request = await self._receive_request(peer)
            peer.has_request = True
            await self._carry_out(peer, request)
        except RemoteProtocolError as error:
            LOG.warning("protocol error from a client: %s", error)
            await peer.send(
                error_message(LocalProtocolError(error.message, hint=error.hint))
            )  # the error is on its side
            await peer.ignore(self._limits.linger_timeout)
        except RemudaError as error:
            await peer.send(error_message(error, begun=peer.begun))
            if peer.refused:  # it may still be sending
                await peer.ignore(self._limits.linger_timeout)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            LOG.exception("internal error in a request")
            await peer.send(error_message(RemudaError(f"internal error in the pool server: {error}")))

    async def _receive_request(self, peer: PoolPeer) -> Message:
        async with asyncio.timeout(self._limits.first_word_timeout):
            await peer.receive()  # the protocol accepts only a hello first
        await peer.send(hello(**self._facts))
        async with asyncio.timeout(self._limits.request_timeout):
            return await peer.receive()

    async def _carry_out(self, peer: PoolPeer, request: Message) -> None:
        match request["type"]:
            case "run":
                await self._with_cancel(peer, request, self._run)
            case "prewarm":
                await self._with_cancel(peer, request, self._prewarm)
            case "status":
                await peer.send({"type": "status", "status": self.status()})
            case "metrics":
                await peer.send({"type": "metrics", "text": self._client.metrics()})
            case "shutdown":
                await peer.send({"type": "stopping"})
                self.asked_to_stop.set()
                peer.keep_alive()
                await self._closed.wait()

    # ── requests that take time ──

    async def _with_cancel(self, peer: PoolPeer, request: Message, work: Work) -> None:
        """Run `work` until it is done, or until the peer cancels or disconnects."""
        handler = RequestHandler(peer, request, self._facts)
        self._admit()
        self._requests += 1
        peer.keep_alive()
        working = asyncio.create_task(work(handler))
        receiving = asyncio.create_task(handler.receive_decisions())
        try:
            await asyncio.wait((working, receiving), return_when=asyncio.FIRST_COMPLETED)
            handler.cancelled.set()  # no effect on work that has ended
            if receiving.done() and not working.done():
                await self._await_end(working)
                receiving.result()  # a protocol error is raised after that
            await working
        finally:
            self._requests -= 1
            for task in (working, receiving):
                task.cancel()
            await asyncio.gather(working, receiving, return_exceptions=True)

    async def _await_end(self, working: asyncio.Task[None]) -> None:
        _, late = await asyncio.wait((working,), timeout=self._limits.first_word_timeout)
        for task in late:
            task.cancel()

    def _admit(self) -> None:
        self._check_open()
        size = int(self._facts.get("pool_size", 0))
        if self._requests >= size + self._limits.max_queue:
            raise PoolExhausted(
                f"{self._limits.max_queue} requests are already waiting",
                hint="raise --size or --max-queue of 'remuda pool serve'",
                size=size,
            )

    def _check_open(self) -> None:
        if self._closing:
            raise ClientClosed(_CLOSING)

    async def _run(self, handler: RequestHandler) -> None:
        self._check_open()
        handler.peer.begun = True
        request, options = handler.request, handler.options()
        if request.get("stream") or request.get("raw"):
            result = await self._stream(handler, options)
        else:
            result = await self._client.run(request["prompt"], **options)
        self._served += 1
        more = result.usage is None
        await handler.peer.send({"type": "done", "result": result_document(result), "more": more})
        if more:
            await self._client.complete(result)
            usage = result_document(result)["usage"]
            await handler.peer.send({"type": "usage", "usage": usage})

    async def _stream(self, handler: RequestHandler, options: Any) -> RunResult:
        request = handler.request
        stream = self._client.stream(request["prompt"], raw=bool(request.get("raw")), **options)
        async with contextlib.aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.result
                if (message := handler.event_message(event)) is not None:
                    await handler.peer.send(message)
        raise AssertionError("a stream ended without its last event")

    async def _prewarm(self, handler: RequestHandler) -> None:
        self._check_open()
        handler.peer.begun = True
        options = handler.options()
        del options["signal"]
        count = handler.request.get("count")
        await self._client.prewarm(count, **options)
        await handler.peer.send({"type": "prewarmed"})

    # ── status ──

    def status(self) -> dict[str, Any]:
        return {
            **self._facts,
            "uptime": time.monotonic() - self._since,
            "state": "closing" if self._closing else "serving",
            "connections": len(self._peers),
            "requests": self._requests,
            "served": self._served,
            "pool": self._client.stats(),
        }


@contextlib.asynccontextmanager
async def serving(
    client: Client, path: str, limits: ServeLimits | None = None, **facts: Any
) -> AsyncIterator[PoolServer]:
    """Serve `client` at that path, and close it at the end: running requests may finish within their limits.

    At the end the socket is removed at once. A peer that asked for the end hears of it when all has ended.
    """
    pool_socket = PoolSocket(path)
    server = PoolServer(client, pool_socket.open(), limits or ServeLimits(), facts)
    try:
        await server.open()
        yield server
    finally:
        server.refuse()
        pool_socket.hide()
        await client.aclose()
        pool_socket.close()
        await server.close()


Work = Callable[[RequestHandler], Coroutine[Any, Any, None]]
