"""Sessions of a warm pool that stand ready: prewarm, the warmup prompt, and what replaces them."""

from __future__ import annotations

import asyncio

import pytest

from remuda import Client, InvalidOptions, PoolExhausted, RemudaError, SpawnTimeout
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, gated, lasting, never, settled, soon, virtual

# ── prewarm ──


@virtual
async def test_prewarm_starts_as_many_as_the_pool_has_and_no_more_when_repeated() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=3) as client:
        await client.prewarm()
        assert len(agent.alive) == 3
        await client.prewarm()
        assert len(agent.sessions) == 3
        assert (await client.run("x")).warm


@virtual
async def test_prewarm_counts_what_is_up_and_tops_up_the_rest() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=3) as client:
        await client.run("x")
        await client.prewarm(2)
        assert len(agent.sessions) == 2
        await client.prewarm()
        assert len(agent.sessions) == 3


@virtual
async def test_prewarm_returns_when_the_workers_are_ready() -> None:
    agent = FakeAgent()
    agent.opening = lasting(5)
    async with Client(session_factory=agent, pool_size=2) as client:
        await client.prewarm()
        assert asyncio.get_running_loop().time() == 5
        assert client.stats()["spawns"] == 2


@virtual
async def test_prewarm_warmup_prompt_runs_once_in_each_worker_and_is_forgotten() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2, warmup_prompt="hum") as client:
        await client.prewarm()
        await client.prewarm()
        await client.run("x")
    assert sorted(session.log[:4] for session in agent.sessions) == [
        ["open", "run: hum", "renew", "close"],
        ["open", "run: hum", "renew", "run: x"],
    ]


@virtual
async def test_warmup_prompt_is_not_for_workers_that_a_request_started() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, warmup_prompt="hum") as client:
        await client.run("x")
    assert agent.sessions[0].prompts == ["x"]


@virtual
async def test_prewarm_without_a_warmup_prompt_says_nothing_to_the_agent() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        await client.prewarm()
    assert agent.sessions[0].log == ["open", "close"]


@virtual
async def test_prewarm_is_of_a_profile() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=3) as client:
        await client.prewarm(1, model="small")
        await client.prewarm(model="large")
        assert [session.profile.model for session in agent.sessions] == ["small", "large", "large"]
        assert (await client.run("x", model="large")).warm
        assert (await client.run("x", model="small")).warm
        assert not (await client.run("x")).warm  # and something had to make room


@virtual
async def test_prewarm_for_callers_that_decide_on_permissions_is_of_another_profile() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2) as client:
        await client.prewarm(1, permissions="allow")
        assert (await client.run("x", permissions="allow")).warm
        assert not (await client.run("x")).warm


@virtual
async def test_prewarm_of_more_than_the_pool_can_keep_is_refused() -> None:
    async with Client(session_factory=FakeAgent(), pool_size=2) as client:
        with pytest.raises(InvalidOptions):
            await client.prewarm(3)
        await client.prewarm(2)
        with pytest.raises(InvalidOptions):
            await client.prewarm(1, model="other")
        with pytest.raises(InvalidOptions):
            await client.prewarm(model="other")
        await client.prewarm(0)
        await client.prewarm(1, model="other")


@virtual
@pytest.mark.parametrize("count", [-1, 1.5, "2", True])
async def test_prewarm_invalid_count_is_refused(count: object) -> None:
    async with Client(session_factory=FakeAgent()) as client:
        with pytest.raises(InvalidOptions):
            await client.prewarm(count)  # type: ignore[arg-type]


@virtual
async def test_prewarm_makes_room_for_itself_and_waits_for_it() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, acquire_timeout=5, spawn_timeout=5) as client:
        call = soon(client.run("one"))
        await gate.begun("one")
        with pytest.raises(PoolExhausted):
            await client.prewarm(model="other")
        ready = soon(client.prewarm(model="other"))
        await settled()
        gate.open("one")
        await call
        await ready
        assert [session.profile.model for session in agent.alive] == ["other"]


# ── prewarm that fails ──


@virtual
async def test_prewarm_that_fails_raises_and_keeps_nothing_that_was_not_kept() -> None:
    agent = FakeAgent()
    agent.opening = never
    async with Client(session_factory=agent, spawn_timeout=3) as client:
        with pytest.raises(SpawnTimeout):
            await client.prewarm()
        await asyncio.sleep(1000)
    assert len(agent.sessions) == 1


