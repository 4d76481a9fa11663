"""A small event loop for one thread: timers, readers, work in threads, and tasks that await them.

asyncio would do, but importing it costs more than this program does until its prompt is drawn.
A task here can be thrown any exception at the point where it waits, which is how a turn is interrupted.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A value that will be there later."""

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def set(self, value: T) -> None:
        """Give the value. The first one counts."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Give an error in place of the value."""
        if not self.done:
            self._error = error
            self._finish()

    def result(self) -> T:
        """Return the value, or raise its error. Call it only when :attr:`done`."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # done, and not failed: the value was set

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once it is done; at once when it is."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Take a callback back."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def __await__(self) -> Generator[Future[Any], None, T]:
        if not self.done:
            yield self
        return self.result()

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class LoopTask(Future[T]):
    """A coroutine being run; done when it returns or raises."""

    def __init__(self, coroutine: Coroutine[Future[Any], None, T]) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._waits_for: Future[Any] | None = None
        self._resume()

    def throw(self, error: BaseException) -> None:
        """Raise ``error`` where the coroutine waits. Nothing happens when it is done."""
        if self.done:
            return
        if self._waits_for is not None:
            self._waits_for.forget(self._resume)
        self._step(lambda: self._coroutine.throw(error))

    def abandon(self) -> None:
        """Never go on; what the coroutine does to tidy up is done. The task is not done by it."""
        if self._waits_for is not None:
            self._waits_for.forget(self._resume)
        self._coroutine.close()

    def _resume(self) -> None:
        self._step(lambda: self._coroutine.send(None))

    def _step(self, advance: Callable[[], Future[Any]]) -> None:
        self._waits_for = None
        try:
            awaited = advance()
        except StopIteration as stop:
            self.set(stop.value)
        except BaseException as error:  # noqa: BLE001  # kept, and raised in what awaits the task
            self.fail(error)
        else:
            self._waits_for = awaited
            awaited.when_done(self._resume)


class Timer:
    """A call that is due later, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """The call is not made."""
        self.callback = None


class Loop:
    """Runs callbacks until :meth:`stop`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._posted: deque[Callable[[], None]] = deque()
        self._wake_read, self.wake_fd = os.pipe()
        for fd in (self._wake_read, self.wake_fd):
            os.set_blocking(fd, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wakes)
        self._stopped = False

    def spawn(self, coroutine: Coroutine[Future[Any], None, T]) -> LoopTask[T]:
        """Start a task; it runs to its first wait before this returns."""
        return LoopTask(coroutine)

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in that time."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def sleep(self, seconds: float) -> Future[None]:
        """Awaited, it takes that long."""
        future: Future[None] = Future()
        self.later(seconds, lambda: future.set(None))
        return future

    def post(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's thread. From any thread, and from a signal handler."""
        self._posted.append(callback)
        try:
            os.write(self.wake_fd, b"\0")
        except BlockingIOError:
            pass  # the pipe is full: it is going to wake up anyway

    def in_thread(self, work: Callable[[], T]) -> Future[T]:
        """Run ``work`` in a thread of its own, which never keeps the process alive."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001  # handed to what awaits it
                self.post(lambda error=error: future.fail(error))  # type: ignore[misc]
            else:
                self.post(lambda: future.set(value))

        threading.Thread(target=run, daemon=True).start()
        return future

    def on_readable(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever ``fd`` can be read."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def off_readable(self, fd: int) -> None:
        """No more of :meth:`on_readable`."""
        self._selector.unregister(fd)

    def run(self) -> None:
        """Until :meth:`stop`. An error in a callback ends it and is raised."""
        while not self._stopped:
            for key, _ in self._selector.select(self._until_next_timer()):
                key.data()
            self._run_due()

    def stop(self) -> None:
        """End :meth:`run` after the callbacks of this round."""
        self._stopped = True

    def _until_next_timer(self) -> float | None:
        if self._posted:
            return 0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def _drain_wakes(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass


async def gather(futures: Iterable[Future[T]]) -> list[T]:
    """Return all their values, in their order."""
    return [await future for future in list(futures)]


def first_done(*futures: Future[Any]) -> Future[int]:
    """Return the index of the one that is done first."""
    winner: Future[int] = Future()
    for index, future in enumerate(futures):
        future.when_done(lambda index=index: winner.set(index))  # type: ignore[misc]
    return winner
