"""Which worker serves which request, what is started, what is ended. Pure: a snapshot in, actions out.

    decide(members, waiters, targets, limits, now) → HandOver · Spawn · Evict …

- There are never more than `size` members. A worker that is starting, being cleared or being ended counts: it
  is a process until it is gone.
- Requests of one profile are served in the order in which they came.
- A request without a worker of its profile may be passed over by younger ones whose profile has one ready, so
  that profiles in turn do not end each other's workers each time. But only for `patience` seconds, about the
  cost of a start, and `passes` times: then the next worker that becomes free makes room for it.
- To make room, the least useful worker is ended: no request waits for its profile, no target keeps it, it is
  near its limits anyway, it was not used for longest.
- A target (`prewarm`) is how many workers are kept ready. It is filled from free room, after all waiting
  requests; it ends other workers only while its caller waits for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Reason = Literal["crashed", "max_requests", "max_age", "max_idle", "dirty", "displaced", "closed"]

NEARLY_EXPIRED = 0.9
"""Share of a limit from which on a worker is ended before others."""


class WorkerState(StrEnum):
    SPAWNING = "spawning"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"
    CLEARING = "clearing"
    CLOSING = "closing"


COMING = frozenset([WorkerState.SPAWNING, WorkerState.CLEARING])
"""Will be idle soon, if all goes well."""


@dataclass(slots=True)
class Member:
    """A worker, as far as it matters here."""

    id: str
    profile: str
    state: WorkerState = WorkerState.SPAWNING
    born: float = 0.0
    used: float = 0.0
    """When it last became idle."""
    served: int = 0


@dataclass(slots=True)
class Waiter:
    """A request that has no worker yet."""

    id: int
    profile: str
    since: float
    passed: int = 0
    spawning: bool = False
    """Whether a worker is being started for it."""


@dataclass(slots=True)
class PrewarmTarget:
    """Keep `count` workers of a profile ready."""

    count: int
    urgent: bool = False
    """Whether a caller waits for it."""
    not_before: float = 0.0
    """When to try again after failures."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    size: int = 1
    max_requests: int | None = 50
    max_age: float | None = 3600.0
    max_idle: float | None = 600.0
    passes: int = 16
    patience: float = 2.0


@dataclass(frozen=True, slots=True)
class HandOver:
    worker: str
    waiter: int
    passed: tuple[int, ...] = ()
    """Older requests that this one passed."""


@dataclass(frozen=True, slots=True)
class Spawn:
    profile: str
    waiter: int | None
    """The request that fails if the start fails; None for a target."""


@dataclass(frozen=True, slots=True)
class Evict:
    worker: str
    reason: Reason


Action = HandOver | Spawn | Evict


def decide(
    members: Iterable[Member],
    waiters: Iterable[Waiter],
    waiting: Mapping[str, int],
    targets: Mapping[str, PrewarmTarget],
    limits: PoolLimits,
    now: float,
) -> list[Action]:
    """Return the actions to take now, in order.

    `waiters` come oldest first. `waiting` is their number by profile, which the caller keeps: counting
    thousands of them each time would be slow.
    """
    plan = _Plan(list(members), Counter(waiting), targets, limits, now)
    plan.recycle()
    plan.serve(waiters)
    plan.keep()
    return plan.actions


def expired_limit(member: Member, limits: PoolLimits, now: float) -> Reason | None:
    """Return the limit that a worker has reached, so that it must not serve again; None if it may."""
    if limits.max_requests is not None and member.served >= limits.max_requests:
        return "max_requests"
    if limits.max_age is not None and now >= member.born + limits.max_age:
        return "max_age"
    return None


def next_decision_at(
    members: Iterable[Member], targets: Mapping[str, PrewarmTarget], limits: PoolLimits, now: float
) -> float | None:
    """Return when `decide` will have something to do although nothing happens; None for never."""
    members = list(members)
    have = Counter(member.profile for member in members if member.state is not WorkerState.CLOSING)
    times = [
        target.not_before
        for profile, target in targets.items()
        if have[profile] < target.count and target.not_before > now
    ]
    for member in members:
        if member.state is not WorkerState.IDLE:
            continue
        if limits.max_age is not None:
            times.append(member.born + limits.max_age)
        if limits.max_idle is not None and have[member.profile] > _target_count(targets, member.profile):
            times.append(member.used + limits.max_idle)
    return min(times, default=None)


def _target_count(targets: Mapping[str, PrewarmTarget], profile: str) -> int:
    target = targets.get(profile)
    return 0 if target is None else target.count


