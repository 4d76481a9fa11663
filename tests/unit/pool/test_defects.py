"""Each defect of the pool that ours replaces, as a test of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda import Aborted, Client, InvalidOptions, SessionCrashed
from remuda.pool.types import Answered, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, gated, settled, soon, virtual


@virtual
async def test_defect_pool_of_one_ran_four_workers_for_four_requests() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=1) as client:
        calls = [soon(client.run(str(number))) for number in range(4)]
        gate.open(*"0123")
        await asyncio.gather(*calls)
    assert agent.peak == 1
    assert len(agent.sessions) == 1


@virtual
async def test_defect_crash_was_reported_as_a_timeout() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent) as client:
        call = soon(client.run("x", timeout=300))
        await gate.begun("x")
        agent.sessions[0].crash("exit:1 -- stderr: out of memory -- stdout: ")
        with pytest.raises(SessionCrashed) as caught:
            await call
        assert "out of memory" in caught.value.detail
        assert asyncio.get_running_loop().time() == 0


@virtual
async def test_defect_abort_was_reported_as_a_crash() -> None:
    agent, gate = gated()
    signal = asyncio.Event()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        call = soon(client.run("x", signal=signal))
        await gate.begun("x")
        signal.set()
        with pytest.raises(Aborted):
            await call
        await settled()
        assert (heard.codes, heard.evicted) == (["ABORTED"], [])


@virtual
async def test_defect_options_of_a_request_were_ignored(tmp_path: Path) -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        await client.run("x", cwd=tmp_path, env={"A": "1"}, model="m", allowed_tools=["Read"])
        with pytest.raises(InvalidOptions):  # what cannot be honoured is refused, not forgotten
            await client.run("x", extra_args=["--continue"])
    profile = agent.sessions[0].profile
    assert (profile.cwd, profile.env["A"], profile.model) == (str(tmp_path.resolve()), "1", "m")
    assert profile.allowed_tools == ("Read",)


@virtual
async def test_defect_options_of_a_request_reached_the_next_one(tmp_path: Path) -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2) as client:
        first = await client.run("x", cwd=tmp_path, env={"A": "1"})
        second = await client.run("y")
    assert first.session_id != second.session_id
    assert "A" not in agent.sessions[1].profile.env
    assert agent.sessions[1].profile.cwd != str(tmp_path.resolve())


@virtual
@pytest.mark.parametrize("request_id", ["../../../pwn", "/etc/passwd", "a/../b", "..", "x\n", "x\0", "-rf"])
async def test_defect_request_id_could_leave_its_folder(request_id: str) -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        with pytest.raises(InvalidOptions):
            await client.run("x", request_id=request_id)
    assert agent.sessions == []


@virtual
async def test_defect_prompt_was_injected_twice() -> None:
    agent = FakeAgent()

    async def once(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        if request.prompt == "dies":
            session.crash()
        yield Answered("")

    agent.answering = once
    async with Client(session_factory=agent, pool_size=2) as client:
        prompts = ["one", "dies", "two", "dies", "three"]
        await asyncio.gather(*(client.run(prompt) for prompt in prompts), return_exceptions=True)
        await asyncio.sleep(1000)
    assert sorted(prompt for session in agent.sessions for prompt in session.prompts) == sorted(prompts)


@virtual
async def test_defect_reaper_of_idle_workers_never_ran() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_idle=600) as client:
        heard = Heard(client)
        await client.run("x")
        await asyncio.sleep(601)
        assert (heard.evicted, agent.alive) == (["max_idle"], [])


@virtual
async def test_defect_close_did_not_wait_for_what_ran() -> None:
    agent, gate = gated()
    client = Client(session_factory=agent)
    call = soon(client.run("x"))
    await gate.begun("x")
    closing = soon(client.aclose())
    await asyncio.sleep(10)
    gate.open("x")
    assert (await call).text == "answer to x"
    await closing
    assert agent.alive == []


@virtual
async def test_defect_wrong_options_were_never_refused() -> None:
    with pytest.raises(InvalidOptions):
        Client(session_factory=FakeAgent(), pool_size=-1)
    with pytest.raises(InvalidOptions):
        Client(session_factory=FakeAgent(), mode="print")  # type: ignore[call-arg]


@virtual
async def test_defect_idle_workers_asked_the_model_again_and_again() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, max_idle=None) as client:
        await client.run("x")
        await settled()
        before = list(agent.sessions[0].log)
        await asyncio.sleep(3000)
        assert agent.sessions[0].log == before


@virtual
async def test_defect_usage_was_always_zero() -> None:
    async with Client(session_factory=FakeAgent()) as client:
        result = await client.run("x")
    assert result.usage is not None
    assert result.usage.input_tokens == 10
