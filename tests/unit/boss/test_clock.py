"""The clock on the wall is set, back and forward, while a boss runs and between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.boss.answers.approvals import Approvals
from remuda.boss.attention.model import Activity, Event, EventKind
from remuda.boss.attention.redate import move
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.notices.links import Links
from remuda.boss.notices.notification import Schedule
from remuda.boss.notices.notify_file import NotifySettings, Receiver
from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from remuda.boss.wall_clock import WallClock
from remuda.errors import NotInQueue
from support.boss import Clock, event, open_service
from support.counts import EXAMPLES

NOW = 1_700_000_000.0
HOUR = 3600.0
JUMPS = [-HOUR, HOUR, -40 * HOUR, 9000 * HOUR]
ASKED: dict[str, Any] = {
    "tool": "Bash",
    "input": {"command": "make"},
    "reason": "permission",
    "agent": "claude",
}


class Clocks:
    """The time that passes, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.steady = NOW
        self.offset = 0.0
        self.boot = "first"
        self.booted = 0.0

    @property
    def now(self) -> float:
        return self.steady + self.offset

    def wall(self) -> float:
        return self.now

    def read_steady(self) -> float:
        return self.steady - self.booted

    def start_anew(self) -> None:
        """The machine was started again, a minute ago."""
        self.boot, self.booted = "second", self.steady - 60


class Bench:
    def __init__(self, service: BossService, clocks: Clocks) -> None:
        self.service = service
        self.clocks = clocks

    async def tell(self, kind: str, *, session: str = "s", **facts: Any) -> Event:
        """What happens now, a second after the last."""
        self.clocks.steady += 1.0
        told = event(kind, self.clocks.now, session=session, **facts)
        await self.service.take(told)
        return told

    @property
    def state(self) -> Activity:
        return self.service.session("s").state

    def reasons(self) -> list[str]:
        return [str(item.reason) for item in self.service.queue()]


def run(folder: Path, clocks: Clocks, work: Callable[[Bench], Awaitable[None]]) -> None:
    async def whole() -> None:
        service = BossService(Store(folder / "boss.db"), clocks.wall, clocks.read_steady, clocks.boot)
        await service.open()
        try:
            async with asyncio.timeout(60):
                await work(Bench(service, clocks))
        finally:
            await service.close()

    asyncio.run(whole())


def test_roster_whose_clock_is_set_back_hears_what_comes_next() -> None:
    index = SessionIndex()
    index.take(event("stopped", NOW, message="done"), NOW)
    back = NOW - HOUR
    index.take(event("prompted", back + 1, prompt="go on"), back + 1)
    assert [known.session.state for known in index.entries.values()] == ["working"]
    index.take(event("asked", back + 2, **ASKED), back + 2)
    assert [known.session.state for known in index.entries.values()] == ["waiting"]
    assert [item.reason for item in index.queue()] == ["permission"]


def test_desk_whose_clock_alone_is_set_back_hears_what_comes_next(tmp_path: Path) -> None:
    clock = Clock(NOW)

    async def whole() -> None:
        async with open_service(tmp_path, clock) as service:
            await service.take(event("stopped", NOW, message="done"))
            clock.now -= HOUR
            await service.take(event("prompted", clock.now, prompt="go on"))
            assert service.session("s").state is Activity.WORKING

    asyncio.run(whole())


@pytest.mark.parametrize("by", JUMPS)
def test_session_whose_clock_is_set_goes_through_its_states(tmp_path: Path, by: float) -> None:
    async def work(bench: Bench) -> None:
        await bench.tell("registered")
        await bench.tell("prompted", prompt="a")
        await bench.tell("stopped", message="done")
        bench.clocks.offset += by
        await bench.tell("prompted", prompt="b")
        assert bench.state is Activity.WORKING
        await bench.tell("asked", **ASKED)
        assert (bench.state, bench.reasons()) == (Activity.WAITING, ["permission"])
        bench.clocks.offset -= by
        await bench.tell("tool_ran", tool_use_id="t", tool="Bash", input={"command": "make"})
        assert (bench.state, bench.reasons()) == (Activity.WORKING, [])
        await bench.tell("stopped", message="well")
        assert (bench.state, bench.reasons()) == (Activity.STOPPED, ["stopped"])

    run(tmp_path, Clocks(), work)


