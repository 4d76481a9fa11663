"""`remuda.RemoteClient`: a pool that another process serves, with the calls of `Client`.

Each request has its own connection. Leaving a request early (by cancelling it, by its signal or by leaving
the loop over its events) closes the connection, and the server stops the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal, Self, Unpack, overload

from remuda.arguments import check_path
from remuda.duration import check_seconds, clamp_seconds
from remuda.errors import Aborted, ClientClosed, RemudaError
from remuda.tasks import TaskSet

from .async_pool_connection import AsyncPoolConnection
from .codec import decision_message, read_error, read_permission, read_remote, read_usage
from .options import AsyncRunOptions, PathOption, PrewarmOptions
from .pool_connection import SILENCE_TIMEOUT, default_socket
from .pool_request import decider
from .protocol import Message
from .request_builder import prewarm_message, run_message
from .types import Done, Failed, PermissionHandler, Permissions, Raw, RunResult, StreamEvent

ANSWER_GRACE = 30.0
"""Seconds that an answer may take beyond the timeout of its request."""
DEFAULT_TIMEOUT = 300.0
"""For a server that does not report its own default."""
_PERMISSION_TIMEOUT = 3600.0  # the timeout of the server ends it sooner


class RemoteClient:
    """Send requests to the pool of `remuda pool serve`, with the methods of `Client`.

    `socket` is the path at which the pool is served; None means the default path. `silence_timeout` is how
    long the server may send nothing, in seconds: a server that works sends something every 5 seconds.

    Raises the errors of `Client`, and also: `PoolNotServed` if no pool is served there or it is shutting down
    and did not start the request; `PoolBroken` if the server does not answer, closes the connection or speaks
    another version; `PermissionRefused` if the pool belongs to another user; `FolderUnusable` if the path is
    not a socket.
    """

    def __init__(self, socket: PathOption | None = None, *, silence_timeout: float = SILENCE_TIMEOUT) -> None:
        self._path = os.path.abspath(
            os.path.expanduser(check_path("socket", default_socket() if socket is None else socket))
        )
        self._silence = check_seconds("silence_timeout", silence_timeout)
        self._late: dict[int, tuple[RunResult, asyncio.Task[None]]] = {}
        self._closed = False

    # ── requests ──

    async def run(self, prompt: str, **options: Unpack[AsyncRunOptions]) -> RunResult:
        """Send one prompt in a new conversation and return the answer.

        The agent works in the folder and with the environment of this process, unless `cwd` and `env` say
        otherwise. Cancelling the task closes the connection, and the server interrupts the agent.
        """
        async with contextlib.aclosing(self._events(prompt, options, stream=False)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.result
        raise AssertionError("a request ended without its last event")

    @overload
    def stream(
        self, prompt: str, *, raw: Literal[False] = False, **options: Unpack[AsyncRunOptions]
    ) -> AsyncGenerator[StreamEvent, None]: ...

    @overload
    def stream(
        self, prompt: str, *, raw: bool, **options: Unpack[AsyncRunOptions]
    ) -> AsyncGenerator[StreamEvent | Raw, None]: ...

    def stream(
        self, prompt: str, *, raw: bool = False, **options: Unpack[AsyncRunOptions]
    ) -> AsyncGenerator[Any, None]:
        """Send one prompt in a new conversation and yield events as they happen.

        `Done` is the last event. If the request fails, the last event is `Failed`, and its error is then
        raised. `raw` also yields `Raw` events. Closing the generator or cancelling the task aborts the
        request.
        """
        return self._events(prompt, options, stream=True, raw=raw)

    async def complete(self, result: RunResult) -> RunResult:
        """Wait until `result.usage` is known, at most some seconds, and return the same result."""
        _, learning = self._late.get(id(result), (result, None))
        if learning is not None:
            await asyncio.wait([learning])
        return result

    async def prewarm(self, count: int | None = None, **profile: Unpack[PrewarmOptions]) -> None:
        """Keep `count` workers ready for requests from this folder with this environment.

        Returns when they are ready. None means as many as the pool has room for; 0 keeps none from now on.
        Raises the errors of `Client.prewarm`.
        """
        options, permissions, _ = _split_options(profile)
        await self._ask(
            prewarm_message(
                count, options, cwd=os.getcwd(), environ=os.environ, permissions=_policy(permissions)
            )
        )

    async def stats(self) -> dict[str, Any]:
        """Return the state of the server and its pool, as `remuda pool status --json` prints it."""
        return dict((await self._ask({"type": "status"})).get("status") or {})

    async def metrics(self) -> str:
        """Return the counters of the pool in the text format of Prometheus."""
        return str((await self._ask({"type": "metrics"})).get("text", ""))

    async def aclose(self) -> None:
        """Close this client. New requests raise `ClientClosed`; running requests and the server go on."""
        self._closed = True
        for _, learning in list(self._late.values()):
            learning.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    # ── within ──

    async def _open(self, message: Message) -> AsyncPoolConnection:
        if self._closed:
            raise ClientClosed("the client is closed")
        return await AsyncPoolConnection.ask(self._path, message, silence_timeout=self._silence)

    async def _ask(self, message: Message) -> Message:
        async with await self._open(message) as connection:
            answer = await connection.next()
        if answer["type"] == "error":
            raise read_error(answer)
        return answer

    async def _events(
        self, prompt: str, given: Mapping[str, Any], *, stream: bool, raw: bool = False
    ) -> AsyncGenerator[StreamEvent | Raw, None]:
        options, permissions, signal = _split_options(given)
        message = run_message(
            prompt,
            options,
            cwd=os.getcwd(),
            environ=os.environ,
            stream=stream,
            raw=raw,
            permissions=_policy(permissions),
        )
        connection = await self._open(message)
        request = _RemoteRequest(connection, permissions if callable(permissions) else None, signal)
        connection.expect(_timeout(options, connection.greeting) + ANSWER_GRACE)
        try:
            async with contextlib.aclosing(request.events()) as events:
                async for event in events:
                    if isinstance(event, Done) and request.more:
                        self._learn_usage(connection, event.result)
                    yield event
        finally:
            request.close()
            if not request.more:
                connection.close()

    def _learn_usage(self, connection: AsyncPoolConnection, result: RunResult) -> None:
        """Read the usage, which follows the answer. `complete` waits for it."""

        async def learn() -> None:
            try:
                async with connection:
                    result.usage = read_usage((await connection.next()).get("usage"))
            except RemudaError:
                pass  # the usage stays unknown

        learning = asyncio.create_task(learn())
        self._late[id(result)] = (result, learning)
        learning.add_done_callback(lambda _: self._late.pop(id(result), None))


class _RemoteRequest:
    """The replies to one request."""

    def __init__(
        self, connection: AsyncPoolConnection, handler: PermissionHandler | None, signal: asyncio.Event | None
    ) -> None:
        self.more = False
        """Whether the usage follows the answer."""
        self._connection = connection
        self._decide = decider(handler, _PERMISSION_TIMEOUT, lambda: None) if handler is not None else None
        self._tasks = TaskSet()
        if signal is not None:
            self._tasks.start(self._watch(signal))

    async def events(self) -> AsyncGenerator[StreamEvent | Raw, None]:
        """Yield events; `Done` is the last. A failure is yielded as `Failed` and then raised."""
        while True:
            try:
                message = await self._connection.next()
                event = self._read(message)
            except RemudaError as error:
                event = Failed(error)
            if event is not None:
                yield event
            if isinstance(event, Done):
                return
            if isinstance(event, Failed):
                raise event.error

    def _read(self, message: Message) -> StreamEvent | Raw | None:
        self.more = message["type"] == "done" and bool(message.get("more"))
        if message["type"] == "permission" and message.get("decide"):
            self._tasks.start(self._ask(message))
        return read_remote(message)

    async def _ask(self, message: Message) -> None:
        if self._decide is not None:
            request = read_permission(message)
            await self._connection.send(decision_message(request.id, await self._decide(request)))

    async def _watch(self, signal: asyncio.Event) -> None:
        await signal.wait()
        self._connection.abort(Aborted("the request was aborted"))

    def close(self) -> None:
        self._tasks.cancel()


def _split_options(
    given: Mapping[str, Any],
) -> tuple[dict[str, Any], Permissions | None, asyncio.Event | None]:
    """Return the options that are sent, who decides permission requests, and the signal."""
    options = dict(given)
    return options, options.pop("permissions", None), options.pop("signal", None)


def _policy(permissions: Permissions | None) -> str | None:
    return "ask" if callable(permissions) else permissions


def _timeout(options: Mapping[str, Any], greeting: Message) -> float:
    """Return the timeout of the request, else that of the server, which refuses one that is not a number."""
    for given in (options.get("timeout"), greeting.get("default_timeout")):
        if isinstance(given, int | float):
            return clamp_seconds(given)
    return DEFAULT_TIMEOUT
