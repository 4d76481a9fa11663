"""Which session serves whom: examples, and what holds whatever the snapshot is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pool.scheduler import (
    Action,
    Evict,
    HandOver,
    Member,
    PoolLimits,
    PrewarmTarget,
    Spawn,
    Waiter,
    WorkerState,
    decide,
    expired_limit,
    next_decision_at,
)

NOW = 1000.0
IDLE, BUSY, SPAWNING, CLEARING, CLOSING, STOPPING = (
    WorkerState.IDLE,
    WorkerState.BUSY,
    WorkerState.SPAWNING,
    WorkerState.CLEARING,
    WorkerState.CLOSING,
    WorkerState.STOPPING,
)


def member(name: str, profile: str, state: WorkerState = IDLE, used: float = NOW, served: int = 1) -> Member:
    return Member(name, profile, state, born=used, used=used, served=served)


def waiters(*profiles: str, since: float = NOW, passed: int = 0) -> list[Waiter]:
    return [Waiter(number, profile, since, passed) for number, profile in enumerate(profiles, 1)]


def plan(
    members: Sequence[Member] = (),
    waiting: Sequence[Waiter] = (),
    targets: dict[str, PrewarmTarget] | None = None,
    **limits: int | float | None,
) -> list[Action]:
    counted = Counter(waiter.profile for waiter in waiting)
    return decide(members, waiting, counted, targets or {}, PoolLimits(**limits), NOW)  # type: ignore[arg-type]


# ── waiters ──


def test_decide_idle_worker_of_the_profile_goes_to_the_waiter() -> None:
    assert plan([member("a", "P")], waiters("P")) == [HandOver("a", 1)]


def test_decide_idle_worker_of_another_profile_is_never_handed_over() -> None:
    assert plan([member("a", "Q")], waiters("P"), size=2) == [Spawn("P", 1)]


def test_decide_of_several_idle_workers_the_last_used_serves() -> None:
    resting = [member("a", "P", used=NOW - 9), member("b", "P", used=NOW - 1), member("c", "P", used=NOW - 5)]
    assert plan(resting, waiters("P"), size=3) == [HandOver("b", 1)]


def test_decide_waiters_of_one_profile_are_served_in_order() -> None:
    assert plan([member("a", "P"), member("b", "P")], waiters("P", "P", "P"), size=2) == [
        HandOver("b", 1),
        HandOver("a", 2),
    ]


@pytest.mark.parametrize("state", [SPAWNING, CLEARING])
def test_decide_worker_that_comes_is_waited_for_although_there_is_room(state: WorkerState) -> None:
    assert plan([member("a", "P", state)], waiters("P"), size=4) == []
    assert plan([member("a", "P", state)], waiters("P", "P"), size=4) == [Spawn("P", 1)]


@pytest.mark.parametrize("state", [BUSY, STOPPING, CLOSING])
def test_decide_worker_that_may_not_come_is_not_waited_for(state: WorkerState) -> None:
    assert plan([member("a", "P", state)], waiters("P"), size=4) == [Spawn("P", 1)]


@pytest.mark.parametrize("state", [BUSY, STOPPING, CLOSING, SPAWNING, CLEARING])
def test_decide_full_pool_starts_nothing(state: WorkerState) -> None:
    assert plan([member("a", "P", state)], waiters("P", "Q"), size=1) == []


def test_decide_spawn_is_for_the_oldest_that_has_none() -> None:
    waiting = waiters("P", "P", "P")
    waiting[0].spawning = True
    starting = [member("a", "P", SPAWNING)]
    assert plan(starting, waiting, size=3) == [Spawn("P", 2), Spawn("P", 3)]


def test_decide_spawn_of_a_younger_waiter_covers_it_and_the_older_gets_another() -> None:
    waiting = waiters("P", "P")
    waiting[1].spawning = True
    assert plan([member("a", "P", SPAWNING)], waiting, size=2) == [Spawn("P", 1)]


# ── making room ──


def test_decide_full_pool_ends_the_idle_worker_that_was_not_used_for_longest() -> None:
    resting = [member("a", "Q", used=NOW - 1), member("b", "R", used=NOW - 5)]
    assert plan(resting, waiters("P"), size=2) == [Evict("b", "displaced")]


def test_decide_room_that_is_being_made_is_not_made_twice() -> None:
    members = [member("a", "Q", CLOSING), member("b", "R")]
    assert plan(members, waiters("P"), size=2) == []
    assert plan(members, waiters("P", "P"), size=2) == [Evict("b", "displaced")]


def test_decide_worker_that_is_being_stopped_is_waited_for_before_another_is_ended() -> None:
    members = [member("a", "P", STOPPING), member("b", "Q")]
    assert plan(members, waiters("P"), size=2) == []
    assert plan(members, waiters("P", "P"), size=2) == [Evict("b", "displaced")]
    assert plan(members, waiters("P", since=NOW - 2), size=2) == [Evict("b", "displaced")]


def test_decide_worker_near_its_limit_is_ended_first() -> None:
    resting = [member("a", "Q", used=NOW - 5, served=1), member("b", "R", used=NOW, served=45)]
    assert plan(resting, waiters("P"), size=2) == [Evict("b", "displaced")]


def test_decide_worker_that_a_target_keeps_is_ended_last() -> None:
    resting = [member("a", "Q", used=NOW - 5), member("b", "R")]
    targets = {"Q": PrewarmTarget(1)}
    assert plan(resting, waiters("P"), targets, size=2) == [Evict("b", "displaced")]
    assert plan([member("a", "Q")], waiters("P"), targets, size=1) == [Evict("a", "displaced")]


def test_decide_worker_with_a_younger_waiter_of_its_own_is_not_ended_for_an_older_one() -> None:
    resting = [member("a", "P")]
    assert plan(resting, waiters("Q", "P"), size=1) == [HandOver("a", 2, passed=(1,))]


@pytest.mark.parametrize("waiting", [waiters("Q", "P", since=NOW - 2), waiters("Q", "P", passed=16)])
def test_decide_waiter_that_was_passed_over_for_long_gets_the_room(waiting: list[Waiter]) -> None:
    assert plan([member("a", "P")], waiting, size=1) == [Evict("a", "displaced")]


def test_decide_surplus_of_a_profile_is_ended_though_others_wait_for_that_profile() -> None:
    resting = [member("a", "P", used=NOW - 1), member("b", "P")]
    assert plan(resting, waiters("Q", "P"), size=2) == [Evict("a", "displaced"), HandOver("b", 2)]


def test_decide_alternating_profiles_share_one_seat_in_runs_and_none_starves() -> None:
    # One session, requests of two profiles in turn: how often must an agent be started?
    queue = [Waiter(n, "PQ"[n % 2], since=0.0) for n in range(100)]
    seat = Member("s", "P", IDLE)
    served: list[int] = []
    starts, now = 0, 0.0
    while queue:
        now += 0.01
        counted = Counter(waiter.profile for waiter in queue)
        (action,) = decide([seat], queue, counted, {}, PoolLimits(size=1, patience=1e9), now)
        if isinstance(action, HandOver):
            for waiter in queue:
                waiter.passed += waiter.id in action.passed
            served.append(action.waiter)
            queue = [waiter for waiter in queue if waiter.id != action.waiter]
            seat.used = now
        else:
            starts += 1
            seat = Member("s", queue[0].profile, IDLE, born=now, used=now)
    assert starts <= 100 // 16 + 2
    behind = max(abs(number - place) for place, number in enumerate(served))
    assert behind <= 2 * 16 + 2


# ── limits ──


@pytest.mark.parametrize(
    ("old", "limits", "reason"),
    [
        (Member("a", "P", IDLE, born=NOW - 60, used=NOW), {"max_age": 60.0}, "max_age"),
        (Member("a", "P", IDLE, born=NOW - 60, used=NOW - 30), {"max_idle": 30.0}, "max_idle"),
        (Member("a", "P", IDLE, born=NOW, used=NOW, served=2), {"max_requests": 2}, "max_requests"),
    ],
)
def test_decide_idle_worker_past_a_limit_is_ended(old: Member, limits: dict[str, float], reason: str) -> None:
    assert plan([old], **limits) == [Evict("a", reason)]  # type: ignore[arg-type]
    assert plan([old], waiters("P"), **limits) == [Evict("a", reason)]  # type: ignore[arg-type]


def test_decide_busy_worker_past_a_limit_is_left_alone() -> None:
    assert plan([Member("a", "P", BUSY, born=0, used=0, served=99)]) == []


def test_decide_without_limits_nothing_is_too_old() -> None:
    old = Member("a", "P", IDLE, born=-1e9, used=-1e9, served=10**9)
    assert plan([old], max_age=None, max_idle=None, max_requests=None) == []
    assert next_decision_at([old], {}, PoolLimits(max_age=None, max_idle=None), NOW) is None


def test_decide_idle_worker_that_a_target_keeps_stays() -> None:
    resting = [member("a", "P", used=NOW - 700), member("b", "P", used=NOW - 600)]
    assert plan(resting, targets={"P": PrewarmTarget(1)}, size=2) == [Evict("a", "max_idle")]
    assert next_decision_at(resting[1:], {"P": PrewarmTarget(1)}, PoolLimits(max_age=None), NOW) is None


def test_expired_limit_is_the_limit_that_was_reached() -> None:
    limits = PoolLimits(max_requests=2, max_age=60.0)
    assert expired_limit(Member("a", "P", born=NOW, served=1), limits, NOW + 59.9) is None
    assert expired_limit(Member("a", "P", born=NOW, served=2), limits, NOW) == "max_requests"
    assert expired_limit(Member("a", "P", born=NOW, served=1), limits, NOW + 60) == "max_age"


def test_next_decision_is_when_the_first_limit_is_reached() -> None:
    members = [Member("a", "P", IDLE, born=0, used=900), Member("b", "P", BUSY, born=0, used=0)]
    assert next_decision_at(members, {}, PoolLimits(max_age=3600, max_idle=600), NOW) == 1500
    assert next_decision_at(members, {}, PoolLimits(max_age=1100, max_idle=600), NOW) == 1100
    assert (
        next_decision_at(members, {"Q": PrewarmTarget(1, not_before=NOW + 1)}, PoolLimits(), NOW) == NOW + 1
    )


# ── targets ──


def test_decide_target_is_filled_from_free_room_after_the_waiters() -> None:
    targets = {"P": PrewarmTarget(2)}
    assert plan([], (), targets, size=3) == [Spawn("P", None), Spawn("P", None)]
    assert plan([], waiters("Q", "Q"), targets, size=3) == [Spawn("Q", 1), Spawn("Q", 2), Spawn("P", None)]
    assert plan([member("a", "P", BUSY), member("b", "P", CLEARING)], (), targets, size=3) == []


def test_decide_worker_that_is_being_ended_does_not_count_for_a_target() -> None:
    assert plan([member("a", "P", CLOSING)], (), {"P": PrewarmTarget(1)}, size=2) == [Spawn("P", None)]
    assert plan([member("a", "P", CLOSING)], (), {"P": PrewarmTarget(1)}, size=1) == []


def test_decide_target_ends_other_workers_only_while_it_is_urgent() -> None:
    resting = [member("a", "Q")]
    assert plan(resting, (), {"P": PrewarmTarget(1)}, size=1) == []
    assert plan(resting, (), {"P": PrewarmTarget(1, urgent=True)}, size=1) == [Evict("a", "displaced")]
    both = {"P": PrewarmTarget(1, urgent=True), "Q": PrewarmTarget(1)}
    assert plan(resting, (), both, size=1) == []


def test_decide_target_whose_starts_failed_waits() -> None:
    assert plan([], (), {"P": PrewarmTarget(1, not_before=NOW + 1)}) == []
    assert plan([], (), {"P": PrewarmTarget(1, not_before=NOW)}) == [Spawn("P", None)]


# ── whatever the snapshot ──

PROFILES = "PQR"
Snapshot = tuple[list[Member], list[Waiter], dict[str, PrewarmTarget], PoolLimits]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    size = draw(st.integers(1, 5))
    times = st.floats(0, NOW)
    members = [
        Member(
            f"m{number}",
            draw(st.sampled_from(PROFILES)),
            draw(st.sampled_from(WorkerState)),
            born=draw(times),
            used=draw(times),
            served=draw(st.integers(0, 60)),
        )
        for number in range(draw(st.integers(0, size)))
    ]
    queue = []
    since = sorted(draw(st.lists(times, max_size=8)))
    for number, moment in enumerate(since):
        queue.append(Waiter(number, draw(st.sampled_from(PROFILES)), moment, draw(st.integers(0, 20))))
    _mark_spawning(draw, members, queue)
    targets = {
        profile: PrewarmTarget(draw(st.integers(0, size)), draw(st.booleans()), draw(st.floats(0, 2 * NOW)))
        for profile in draw(st.sets(st.sampled_from(PROFILES)))
    }
    limits = PoolLimits(
        size,
        draw(st.none() | st.integers(1, 60)),
        draw(st.none() | st.floats(1, 2 * NOW)),
        draw(st.none() | st.floats(1, 2 * NOW)),
        patience=draw(st.sampled_from([0.0, 2.0, 500.0])),
    )
    return members, queue, targets, limits


def _mark_spawning(draw: st.DrawFn, members: list[Member], queue: list[Waiter]) -> None:
    """No more waiters have a start of their own than there are starts."""
    starting = Counter(member.profile for member in members if member.state is SPAWNING)
    for waiter in queue:
        if starting[waiter.profile] > 0 and draw(st.booleans()):
            waiter.spawning = True
            starting[waiter.profile] -= 1


def decided(snapshot: Snapshot) -> list[Action]:
    members, queue, targets, limits = snapshot
    return decide(members, queue, Counter(waiter.profile for waiter in queue), targets, limits, NOW)


@given(snapshots())
def test_size_is_never_exceeded(snapshot: Snapshot) -> None:
    members, _, _, limits = snapshot
    starts = [action for action in decided(snapshot) if isinstance(action, Spawn)]
    assert len(members) + len(starts) <= limits.size


@given(snapshots())
def test_only_idle_workers_are_touched_and_each_once(snapshot: Snapshot) -> None:
    idle = {member.id for member in snapshot[0] if member.state is IDLE}
    touched = [action.worker for action in decided(snapshot) if not isinstance(action, Spawn)]
    assert len(set(touched)) == len(touched)
    assert set(touched) <= idle


@given(snapshots())
def test_worker_serves_its_own_profile_and_each_profile_in_order(snapshot: Snapshot) -> None:
    members, queue, _, _ = snapshot
    kinds = {member.id: member.profile for member in members}
    handed = [action for action in decided(snapshot) if isinstance(action, HandOver)]
    for profile in PROFILES:
        served = [action.waiter for action in handed if kinds[action.worker] == profile]
        assert served == [waiter.id for waiter in queue if waiter.profile == profile][: len(served)]


@given(snapshots())
def test_no_worker_is_idle_while_a_request_of_its_profile_waits(snapshot: Snapshot) -> None:
    members, queue, _, _ = snapshot
    actions = decided(snapshot)
    touched = {action.worker for action in actions if not isinstance(action, Spawn)}
    served = {action.waiter for action in actions if isinstance(action, HandOver)}
    resting = {member.profile for member in members if member.state is IDLE and member.id not in touched}
    assert not resting & {waiter.profile for waiter in queue if waiter.id not in served}


@given(snapshots())
def test_no_waiter_is_passed_over_that_was_so_for_long(snapshot: Snapshot) -> None:
    _, queue, _, limits = snapshot
    by_id = {waiter.id: waiter for waiter in queue}
    for action in decided(snapshot):
        if not isinstance(action, HandOver):
            continue
        for passed in action.passed:
            waiter = by_id[passed]
            assert waiter.id < action.waiter
            assert waiter.passed < limits.passes
            assert NOW - waiter.since < limits.patience


@given(snapshots())
def test_no_worker_is_displaced_without_a_request_that_needs_the_room(snapshot: Snapshot) -> None:
    members, queue, targets, limits = snapshot
    actions = decided(snapshot)
    displaced = [action for action in actions if isinstance(action, Evict) and action.reason == "displaced"]
    urgent = sum(target.count for target in targets.values() if target.urgent)
    handed = sum(isinstance(action, HandOver) for action in actions)
    assert len(displaced) <= len(queue) - handed + urgent
    if displaced:
        assert len(members) + sum(isinstance(action, Spawn) for action in actions) == limits.size


@given(snapshots())
def test_each_start_is_for_a_waiter_without_one_of_the_same_profile_or_for_a_target(
    snapshot: Snapshot,
) -> None:
    _, queue, targets, _ = snapshot
    starts = [action for action in decided(snapshot) if isinstance(action, Spawn)]
    mine = [action.waiter for action in starts if action.waiter is not None]
    assert len(set(mine)) == len(mine)
    by_id = {waiter.id: waiter for waiter in queue}
    for action in starts:
        if action.waiter is None:
            assert targets[action.profile].count > 0
        else:
            assert by_id[action.waiter].profile == action.profile
            assert not by_id[action.waiter].spawning


@given(snapshots())
def test_to_decide_again_right_away_changes_nothing(snapshot: Snapshot) -> None:
    members, queue, targets, limits = snapshot
    by_id = {member.id: member for member in members}
    for action in decided(snapshot):
        match action:
            case HandOver():
                by_id[action.worker].state = BUSY
                queue = [waiter for waiter in queue if waiter.id != action.waiter]
            case Evict():
                by_id[action.worker].state = CLOSING
            case Spawn():
                members.append(Member(f"n{len(members)}", action.profile, SPAWNING, NOW, NOW))
                for waiter in queue:
                    waiter.spawning = waiter.spawning or waiter.id == action.waiter
    assert decided((members, queue, targets, limits)) == []