@pytest.mark.parametrize("by", JUMPS)
def test_clock_set_forward_and_back_leaves_ages_ids_and_what_was_put_off(tmp_path: Path, by: float) -> None:
    async def work(bench: Bench) -> None:
        await bench.tell("stopped", message="one")
        await bench.tell("asked", session="asks", **ASKED)
        await bench.tell("stopped", session="later", message="two")
        first, asks, later = bench.service.queue()
        later = await bench.service.snooze(later.id, bench.clocks.now + 60)
        before = [first, asks, later], bench.service.approval(str(asks.detail["ask"]))
        dated = bench.service.session("s")
        for jump in (by, -by):
            bench.clocks.offset += jump
            now = bench.service.clock()
            found = bench.service.queue(hidden=True)
            assert [(one.id, now - one.since) for one in found] == [
                (one.id, bench.clocks.steady - one.since) for one in before[0]
            ]
            assert [one.id for one in bench.service.queue()] == [first.id, asks.id]
            assert found[2].snooze_until == now + 60
        assert (bench.service.queue(hidden=True), bench.service.approval(before[1].id)) == before
        assert bench.service.session("s") == dated
        bench.clocks.steady += 61
        assert len(bench.service.queue()) == 3

    run(tmp_path, Clocks(), work)


@pytest.mark.parametrize("by", JUMPS)
def test_dates_of_a_clock_that_was_set_are_the_same_after_a_restart(tmp_path: Path, by: float) -> None:
    clocks = Clocks()
    found: list[Any] = []

    async def look(bench: Bench) -> None:
        found.append((bench.service.sessions(), bench.service.queue(), bench.service.open_approvals()))

    async def work(bench: Bench) -> None:
        for number in range(100):  # so that some are told in the base
            await bench.tell("prompted", prompt=str(number))
        await bench.tell("asked", **ASKED)
        await bench.tell("stopped", session="other", message="done")
        bench.clocks.offset += by
        await bench.tell("prompted", session="third", prompt="x")
        await look(bench)

    run(tmp_path, clocks, work)
    run(tmp_path, clocks, look)
    assert found[0] == found[1]
    assert [item.reason for item in found[0][1]] == ["permission", "stopped"]


@pytest.mark.parametrize("is_new_boot", [False, True])
def test_boss_that_starts_with_dates_ahead_of_its_clock_hears_what_comes_next(
    tmp_path: Path, is_new_boot: bool
) -> None:
    clocks = Clocks()

    async def first(bench: Bench) -> None:
        await bench.tell("stopped", message="done")
        await bench.tell("asked", session="asks", **ASKED)

    async def second(bench: Bench) -> None:
        assert bench.reasons() == ["stopped", "permission"]
        assert all(item.since <= bench.clocks.now for item in bench.service.queue())
        await bench.tell("prompted", prompt="go on")
        await bench.tell("tool_ran", session="asks", tool="Bash", input={"command": "make"})
        assert (bench.state, bench.reasons()) == (Activity.WORKING, [])

    async def third(bench: Bench) -> None:
        assert (bench.state, bench.reasons()) == (Activity.WORKING, [])
        await bench.tell("stopped", message="well")
        assert bench.state is Activity.STOPPED
        await bench.tell("prompted", prompt="and again")

    run(tmp_path, clocks, first)
    clocks.offset -= 40 * HOUR
    if is_new_boot:
        clocks.start_anew()
    run(tmp_path, clocks, second)
    run(tmp_path, clocks, third)
    clocks.offset += 40 * HOUR
    run(tmp_path, clocks, third)


