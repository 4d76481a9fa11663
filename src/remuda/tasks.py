"""Tasks that run in the background, and blocking calls that run in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    """Running tasks. Each is removed when it ends.

    It keeps them alive: the event loop has only weak references to tasks.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        return task

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """Cancel all tasks and wait for their end. Their errors are dropped."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)


class Wakeup:
    """Wakes the tasks that wait for the next change."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Abandoned(Exception):
    """The task that awaited a call was cancelled: the call ends, and its result is dropped."""


Check = Callable[[], None]
"""Raises `Abandoned` once the awaiting task is cancelled. A call that waits long calls it now and then."""


async def in_thread(call: Callable[[Check], T]) -> T:
    """Return what `call` returns, or raise what it raises.

    Cancelling the task returns at once. The thread ends when the call ends or uses its `Check`. It is a
    daemon and not of the loop's executor: `asyncio.run` would wait at its end for each thread of that.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    abandoned = threading.Event()

    def check() -> None:
        if abandoned.is_set():
            raise Abandoned

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # without an error it is a T

    def run() -> None:
        result, error = None, None
        try:
            result = call(check)
        except BaseException as caught:  # noqa: BLE001  # raised again where it is awaited
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task awaits this
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="remuda call").start()
    try:
        return await future
    finally:
        abandoned.set()


@contextlib.contextmanager
def heeding_cancellation() -> Iterator[None]:
    """Raise `CancelledError` at the end if the task was cancelled inside.

    For a library such as nats-py. It waits with `wait_for`, which on Python 3.11 loses a cancellation that
    comes with the answer, and it drops one that comes while it ends its own tasks. Then a boss that left the
    fleet never ended.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