class _Plan:
    """The workers and the room that are left, and the actions so far."""

    def __init__(
        self,
        members: list[Member],
        waiting: Counter[str],
        targets: Mapping[str, PrewarmTarget],
        limits: PoolLimits,
        now: float,
    ) -> None:
        self.actions: list[Action] = []
        self._waiting, self._targets, self._limits, self._now = waiting, targets, limits, now
        self._free = limits.size - len(members)
        self._closing = sum(member.state is WorkerState.CLOSING for member in members)
        self._coming = Counter(member.profile for member in members if member.state in COMING)
        self._stopping = Counter(member.profile for member in members if member.state is WorkerState.STOPPING)
        self._have = Counter(member.profile for member in members if member.state is not WorkerState.CLOSING)
        resting = sorted((m for m in members if m.state is WorkerState.IDLE), key=lambda m: (m.used, m.id))
        self._idle = {member.id: member for member in resting}
        self._without_start: defaultdict[str, deque[Waiter]] = defaultdict(deque)
        self._passed_over: list[int] = []

    # ── limits ──

    def recycle(self) -> None:
        for member in list(self._idle.values()):
            reason = expired_limit(member, self._limits, self._now) or self._idle_too_long(member)
            if reason is not None:
                self._evict(member, reason)
                self._closing += 1

    def _idle_too_long(self, member: Member) -> Reason | None:
        if self._limits.max_idle is None or self._now < member.used + self._limits.max_idle:
            return None
        # One that a target keeps would only be started again.
        return (
            "max_idle" if self._have[member.profile] > _target_count(self._targets, member.profile) else None
        )

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
            self.actions.append(HandOver(member.id, waiter.id, tuple(self._passed_over)))
            return
        if not waiter.spawning:
            self._without_start[profile].append(waiter)
        if self._coming[profile] > 0:
            self._coming[profile] -= 1
        elif not self._make_room(waiter):
            self._passed_over.append(waiter.id)

    def _ready(self, profile: str) -> Member | None:
        """Return the worker that was used last, so that those not needed reach `max_idle`."""
        for member in reversed(self._idle.values()):
            if member.profile == profile:
                return member
        return None

    def _make_room(self, waiter: Waiter) -> bool:
        due = self._is_due(waiter)
        if self._free > 0:
            self._spawn(waiter.profile, self._without_start[waiter.profile].popleft().id)
        elif self._closing > 0:
            self._closing -= 1
        elif self._stopping[waiter.profile] > 0 and not due:
            self._stopping[waiter.profile] -= (
                1  # it most often becomes ready again, and then no other worker has to end
            )
        elif (victim := self._victim(due=due)) is not None:
            self._evict(victim, "displaced")
        else:
            return False
        return True

    def _is_due(self, waiter: Waiter) -> bool:
        return waiter.passed >= self._limits.passes or self._now - waiter.since >= self._limits.patience

    # ── targets ──

    def keep(self) -> None:
        for profile, target in self._targets.items():
            if target.not_before > self._now and not target.urgent:
                continue
            for _ in range(target.count - self._have[profile]):
                if not self._top_up(profile, target):
                    break

    def _top_up(self, profile: str, target: PrewarmTarget) -> bool:
        if self._free > 0:
            self._spawn(profile, None)
        elif self._closing > 0:
            self._closing -= 1
        elif target.urgent and (victim := self._victim(due=False, spare_targets=True)) is not None:
            self._evict(victim, "displaced")
        else:
            return False
        return True

    # ── shared ──

    def _spawn(self, profile: str, waiter: int | None) -> None:
        self._free -= 1
        self._have[profile] += 1
        self.actions.append(Spawn(profile, waiter))

    def _evict(self, member: Member, reason: Reason) -> None:
        del self._idle[member.id]
        self._have[member.profile] -= 1
        self.actions.append(Evict(member.id, reason))

    def _victim(self, *, due: bool, spare_targets: bool = False) -> Member | None:
        """Return the worker to end. `due`: even one that a younger request would have got."""
        resting = Counter(member.profile for member in self._idle.values())
        candidates = [
            member
            for member in self._idle.values()
            if (due or resting[member.profile] > self._waiting[member.profile])
            and not (spare_targets and self._is_kept(member))
        ]
        return min(candidates, key=self._value, default=None)

    def _is_kept(self, member: Member) -> bool:
        return self._have[member.profile] <= _target_count(self._targets, member.profile)

    def _value(self, member: Member) -> tuple[bool, bool, bool, float, str]:
        return (
            self._waiting[member.profile] > 0,
            self._is_kept(member),
            not self._nearly_expired(member),
            member.used,
            member.id,
        )

    def _nearly_expired(self, member: Member) -> bool:
        limits, age = self._limits, self._now - member.born
        return (
            limits.max_requests is not None and member.served >= NEARLY_EXPIRED * limits.max_requests
        ) or (limits.max_age is not None and age >= NEARLY_EXPIRED * limits.max_age)
