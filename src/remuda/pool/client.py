"""`remuda.Client`: requests to warm agents. `remuda help pool` has the guide."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import warnings
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, Self, Unpack, overload

from remuda.arguments import absolute_path
from remuda.errors import ClientClosed, InputError, InvalidOptions, RemudaError
from remuda.paths import sessions_folder

from . import option_readers
from .codec import read_remote
from .events import EventName, Listener, PoolObserver
from .options import (
    AsyncRunOptions,
    ClientOptions,
    PrewarmOptions,
    RequestSettings,
    read_client,
    read_prewarm,
    read_run,
)
from .pool import Pool
from .pool_request import PoolRequest
from .types import Done, Failed, Raw, RunResult, StreamEvent
from .worker import Profile, Resolver, WorkerFactory, check_profile
from .worker import backend_factory as backend_factory

_MAX_CHECKED = 1000
"""Profiles that are not checked twice; a program may make a new one for each request."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request whose options were checked and that has not begun."""

    prompt: str
    options: RequestSettings
    profile: Profile


class Client:
    """Keep a pool of warm agents and give each request to one of them.

    A client belongs to the event loop in which it is first used. Use it with `async with`, or call `aclose`.
    If the client is dropped or its process is killed, its agents end too.

    The keyword options are those of `ClientOptions`; options of a profile are the defaults of all requests.
    `session_factory` replaces the backend, for tests without agents: see `remuda.testing.pool`. With `fleet`
    no agent runs here: each request goes to any host of the fleet with a free warm agent, and `cwd` is a
    folder there.

    Raises `InvalidOptions` for options that cannot be used. No agent is started before the first request.
    """

    def __init__(
        self,
        *,
        session_factory: WorkerFactory | None = None,
        fleet: bool = False,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._pool: Pool | None = None
        self._fleet = fleet
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._settings = read_client(options)
        self._resolver = Resolver(self._settings, os.environ)
        self._find_binary = session_factory is None
        self._observer = PoolObserver()
        self._requests: dict[str, PoolRequest] = {}
        self._checked: set[str] = set()
        self._profile(read_run({}, self._settings), find_binary=False)
        # Here and not in the event loop: the first use of a backend imports it.
        self._factory = session_factory or self._backend()

    # ── requests ──

    async def run(self, prompt: str, **options: Unpack[AsyncRunOptions]) -> RunResult:
        """Send one prompt in a new conversation and return the answer.

        The options are those of `AsyncRunOptions`. `timeout` includes the wait for a worker.

        Raises a `RemudaError` with a `.code` and, once the request has an id, a `.request_id`:
        `InvalidOptions` and `InputError` before anything is started; `PoolExhausted` if no worker was free
        within `acquire_timeout`; `SpawnFailed`, `CommandNotFound` or `CommandNotExecutable` if no agent
        starts; `WaitTimeout` after `timeout`; `AgentError` if the agent reports an error; `SessionCrashed` or
        `SessionDirty` if the worker fails during the request; `Aborted` and `ClientClosed`.

        Cancelling the task aborts the request: the agent is interrupted, and the worker is reused only if the
        agent confirms that it stopped. A failed request is never retried.
        """
        if self._fleet:
            async with contextlib.aclosing(self._anywhere(prompt, options, stream=False)) as events:
                async for one in events:
                    if isinstance(one, Done):
                        return one.result
        request = self._begin(self._prepare(prompt, options), quiet=True)
        try:
            async for event in request:
                if isinstance(event, Done):
                    return event.result
        finally:
            self._leave(request)
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
        raised: the same errors as from `run`. `raw` also yields `Raw` events, the messages that
        `claude -p --output-format stream-json` would print.

        Options are checked when you call `stream`; the request starts with the first iteration. Leaving
        the loop early, closing the generator or cancelling the task aborts the request.
        """
        if self._fleet:
            return self._anywhere(prompt, options, stream=True, raw=raw)
        return self._stream(self._prepare(prompt, options), raw=raw)

    async def _anywhere(
        self, prompt: str, given: Mapping[str, Any], *, stream: bool, raw: bool = False
    ) -> AsyncGenerator[StreamEvent | Raw, None]:
        """Run it on any host. The boss is asked in a thread: it may be restarted while this waits."""
        options = read_run(given, self._settings)
        if callable(options.permissions):
            raise InvalidOptions("permissions cannot be a function with fleet", hint="use 'deny' or 'allow'")
        request_type = importlib.import_module("remuda.boss.fleet_requests").FleetRequest
        profile = {one.name: getattr(options.profile, one.name) for one in fields(options.profile)}
        loop = asyncio.get_running_loop()
        # Not the threads of all: each request waits in one of them.
        with ThreadPoolExecutor(1, thread_name_prefix="fleet") as thread:
            asked = partial(
                request_type,
                _checked(prompt),
                profile,
                timeout=options.timeout,
                stream=stream,
                raw=raw,
                permissions=options.permissions,
                requires={"agent": self._settings.agent},
            )
            request = await loop.run_in_executor(thread, asked)
            ended = False
            try:
                while not ended:
                    event = read_remote(await loop.run_in_executor(thread, request.next))
                    ended = isinstance(event, Done | Failed)
                    if event is not None:
                        yield event
                    if isinstance(event, Failed):
                        raise event.error
            finally:
                if not ended:
                    await asyncio.to_thread(request.cancel)

    async def _stream(self, prepared: _Prepared, *, raw: bool) -> AsyncGenerator[StreamEvent | Raw, None]:
        request = self._begin(prepared, raw=raw)
        try:
            async for event in request:
                yield event
        finally:
            self._leave(request)

    def abort(self, request_id: str) -> bool:
        """Abort a running request; it raises `Aborted`. Return False if no request has this id."""
        request = self._requests.get(request_id)
        return request is not None and request.abort()

    async def complete(self, result: RunResult) -> RunResult:
        """Wait until `result.usage` is known, at most some seconds, and return the same result.

        The terminal backend knows the usage a tenth of a second after the answer. `usage` stays None if the
        agent does not report it. Cancelling only ends the wait.
        """
        if self._pool is not None and result.usage is None:
            await self._pool.complete(result)
        return result

    async def prewarm(self, count: int | None = None, **profile: Unpack[PrewarmOptions]) -> None:
        """Start workers until `count` are ready for requests with these options, and keep that many ready.

        None means as many as the pool has room for; 0 keeps none from now on. Workers that are ready already
        count. Raises what a start can raise, `PoolExhausted`, and `InvalidOptions` if the pool is too small
        or the backend is `print`. If it raises or is cancelled, the number kept before stays in force.
        """
        if self._fleet:
            raise InvalidOptions("a fleet cannot be prewarmed from here", hint="use 'pool serve --prewarm'")
        if self._settings.backend == "print":
            raise InvalidOptions("the print backend cannot prewarm: it starts a new agent for each request")
        checked = None if count is None else option_readers.count_from("count", count, 0)
        resolved = self._profile(read_prewarm(profile, self._settings))
        await self._the_pool().targets.prewarm(resolved, checked)

    # ── events and numbers ──

    def on(self, event: EventName, listener: Listener) -> None:
        """Call `listener` with each event of this name, in the event loop of the client.

        `listener` is a plain function of one argument; what it raises is logged. Raises `InvalidOptions` for
        an unknown name or an async function.
        """
        self._observer.listeners.add(event, listener)

    def off(self, event: EventName, listener: Listener) -> None:
        """Stop calling `listener`. Does nothing if it was not added."""
        self._observer.listeners.remove(event, listener)

    def metrics(self) -> str:
        """Return counters, gauges and histograms in the text format of Prometheus."""
        states, waiting = ({}, 0) if self._pool is None else (self._pool.states(), self._pool.waiting)
        return self._observer.metrics.text(states, waiting, self._settings.pool_size)

    def stats(self) -> dict[str, object]:
        """Return the same numbers as a document, with one entry per worker under `sessions`."""
        pool = self._pool
        return {
            "backend": self._settings.backend,
            "pool_size": self._settings.pool_size,
            "waiting": 0 if pool is None else pool.waiting,
            "sessions": [] if pool is None else pool.document(),
            **self._observer.metrics.document(),
        }

    # ── the end ──

    async def aclose(self) -> None:
        """Close the client and end its agents.

        New requests raise `ClientClosed`. Running requests may finish within `close_timeout`, then they raise
        `ClientClosed` too. All workers end within `end_timeout`. A second call waits for the same end;
        cancelling only stops the wait, not the closing.
        """
        self._closed = True
        if self._pool is None or self._pool.loop.is_closed():
            return
        self._pool.check_loop()
        if self._closing is None:
            self._closing = self._pool.loop.create_task(self._pool.aclose())
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        self._the_pool()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._pool is not None and not self._closed and self._pool.states():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self._pool.abandon()

    # ── within ──

    def _prepare(self, prompt: str, given: Mapping[str, Any]) -> _Prepared:
        try:
            options = read_run(given, self._settings)
            return _Prepared(_checked(prompt), options, self._profile(options))
        except RemudaError as error:
            error.request_id = named if isinstance(named := given.get("request_id"), str) else None
            raise

    def _profile(self, options: RequestSettings, *, find_binary: bool = True) -> Profile:
        find_binary = find_binary and self._find_binary
        profile = self._resolver.profile(options.profile, options.permissions, find_binary=find_binary)
        if profile.key not in self._checked:
            check_profile(profile, self._settings.backend)
            if len(self._checked) >= _MAX_CHECKED:
                self._checked.clear()
            self._checked.add(profile.key)
        return profile

    def _begin(self, prepared: _Prepared, *, quiet: bool = False, raw: bool = False) -> PoolRequest:
        pool, options = self._the_pool(), prepared.options
        request_id = options.request_id or f"r_{os.urandom(8).hex()}"
        if request_id in self._requests:
            raise InvalidOptions(f"request {request_id} is already running")
        request = PoolRequest(
            request_id,
            prepared.prompt,
            prepared.profile,
            options,
            self._observer,
            permission_timeout=self._settings.permission_timeout,
            quiet=quiet,
            raw=raw,
        )
        self._requests[request_id] = request
        if options.signal is not None and options.signal.is_set():
            request.abort()
        else:
            pool.submit(request)
        return request

    def _leave(self, request: PoolRequest) -> None:
        """Forget a request; if it still runs, abort it."""
        del self._requests[request.id]
        request.abort("the caller left before the answer")

    def _the_pool(self) -> Pool:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._pool is None:
            self._pool = Pool(self._factory, self._settings, self._observer)
        self._pool.check_loop()
        return self._pool

    def _backend(self) -> WorkerFactory:
        given = self._settings.runtime_dir
        folder = sessions_folder() if given is None else absolute_path("runtime_dir", given)
        return backend_factory(self._settings.backend, folder)


def _checked(prompt: object) -> str:
    try:
        return option_readers.prompt("the prompt", prompt)
    except InvalidOptions as error:
        raise InputError(error.message, hint=error.hint) from None
