"""The keeper's event loop on Linux: asyncio's, except that readable descriptors are served without its queue.

A keystroke and its echo are two wake-ups. asyncio makes a key, a handle and a context of each before the
callback runs; here a callback of `add_reader` is called as soon as the kernel reports its descriptor, which
takes a third off the time of an echo. Timers, writers, signals and tasks are asyncio's own.

A reader that did only what someone waits for, and left the rest to `afterwards`, returns True. Then the
kernel is asked again at once: the process that was woken runs now, not after our own housekeeping. That was a
fifth of an echo (0.1 of 0.5 ms).
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable
from typing import Any

# How long it must be quiet before deferred work is done.
_QUIET = 0.002
# How many times in a row readers may run before timers and tasks get their turn.
_HURRIES = 8
_EVENTS = 32


class _Selector(selectors.EpollSelector):
    """Calls the hot readers itself and reports only the others."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        super().__init__()
        self.hot: dict[int, Callable[[], Any]] = {}
        self.left_over: list[Callable[[], None]] = []
        self._failed = failed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Rounded up to a millisecond as the base class does, or a timer would spin until it is due.
        wait = -1 if timeout is None else 0 if timeout <= 0 else max(0.001, timeout)
        cold: list[tuple[selectors.SelectorKey, int]] = []
        hurries, hurried = 0, True
        while hurried and hurries < _HURRIES:
            events = self._selector.poll(wait, _EVENTS)  # type: ignore[attr-defined]  # the epoll object
            hurried = len(events) > 0
            for fd, event in events:
                serve = self.hot.get(fd)
                try:
                    if serve is None or event != select.EPOLLIN:
                        hurried = self._report(fd, event, cold)
                    elif not serve():
                        hurried = False
                except Exception as error:  # noqa: BLE001  # as in asyncio: one callback's failure is its own
                    hurried = False
                    self._failed(error)
            hurries, wait = hurries + 1, _QUIET
        while self.left_over:
            try:
                self.left_over.pop()()
            except Exception as error:  # noqa: BLE001
                self._failed(error)
        return cold

    def _report(self, fd: int, event: int, cold: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Report an event to asyncio as its own selector would, unless the descriptor was removed since."""
        if (key := self.get_map().get(fd)) is not None:
            write = 0 if event == select.EPOLLIN else selectors.EVENT_WRITE
            read = 0 if event == select.EPOLLOUT else selectors.EVENT_READ
            cold.append((key, (read | write) & key.events))
        return False


class KeeperLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._own = _Selector(self._reader_failed)
        super().__init__(self._own)
        self.left_over = self._own.left_over

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        # The number: for a socket, asyncio makes a text with four system calls, and throws it away.
        number = _number(fd)
        super().add_reader(number, callback, *args)
        if not args:
            self._own.hot[number] = callback

    def remove_reader(self, fd: Any) -> bool:
        self._own.hot.pop(_number(fd), None)
        return super().remove_reader(fd)

    def _reader_failed(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a reader failed", "exception": error})


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else int(fd.fileno())
