"""Which session serves whom, what is started, what is ended. Pure: a snapshot in, actions out.

    decide(members, waiters, wishes, limits, now) → HandOver · Spawn · Evict …

- There are never more than `size` members. One that is starting, being cleared or being ended counts: it is a
  process until it is gone.
- Waiters of one profile are served in the order in which they came.
- A waiter with no session of its profile may be passed over by younger ones whose profile stands ready, so
  that profiles that take turns do not end each other's sessions each time. But only for `patience` seconds,
  about what a start costs, and `passes` times: then the next session that comes to rest makes room for it.
- What is ended to make room is what is missed least: nobody waits for its profile, nobody wished it kept, it
  is near its limits anyway, it was not used for longest.
- A wish (`prewarm`) is what should stand ready. It is topped up from free room, after all waiters; it ends
  sessions of others only while its caller waits for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Reason = Literal["crashed", "max_requests", "max_age", "max_idle", "dirty", "displaced", "closed"]

NEARLY_WORN = 0.9
"""Of its limit; such a session is ended before others."""


class State(StrEnum):
    SPAWNING = "spawning"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"
    CLEARING = "clearing"
    CLOSING = "closing"


COMING = frozenset([State.SPAWNING, State.CLEARING])
"""Will be idle soon, if all goes well."""


@dataclass(slots=True)
class Member:
    """A session, as far as it matters here."""

    id: str
    profile: str
    state: State = State.SPAWNING
    born: float = 0.0
    used: float = 0.0
    """When it last became idle."""
    served: int = 0


@dataclass(slots=True)
class Waiter:
    """A request that has no session yet."""

    id: int
    profile: str
    since: float
    passed: int = 0
    spawning: bool = False
    """Whether a session is being started for it."""


@dataclass(slots=True)
class Wish:
    """That `count` sessions of a profile stand ready."""

    count: int
    pressing: bool = False
    """Whether somebody waits for it."""
    not_before: float = 0.0
    """After failures: when to try again."""


@dataclass(frozen=True, slots=True)
class Limits:
    size: int = 1
    max_requests: int | None = 50
    max_age: float | None = 3600.0
    max_idle: float | None = 600.0
    passes: int = 16
    patience: float = 2.0


@dataclass(frozen=True, slots=True)
class HandOver:
    session: str
    waiter: int
    passed: tuple[int, ...] = ()
    """Older waiters that were passed over by it."""


@dataclass(frozen=True, slots=True)
class Spawn:
    profile: str
    waiter: int | None
    """Whom it fails when it fails."""


@dataclass(frozen=True, slots=True)
class Evict:
    session: str
    reason: Reason


Action = HandOver | Spawn | Evict


def decide(
    members: Iterable[Member],
    waiters: Iterable[Waiter],
    waiting: Mapping[str, int],
    wishes: Mapping[str, Wish],
    limits: Limits,
    now: float,
) -> list[Action]:
    """`waiters` come oldest first; `waiting` is how many there are of each profile, which the caller knows
    without counting thousands of them each time."""
    plan = _Plan(list(members), Counter(waiting), wishes, limits, now)
    plan.recycle()
    plan.serve(waiters)
    plan.keep()
    return plan.actions


def worn(member: Member, limits: Limits, now: float) -> Reason | None:
    """Why a session that has just served must not serve again."""
    if limits.max_requests is not None and member.served >= limits.max_requests:
        return "max_requests"
    if limits.max_age is not None and now >= member.born + limits.max_age:
        return "max_age"
    return None


def next_look(
    members: Iterable[Member], wishes: Mapping[str, Wish], limits: Limits, now: float
) -> float | None:
    """When `decide` will have something to do although nothing happens."""
    members = list(members)
    have = Counter(member.profile for member in members if member.state is not State.CLOSING)
    times = [
        wish.not_before
        for profile, wish in wishes.items()
        if have[profile] < wish.count and wish.not_before > now
    ]
    for member in members:
        if member.state is not State.IDLE:
            continue
        if limits.max_age is not None:
            times.append(member.born + limits.max_age)
        if limits.max_idle is not None and have[member.profile] > _wished(wishes, member.profile):
            times.append(member.used + limits.max_idle)
    return min(times, default=None)


def _wished(wishes: Mapping[str, Wish], profile: str) -> int:
    wish = wishes.get(profile)
    return 0 if wish is None else wish.count


class _Plan:
    """What is left to give away, and the actions so far."""

    def __init__(
        self,
        members: list[Member],
        waiting: Counter[str],
        wishes: Mapping[str, Wish],
        limits: Limits,
        now: float,
    ) -> None:
        self.actions: list[Action] = []
        self._waiting, self._wishes, self._limits, self._now = waiting, wishes, limits, now
        self._free = limits.size - len(members)
        self._closing = sum(member.state is State.CLOSING for member in members)
        self._coming = Counter(member.profile for member in members if member.state in COMING)
        self._stopping = Counter(member.profile for member in members if member.state is State.STOPPING)
        self._have = Counter(member.profile for member in members if member.state is not State.CLOSING)
        resting = sorted((m for m in members if m.state is State.IDLE), key=lambda m: (m.used, m.id))
        self._idle = {member.id: member for member in resting}
        self._bare: defaultdict[str, deque[Waiter]] = defaultdict(deque)
        self._skipped: list[int] = []

    # ── limits ──

    def recycle(self) -> None:
        for member in list(self._idle.values()):
            reason = worn(member, self._limits, self._now) or self._slept_long(member)
            if reason is not None:
                self._evict(member, reason)
                self._closing += 1

    def _slept_long(self, member: Member) -> Reason | None:
        if self._limits.max_idle is None or self._now < member.used + self._limits.max_idle:
            return None
        # One that is wished for would only be started again.
        return "max_idle" if self._have[member.profile] > _wished(self._wishes, member.profile) else None

    # ── waiters ──

    def serve(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            if not self._idle and self._free <= 0:
                return
            self._serve_one(waiter)

    def _serve_one(self, waiter: Waiter) -> None:
        profile = waiter.profile
        if (member := self._ready(profile)) is not None:
            del self._idle[member.id]
            self._waiting[profile] -= 1
            self.actions.append(HandOver(member.id, waiter.id, tuple(self._skipped)))
            return
        if not waiter.spawning:
            self._bare[profile].append(waiter)
        if self._coming[profile] > 0:
            self._coming[profile] -= 1
        elif not self._make_room(waiter):
            self._skipped.append(waiter.id)

    def _ready(self, profile: str) -> Member | None:
        """The one that was used last: those that are not needed come of age undisturbed."""
        for member in reversed(self._idle.values()):
            if member.profile == profile:
                return member
        return None

    def _make_room(self, waiter: Waiter) -> bool:
        due = self._is_due(waiter)
        if self._free > 0:
            self._spawn(waiter.profile, self._bare[waiter.profile].popleft().id)
        elif self._closing > 0:
            self._closing -= 1
        elif self._stopping[waiter.profile] > 0 and not due:
            self._stopping[waiter.profile] -= 1  # it most often comes back, and nobody else need go
        elif (victim := self._victim(due=due)) is not None:
            self._evict(victim, "displaced")
        else:
            return False
        return True

    def _is_due(self, waiter: Waiter) -> bool:
        return waiter.passed >= self._limits.passes or self._now - waiter.since >= self._limits.patience

    # ── wishes ──

    def keep(self) -> None:
        for profile, wish in self._wishes.items():
            if wish.not_before > self._now and not wish.pressing:
                continue
            for _ in range(wish.count - self._have[profile]):
                if not self._top_up(profile, wish):
                    break

    def _top_up(self, profile: str, wish: Wish) -> bool:
        if self._free > 0:
            self._spawn(profile, None)
        elif self._closing > 0:
            self._closing -= 1
        elif wish.pressing and (victim := self._victim(due=False, spare_wished=True)) is not None:
            self._evict(victim, "displaced")
        else:
            return False
        return True

    # ── what both use ──

    def _spawn(self, profile: str, waiter: int | None) -> None:
        self._free -= 1
        self._have[profile] += 1
        self.actions.append(Spawn(profile, waiter))

    def _evict(self, member: Member, reason: Reason) -> None:
        del self._idle[member.id]
        self._have[member.profile] -= 1
        self.actions.append(Evict(member.id, reason))

    def _victim(self, *, due: bool, spare_wished: bool = False) -> Member | None:
        """`due`: even one that a younger waiter would have got."""
        resting = Counter(member.profile for member in self._idle.values())
        candidates = [
            member
            for member in self._idle.values()
            if (due or resting[member.profile] > self._waiting[member.profile])
            and not (spare_wished and self._is_wished(member))
        ]
        return min(candidates, key=self._value, default=None)

    def _is_wished(self, member: Member) -> bool:
        return self._have[member.profile] <= _wished(self._wishes, member.profile)

    def _value(self, member: Member) -> tuple[bool, bool, bool, float, str]:
        return (
            self._waiting[member.profile] > 0,
            self._is_wished(member),
            not self._nearly_worn(member),
            member.used,
            member.id,
        )

    def _nearly_worn(self, member: Member) -> bool:
        limits, age = self._limits, self._now - member.born
        return (limits.max_requests is not None and member.served >= NEARLY_WORN * limits.max_requests) or (
            limits.max_age is not None and age >= NEARLY_WORN * limits.max_age
        )
