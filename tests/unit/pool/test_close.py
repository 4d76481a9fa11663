"""The end of a warm pool and of its sessions' processes: what is waited for, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from remuda import Client, ClientClosed, RemudaError
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool import Heard, gated, never, settled, soon, until_set, virtual

# ── a session ──


@virtual
async def test_worker_counts_until_its_process_is_gone() -> None:
    agent = FakeAgent()
    gone = asyncio.Event()
    agent.closing = until_set(gone)
    async with Client(session_factory=agent, max_requests_per_session=1) as client:
        await client.run("one")
        second = soon(client.run("two"))
        await settled()
        assert len(agent.sessions) == 1
        gone.set()
        await second
    assert agent.peak == 1


@virtual
async def test_worker_that_does_not_end_is_given_up_after_a_time() -> None:
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


# ── the pool ──


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
async def test_aclose_while_a_worker_is_in_a_step_ends_it_too(step: str) -> None:
    agent, gate = gated()
    setattr(agent, step, never)
    client = Client(session_factory=agent, close_timeout=1)
    call = soon(client.run("one", timeout=0.5))
    gate.open("one" if step == "renewing" else "nothing")
    await asyncio.sleep(0.6)
    await client.aclose()
    assert asyncio.get_running_loop().time() == 0.6  # no one waits for a step that is of no use any more
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
async def test_aclose_that_is_cancelled_still_closes() -> None:
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
