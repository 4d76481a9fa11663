"""The keeper's event loop: asyncio's, except that readable descriptors are served without its queue.

A keystroke and its echo are two wake-ups. asyncio makes a key, a handle and a context of each before the
callback runs; here a callback of `add_reader` is called as soon as the kernel reports its descriptor, which
takes a third off an echo that was waited for. Timers, writers, signals and tasks are asyncio's own.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from collections.abc import Callable
from typing import Any


def make_loop() -> asyncio.AbstractEventLoop:
    return KeeperLoop() if sys.platform.startswith("linux") else asyncio.new_event_loop()


class _Selector(selectors.EpollSelector):
    """Calls the hot readers itself and reports only the others."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        super().__init__()
        self.hot: dict[int, Callable[[], Any]] = {}
        self._failed = failed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Rounded up to a millisecond as the base class does, or a timer would spin until it is due.
        wait = -1 if timeout is None else 0 if timeout <= 0 else max(0.001, timeout)
        cold: list[tuple[selectors.SelectorKey, int]] = []
        for fd, event in self._selector.poll(wait, 256):  # type: ignore[attr-defined]  # the epoll object
            serve = self.hot.get(fd)
            if serve is None or event != select.EPOLLIN:
                self._report(fd, event, cold)
                continue
            try:
                serve()
            except Exception as error:  # noqa: BLE001  # as in asyncio: one callback's failure is its own
                self._failed(error)
        return cold

    def _report(self, fd: int, event: int, cold: list[tuple[selectors.SelectorKey, int]]) -> None:
        """To asyncio, in its own words; what was removed meanwhile is nobody's any more."""
        if (key := self.get_map().get(fd)) is not None:
            write = 0 if event == select.EPOLLIN else selectors.EVENT_WRITE
            read = 0 if event == select.EPOLLOUT else selectors.EVENT_READ
            cold.append((key, (read | write) & key.events))


class KeeperLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._own = _Selector(self._reader_failed)
        super().__init__(self._own)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        super().add_reader(fd, callback, *args)
        if not args:
            self._own.hot[_number(fd)] = callback

    def remove_reader(self, fd: Any) -> bool:
        self._own.hot.pop(_number(fd), None)
        return super().remove_reader(fd)

    def _reader_failed(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a reader failed", "exception": error})


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else int(fd.fileno())
