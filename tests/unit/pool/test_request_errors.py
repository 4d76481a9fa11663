"""Requests of a warm pool that fail: errors of the agent's, errors that no one expects, and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from remuda import AgentError, Client, InvalidOptions, RemudaError, SessionCrashed, Token, WaitTimeout
from remuda.pool.types import Answered, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, crashing, gated, hang, settled, soon, virtual

# ── errors ──


@virtual
async def test_agent_error_is_the_requests_own_and_its_worker_serves_again() -> None:
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
async def test_prompt_that_a_backend_cannot_carry_is_refused_and_its_worker_serves_again() -> None:
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
async def test_unexpected_error_ends_its_request_and_its_worker_only(error: Exception) -> None:
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
async def test_turn_without_an_answer_is_an_error_and_ends_its_worker() -> None:
    async def silent(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("…")

    async with Client(session_factory=FakeAgent(silent)) as client:
        heard = Heard(client)
        with pytest.raises(RemudaError):
            await client.run("x")
        await settled()
        assert heard.evicted == ["dirty"]


# ── crashes ──


@virtual
async def test_crash_is_raised_at_once_with_the_last_output() -> None:
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
async def test_crash_that_only_on_exit_reports_still_ends_the_request() -> None:
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
async def test_request_whose_worker_crashed_is_never_retried_by_itself() -> None:
    agent = FakeAgent(hang)
    async with Client(session_factory=agent) as client:
        call = soon(client.run("one"))
        await settled()
        agent.sessions[0].crash()
        with pytest.raises(SessionCrashed):
            await call
        await asyncio.sleep(100)
    assert [session.prompts for session in agent.sessions] == [["one"]]


@virtual
async def test_agent_that_dies_while_it_is_stopped_has_crashed() -> None:
    agent, _ = gated()
    agent.interrupting = crashing("exit:137")
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        with pytest.raises(WaitTimeout):
            await client.run("one", timeout=1)
        await settled()
        (event,) = heard.named("session.evicted")
        assert (event.reason, event.detail) == ("crashed", "exit:137")


@virtual
async def test_last_words_of_a_crash_are_kept_short() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        call = soon(client.run("one"))
        await gate.begun("one")
        agent.sessions[0].crash("exit:1 -- stderr: " + "x" * 100_000 + " the end")
        with pytest.raises(RemudaError):
            await call
        await settled()
        (event,) = heard.named("session.evicted")
        assert len(event.detail) < 2048
        assert event.detail.startswith("exit:1")
        assert event.detail.endswith("the end")


# ── which request ──


@virtual
async def test_error_names_its_request_also_when_one_reason_ends_several() -> None:
    reason = AgentError("overloaded")

    async def fail(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        if request.prompt:
            raise reason
        yield Answered("")

    async with Client(session_factory=FakeAgent(fail), pool_size=2) as client:
        calls = [client.run("x", request_id=name) for name in ("one", "two")]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(error, "request_id", "") for error in failed] == ["one", "two"]
        with pytest.raises(InvalidOptions) as refused:
            await client.run("x", request_id="three", timeout=-1)
        assert refused.value.request_id == "three"
        with pytest.raises(AgentError) as unnamed:
            await client.run("x")
        assert str(unnamed.value.request_id).startswith("r_")
    with pytest.raises(RemudaError) as closed:
        await client.run("x")
    assert closed.value.request_id is None
