"""Requests that wait for a worker, oldest first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from remuda.errors import PoolExhausted, SpawnFailed

from .options import ClientSettings
from .pool_request import PoolRequest
from .scheduler import Waiter


@dataclass(slots=True, kw_only=True)
class QueuedRequest(Waiter):
    """Time in which a worker is being started for it does not count as waiting."""

    request: PoolRequest
    time_left: float
    resumed_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class RequestQueue:
    """A request fails when it has waited for `acquire_timeout`. Its `on_early_end` removes it from here.

    `start_error` returns why workers of a profile fail to start; None if they work.
    """

    def __init__(self, settings: ClientSettings, start_error: Callable[[str], str | None]) -> None:
        self._settings = settings
        self._start_error = start_error
        self._loop = asyncio.get_running_loop()
        self.all: dict[int, QueuedRequest] = {}
        self.of_profile: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.all)

    def add(self, position: int, request: PoolRequest) -> None:
        """`position` grows from request to request."""
        queued = QueuedRequest(
            id=position,
            profile=request.profile.key,
            since=self._loop.time(),
            request=request,
            time_left=self._settings.acquire_timeout,
        )
        self.all[position] = queued
        self._enter(queued)

    def _enter(self, queued: QueuedRequest) -> None:
        self.of_profile[queued.profile] += 1
        queued.request.on_early_end = lambda: self.take(queued.id)
        self._resume(queued)

    def put_back(self, queued: QueuedRequest) -> None:
        """Return a request to its old place. The time since it was taken does not count."""
        queued.spawning = False
        self.all = dict(sorted([*self.all.items(), (queued.id, queued)]))
        self._enter(queued)

    def find(self, position: int | None) -> QueuedRequest | None:
        return None if position is None else self.all.get(position)

    def take(self, position: int) -> None:
        queued = self.all.pop(position, None)
        if queued is None:
            return
        self._pause(queued)
        self.of_profile[queued.profile] -= 1
        if not self.of_profile[queued.profile]:
            del self.of_profile[queued.profile]

    def oldest_without_start(self, profile: str) -> QueuedRequest | None:
        waiting = (one for one in self.all.values() if one.profile == profile and not one.spawning)
        return next(waiting, None) if self.of_profile[profile] else None

    def has_start(self, queued: QueuedRequest) -> None:
        queued.spawning = True
        self._pause(queued)

    def has_no_start(self, queued: QueuedRequest) -> None:
        queued.spawning = False
        self._resume(queued)

    def _pause(self, queued: QueuedRequest) -> None:
        if queued.timer is not None:
            queued.timer.cancel()
            queued.timer = None
            queued.time_left = max(0.0, queued.time_left - (self._loop.time() - queued.resumed_at))

    def _resume(self, queued: QueuedRequest) -> None:
        queued.resumed_at = self._loop.time()
        queued.timer = self._loop.call_later(queued.time_left, self._expire, queued)

    def _expire(self, queued: QueuedRequest) -> None:
        limit = self._settings.acquire_timeout
        if error := self._start_error(queued.profile):  # more workers would not help
            queued.request.fail(SpawnFailed(f"no worker started within {limit:g} s; last error: {error}"))
            return
        queued.request.fail(
            PoolExhausted(
                f"no worker was free within {limit:g} s",
                hint="use a larger pool_size or a longer acquire_timeout",
                waited=self._loop.time() - queued.since,
                size=self._settings.pool_size,
            )
        )
