"""How a request of a warm pool gets its session: how long it waits, starts that fail, whose a start is."""

from __future__ import annotations

import asyncio

import pytest

from remuda import Client, PoolExhausted, RemudaError, SpawnFailed, SpawnTimeout, WaitTimeout
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import gated, lasting, never, settled, soon, until_set, virtual

# ── waiting ──


@virtual
async def test_pool_exhausted_after_the_acquire_timeout() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, acquire_timeout=5) as client:
        first = soon(client.run("one"))
        await gate.begun("one")
        with pytest.raises(PoolExhausted) as caught:
            await client.run("two")
        assert (caught.value.code, caught.value.waited, caught.value.size) == ("POOL_EXHAUSTED", 5, 1)
        gate.open("one")
        await first
    assert agent.sessions[0].prompts == ["one"]


@virtual
async def test_acquire_timeout_of_nothing_fails_at_once_unless_a_worker_is_free() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, acquire_timeout=0) as client:
        first = soon(client.run("one"))  # a session is started for it, and that is no waiting
        await gate.begun("one")
        with pytest.raises(PoolExhausted):
            await client.run("two")
        assert asyncio.get_running_loop().time() == 0
        gate.open("one")
        await first


@virtual
async def test_start_of_a_worker_does_not_count_as_waiting() -> None:
    agent = FakeAgent()
    agent.opening = lasting(20)
    async with Client(session_factory=agent, acquire_timeout=5, spawn_timeout=30) as client:
        result = await client.run("x")
    assert (result.queue_wait, result.warm) == (20, False)


# ── starts that fail ──


@virtual
async def test_spawn_timeout_fails_the_request_that_the_start_was_for() -> None:
    agent = FakeAgent()
    agent.opening = never
    async with Client(session_factory=agent, spawn_timeout=9) as client:
        with pytest.raises(SpawnTimeout) as caught:
            await client.run("x")
        assert caught.value.code == "SPAWN_TIMEOUT"
        assert asyncio.get_running_loop().time() == 9
        await settled()
        assert agent.alive == []


@virtual
async def test_pool_of_agents_that_cannot_start_says_so_and_not_that_it_is_too_small() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        await asyncio.sleep(1)
        session.crash("error: option '--x' is invalid")
        await never(session)

    agent.opening = opening
    agent.closing = lasting(20)  # its place is not free before that
    async with Client(session_factory=agent, acquire_timeout=5, end_timeout=30) as client:
        calls = await asyncio.gather(client.run("one"), client.run("two"), return_exceptions=True)
        assert [type(error) for error in calls] == [SpawnFailed, SpawnFailed]
        assert all("'--x' is invalid" in str(error) for error in calls)


@virtual
async def test_pool_of_agents_that_are_still_starting_says_so() -> None:
    agent = FakeAgent()
    agent.opening = never
    async with Client(session_factory=agent, acquire_timeout=5, spawn_timeout=60) as client:
        first = soon(client.run("one"))
        await settled()
        with pytest.raises(SpawnFailed, match="starting for 5 s"):
            await client.run("two")
        first.cancel()


@virtual
async def test_spawn_that_fails_is_one_requests_failure_and_each_has_its_own_try() -> None:
    agent = FakeAgent()
    tries: list[str] = []

    async def opening(session: FakeSession) -> None:
        tries.append(session.id)
        await asyncio.sleep(1)
        if len(tries) == 1:
            session.crash("no luck")
            await never(session)

    agent.opening = opening
    async with Client(session_factory=agent) as client:
        first, second = soon(client.run("one")), soon(client.run("two"))
        with pytest.raises(RemudaError) as caught:
            await first
        assert caught.value.code == "SPAWN_FAILED"
        assert (await second).text == "REPLY#1 to: two"


@virtual
async def test_worker_that_exits_right_after_its_start_fails_the_start() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        for listener in session._listeners:
            listener("exit:3")

    agent.opening = opening
    async with Client(session_factory=agent) as client:
        with pytest.raises(RemudaError) as caught:
            await client.run("x")
        assert caught.value.code == "SPAWN_FAILED"
        assert "exit:3" in str(caught.value)


@virtual
async def test_factory_that_fails_is_a_start_that_failed() -> None:
    def factory(session_id: str, profile: object) -> FakeSession:
        raise OSError("no room")

    async with Client(session_factory=factory) as client:
        with pytest.raises(RemudaError) as caught:
            await client.run("x")
        assert caught.value.code == "SPAWN_FAILED"


# ── whose a start is ──


@virtual
async def test_worker_started_for_one_request_goes_to_the_oldest_one() -> None:
    agent, gate = gated()
    starts = [asyncio.Event(), asyncio.Event()]

    async def opening(session: FakeSession) -> None:
        await starts[len(agent.sessions) - 1].wait()

    agent.opening = opening
    async with Client(session_factory=agent, pool_size=2, acquire_timeout=5) as client:
        first = soon(client.run("one"))
        await settled()
        second = soon(client.run("two"))
        await settled()
        starts[1].set()  # the one that was started for the second
        await gate.begun("one")
        await asyncio.sleep(20)  # the second waits for the other start: that is no waiting for a free one
        starts[0].set()
        gate.open("one", "two")
        await asyncio.gather(first, second)
    assert [session.prompts for session in agent.sessions] == [["two"], ["one"]]


@virtual
async def test_waiter_whose_start_went_to_an_older_one_waits_on_within_its_bound() -> None:
    agent, gate = gated()
    agent.renewing = never
    gate.open("zero")
    async with Client(session_factory=agent, pool_size=2, acquire_timeout=5, clear_timeout=100) as client:
        await client.run("zero")
        older = soon(client.run("one"))  # waits for the clearing
        await settled()
        younger = soon(client.run("two"))  # a session is started, which the older one gets
        await gate.begun("one")
        with pytest.raises(PoolExhausted):
            await younger
        gate.open("one")
        await older


@virtual
async def test_start_whose_caller_left_is_kept_for_the_next() -> None:
    agent = FakeAgent()
    started = asyncio.Event()
    agent.opening = until_set(started)
    async with Client(session_factory=agent) as client:
        with pytest.raises(WaitTimeout):
            await client.run("one", timeout=1)
        started.set()
        result = await client.run("two")
        assert not result.warm
    assert len(agent.sessions) == 1
