"""Warm pools on the fake agent, in a loop whose clock jumps."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec

from remuda import Client
from remuda.pool.types import Answered, Request, SessionEvent, Token
from remuda.testing.clock import run
from remuda.testing.pool import FakeAgent, FakeSession

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


def soon(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def settled() -> None:
    """Until nothing more happens in this moment."""
    await asyncio.sleep(0.001)