@virtual
async def test_prewarm_that_fails_takes_nothing_from_a_newer_one() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=3) as client:
        older = soon(client.prewarm(2))
        await asyncio.sleep(0)
        newer = soon(client.prewarm(3))
        await asyncio.sleep(0)
        older.cancel()
        await newer
        assert len(agent.alive) == 3
        agent.sessions[0].crash()
        await settled()
        assert len(agent.alive) == 3


@virtual
async def test_prewarm_two_that_fail_keep_what_was_kept_before_both() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=3, spawn_timeout=3) as client:
        await client.prewarm(1)
        agent.opening = never
        calls = [soon(client.prewarm(2)), soon(client.prewarm(3))]
        assert [type(error) for error in await asyncio.gather(*calls, return_exceptions=True)] == [
            SpawnTimeout,
            SpawnTimeout,
        ]
        await asyncio.sleep(100)
        assert len(agent.sessions) == 3


@virtual
async def test_prewarm_whose_warmup_prompt_fails_raises() -> None:
    agent, _ = gated()
    async with Client(session_factory=agent, warmup_prompt="hum", default_timeout=3) as client:
        heard = Heard(client)
        with pytest.raises(SpawnTimeout):
            await client.prewarm()
        await settled()
        assert heard.evicted == ["dirty"]
        assert agent.alive == []


# ── what stands ready ──


@virtual
async def test_prewarmed_worker_is_replaced_when_it_crashes_ages_or_is_dirty() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_session_age=60, max_requests_per_session=3) as client:
        heard = Heard(client)
        await client.prewarm()
        agent.sessions[-1].crash()
        await settled()
        assert len(agent.alive) == 1
        await asyncio.sleep(60)
        await settled()
        assert len(agent.alive) == 1
        agent.sessions[-1].dirty = "dirt"
        await client.run("x")
        await settled()
        assert len(agent.alive) == 1
        for number in range(3):
            await client.run(str(number))
        await settled()
        assert len(agent.alive) == 1
        assert heard.evicted == ["crashed", "max_age", "dirty", "max_requests"]
    assert agent.peak == 1


@virtual
async def test_prewarmed_worker_has_no_idle_limit() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2, max_session_age=None) as client:
        await client.prewarm(1)
        await asyncio.gather(client.run("x"), client.run("y"))
        await asyncio.sleep(3600)
        assert len(agent.alive) == 1  # the one beyond the count was ended by max_idle
        assert len(agent.sessions) == 2


@virtual
async def test_replacement_that_keeps_failing_is_tried_ever_more_rarely() -> None:
    agent = FakeAgent()
    broken = False

    async def opening(session: FakeSession) -> None:
        if broken:
            raise RemudaError("no")

    agent.opening = opening
    async with Client(session_factory=agent) as client:
        await client.prewarm()
        broken = True
        agent.sessions[0].crash()
        await asyncio.sleep(600)
        assert 8 < len(agent.sessions) < 20
        broken = False
        await asyncio.sleep(61)
        assert len(agent.alive) == 1


@virtual
async def test_replacement_that_keeps_crashing_is_started_ever_more_rarely() -> None:
    agent = FakeAgent()

    async def doomed(session: FakeSession) -> None:
        asyncio.get_running_loop().call_later(0.1, session.crash)

    async with Client(session_factory=agent) as client:
        await client.prewarm()
        agent.opening = doomed
        agent.sessions[0].crash()
        await asyncio.sleep(600)
        assert 8 < len(agent.sessions) < 20


@virtual
async def test_replacement_is_made_at_once_again_when_one_has_served() -> None:
    agent = FakeAgent()

    async def crash_idle() -> None:
        agent.alive[0].crash()
        await settled()

    async with Client(session_factory=agent) as client:
        await client.prewarm()
        await crash_idle()
        assert len(agent.alive) == 1
        await crash_idle()
        assert agent.alive == []  # the second in a row is not replaced at once
        await client.run("x")
        await crash_idle()
        await crash_idle()
        assert len(agent.alive) == 1


@virtual
async def test_request_that_comes_while_a_worker_is_prewarmed_takes_that_one() -> None:
    agent = FakeAgent()
    agent.opening = lasting(9)
    async with Client(session_factory=agent, pool_size=2, acquire_timeout=1) as client:
        ready = soon(client.prewarm(1))
        await settled()
        result = await client.run("x")
        await ready
    assert (len(agent.sessions), result.warm) == (1, False)


@virtual
async def test_idle_pool_does_nothing_at_all() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2, max_idle=None, max_session_age=None) as client:
        await client.prewarm()
        await asyncio.sleep(1e6)
        assert [session.log for session in agent.sessions] == [["open"], ["open"]]
