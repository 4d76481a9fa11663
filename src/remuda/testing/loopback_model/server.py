"""The loopback model: an asyncio server in a thread of its own, so that any test can use it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from types import TracebackType
from typing import Self

from ..script import Hold, Reply, failure
from .connection import ClientReader, Connection
from .gate import Gate
from .http1 import MAX_HEAD_BYTES
from .log import Predicate, RequestLog, matching
from .request import Request
from .scripting import Handler, Scripting, default_handler

__all__ = ["Handler", "LoopbackModel"]

_CLOSE_TIMEOUT = 5.0


class LoopbackModel:
    """Serves the Messages API on 127.0.0.1 between ``open`` (or ``with``) and ``close``.

    What it says to a request is decided by the first of: the queue of :meth:`next`, for main requests; the
    newest matching rule of :meth:`when`; ``handler``, by default the brain of :mod:`remuda.testing.script`.

    A handler gets the request and the number of this reply in the request's session; only replies that were
    sent whole are counted. It runs in the server's thread and must not block: a reply that is to wait holds a
    :class:`Gate`. What it raises is answered with status 500 and raised again by :meth:`close`.
    """

    def __init__(self, handler: Handler = default_handler, *, port: int = 0) -> None:
        self._log = RequestLog()
        self._scripting = Scripting(handler)
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """What ANTHROPIC_BASE_URL is to be."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, of every kind, oldest first."""
        return self._log.requests()

    @property
    def main_requests(self) -> list[Request]:
        """Those that belong to a conversation; see :attr:`Request.is_main`."""
        return [request for request in self.requests if request.is_main]

    def next(self, *answers: Reply | Handler | str) -> None:
        """Answer the next main requests with these, one each. An agent may repeat a request that failed."""
        for answer in answers:
            self._scripting.enqueue(Reply.of(answer) if isinstance(answer, str) else answer)

    def when(self, wanted: Predicate | str, answer: Reply | Handler | str) -> None:
        """Answer every matching request so; a string matches main requests whose prompt contains it."""
        self._scripting.add_rule(matching(wanted), Reply.of(answer) if isinstance(answer, str) else answer)

    def hold(self, wanted: Predicate | None = None) -> Gate:
        """Keep the answer to the next main request back, first byte included, until the gate is opened.

        With `wanted`: keep the answers to all main requests back that it accepts.
        """
        gate = Gate()

        def held(request: Request, n: int) -> Reply:
            reply = self._scripting.fallback(request, n)
            return Reply((Hold(gate), *reply.steps), reply.stop_reason, reply.usage)

        if wanted is None:
            self.next(held)
        else:
            self.when(lambda request: request.is_main and wanted(request), held)
        return gate

    def wait_for(self, wanted: Predicate | str, timeout: float = 30.0, *, count: int = 1) -> Request:
        """The ``count``-th request that matches, as soon as it is there; TimeoutError lists what came.

        A predicate is asked again when a request is answered, so it may look at ``outcome``.
        """
        return self._log.wait_for(wanted, timeout, count)

    def open(self) -> None:
        """Start serving; returns when the port accepts."""
        started: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="loopback-model", daemon=True)
        self._thread.start()
        try:
            self._port = started.result()
        except OSError:
            self._thread = None
            raise

    def close(self) -> None:
        """Break all connections and end the thread, within seconds. Raises what a handler raised."""
        if self._thread and self._loop:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_CLOSE_TIMEOUT)
            self._thread = None
        error, self._error = self._error, None
        if error:
            raise error

    def _run(self, started: concurrent.futures.Future[int]) -> None:
        try:
            asyncio.run(self._serve(started))
        except OSError as error:  # the port is taken
            started.set_exception(error)

    async def _serve(self, started: concurrent.futures.Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        connections: set[asyncio.Task[None]] = set()

        def accept() -> asyncio.Protocol:
            reader = ClientReader(limit=MAX_HEAD_BYTES)
            return asyncio.StreamReaderProtocol(reader, lambda _, writer: serve(reader, writer))

        def serve(reader: ClientReader, writer: asyncio.StreamWriter) -> None:
            connection = Connection(reader, writer, self._log, self._decide, self._scripting.given)
            task = asyncio.ensure_future(connection.serve())
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await self._loop.create_server(accept, "127.0.0.1", self._port)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _decide(self, request: Request) -> Reply:
        try:
            return self._scripting.decide(request)
        except Exception as error:  # noqa: BLE001 - a handler is the test's code: it may raise anything
            self._error = self._error or error
            return Reply((failure(500, message=f"the handler raised {error!r}"),))
