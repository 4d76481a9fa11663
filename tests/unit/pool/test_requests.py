"""Requests that a warm pool serves, on the fake agent: by which session, as a stream, with what usage."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from remuda import (
    AgentError,
    Client,
    Done,
    Failed,
    InvalidOptions,
    RunResult,
    Token,
    ToolResult,
    ToolUse,
    Usage,
    WaitTimeout,
)
from remuda.pool.pool_request import PoolRequest
from remuda.pool.types import Answered, BackendName, Raw, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, failing, gated, lasting, settled, soon, until_set, virtual

# ── served ──


@virtual
async def test_run_two_after_each_other_share_one_worker() -> None:
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
async def test_run_after_another_waits_for_its_worker_to_be_cleared_although_there_is_room() -> None:
    agent = FakeAgent()
    agent.renewing = lasting(0.1)
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
async def test_run_result_has_everything_that_the_agent_reported() -> None:
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
async def test_run_two_at_once_have_two_workers() -> None:
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
async def test_run_of_another_profile_has_another_worker_and_only_what_it_asked_for(tmp_path: str) -> None:
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
async def test_run_is_handed_a_worker_only_when_the_clearing_is_over() -> None:
    agent = FakeAgent()
    cleared = asyncio.Event()
    agent.renewing = until_set(cleared)
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
    assert events[2] == ToolResult("t1", "a file", name="Bash")
    assert isinstance(events[-1], Done)
    assert events[-1].result.text == "I see."
    assert [event for event in raw if isinstance(event, Raw)] == [Raw({"type": "assistant"})]


@virtual
async def test_stream_of_a_failure_yields_it_and_then_raises_it() -> None:
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
async def test_stream_that_is_left_early_is_aborted_and_its_worker_serves_again() -> None:
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
async def test_stream_whose_reader_is_slow_lets_its_worker_go() -> None:
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
        calls = [one for one in gc.get_objects() if isinstance(one, PoolRequest)]
        assert [call for call in calls if call.ended.get_loop() is loop] == []


# ── usage behind the answer ──


@virtual
async def test_complete_fills_in_the_usage_that_came_after_the_answer() -> None:
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
    async with Client(session_factory=FakeAgent()) as client:
        await client.complete(RunResult("r", "", "s", "terminal"))
