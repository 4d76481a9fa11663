"""Requests of a warm pool that are stopped, by their time or their caller; and turns that do not stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from remuda import Aborted, Client, WaitTimeout
from remuda.pool.types import Answered, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, gated, hang, never, settled, soon, until_set, virtual

# ── by its time ──


@virtual
async def test_run_timeout_raises_at_once_stops_the_turn_and_reuses_the_worker() -> None:
    agent = FakeAgent(hang)
    stopped = asyncio.Event()
    agent.interrupting = until_set(stopped)
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


# ── by its caller ──


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
async def test_run_whose_task_is_cancelled_is_aborted_and_its_worker_serves_again() -> None:
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
async def test_run_aborted_before_its_turn_needs_no_interrupt() -> None:
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


# ── turns that do not stop ──


@virtual
async def test_turn_without_proof_that_it_stopped_ends_its_worker() -> None:
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
async def test_turn_that_does_not_stop_ends_its_worker_in_a_bounded_time() -> None:
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
