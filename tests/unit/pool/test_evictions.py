"""Why a warm pool gives a session up: its limits, dirt, crashes, and room for another profile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from remuda import Client, WaitTimeout
from remuda.pool.types import Answered, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, crashing, gated, lasting, settled, soon, virtual

# ── lost before it was told anything ──


@virtual
async def test_request_whose_worker_is_lost_before_it_began_gets_another() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("zero")
        await settled()
        first, second = soon(client.run("one")), soon(client.run("two"))
        await asyncio.sleep(0)  # the first has its session, whose turn begins with the next step
        agent.sessions[0].crash("exit:1")
        assert [(await call).text for call in (first, second)] == ["REPLY#1 to: one", "REPLY#2 to: two"]
        await asyncio.sleep(100)
        assert (heard.evicted, heard.codes) == (["crashed"], [])
    assert agent.sessions[0].prompts == ["zero"]
    assert len(agent.sessions) == 2


@virtual
async def test_request_that_lost_its_worker_still_waits_no_longer_than_it_may() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, spawn_timeout=1000) as client:
        await client.run("zero")
        await settled()
        agent.opening = lasting(500)
        call = soon(client.run("one", timeout=60))
        await asyncio.sleep(0)
        agent.sessions[0].crash("exit:1")
        with pytest.raises(WaitTimeout, match="waiting for a worker"):
            await call
        assert asyncio.get_running_loop().time() == pytest.approx(60, abs=1)


# ── limits ──


@virtual
async def test_worker_that_is_too_old_is_replaced() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_session_age=60) as client:
        heard = Heard(client)
        await client.run("one")
        await asyncio.sleep(60.001)
        await client.run("two")
        assert (heard.evicted, len(heard.spawned)) == (["max_age"], 2)


@virtual
async def test_limits_of_idle_workers_are_kept_without_any_request() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_session_age=60, max_idle=20, pool_size=2) as client:
        heard = Heard(client)
        await client.run("one")
        await asyncio.sleep(19.9)
        assert heard.evicted == []
        await asyncio.sleep(0.2)
        assert heard.evicted == ["max_idle"]
        assert agent.alive == []
        await client.prewarm(1)
        await asyncio.sleep(60.1)
        assert heard.evicted == ["max_idle", "max_age"]
        assert len(agent.alive) == 1  # and it was replaced


@virtual
async def test_worker_that_reaches_max_age_while_busy_ends_after_its_request() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, max_session_age=60) as client:
        heard = Heard(client)
        call = soon(client.run("one"))
        await gate.begun("one")
        await asyncio.sleep(100)
        assert heard.evicted == []
        gate.open("one")
        await call
        await settled()
        assert heard.evicted == ["max_age"]
    assert "renew" not in agent.sessions[0].log


@virtual
async def test_worker_ends_after_its_number_of_requests() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_requests_per_session=2) as client:
        heard = Heard(client)
        for number in range(3):
            await client.run(str(number))
        assert (heard.evicted, len(heard.spawned)) == (["max_requests"], 2)
    assert [session.prompts for session in agent.sessions] == [["0", "1"], ["2"]]


@virtual
async def test_limits_of_none_are_no_limits() -> None:
    agent = FakeAgent()
    client = Client(session_factory=agent, max_requests_per_session=None, max_session_age=None, max_idle=None)
    async with client:
        for number in range(60):
            await client.run(str(number))
        await asyncio.sleep(1e6)
        await client.run("last")
    assert len(agent.sessions) == 1


# ── dirt and crashes ──


@virtual
async def test_dirty_worker_is_never_used_again_and_says_why() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("one")
        agent.sessions[0].dirty = "a shell in the background"
        await client.run("two")
        await settled()
        (event,) = heard.named("session.evicted")
        assert (event.reason, event.detail) == ("dirty", "a shell in the background")
    assert [session.prompts for session in agent.sessions] == [["one"], ["two"]]


@virtual
@pytest.mark.parametrize("error", [None, OSError("odd")])
async def test_worker_that_cannot_be_cleared_is_dirty(error: Exception | None) -> None:
    agent = FakeAgent()

    async def renewing(session: FakeSession) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    agent.renewing = renewing
    async with Client(session_factory=agent, clear_timeout=3) as client:
        heard = Heard(client)
        await client.run("one")
        await client.run("two")
        await asyncio.sleep(10)
        assert heard.evicted == ["dirty", "dirty"]
    assert len(agent.sessions) == 2


@virtual
async def test_worker_that_crashes_while_it_is_cleared_is_crashed() -> None:
    agent = FakeAgent()
    agent.renewing = crashing("exit:2")
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("one")
        await settled()
        (event,) = heard.named("session.evicted")
        assert (event.reason, event.detail) == ("crashed", "exit:2")


@virtual
async def test_worker_that_crashes_while_idle_is_gone_before_the_next_request() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("one")
        await settled()
        agent.sessions[0].crash("exit:1")
        assert heard.evicted == ["crashed"]
        await settled()
        assert client.stats()["sessions"] == []
        await client.run("two")
    assert [session.prompts for session in agent.sessions] == [["one"], ["two"]]


# ── room for other profiles ──


@virtual
async def test_idle_worker_makes_room_for_another_profile() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("one", model="a")
        await client.run("two", model="b")
        await client.run("three", model="a")
        assert heard.evicted == ["displaced", "displaced"]
    assert agent.peak == 1


@virtual
async def test_worker_that_is_being_stopped_is_awaited_before_another_is_ended() -> None:
    agent, gate = gated()
    agent.interrupting = lasting(0.1)
    gate.open("one", "three")
    async with Client(session_factory=agent, pool_size=2) as client:
        heard = Heard(client)
        await client.run("one", model="a")
        with pytest.raises(WaitTimeout):
            await client.run("two", model="b", timeout=1)
        await client.run("three", model="b")
        assert heard.evicted == []


@virtual
async def test_busy_profile_does_not_starve_another() -> None:
    async def shortly(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        await asyncio.sleep(0.01)
        yield Answered("")

    agent = FakeAgent(shortly)
    done: list[str] = []

    async def keep_busy(client: Client) -> None:
        while True:
            await client.run("busy", model="busy")
            done.append("busy")

    async with Client(session_factory=agent, max_requests_per_session=None) as client:
        busy = [soon(keep_busy(client)) for _ in range(3)]
        await asyncio.sleep(0.1)
        before = len(done)
        await client.run("rare", model="rare")
        assert before > 5
        assert len(done) - before <= 16 + 3
        for task in busy:
            task.cancel()


@virtual
async def test_profiles_that_take_turns_share_a_worker_in_runs() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_requests_per_session=None) as client:
        await asyncio.gather(*(client.run(str(n), model="ab"[n % 2]) for n in range(64)))
    assert len(agent.sessions) <= 8
