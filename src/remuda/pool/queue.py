"""Calls that wait for a session, oldest first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from remuda.errors import PoolExhausted, SpawnFailed

from .call import Call
from .options import Settings
from .policy import Waiter


@dataclass(slots=True, kw_only=True)
class Waiting(Waiter):
    """The time for which a session is being started for it does not count as waiting."""

    call: Call
    left: float
    resumed: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Queue:
    """A call that has waited for `acquire_timeout` fails by itself. Its `let_go` takes it out of here.

    `trouble` names what agents of a profile fail with; None when they work. More agents would not help then.
    """

    def __init__(self, settings: Settings, trouble: Callable[[str], str | None]) -> None:
        self._settings = settings
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        self.all: dict[int, Waiting] = {}
        self.of_profile: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.all)

    def add(self, number: int, call: Call) -> None:
        """`number` grows from call to call."""
        waiting = Waiting(
            id=number,
            profile=call.profile.key,
            since=self._loop.time(),
            call=call,
            left=self._settings.acquire_timeout,
        )
        self.all[number] = waiting
        self._enter(waiting)

    def _enter(self, waiting: Waiting) -> None:
        self.of_profile[waiting.profile] += 1
        waiting.call.let_go = lambda: self.take(waiting.id)
        self._resume(waiting)

    def put_back(self, waiting: Waiting) -> None:
        """Into its old place; the time in which it was not here does not count."""
        waiting.spawning = False
        self.all = dict(sorted([*self.all.items(), (waiting.id, waiting)]))
        self._enter(waiting)

    def find(self, number: int | None) -> Waiting | None:
        return None if number is None else self.all.get(number)

    def take(self, number: int) -> None:
        waiting = self.all.pop(number, None)
        if waiting is None:
            return
        self._pause(waiting)
        self.of_profile[waiting.profile] -= 1
        if not self.of_profile[waiting.profile]:
            del self.of_profile[waiting.profile]

    def oldest_without_start(self, profile: str) -> Waiting | None:
        waiters = (w for w in self.all.values() if w.profile == profile and not w.spawning)
        return next(waiters, None) if self.of_profile[profile] else None

    def has_start(self, waiting: Waiting) -> None:
        waiting.spawning = True
        self._pause(waiting)

    def has_no_start(self, waiting: Waiting) -> None:
        waiting.spawning = False
        self._resume(waiting)

    def _pause(self, waiting: Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None
            waiting.left = max(0.0, waiting.left - (self._loop.time() - waiting.resumed))

    def _resume(self, waiting: Waiting) -> None:
        waiting.resumed = self._loop.time()
        waiting.timer = self._loop.call_later(waiting.left, self._exhausted, waiting)

    def _exhausted(self, waiting: Waiting) -> None:
        if trouble := self._trouble(waiting.profile):
            limit = self._settings.acquire_timeout
            waiting.call.fail(SpawnFailed(f"no worker started within {limit:g} s; last error: {trouble}"))
            return
        waiting.call.fail(
            PoolExhausted(
                f"no worker was free within {self._settings.acquire_timeout:g} s",
                hint="use a larger pool_size or a longer acquire_timeout",
                waited=self._loop.time() - waiting.since,
                size=self._settings.pool_size,
            )
        )
