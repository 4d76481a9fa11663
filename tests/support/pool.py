"""Warm pools on the fake agent, in a loop whose clock jumps."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec

from remuda import AgentError, Client
from remuda.pool.types import Answered, Request, SessionEvent, Token
from remuda.testing.clock import run
from remuda.testing.pool import FakeAgent, FakeSession, Step

P = ParamSpec("P")


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An async test that takes no real time."""

    @functools.wraps(test)
    def sync(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return sync


class Heard:
    """Every event of a client, in order."""

    def __init__(self, client: Client) -> None:
        self.events: list[Any] = []
        for name in ("session.spawned", "session.evicted", "request.done", "request.error"):
            client.on(name, self.events.append)

    def named(self, name: str) -> list[Any]:
        return [event for event in self.events if event.name == name]

    @property
    def spawned(self) -> list[str]:
        return [event.session_id for event in self.named("session.spawned")]

    @property
    def evicted(self) -> list[str]:
        return [event.reason for event in self.named("session.evicted")]

    @property
    def codes(self) -> list[str]:
        return [event.code for event in self.named("request.error")]


class Gated:
    """Turns that have begun wait until the test lets them go on."""

    def __init__(self) -> None:
        self._gates: dict[str, asyncio.Event] = {}
        self._begun: dict[str, asyncio.Event] = {}

    def _gate(self, prompt: str) -> asyncio.Event:
        return self._gates.setdefault(prompt, asyncio.Event())

    def _start(self, prompt: str) -> asyncio.Event:
        return self._begun.setdefault(prompt, asyncio.Event())

    async def __call__(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        self._start(request.prompt).set()
        yield Token("…")
        await self._gate(request.prompt).wait()
        yield Answered(f"answer to {request.prompt}")

    async def begun(self, *prompts: str) -> None:
        for prompt in prompts:
            await self._start(prompt).wait()

    def open(self, *prompts: str) -> None:
        for prompt in prompts:
            self._gate(prompt).set()


def gated() -> tuple[FakeAgent, Gated]:
    gate = Gated()
    return FakeAgent(gate.__call__), gate


async def never(session: FakeSession) -> None:
    """A step without an end."""
    await asyncio.Event().wait()


def lasting(seconds: float) -> Step:
    """A step that takes that long."""

    async def step(session: FakeSession) -> None:
        await asyncio.sleep(seconds)

    return step


def until_set(event: asyncio.Event) -> Step:
    """A step that ends when the test says so."""

    async def step(session: FakeSession) -> None:
        await event.wait()

    return step


def crashing(detail: str) -> Step:
    """A step in which the agent ends, and which does not notice."""

    async def step(session: FakeSession) -> None:
        session.crash(detail)
        await never(session)

    return step


async def hang(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    """A turn without an end."""
    yield Token("…")
    await never(session)


async def failing(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    """A turn that the agent gives up."""
    yield Token("hm")
    raise AgentError("400: no")


def soon(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def settled() -> None:
    """Until nothing more happens in this moment."""
    await asyncio.sleep(0.001)
