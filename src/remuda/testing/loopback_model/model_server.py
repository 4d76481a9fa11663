"""The loopback model: an asyncio server in a thread of its own, so that any test can use it.

`Scripting` decides what it says to a request: a queue, rules, and a handler after them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Self, TypeAlias

from remuda.tasks import TaskSet
from remuda.testing.script import Hold, Reply, failure, reply_to

from .model_connection import MAX_HEAD_BYTES, ClientReader, ModelConnection
from .model_request import Predicate, Request, RequestLog, matching

_CLOSE_TIMEOUT = 5.0

# ── a gate in the middle of a reply, opened by the test that put it there ──


class Gate:
    """Shut until :meth:`open`; what has reached it waits. Safe between threads.

    As a context manager it opens at the end, whatever happened, so that no agent is left hanging.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._arrivals = 0
        self._waiting: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.open()

    def open(self) -> None:
        """Let everything through that waits, and everything that comes later."""
        with self._changed:
            self._open = True
            waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def reached(self, then: Callable[[], None]) -> None:
        """See :class:`remuda.testing.script.Opening`."""
        with self._changed:
            self._arrivals += 1
            self._changed.notify_all()
            if not self._open:
                self._waiting.append(then)
                return
        then()

    def wait_reached(self, timeout: float = 30.0) -> None:
        """Return as soon as a reply has come this far: everything before the gate was sent."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrivals > 0, timeout):
                raise TimeoutError(f"no reply reached the gate within {timeout:g} s")


# ── what is said to a request ──

Handler: TypeAlias = Callable[[Request, int], Reply]


def default_handler(request: Request, n: int) -> Reply:
    """Reply as :mod:`remuda.testing.script` does; requests outside a conversation get "ok"."""
    return reply_to(request.said, n) if request.is_main else Reply.of("ok")


class Scripting:
    """Safe between threads: the test scripts, the server asks."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._queue: deque[Handler] = deque()
        self._rules: list[tuple[Predicate, Handler]] = []
        self._replies: Counter[str] = Counter()

    def enqueue(self, answer: Reply | Handler) -> None:
        with self._lock:
            self._queue.append(_handler(answer))

    def add_rule(self, matches: Predicate, answer: Reply | Handler) -> None:
        with self._lock:
            self._rules.insert(0, (matches, _handler(answer)))

    def fallback(self, request: Request, n: int) -> Reply:
        """Return what would be said without a queue and rules."""
        return self._handler(request, n)

    def decide(self, request: Request) -> Reply:
        """Return the reply of the queue (main requests only), else of the newest rule or the handler."""
        with self._lock:
            n = self._replies[request.session_id] + 1
            answer = self._choose(request)
        return answer(request, n)

    def given(self, request: Request) -> None:
        """A reply is sent in full. Only such count, so that an agent's retries do not shift the numbers."""
        if request.is_main:
            with self._lock:
                self._replies[request.session_id] += 1

    def _choose(self, request: Request) -> Handler:
        if request.is_main and self._queue:
            return self._queue.popleft()
        return next((handler for matches, handler in self._rules if matches(request)), self._handler)


def _handler(answer: Reply | Handler) -> Handler:
    return (lambda _request, _n: answer) if isinstance(answer, Reply) else answer


# ── the server ──


class LoopbackModel:
    """Serves the Messages and Responses APIs on 127.0.0.1 between ``open`` (or ``with``) and ``close``.

    What it says to a request is decided by the first of: the queue of :meth:`next`, for main requests; the
    newest matching rule of :meth:`when`; ``handler``, by default the brain of :mod:`remuda.testing.script`.

    A handler gets the request and the number of this reply in the request's session; only replies that were
    sent in full are counted. It runs in the server's thread and must not block: a reply that waits holds a
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

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """The value for ANTHROPIC_BASE_URL."""
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
        """Return the ``count``-th request that matches, as soon as it is there; TimeoutError lists what came.

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
        connections = TaskSet()

        def accept() -> asyncio.Protocol:
            reader = ClientReader(limit=MAX_HEAD_BYTES)
            return asyncio.StreamReaderProtocol(reader, lambda _, writer: serve(reader, writer))

        def serve(reader: ClientReader, writer: asyncio.StreamWriter) -> None:
            connection = ModelConnection(reader, writer, self._log, self._decide, self._scripting.given)
            connections.start(connection.serve())

        server = await self._loop.create_server(accept, "127.0.0.1", self._port)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        await connections.aclose()

    def _decide(self, request: Request) -> Reply:
        try:
            return self._scripting.decide(request)
        except Exception as error:  # noqa: BLE001 - a handler is the test's code: it may raise anything
            self._error = self._error or error
            return Reply((failure(500, message=f"the handler raised {error!r}"),))
