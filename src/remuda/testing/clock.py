"""An event loop whose clock jumps: what waits for a time waits for nothing else, and no test really sleeps.

    from remuda.testing.clock import run

    run(main())          # as asyncio.run; an hour in `asyncio.sleep(3600)` is over at once

Whenever no task can go on, the clock is set to the moment for which the next timer is set. So a test sets the
clock by sleeping, every timer in between fires in its order, and the outcome is the same on any machine. This
is for code that waits for tasks, events and timers of its loop; what other threads or processes do takes real
time, which this loop does not know. A loop in which nothing will ever happen raises `Deadlock`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
PATIENCE = 20.0
"""Real seconds for which another thread may still have a word."""


class Deadlock(RuntimeError):
    """All tasks wait, and for nothing that could come."""


class _Jumping(selectors.DefaultSelector):
    """Moves `now` in place of waiting."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.now = 0.0
        self._patience = patience

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None:
            self.now += timeout
            return []
        ready = super().select(self._patience)
        if not ready:
            raise Deadlock("nothing is ready, no timer is set, and nothing called from outside")
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self, patience: float = PATIENCE) -> None:
        self._jumping = _Jumping(patience)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, _T], *, patience: float = PATIENCE) -> _T:
    with asyncio.Runner(loop_factory=lambda: JumpingLoop(patience)) as runner:
        return runner.run(main)