def test_event_of_after_the_clock_was_set_back_while_no_boss_ran_counts(tmp_path: Path) -> None:
    clocks = Clocks()

    async def first(bench: Bench) -> None:
        await bench.tell("prompted", prompt="a")

    async def second(bench: Bench) -> None:
        await bench.service.take(event("stopped", bench.clocks.now - 600, message="done"))
        assert bench.state is Activity.STOPPED

    run(tmp_path, clocks, first)
    clocks.offset -= HOUR
    clocks.steady += 900
    run(tmp_path, clocks, second)


def test_session_that_was_forgotten_comes_back_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clocks = Clocks()

    async def first(bench: Bench) -> None:
        await bench.tell("ended", why="exit")
        bench.clocks.steady += 2 * HOUR
        await bench.tell("stopped", session="other", message="done")

    async def second(bench: Bench) -> None:
        bench.clocks.offset -= 5 * HOUR
        bench.service.clock()
        assert str(bench.state) == "ended"
        await bench.tell("registered", how="resume")
        assert str(bench.state) == "started"

    run(tmp_path, clocks, first)
    run(tmp_path, clocks, second)


@pytest.mark.parametrize("by", JUMPS)
def test_event_from_before_the_clock_was_set_is_put_where_it_happened(tmp_path: Path, by: float) -> None:
    async def work(bench: Bench) -> None:
        await bench.tell("prompted", prompt="a")
        bench.clocks.steady += 1
        late = event("stopped", bench.clocks.now, message="done")
        bench.clocks.steady += 1
        bench.clocks.offset += by
        await bench.service.take(late)
        assert bench.state is Activity.STOPPED
        assert bench.clocks.now - bench.service.session("s").since == 1.0

    run(tmp_path, Clocks(), work)


def test_events_from_ahead_keep_the_order_in_which_they_come(tmp_path: Path) -> None:
    """As a spool that was filled before the clock was set back, while no boss ran."""

    async def work(bench: Bench) -> None:
        ahead = bench.clocks.now + HOUR
        await bench.service.take(
            event("prompted", ahead, prompt="a"),
            event("stopped", ahead + 1, message="done"),
            event("prompted", ahead + 2, prompt="b"),
        )
        assert bench.state is Activity.WORKING
        assert bench.service.session("s").since - bench.clocks.now < 0.001

    run(tmp_path, Clocks(), work)


