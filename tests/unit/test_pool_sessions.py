"""Sessions of a warm pool on the fake agent: limits, crashes, dirt, room for others, what stands ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pooling import Heard, gated, settled, soon, virtual
from remuda import Client, ClientClosed, InvalidOptions, PoolExhausted, RemudaError, SpawnTimeout, WaitTimeout
from remuda.pool.types import Answered, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession

# ── limits ──


@virtual
async def test_session_that_is_too_old_is_replaced() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_session_age=60) as client:
        heard = Heard(client)
        await client.run("one")
        await asyncio.sleep(60.001)
        await client.run("two")
        assert (heard.evicted, len(heard.spawned)) == (["max_age"], 2)


@virtual
async def test_limits_of_idle_sessions_are_kept_without_any_request() -> None:
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
async def test_session_that_comes_of_age_while_it_serves_ends_behind_its_request() -> None:
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
async def test_session_serves_no_more_than_its_number_of_requests() -> None:
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


# ── what is not used again ──


@virtual
async def test_dirty_session_is_never_used_again_and_says_why() -> None:
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
async def test_session_that_cannot_be_cleared_is_dirty(error: Exception | None) -> None:
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
async def test_session_that_crashes_while_it_is_cleared_is_crashed() -> None:
    agent = FakeAgent()

    async def renewing(session: FakeSession) -> None:
        session.crash("exit:2")
        await asyncio.Event().wait()

    agent.renewing = renewing
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("one")
        await settled()
        (event,) = heard.named("session.evicted")
        assert (event.reason, event.detail) == ("crashed", "exit:2")


@virtual
async def test_session_that_crashes_while_idle_is_gone_before_the_next_request() -> None:
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


@virtual
async def test_session_counts_until_its_process_is_gone() -> None:
    agent = FakeAgent()
    gone = asyncio.Event()

    async def closing(session: FakeSession) -> None:
        await gone.wait()

    agent.closing = closing
    async with Client(session_factory=agent, max_requests_per_session=1) as client:
        await client.run("one")
        second = soon(client.run("two"))
        await settled()
        assert len(agent.sessions) == 1
        gone.set()
        await second
    assert agent.peak == 1


@virtual
async def test_session_that_does_not_end_is_given_up_in_the_end() -> None:
    class Deaf(FakeSession):
        async def close(self, timeout: float) -> None:
            await asyncio.Event().wait()

    agent = FakeAgent()
    client = Client(
        session_factory=lambda name, profile: Deaf(name, profile, agent),
        max_requests_per_session=1,
        end_timeout=4,
    )
    async with client:
        await client.run("one")
        await client.run("two")
    assert asyncio.get_running_loop().time() < 20


# ── room for other profiles ──


@virtual
async def test_idle_session_makes_room_for_another_profile() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("one", model="a")
        await client.run("two", model="b")
        await client.run("three", model="a")
        assert heard.evicted == ["displaced", "displaced"]
    assert agent.peak == 1


@virtual
async def test_session_that_is_being_stopped_is_waited_for_before_another_profile_loses_its_own() -> None:
    agent, gate = gated()

    async def interrupting(session: FakeSession) -> None:
        await asyncio.sleep(0.1)

    agent.interrupting = interrupting
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
async def test_profiles_that_take_turns_share_a_session_in_runs() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_requests_per_session=None) as client:
        await asyncio.gather(*(client.run(str(n), model="ab"[n % 2]) for n in range(64)))
    assert len(agent.sessions) <= 8


# ── what stands ready ──


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
async def test_prewarm_returns_when_the_sessions_are_ready() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        await asyncio.sleep(5)

    agent.opening = opening
    async with Client(session_factory=agent, pool_size=2) as client:
        await client.prewarm()
        assert asyncio.get_running_loop().time() == 5
        assert client.stats()["spawns"] == 2


@virtual
async def test_prewarm_warmup_prompt_runs_once_in_each_session_and_is_forgotten() -> None:
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
async def test_warmup_prompt_is_not_for_sessions_that_a_request_started() -> None:
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
async def test_prewarm_count_that_is_none_is_refused(count: object) -> None:
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


@virtual
async def test_prewarm_that_fails_raises_and_keeps_nothing_that_was_not_kept() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        await asyncio.Event().wait()

    agent.opening = opening
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

        async def opening(session: FakeSession) -> None:
            await asyncio.Event().wait()

        agent.opening = opening
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


@virtual
async def test_what_stands_ready_is_replaced_when_it_crashes_ages_or_gets_dirty() -> None:
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
async def test_what_stands_ready_may_idle_for_as_long_as_it_likes() -> None:
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
async def test_request_that_comes_while_a_session_is_prewarmed_takes_that_one() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        await asyncio.sleep(9)

    agent.opening = opening
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


# ── the end ──


@virtual
async def test_aclose_lets_what_runs_and_waits_end_then_ends_all() -> None:
    agent, gate = gated()
    client = Client(session_factory=agent)
    heard = Heard(client)
    running, waiting = soon(client.run("one")), soon(client.run("two"))
    await gate.begun("one")
    closing = soon(client.aclose())
    await settled()
    with pytest.raises(ClientClosed) as caught:
        await client.run("three")
    assert caught.value.code == "CLIENT_CLOSED"
    assert not closing.done()
    gate.open("one", "two")
    assert [(await call).text for call in (running, waiting)] == ["answer to one", "answer to two"]
    await closing
    assert agent.alive == []
    assert heard.evicted == ["closed"]


@virtual
async def test_aclose_ends_what_does_not_end_in_its_bound() -> None:
    agent, gate = gated()
    client = Client(session_factory=agent, close_timeout=5)
    running, waiting = soon(client.run("one")), soon(client.run("two"))
    await gate.begun("one")
    await client.aclose()
    assert asyncio.get_running_loop().time() == 5
    for call in (running, waiting):
        with pytest.raises(ClientClosed):
            await call
    assert agent.alive == []


@virtual
@pytest.mark.parametrize("step", ["opening", "renewing", "interrupting"])
async def test_aclose_while_a_session_is_in_a_step_ends_it_too(step: str) -> None:
    agent, gate = gated()

    async def never(session: FakeSession) -> None:
        await asyncio.Event().wait()

    setattr(agent, step, never)
    client = Client(session_factory=agent, close_timeout=1)
    call = soon(client.run("one", timeout=0.5))
    gate.open("one" if step == "renewing" else "nothing")
    await asyncio.sleep(0.6)
    await client.aclose()
    assert asyncio.get_running_loop().time() == 0.6  # nobody waits for a step that is of no use any more
    assert agent.alive == []
    assert client.stats()["sessions"] == []
    await asyncio.wait([call])
    assert call.exception() is None or isinstance(call.exception(), RemudaError)


@virtual
async def test_aclose_again_and_at_the_same_time_is_one_end() -> None:
    agent = FakeAgent()
    client = Client(session_factory=agent)
    await client.run("x")
    await asyncio.gather(client.aclose(), client.aclose())
    await client.aclose()
    assert agent.sessions[0].log.count("close") == 1


@virtual
async def test_aclose_of_a_client_that_was_never_used() -> None:
    client = Client(session_factory=FakeAgent())
    await client.aclose()
    with pytest.raises(ClientClosed):
        await client.run("x")
    with pytest.raises(ClientClosed):
        await client.prewarm()


@virtual
async def test_aclose_that_is_cancelled_goes_on_behind_its_caller() -> None:
    agent, gate = gated()
    client = Client(session_factory=agent, pool_size=2)
    await client.prewarm()
    call = soon(client.run("one"))
    await gate.begun("one")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await client.aclose()
    gate.open("one")
    await call
    await settled()
    assert agent.alive == []


@virtual
async def test_aclose_while_prewarm_waits_ends_that_too() -> None:
    agent = FakeAgent()

    async def never(session: FakeSession) -> None:
        await asyncio.Event().wait()

    agent.opening = never
    client = Client(session_factory=agent)
    ready = soon(client.prewarm())
    await settled()
    await client.aclose()
    with pytest.raises(ClientClosed):
        await ready
    assert agent.alive == []


@virtual
async def test_context_that_is_left_by_an_error_ends_all() -> None:
    agent = FakeAgent()

    async def fail() -> None:
        async with Client(session_factory=agent, pool_size=2) as client:
            await client.prewarm()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert agent.alive == []
