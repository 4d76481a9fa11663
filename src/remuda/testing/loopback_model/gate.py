"""A gate in the middle of a reply, opened by the test that put it there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()

    def open(self) -> None:
        """Let everything through that waits, and all that comes later."""
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
        """Return as soon as a reply has come this far; all that stands before the gate has then been sent."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrivals > 0, timeout):
                raise TimeoutError(f"no reply reached the gate within {timeout:g} s")
