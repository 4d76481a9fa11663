"""`remuda.SyncClient`: the same client for programs without an event loop. Its loop runs in a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, Self, TypeVar, Unpack

from remuda.errors import ClientClosed, InvalidOptions

from .client import Client
from .events import EventName, Listener
from .options import ClientOptions, PrewarmOptions, RunOptions
from .types import Decision, PermissionHandler, PermissionRequest, RunResult, StreamEvent
from .worker import WorkerFactory

_T = TypeVar("_T")
_JOIN_TIMEOUT = 5.0


class SyncClient:
    """Keep a pool of warm agents, for programs without an event loop: the options and errors of `Client`.

    Each method blocks until its work is done. Any thread may call any method at any time. Use `with`, or call
    `close`.

    A permission handler may be a plain function; it runs in its own thread and may block. A listener runs in
    the thread of the pool and must not call methods that wait.
    """

    def __init__(
        self, *, session_factory: WorkerFactory | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        self._thread: LoopThread | None = None
        self._client = Client(session_factory=session_factory, **_threaded(options))
        self._thread = LoopThread()

    def run(self, prompt: str, **options: Unpack[RunOptions]) -> RunResult:
        """Send one prompt in a new conversation and return the answer.

        The options are those of `RunOptions`. Raises the errors of `Client.run`. Ctrl-C aborts the request.
        """
        return self._do(lambda: self._client.run(prompt, **_threaded(options)))

    def stream(self, prompt: str, **options: Unpack[RunOptions]) -> Generator[StreamEvent, None, None]:
        """Send one prompt in a new conversation and yield events as they happen.

        `Done` is the last event. If the request fails, the last event is `Failed`, and its error is then
        raised. Closing or dropping the generator aborts the request.
        """
        return self._iterate(self._client.stream(prompt, **_threaded(options)))

    def abort(self, request_id: str) -> bool:
        """Abort a running request; it raises `Aborted`. Return False if no request has this id."""
        return self._ask(lambda: self._client.abort(request_id))

    def complete(self, result: RunResult) -> RunResult:
        """Wait until `result.usage` is known, at most some seconds, and return the same result.

        `usage` stays None if the agent does not report it.
        """
        return self._do(lambda: self._client.complete(result))

    def prewarm(self, count: int | None = None, **profile: Unpack[PrewarmOptions]) -> None:
        """Start workers until `count` are ready for requests with these options, and keep that many ready.

        None means as many as the pool has room for; 0 keeps none from now on. Workers that are ready already
        count. Raises the errors of `Client.prewarm`.
        """
        self._do(lambda: self._client.prewarm(count, **_threaded(profile)))

    def on(self, event: EventName, listener: Listener) -> None:
        """Call `listener` with each event of this name, in the thread of the pool. Its errors are logged."""
        self._client.on(event, listener)

    def off(self, event: EventName, listener: Listener) -> None:
        """Stop calling `listener`. Does nothing if it was not added."""
        self._client.off(event, listener)

    def metrics(self) -> str:
        """Return counters, gauges and histograms in the text format of Prometheus."""
        return self._ask(self._client.metrics)

    def stats(self) -> dict[str, object]:
        """Return the same numbers as a document, with one entry per worker under `sessions`."""
        return self._ask(self._client.stats)

    def close(self) -> None:
        """Close the client and end its agents, within the time limits of `Client.aclose`.

        A second call, also from another thread, waits for the same end.
        """
        assert self._thread is not None
        try:
            self._do(self._client.aclose)
        except ClientClosed:
            pass
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._thread is not None and not self._thread.stopped:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self._thread.stop_after(self._client.aclose)

    # ── within ──

    def _do(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        assert self._thread is not None
        return self._thread.do(work)

    def _ask(self, question: Callable[[], _T]) -> _T:
        async def ask() -> _T:
            return question()

        return self._do(ask)

    def _iterate(self, events: AsyncGenerator[StreamEvent, None]) -> Generator[StreamEvent, None, None]:
        async def following() -> StreamEvent | None:
            return await anext(events, None)

        try:
            while (event := self._do(following)) is not None:
                yield event
        finally:
            try:
                self._do(events.aclose)
            except ClientClosed:
                pass  # then it has ended


class _LoopWork(Generic[_T]):
    """Work for the loop, and a future for the thread that waits.

    Made before anything starts, because Ctrl-C may come between any two steps of the waiting thread.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self.future: concurrent.futures.Future[_T] = concurrent.futures.Future()
        self._work = work
        self._task: asyncio.Task[_T] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[_T]) -> None:
        if task.cancelled():
            self.future.cancel()
        elif (error := task.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())


class LoopThread:
    """An event loop in a thread, until it is stopped.

    It has no reference to its user, so that a client without references is garbage collected.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(ready)), name="remuda-pool", daemon=True
        )
        self._thread.start()
        ready.wait()

    async def _main(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._end.wait()

    def do(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work` in the loop and return its result. Ctrl-C cancels it.

        Raises `ClientClosed` if the thread stops first.
        """
        if threading.current_thread() is self._thread:
            raise InvalidOptions("a listener cannot call a method of its own client that waits")
        job = _LoopWork(work)
        try:
            with self._lock:
                if self.stopped:
                    raise ClientClosed("the client is closed")
                self._loop.call_soon_threadsafe(job.start)
            return job.future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed during the request") from None
        except BaseException:
            if not job.future.done() and not self.stopped:  # a signal, not an error of the work
                self._loop.call_soon_threadsafe(job.cancel)
            raise

    def stop(self) -> None:
        with self._lock:
            if not self.stopped:
                self.stopped = True
                self._loop.call_soon_threadsafe(self._end.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT)

    def stop_after(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` and then stop the loop, without waiting for it."""

        async def last() -> None:
            try:
                await work()
            finally:
                self._end.set()

        with self._lock:
            self.stopped = True
            asyncio.run_coroutine_threadsafe(last(), self._loop)


def _threaded(options: Mapping[str, Any]) -> Any:
    """Run a handler that is a plain function, and may block, in a thread."""
    handler = options.get("permissions")
    if not callable(handler) or inspect.iscoroutinefunction(handler):
        return options
    return {**options, "permissions": _in_a_thread(handler)}


def _in_a_thread(handler: Callable[[PermissionRequest], Decision]) -> PermissionHandler:
    async def decide(request: PermissionRequest) -> Decision:
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[Decision] = loop.create_future()

        def work() -> None:
            # A daemon thread: a handler that never returns must not keep the program from ending.
            try:
                outcome: Callable[[], None] = _setting(decided, handler(request))
            except Exception as error:  # noqa: BLE001  # raised in the waiting coroutine
                outcome = _raising(decided, error)
            try:
                loop.call_soon_threadsafe(outcome)
            except RuntimeError:
                pass  # the loop has ended, and with it the request

        threading.Thread(target=work, name="remuda-permission", daemon=True).start()
        return await decided

    return decide


def _setting(future: asyncio.Future[_T], value: _T) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(value)


def _raising(future: asyncio.Future[_T], error: Exception) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_exception(error)
