"""Requests of a warm pool on the fake agent: who serves them, and how they end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from pooling import Heard, gated, settled, soon, virtual
from remuda import (
    Aborted,
    AgentError,
    Client,
    Done,
    Failed,
    InvalidOptions,
    PoolExhausted,
    RemudaError,
    SessionCrashed,
    SpawnTimeout,
    Token,
    ToolResult,
    ToolUse,
    Usage,
    WaitTimeout,
)
from remuda.pool.call import Call
from remuda.pool.types import Answered, BackendName, Raw, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession


async def never(session: FakeSession) -> None:
    await asyncio.Event().wait()


async def hang(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    yield Token("…")
    await never(session)


async def failing(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    yield Token("hm")
    raise AgentError("400: no")


# ── served ──


@virtual
async def test_run_two_after_each_other_share_one_session() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        first, second = await client.run("one"), await client.run("two")
    assert (first.text, second.text) == ("REPLY#1 to: one", "REPLY#2 to: two")
    assert first.session_id == second.session_id
    assert (first.warm, second.warm) == (False, True)
    assert first.conversation_id != second.conversation_id
    assert len(heard.spawned) == 1


@virtual
async def test_run_after_another_waits_for_its_session_to_be_cleared_although_there_is_room() -> None:
    agent = FakeAgent()

    async def renewing(session: FakeSession) -> None:
        await asyncio.sleep(0.1)

    agent.renewing = renewing
    async with Client(session_factory=agent, pool_size=4) as client:
        for number in range(5):
            await client.run(str(number))
        agent.answering = failing
        for number in range(5):
            with pytest.raises(AgentError):
                await client.run(str(number))
    assert len(agent.sessions) == 1


@virtual
async def test_run_on_a_backend_without_processes_between_requests_is_never_warm() -> None:
    class Print(FakeSession):
        backend: ClassVar[BackendName] = "print"

    agent = FakeAgent()
    client = Client(session_factory=lambda name, profile: Print(name, profile, agent), backend="print")
    async with client:
        results = [await client.run("x"), await client.run("y")]
        assert [result.warm for result in results] == [False, False]
        assert client.stats()["reuses"] == 0


@virtual
async def test_run_result_names_everything_that_the_agent_told() -> None:
    async def tell(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Answered(
            "text",
            conversation_id="c",
            usage=Usage(1, 2, 3, 4),
            entrypoint="cli",
            model="m",
            num_turns=3,
            permission_denials=({"tool_name": "Bash"},),
            total_cost_usd=0.5,
        )

    async with Client(session_factory=FakeAgent(tell)) as client:
        result = await client.run("x", request_id="task-1")
    assert result.request_id == "task-1"
    assert (result.text, result.conversation_id, result.usage) == ("text", "c", Usage(1, 2, 3, 4))
    assert (result.entrypoint, result.model, result.num_turns) == ("cli", "m", 3)
    assert result.permission_denials == [{"tool_name": "Bash"}]
    assert (result.total_cost_usd, result.backend) == (0.5, "terminal")


@virtual
async def test_run_names_what_has_no_name() -> None:
    async with Client(session_factory=FakeAgent(), pool_size=2) as client:
        results = await asyncio.gather(client.run("a"), client.run("b"))
    for result in results:
        assert result.request_id.startswith("r_")
        assert len(result.request_id) == len("r_") + 16
        assert result.session_id.startswith("s_")
        assert len(result.session_id) == len("s_") + 12
    assert len({result.request_id for result in results}) == 2


@virtual
async def test_run_two_at_once_have_two_sessions() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=2) as client:
        runs = [soon(client.run("a")), soon(client.run("b"))]
        await gate.begun("a", "b")
        gate.open("a", "b")
        results = await asyncio.gather(*runs)
    assert len({result.session_id for result in results}) == 2
    assert agent.peak == 2


@virtual
async def test_run_waits_its_turn_in_order() -> None:
    order: list[str] = []

    async def note(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        order.append(request.prompt)
        await asyncio.sleep(1)
        yield Answered("")

    prompts = [f"p{number}" for number in range(9)]
    async with Client(session_factory=FakeAgent(note), pool_size=2) as client:
        results = await asyncio.gather(*(client.run(prompt) for prompt in prompts))
    assert order == prompts
    assert [result.queue_wait for result in results] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert [result.duration for result in results] == [1, 1, 2, 2, 3, 3, 4, 4, 5]


@virtual
async def test_run_of_another_profile_has_another_session_and_only_what_it_asked_for(tmp_path: str) -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2, env={"A": "1"}) as client:
        await client.run("one", env={"B": "2"}, model="small", cwd=tmp_path)
        await client.run("two")
        await client.run("three", env={"B": "2"}, model="small", cwd=tmp_path)
    special, plain = (session.profile for session in agent.sessions)
    assert [session.prompts for session in agent.sessions] == [["one", "three"], ["two"]]
    assert (special.model, plain.model) == ("small", None)
    assert special.cwd == str(tmp_path) != plain.cwd
    assert (special.env["A"], special.env["B"]) == ("1", "2")
    assert plain.env["A"] == "1"
    assert "B" not in plain.env


@virtual
async def test_run_is_handed_a_session_only_when_the_clearing_is_over() -> None:
    agent = FakeAgent()
    cleared = asyncio.Event()

    async def renewing(session: FakeSession) -> None:
        await cleared.wait()

    agent.renewing = renewing
    async with Client(session_factory=agent) as client:
        await client.run("one")  # does not wait for it
        second = soon(client.run("two"))
        await settled()
        assert agent.sessions[0].prompts == ["one"]
        cleared.set()
        await second
    assert agent.sessions[0].log[:4] == ["open", "run: one", "renew", "run: two"]


# ── a stream ──


@virtual
async def test_stream_yields_what_happens_and_then_the_result() -> None:
    async def tell(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("I ")
        yield ToolUse("t1", "Bash", {"command": "ls"})
        yield ToolResult("t1", "a file")
        yield Raw({"type": "assistant"})
        yield Token("see.")
        yield Answered("I see.")

    async with Client(session_factory=FakeAgent(tell)) as client:
        events = [event async for event in client.stream("look")]
        raw = [event async for event in client.stream("look", raw=True)]
    assert [event.type for event in events] == ["token", "tool_use", "tool_result", "token", "done"]
    assert isinstance(events[-1], Done)
    assert events[-1].result.text == "I see."
    assert [event for event in raw if isinstance(event, Raw)] == [Raw({"type": "assistant"})]


@virtual
async def test_stream_of_a_failure_tells_it_and_then_raises_it() -> None:
    async with Client(session_factory=FakeAgent(failing)) as client:
        events = client.stream("x")
        assert await anext(events) == Token("hm")
        failed = await anext(events)
        with pytest.raises(AgentError) as caught:
            await anext(events)
        assert failed == Failed(caught.value)


@virtual
async def test_stream_wrong_options_are_refused_before_it_is_iterated() -> None:
    async with Client(session_factory=FakeAgent()) as client:
        with pytest.raises(InvalidOptions):
            client.stream("")


@virtual
async def test_stream_that_is_left_early_is_aborted_and_its_session_serves_again() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        events = client.stream("one")
        assert await anext(events) == Token("…")
        await events.aclose()
        gate.open("two")
        await client.run("two")
    assert heard.codes == ["ABORTED"]
    assert agent.sessions[0].log[:5] == ["open", "run: one", "interrupt", "renew", "run: two"]


@virtual
async def test_stream_that_is_never_iterated_begins_nothing() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        await client.stream("x", request_id="same").aclose()
        await client.run("x", request_id="same")
    assert [session.prompts for session in agent.sessions] == [["x"]]


@virtual
async def test_stream_whose_reader_is_slow_lets_its_session_go() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, default_timeout=5) as client:
        events = client.stream("slow reader")
        await anext(events)
        await client.run("next")  # with a pool of one
        await asyncio.sleep(100)
        assert [event.type async for event in events] == ["done"]


@virtual
async def test_request_that_has_ended_leaves_nothing_in_memory() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=2) as client:
        gate.open("answered")
        signal = asyncio.Event()
        for _ in range(3):
            await client.run("answered", signal=signal)
            with pytest.raises(WaitTimeout):
                await client.run("hangs", timeout=1)
            await client.stream("left").aclose()
        await settled()
        gc.collect()
        loop = asyncio.get_running_loop()  # other tests may have left some behind in what they raised
        calls = [one for one in gc.get_objects() if isinstance(one, Call)]
        assert [call for call in calls if call.ended.get_loop() is loop] == []


# ── its end by an error ──


@virtual
async def test_run_timeout_tells_at_once_stops_the_turn_and_reuses_the_session() -> None:
    agent = FakeAgent(hang)
    stopped = asyncio.Event()

    async def interrupting(session: FakeSession) -> None:
        await stopped.wait()

    agent.interrupting = interrupting
    loop = asyncio.get_running_loop()
    async with Client(session_factory=agent) as client:
        with pytest.raises(WaitTimeout) as caught:
            await client.run("one", timeout=7)
        assert caught.value.code == "TIMEOUT"
        assert loop.time() == 7
        stopped.set()
        with pytest.raises(WaitTimeout):
            await client.run("two", timeout=7)
    assert agent.sessions[0].log[:5] == ["open", "run: one", "interrupt", "renew", "run: two"]


@virtual
async def test_run_default_timeout_is_the_clients() -> None:
    async with Client(session_factory=FakeAgent(hang), default_timeout=3) as client:
        with pytest.raises(WaitTimeout):
            await client.run("x")
        assert asyncio.get_running_loop().time() == 3


@virtual
async def test_run_timeout_counts_from_the_call_also_while_it_waits_or_starts() -> None:
    agent = FakeAgent(hang)
    agent.opening = never
    async with Client(session_factory=agent) as client:
        starting = soon(client.run("starts", timeout=4))
        waiting = soon(client.run("waits", timeout=5))
        with pytest.raises(WaitTimeout):
            await starting
        with pytest.raises(WaitTimeout):
            await waiting
        assert asyncio.get_running_loop().time() == 5


@virtual
async def test_run_signal_that_is_set_aborts_it() -> None:
    agent, gate = gated()
    signal = asyncio.Event()
    async with Client(session_factory=agent) as client:
        call = soon(client.run("one", signal=signal))
        await gate.begun("one")
        signal.set()
        with pytest.raises(Aborted) as caught:
            await call
        assert caught.value.code == "ABORTED"
        gate.open("two")
        await client.run("two")
    assert len(agent.sessions) == 1


@virtual
async def test_run_signal_that_was_set_before_begins_nothing() -> None:
    agent = FakeAgent()
    signal = asyncio.Event()
    signal.set()
    async with Client(session_factory=agent) as client:
        with pytest.raises(Aborted):
            await client.run("x", signal=signal)
    assert agent.sessions == []


@virtual
async def test_run_signal_aborts_it_while_it_waits_and_the_next_in_line_is_served() -> None:
    agent, gate = gated()
    signal = asyncio.Event()
    async with Client(session_factory=agent) as client:
        first = soon(client.run("one"))
        await gate.begun("one")
        second, third = soon(client.run("two", signal=signal)), soon(client.run("three"))
        await settled()
        signal.set()
        with pytest.raises(Aborted):
            await second
        gate.open("one", "three")
        await asyncio.gather(first, third)
    assert agent.sessions[0].prompts == ["one", "three"]


@virtual
async def test_abort_by_id_ends_that_request_and_no_other() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=2) as client:
        first = soon(client.run("one", request_id="r1"))
        second = soon(client.run("two", request_id="r2"))
        await gate.begun("one", "two")
        assert [client.abort(name) for name in ("r1", "r1", "unknown")] == [True, False, False]
        with pytest.raises(Aborted):
            await first
        gate.open("two")
        assert (await second).text == "answer to two"
        assert not client.abort("r2")


@virtual
async def test_run_whose_task_is_cancelled_is_aborted_and_its_session_serves_again() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        call = soon(client.run("one"))
        await gate.begun("one")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.open("two")
        await client.run("two")
    assert heard.codes == ["ABORTED"]
    assert agent.sessions[0].log[:5] == ["open", "run: one", "interrupt", "renew", "run: two"]


@virtual
async def test_run_that_is_aborted_before_the_agent_was_told_needs_no_interrupt() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        await client.prewarm()
        call = soon(client.run("one", request_id="r1"))
        await asyncio.sleep(0)  # it has its session, and the session has heard nothing
        assert client.abort("r1")
        with pytest.raises(Aborted):
            await call
        await client.run("two")
    assert agent.sessions[0].log[:2] == ["open", "run: two"]


@virtual
async def test_turn_that_cannot_be_proven_stopped_costs_its_session() -> None:
    agent, gate = gated()

    async def interrupting(session: FakeSession) -> None:
        raise WaitTimeout("still busy")

    agent.interrupting = interrupting
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        with pytest.raises(WaitTimeout):
            await client.run("one", timeout=1)
        gate.open("two")
        await client.run("two")
    assert heard.evicted == ["dirty", "closed"]
    assert [session.prompts for session in agent.sessions] == [["one"], ["two"]]


@virtual
async def test_agent_that_dies_while_it_is_stopped_has_crashed() -> None:
    agent, _ = gated()

    async def interrupting(session: FakeSession) -> None:
        session.crash("exit:137")
        await asyncio.Event().wait()

    agent.interrupting = interrupting
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        with pytest.raises(WaitTimeout):
            await client.run("one", timeout=1)
        await settled()
        (event,) = heard.named("session.evicted")
        assert (event.reason, event.detail) == ("crashed", "exit:137")


@virtual
async def test_turn_that_does_not_let_go_costs_its_session_in_a_bounded_time() -> None:
    class Deaf(FakeSession):
        async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()
            yield Answered("")

    agent = FakeAgent()
    client = Client(
        session_factory=lambda name, profile: Deaf(name, profile, agent), interrupt_timeout=4, spawn_timeout=9
    )
    async with client:
        heard = Heard(client)
        with pytest.raises(WaitTimeout):
            await client.run("x", timeout=1)
        await asyncio.sleep(4.1)
        assert heard.evicted == ["dirty"]


@virtual
async def test_agent_error_is_the_requests_own_and_its_session_serves_again() -> None:
    async def fail_once(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        if request.prompt == "bad":
            raise AgentError("400: no")
        yield Answered("good")

    agent = FakeAgent(fail_once)
    async with Client(session_factory=agent) as client:
        with pytest.raises(AgentError) as caught:
            await client.run("bad")
        assert caught.value.code == "AGENT_ERROR"
        assert (await client.run("good")).text == "good"
    assert agent.sessions[0].log[:4] == ["open", "run: bad", "renew", "run: good"]


@virtual
async def test_prompt_that_a_backend_cannot_carry_is_refused_and_its_session_serves_again() -> None:
    async def refuse(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        if request.prompt.startswith("/"):
            raise InvalidOptions("a command")
        yield Answered("good")

    agent = FakeAgent(refuse)
    async with Client(session_factory=agent) as client:
        with pytest.raises(InvalidOptions):
            await client.run("/clear")
        await client.run("good")
    assert len(agent.sessions) == 1


@virtual
@pytest.mark.parametrize("error", [RuntimeError("bug"), RemudaError("odd")])
async def test_error_that_nobody_expects_ends_its_request_and_its_session_only(error: Exception) -> None:
    async def break_once(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        if request.prompt == "bad":
            raise error
        yield Answered("good")

    agent = FakeAgent(break_once)
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        with pytest.raises(RemudaError):
            await client.run("bad")
        await client.run("good")
    assert heard.evicted == ["dirty", "closed"]
    assert len(agent.sessions) == 2


@virtual
async def test_turn_without_an_answer_is_an_error_and_costs_its_session() -> None:
    async def silent(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("…")

    async with Client(session_factory=FakeAgent(silent)) as client:
        heard = Heard(client)
        with pytest.raises(RemudaError):
            await client.run("x")
        await settled()
        assert heard.evicted == ["dirty"]


@virtual
async def test_crash_is_told_at_once_with_the_last_words_and_another_session_serves_next() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        call = soon(client.run("one"))
        await gate.begun("one")
        agent.sessions[0].crash("exit:1 -- stderr: boom")
        with pytest.raises(SessionCrashed) as caught:
            await call
        assert (caught.value.code, caught.value.detail) == ("SESSION_CRASHED", "exit:1 -- stderr: boom")
        assert asyncio.get_running_loop().time() == 0
        gate.open("two")
        await client.run("two")
    (crash, _) = heard.named("session.evicted")
    assert (crash.reason, crash.detail) == ("crashed", "exit:1 -- stderr: boom")
    assert [session.prompts for session in agent.sessions] == [["one"], ["two"]]


@virtual
async def test_crash_of_which_only_the_exit_tells_still_ends_the_request() -> None:
    # A backend whose turn does not notice that its process is gone.
    agent = FakeAgent(hang)
    async with Client(session_factory=agent) as client:
        call = soon(client.run("one"))
        await settled()
        for listener in agent.sessions[0]._listeners:
            listener("exit:9")
        with pytest.raises(SessionCrashed) as caught:
            await call
        assert caught.value.detail == "exit:9"
        await settled()
        assert agent.sessions[0].log == ["open", "run: one", "close"]  # nothing is asked of a dead one


@virtual
async def test_request_whose_session_crashed_is_never_retried_by_itself() -> None:
    agent = FakeAgent(hang)
    async with Client(session_factory=agent) as client:
        call = soon(client.run("one"))
        await settled()
        agent.sessions[0].crash()
        with pytest.raises(SessionCrashed):
            await call
        await asyncio.sleep(100)
    assert [session.prompts for session in agent.sessions] == [["one"]]


# ── waiting for a session ──


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
async def test_acquire_timeout_of_nothing_fails_at_once_unless_a_session_is_free() -> None:
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
async def test_start_of_a_session_does_not_count_as_waiting() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        await asyncio.sleep(20)

    agent.opening = opening
    async with Client(session_factory=agent, acquire_timeout=5, spawn_timeout=30) as client:
        result = await client.run("x")
    assert (result.queue_wait, result.warm) == (20, False)


@virtual
async def test_spawn_timeout_is_told_to_whom_it_was_started_for() -> None:
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
async def test_session_that_ends_right_behind_its_start_fails_the_start() -> None:
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


@virtual
async def test_session_that_is_started_for_one_goes_to_whoever_came_first() -> None:
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

    async def never_clear(session: FakeSession) -> None:
        await never(session)

    agent.renewing = never_clear
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

    async def opening(session: FakeSession) -> None:
        await started.wait()

    agent.opening = opening
    async with Client(session_factory=agent) as client:
        with pytest.raises(WaitTimeout):
            await client.run("one", timeout=1)
        started.set()
        result = await client.run("two")
        assert not result.warm
    assert len(agent.sessions) == 1


# ── usage behind the answer ──


@virtual
async def test_complete_fills_in_the_usage_that_came_behind_the_answer() -> None:
    async def tell(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Answered("done")

    agent = FakeAgent(tell)
    agent.late_usage = Usage(7, 8)
    async with Client(session_factory=agent) as client:
        result = await client.run("x")
        before = result.usage
        assert await client.complete(result) is result
        assert (before, result.usage) == (None, Usage(7, 8))
        assert (await client.complete(result)).usage == Usage(7, 8)
        agent.late_usage = None
        assert (await client.complete(await client.run("y"))).usage is None
    assert agent.sessions[0].log[:4] == ["open", "run: x", "usage", "renew"]


@virtual
async def test_complete_of_a_result_of_elsewhere_returns() -> None:
    from remuda import RunResult

    async with Client(session_factory=FakeAgent()) as client:
        await client.complete(RunResult("r", "", "s", "terminal"))
