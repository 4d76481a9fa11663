"""What should stand ready without being asked for: the counts that `prewarm` was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from remuda.errors import ClientClosed, InvalidOptions, PoolExhausted, RemudaError, SpawnFailed

from .options import Settings
from .policy import Wish
from .profile import Profile

LONGEST_DELAY = 60.0


@dataclass(slots=True, kw_only=True)
class Kept(Wish):
    profile: Profile
    granted: int = 0
    """The last count that stood ready: what stays when a later wish fails."""
    failures: int = 0
    """Starts in a row of which nothing came."""
    callers: list[asyncio.Future[None]] = field(default_factory=list)


class Wishes:
    """`act` makes the pool look again; `standing` is how many of a profile are up; `trouble` is what they
    fail with."""

    def __init__(
        self,
        settings: Settings,
        act: Callable[[], None],
        standing: Callable[[str], int],
        trouble: Callable[[str], str | None],
    ) -> None:
        self.all: dict[str, Kept] = {}
        self._trouble = trouble
        self._settings, self._act, self._standing = settings, act, standing
        self._loop = asyncio.get_running_loop()

    async def prewarm(self, profile: Profile, wanted: int | None) -> None:
        """Returns when so many stand. When it raises, the wish is what it was before; a newer one counts."""
        number = self._number(profile.key, wanted)
        kept = self.all.setdefault(profile.key, Kept(count=0, profile=profile))
        kept.count = number
        try:
            async with asyncio.timeout(self._bound):
                await self._stand(kept)
            kept.granted = kept.count
        except BaseException as error:
            if kept.count == number:
                kept.count = kept.granted
            if isinstance(error, TimeoutError):
                raise self._exhausted(kept) from None
            raise
        finally:
            if not kept.count and not kept.callers and self.all.get(profile.key) is kept:
                del self.all[profile.key]

    def _number(self, key: str, wanted: int | None) -> int:
        others = sum(kept.count for other, kept in self.all.items() if other != key)
        room = self._settings.pool_size - others
        number = room if wanted is None else wanted
        if number > room or (wanted is None and room < 1):
            raise InvalidOptions(
                f"cannot keep {wanted or 'more'} workers ready: the pool has {self._settings.pool_size}, "
                f"and {others} are kept ready for other profiles",
                hint="use a larger pool_size, or prewarm(0, …) for a profile that you no longer need",
            )
        return number

    @property
    def _bound(self) -> float:
        settings = self._settings
        warm_up = 0.0 if settings.warmup_prompt is None else settings.default_timeout + settings.clear_timeout
        return settings.acquire_timeout + settings.spawn_timeout + warm_up

    async def _stand(self, kept: Kept) -> None:
        while self._standing(kept.profile.key) < kept.count:
            caller = self._loop.create_future()
            kept.callers.append(caller)
            kept.pressing = True
            try:
                self._act()
                await caller
            finally:
                if caller in kept.callers:
                    kept.callers.remove(caller)
                kept.pressing = bool(kept.callers)

    def _exhausted(self, kept: Kept) -> RemudaError:
        standing, bound = self._standing(kept.profile.key), self._bound
        if trouble := self._trouble(kept.profile.key):
            return SpawnFailed(
                f"only {standing} of {kept.count} workers started within {bound:g} s; last error: {trouble}"
            )
        return PoolExhausted(
            f"only {standing} of {kept.count} workers were ready within {bound:g} s",
            waited=bound,
            size=self._settings.pool_size,
        )

    # ── what the pool tells ──

    def stands(self, profile: str) -> None:
        if (kept := self.all.get(profile)) is not None:
            _wake(kept)

    def worked(self, profile: str) -> None:
        if (kept := self.all.get(profile)) is not None:
            kept.failures, kept.not_before = 0, 0.0

    def failed(self, profile: str, error: RemudaError) -> None:
        """A start of which nothing came: whoever waits is told, and the next one is not made at once."""
        if (kept := self.all.get(profile)) is not None:
            _wake(kept, error)
            kept.pressing = False
            kept.failures += 1
            self._delay(kept)

    def stumbled(self, profile: str) -> None:
        """One ended before it served anybody. The first is replaced at once."""
        if (kept := self.all.get(profile)) is not None:
            self._delay(kept)
            kept.failures += 1

    def _delay(self, kept: Kept) -> None:
        delay = min(LONGEST_DELAY, 2.0 ** min(kept.failures - 1, 10)) if kept.failures else 0.0
        kept.not_before = self._loop.time() + delay

    def close(self) -> None:
        for kept in self.all.values():
            _wake(kept, ClientClosed("the client was closed before its workers were ready"))
        self.all.clear()


def _wake(kept: Kept, error: RemudaError | None = None) -> None:
    callers, kept.callers = kept.callers, []
    for caller in callers:
        if caller.done():
            continue
        if error is None:
            caller.set_result(None)
        else:
            caller.set_exception(error)
