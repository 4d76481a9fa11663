"""A warm pool without agents: sessions that do what a test says, when it says so.

    from remuda.testing.clock import run
    from remuda.testing.pool import FakeAgent

    async def main() -> None:
        agent = FakeAgent()
        async with Client(session_factory=agent) as client:
            print((await client.run("hello")).text)  # REPLY#1 to: hello

    run(main())

Each step of a session is an async function of the agent's that a test may replace: `opening`, `answering`,
`interrupting`, `renewing`, `closing`. In them a test waits for events of its own, sleeps (which is free with
`testing.clock`), or raises. `session.crash(…)` ends a session's process in that moment.
"""

# ruff: noqa: ASYNC109 - the bounds are those of the protocol

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from remuda.errors import (
    Aborted,
    AgentError,
    InvalidOptions,
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.pool.types import Answered, BackendName, Request, SessionEvent, Token, Usage
from remuda.pool.worker import Profile

_T = TypeVar("_T")
Answering = Callable[["FakeSession", Request], AsyncIterator[SessionEvent]]
Step = Callable[["FakeSession"], Awaitable[None]]

USAGE = Usage(input_tokens=10, output_tokens=5)


async def echo(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    """Answer as the scripted agent answers a prompt that is not a command."""
    text = f"REPLY#{session.served} to: {request.prompt}"
    yield Token(text)
    yield Answered(text, conversation_id=session.conversation_id, usage=USAGE, entrypoint="fake")


async def at_once(session: FakeSession) -> None:
    """A step that takes no time."""


class FakeAgent:
    """What all sessions of a test do, and what was done to them. Is itself the `session_factory`."""

    def __init__(self, answering: Answering = echo) -> None:
        self.answering = answering
        self.opening: Step = at_once
        self.interrupting: Step = at_once
        """The agent stops when it returns; it does not when `WaitTimeout` is raised."""
        self.renewing: Step = at_once
        self.closing: Step = at_once
        self.late_usage: Usage | None = None
        """What `usage` reports after the answer."""
        self.sessions: list[FakeSession] = []
        self.peak = 0
        """The most processes at one time."""

    def __call__(self, session_id: str, profile: Profile) -> FakeSession:
        session = FakeSession(session_id, profile, self)
        self.sessions.append(session)
        return session

    @property
    def alive(self) -> list[FakeSession]:
        return [session for session in self.sessions if session.alive]

    def count(self) -> None:
        self.peak = max(self.peak, len(self.alive))


class FakeSession:
    backend: ClassVar[BackendName] = "terminal"

    def __init__(self, session_id: str, profile: Profile, agent: FakeAgent) -> None:
        self.id, self.profile, self.agent = session_id, profile, agent
        self.log: list[str] = []
        """Every call of the pool, in order; prompts as `run: …`."""
        self.prompts: list[str] = []
        self.conversation = 0
        self.served = 0
        self.alive = False
        self.dirty: str | None = None
        """What `renew` finds."""
        self._fresh = False
        self._in_turn = False
        self._crashed: asyncio.Future[str] | None = None
        self._listeners: list[Callable[[str], None]] = []

    @property
    def conversation_id(self) -> str:
        return f"{self.id}-c{self.conversation}"

    # ── what a test does to it ──

    def crash(self, detail: str = "exit:1 -- stderr: boom") -> None:
        """End the process now, as if by itself."""
        if self.alive and self._crashed is not None and not self._crashed.done():
            self._die()
            self._crashed.set_result(detail)
            for listener in self._listeners:
                listener(detail)

    # ── what the pool does with it ──

    async def open(self, timeout: float) -> None:
        self.log.append("open")
        self._crashed = asyncio.get_running_loop().create_future()
        self.alive = True
        self.agent.count()
        try:
            async with asyncio.timeout(timeout):
                await self._unless_crashed(self.agent.opening(self))
        except TimeoutError:
            raise SpawnTimeout(f"the fake was not ready within {timeout:g} s") from None
        except SessionCrashed as error:
            raise SpawnFailed(error.detail) from None
        self._begin()

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        assert self._fresh, "a session was handed out with an old conversation"
        self._fresh, self._in_turn = False, True
        self.log.append(f"run: {request.prompt}")
        self.prompts.append(request.prompt)
        self.served += 1
        events = self.agent.answering(self, request)
        try:
            while True:
                event = await self._unless_crashed(_next(events))
                if event is None:
                    self._in_turn = False
                    return
                self._in_turn = not isinstance(event, Answered)
                yield event
        except (Aborted, AgentError, InvalidOptions):
            self._in_turn = False
            raise
        finally:
            if inspect.isasyncgen(events):
                await events.aclose()

    async def interrupt(self, timeout: float) -> bool:
        self.log.append("interrupt")
        try:
            async with asyncio.timeout(timeout):
                await self._unless_crashed(self.agent.interrupting(self))
        except (TimeoutError, WaitTimeout, SessionCrashed):
            return False
        self._in_turn = False
        return self.alive

    async def usage(self, timeout: float) -> Usage | None:
        self.log.append("usage")
        return self.agent.late_usage

    async def renew(self, timeout: float) -> None:
        self.log.append("renew")
        try:
            async with asyncio.timeout(timeout):
                await self._unless_crashed(self.agent.renewing(self))
        except TimeoutError:
            raise WaitTimeout("the fake was not cleared in time") from None
        if self._crashed is not None and self._crashed.done():
            raise SessionCrashed("the fake has ended", detail=self._crashed.result())
        if self._in_turn:
            raise SessionDirty("the turn was not proven stopped")
        if self.dirty is not None:
            raise SessionDirty(self.dirty)
        self._begin()

    async def close(self, timeout: float) -> None:
        self.log.append("close")
        try:
            async with asyncio.timeout(timeout):
                await self.agent.closing(self)
        except TimeoutError:
            pass
        finally:
            self._die()
            if self._crashed is not None and not self._crashed.done():
                self._crashed.set_result("closed")

    def on_exit(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    # ── within ──

    def _begin(self) -> None:
        self.conversation += 1
        self._fresh = True

    def _die(self) -> None:
        self.alive = self._fresh = False

    async def _unless_crashed(self, step: Awaitable[_T]) -> _T:
        """Run the step. Raises `SessionCrashed` as soon as the process ends."""
        assert self._crashed is not None
        task = asyncio.ensure_future(step)
        try:
            either: list[asyncio.Future[Any]] = [task, self._crashed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        raise SessionCrashed("the fake ended", detail=self._crashed.result())


async def _next(events: AsyncIterator[SessionEvent]) -> SessionEvent | None:
    return await anext(events, None)
