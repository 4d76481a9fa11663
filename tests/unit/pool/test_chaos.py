"""Chaos on the fake agent: whatever goes wrong, every call ends, and the pool ends full and clean."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda import AgentError, Client, RemudaError, RunResult, Token
from remuda.errors import WaitTimeout
from remuda.pool.types import Answered, Request, SessionEvent
from remuda.testing.clock import run
from remuda.testing.pool import FakeAgent, FakeSession
from support import counts
from support.pool import Heard, settled, soon

CODES = {
    "TIMEOUT",
    "ABORTED",
    "POOL_EXHAUSTED",
    "SESSION_CRASHED",
    "SPAWN_TIMEOUT",
    "SPAWN_FAILED",
    "AGENT_ERROR",
    "SESSION_DIRTY",
    "FAILED",
}


class Chaos:
    """An agent that does anything at any time, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.calm = False
        self.agent = FakeAgent(self.answer)
        self.agent.opening = self.opening
        self.agent.renewing = self.renewing
        self.agent.interrupting = self.interrupting
        self.agent.closing = self.closing

    def happens(self, chance: float) -> bool:
        return not self.calm and self.dice.random() < chance

    async def pause(self, longest: float) -> None:
        if not self.calm and self.dice.random() < 0.7:
            await asyncio.sleep(self.dice.choice([0.0, longest / 10, longest]))

    async def opening(self, session: FakeSession) -> None:
        await self.pause(3)
        if self.happens(0.05):
            await asyncio.sleep(1e6)
        if self.happens(0.05):
            session.crash("at its start")

    async def answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        for _ in range(self.dice.randrange(3)):
            await self.pause(2)
            yield Token("…")
        if self.happens(0.05):
            session.crash("in its turn")
        if self.happens(0.05):
            await asyncio.sleep(1e6)
        if self.happens(0.05):
            raise AgentError("400")
        if self.happens(0.02):
            raise RuntimeError("a bug")
        if self.happens(0.05):
            session.dirty = "dirt"
        yield Answered(f"answer to {request.prompt}")

    async def interrupting(self, session: FakeSession) -> None:
        await self.pause(1)
        if self.happens(0.2):
            raise WaitTimeout("still busy")

    async def renewing(self, session: FakeSession) -> None:
        await self.pause(1)
        if self.happens(0.02):
            await asyncio.sleep(1e6)
        if self.happens(0.02):
            session.crash("while it was cleared")

    async def closing(self, session: FakeSession) -> None:
        await self.pause(3)

    async def kill(self) -> None:
        """Ends any session at any moment."""
        while not self.calm:
            await asyncio.sleep(self.dice.uniform(0.1, 3))
            if self.agent.alive:
                self.dice.choice(self.agent.alive).crash("killed")

    async def ask(self, client: Client, number: int, within: float) -> RunResult | RemudaError | str:
        await asyncio.sleep(self.dice.uniform(0, within))
        signal = asyncio.Event()
        options: dict[str, Any] = {
            "model": self.dice.choice(["a", "b", None]),
            "timeout": self.dice.choice([2.0, 20.0, 100.0]),
            "signal": signal,
        }
        call = soon(client.run(f"p{number}", **options))
        if self.dice.random() < 0.2:
            asyncio.get_running_loop().call_later(self.dice.uniform(0, 5), signal.set)
        if self.dice.random() < 0.1:
            asyncio.get_running_loop().call_later(self.dice.uniform(0, 5), call.cancel)
        try:
            return await call  # type: ignore[no-any-return]
        except RemudaError as error:
            return error
        except asyncio.CancelledError:
            return "cancelled"


async def storm(seed: int, size: int, requests: int) -> None:
    chaos = Chaos(seed)
    client = Client(
        session_factory=chaos.agent,
        pool_size=size,
        acquire_timeout=15,
        spawn_timeout=5,
        clear_timeout=3,
        interrupt_timeout=2,
        max_requests_per_session=5,
        max_session_age=40,
        max_idle=10,
    )
    heard = Heard(client)
    killer = soon(chaos.kill())
    ends = await asyncio.gather(*(chaos.ask(client, number, requests / size) for number in range(requests)))
    chaos.calm = True
    await killer

    for number, end in enumerate(ends):
        if isinstance(end, RunResult):
            assert end.text == f"answer to p{number}"
        elif isinstance(end, RemudaError):
            assert end.code in CODES
    asked = [prompt for session in chaos.agent.sessions for prompt in session.prompts]
    assert len(set(asked)) == len(asked), "a prompt was injected twice"
    assert chaos.agent.peak <= size

    await asyncio.sleep(30)  # whatever was under way has ended
    await client.prewarm()
    assert {session["state"] for session in client.stats()["sessions"]} == {"idle"}  # type: ignore[attr-defined]
    assert len(chaos.agent.alive) == size
    for number in range(size):
        assert (await client.run(f"calm{number}")).warm
    await client.aclose()
    assert chaos.agent.alive == []
    assert chaos.agent.peak <= size
    told = [event.session_id for event in heard.named("session.evicted")]
    assert sorted(told) == sorted(heard.spawned), "each session is told of once at its start and its end"
    assert len(heard.named("request.done")) + len(heard.codes) == requests + size
    await settled()


@pytest.mark.filterwarnings("error")
@given(seed=st.integers(0, 2**32), size=st.integers(1, 4))
def test_chaos_every_call_ends_and_the_pool_is_whole(seed: int, size: int) -> None:
    run(storm(seed, size, 30))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(counts.POOL_STORMS))
def test_chaos_of_five_hundred_requests(seed: int) -> None:
    run(storm(seed, 4, 500))


def test_same_storm_ends_the_same() -> None:
    """Nothing in it depends on the machine or on the time that it takes."""

    async def trace(seed: int) -> list[str]:
        chaos = Chaos(seed)
        async with Client(session_factory=chaos.agent, pool_size=2, spawn_timeout=5) as client:
            ends = await asyncio.gather(*(chaos.ask(client, number, 20) for number in range(20)))
            chaos.calm = True
        return [end.text if isinstance(end, RunResult) else getattr(end, "code", str(end)) for end in ends]

    assert run(trace(7)) == run(trace(7))