def test_event_cannot_choose_the_name_of_its_request(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.tell("asked", session="one", **ASKED)
        (first,) = bench.service.open_approvals()
        await bench.tell("asked", session="two", **ASKED, ask=first.id)
        assert len({one.id for one in bench.service.open_approvals()}) == 2

    run(tmp_path, Clocks(), work)


@pytest.mark.parametrize("by", JUMPS)
def test_request_and_link_outlive_a_clock_that_is_set(tmp_path: Path, by: float) -> None:
    async def work(bench: Bench) -> None:
        service = bench.service
        approvals = Approvals(service, tmp_path)
        links = Links(service, approvals)
        asked = await bench.tell("asked", **ASKED)
        approval = service.approval_of(asked)
        assert approval is not None
        hook = asyncio.create_task(approvals.hold(approval.id, 60))
        while service.approval(approval.id).expires_at is None:
            await asyncio.sleep(0)
        secret = await links.make(approval.id, HOUR)
        spare = await links.make(approval.id, HOUR)
        bench.clocks.offset += by
        await bench.tell("seen")
        while abs(links.dates(secret)[1] - bench.clocks.now - HOUR) > 5:
            await asyncio.sleep(0)
        await links.answer(secret, {"behavior": "allow"})
        assert (await hook)[0] == "answered"
        bench.clocks.steady += HOUR
        with pytest.raises(NotInQueue, match="expired"):
            links.request(spare)

    run(tmp_path, Clocks(), work)


def test_link_of_a_boss_before_the_clock_was_set_back_lives_no_longer(tmp_path: Path) -> None:
    clocks = Clocks()
    secrets: list[str] = []

    async def first(bench: Bench) -> None:
        approval = bench.service.approval_of(await bench.tell("asked", **ASKED))
        assert approval is not None
        links = Links(bench.service, Approvals(bench.service, tmp_path))
        secrets.append(await links.make(approval.id, HOUR))

    async def second(bench: Bench) -> None:
        links = Links(bench.service, Approvals(bench.service, tmp_path))
        while links.dates(secrets[0])[0] > bench.clocks.now:
            await asyncio.sleep(0)
        assert links.request(secrets[0]).tool == "Bash"
        bench.clocks.steady += HOUR
        with pytest.raises(NotInQueue, match="expired"):
            links.request(secrets[0])

    run(tmp_path, clocks, first)
    clocks.offset -= 5 * HOUR
    run(tmp_path, clocks, second)


def test_notice_after_the_clock_was_set_back_waits_for_one_cooldown_at_most() -> None:
    schedule, notices = Schedule(), NotifySettings(receivers=(Receiver(desktop=True),))
    index = SessionIndex()
    index.take(event("stopped", NOW, message="done"), NOW)
    assert schedule.due(index.queue(), notices, NOW + 60)
    back = NOW - HOUR
    index.take(event("prompted", back, prompt="a"), back)
    index.take(event("stopped", back + 1, message="well"), back + 1)
    assert not schedule.due(index.queue(), notices, back + 60)
    assert schedule.due(index.queue(), notices, back + 61 + notices.cooldown)


def test_wall_clock_that_sleeps_with_its_machine_was_not_set() -> None:
    clocks = Clocks()
    clock = WallClock(clocks.wall, clocks.read_steady)
    clocks.steady += 9 * HOUR
    assert clock.look() == (clocks.now, 0.0)


# ── whatever happens, and whenever it is set ──

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(list(EventKind)), st.floats(0.0, 400.0)),
        st.tuples(st.just("set"), st.just(None), st.floats(-1e6, 1e6)),
    ),
    max_size=40,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(STEPS)
def test_roster_ends_the_same_however_its_clock_is_set(steps: list[tuple[str, Any, float]]) -> None:
    never, often = SessionIndex(), SessionIndex()
    steady, offset = 1e9, 0.0
    for number, (session, kind, value) in enumerate(steps):
        if kind is None:
            by = round(value)
            offset += by
            often.redate(by)
            continue
        steady += round(value)
        told = Event(kind, session, steady, id=str(number), facts={**ASKED, "tool_use_id": "t"})
        never.take(told, steady)
        often.take(replace(told, at=steady + offset), steady + offset)
    assert _shape(never, 0.0) == _shape(often, offset)


def _shape(index: SessionIndex, offset: float) -> list[Any]:
    """All that counts of it, as a clock that was never set dates it."""
    sessions = [(known.session.state, move(known.session.since, -offset)) for known in index.entries.values()]
    states = [[one.state for one in known.approvals.values()] for known in index.entries.values()]
    waiting = sorted((one.since - offset, one.reason) for one in index.queue())
    return [sessions, states, waiting]


@pytest.mark.parametrize("by", JUMPS)
def test_clock_set_while_no_boss_runs_leaves_ages_and_what_was_put_off(tmp_path: Path, by: float) -> None:
    clocks = Clocks()
    ages: list[list[float]] = []

    async def first(bench: Bench) -> None:
        await bench.tell("stopped", message="one")
        await bench.tell("stopped", session="later", message="two")
        await bench.service.snooze(bench.service.queue()[1].id, bench.clocks.now + 60)

    async def look(bench: Bench) -> None:
        now = bench.service.clock()
        ages.append([now - item.since for item in bench.service.queue(hidden=True)])
        assert len(bench.service.queue()) == 1

    run(tmp_path, clocks, first)
    run(tmp_path, clocks, look)
    clocks.offset += by
    run(tmp_path, clocks, look)
    assert ages[0] == ages[1]
