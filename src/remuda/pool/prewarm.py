"""How many workers of each profile are kept ready: the counts that `prewarm` was called with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from remuda.errors import ClientClosed, InvalidOptions, PoolExhausted, RemudaError, SpawnFailed

from .options import ClientSettings
from .scheduler import PrewarmTarget
from .worker import Profile

MAX_RETRY_DELAY = 60.0


@dataclass(slots=True, kw_only=True)
class ProfileTarget(PrewarmTarget):
    profile: Profile
    reached: int = 0
    """The last count that was ready: it stays when a later call fails."""
    failures: int = 0
    """Starts in a row that failed, or whose worker exited unused."""
    callers: list[asyncio.Future[None]] = field(default_factory=list)


class PrewarmTargets:
    """`act` makes the pool decide again, `count_ready` returns how many workers of a profile are up,
    `start_error` why they fail to start."""

    def __init__(
        self,
        settings: ClientSettings,
        act: Callable[[], None],
        count_ready: Callable[[str], int],
        start_error: Callable[[str], str | None],
    ) -> None:
        self.all: dict[str, ProfileTarget] = {}
        self._start_error = start_error
        self._settings, self._act, self._count_ready = settings, act, count_ready
        self._loop = asyncio.get_running_loop()

    async def prewarm(self, profile: Profile, count: int | None) -> None:
        """Return when that many workers are ready. If it raises, the target is what it was before.

        A newer call for the same profile replaces the count.
        """
        wanted = self._checked_count(profile.key, count)
        target = self.all.setdefault(profile.key, ProfileTarget(count=0, profile=profile))
        target.count = wanted
        try:
            async with asyncio.timeout(self._timeout):
                await self._until_ready(target)
            target.reached = target.count
        except BaseException as error:
            if target.count == wanted:
                target.count = target.reached
            if isinstance(error, TimeoutError):
                raise self._timed_out(target) from None
            raise
        finally:
            if not target.count and not target.callers and self.all.get(profile.key) is target:
                del self.all[profile.key]

    def _checked_count(self, key: str, count: int | None) -> int:
        others = sum(target.count for other, target in self.all.items() if other != key)
        room = self._settings.pool_size - others
        wanted = room if count is None else count
        if wanted > room or (count is None and room < 1):
            raise InvalidOptions(
                f"cannot keep {count or 'more'} workers ready: the pool has {self._settings.pool_size}, "
                f"and {others} are kept ready for other profiles",
                hint="use a larger pool, or keep 0 ready for a profile that you no longer need",
            )
        return wanted

    @property
    def _timeout(self) -> float:
        settings = self._settings
        warm_up = 0.0 if settings.warmup_prompt is None else settings.default_timeout + settings.clear_timeout
        return settings.acquire_timeout + settings.spawn_timeout + warm_up

    async def _until_ready(self, target: ProfileTarget) -> None:
        while self._count_ready(target.profile.key) < target.count:
            caller = self._loop.create_future()
            target.callers.append(caller)
            target.urgent = True
            try:
                self._act()
                await caller
            finally:
                if caller in target.callers:
                    target.callers.remove(caller)
                target.urgent = bool(target.callers)

    def _timed_out(self, target: ProfileTarget) -> RemudaError:
        ready, timeout = self._count_ready(target.profile.key), self._timeout
        if error := self._start_error(target.profile.key):
            return SpawnFailed(
                f"only {ready} of {target.count} workers started within {timeout:g} s; last error: {error}"
            )
        return PoolExhausted(
            f"only {ready} of {target.count} workers were ready within {timeout:g} s",
            waited=timeout,
            size=self._settings.pool_size,
        )

    # ── events of the pool ──

    def worker_ready(self, profile: str) -> None:
        if (target := self.all.get(profile)) is not None:
            _wake(target)

    def request_served(self, profile: str) -> None:
        if (target := self.all.get(profile)) is not None:
            target.failures, target.not_before = 0, 0.0

    def start_failed(self, profile: str, error: RemudaError) -> None:
        """Raise the error in callers that wait, and delay the next start."""
        if (target := self.all.get(profile)) is not None:
            _wake(target, error)
            target.urgent = False
            target.failures += 1
            self._delay(target)

    def exited_unused(self, profile: str) -> None:
        """A worker exited before its first request. The first one is replaced at once."""
        if (target := self.all.get(profile)) is not None:
            self._delay(target)
            target.failures += 1

    def _delay(self, target: ProfileTarget) -> None:
        delay = min(MAX_RETRY_DELAY, 2.0 ** min(target.failures - 1, 10)) if target.failures else 0.0
        target.not_before = self._loop.time() + delay

    def close(self) -> None:
        for target in self.all.values():
            _wake(target, ClientClosed("the client was closed before its workers were ready"))
        self.all.clear()


def _wake(target: ProfileTarget, error: RemudaError | None = None) -> None:
    callers, target.callers = target.callers, []
    for caller in callers:
        if caller.done():
            continue
        if error is None:
            caller.set_result(None)
        else:
            caller.set_exception(error)
