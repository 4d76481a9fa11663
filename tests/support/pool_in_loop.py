"""A pool that is served in the test's own loop, on agents that do what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from remuda.pool.client import Client
from remuda.pool.protocol import Message, PoolProtocol, encode, hello
from remuda.pool.remote import RemoteClient
from remuda.pool.serve import PoolServer, ServeLimits, serving
from remuda.pool.types import Answered, Request, SessionEvent, Token, Usage
from remuda.testing.pool import FakeAgent, FakeSession
from support.heimdall_client import PATIENCE

RUN: dict[str, Any] = {"type": "run", "prompt": "x", "options": {"cwd": "/", "env": {}}}
"""The smallest request that is served."""


class Served:
    def __init__(self, path: Path, client: Client, server: PoolServer, agent: FakeAgent) -> None:
        self.path, self.client, self.server, self.agent = path, client, server, agent
        self.remote = RemoteClient(path)

    def talk(self) -> Talk:
        return Talk(self.path)


@contextlib.asynccontextmanager
async def served(
    home: Path, agent: FakeAgent | None = None, *, limits: ServeLimits | None = None, **options: Any
) -> AsyncIterator[Served]:
    agent = agent or FakeAgent()
    given: dict[str, Any] = {"inherit_env": False, "close_timeout": 0.0, **options}
    client = Client(session_factory=agent, **given)
    async with serving(client, str(home / "pool.sock"), limits) as server:
        yield Served(home / "pool.sock", client, server, agent)
    assert not agent.alive


def within(step: Coroutine[Any, Any, None]) -> None:
    """Run a test's own coroutine, which must come to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await step

    asyncio.run(bounded())


class Busy:
    """An agent whose turns end when the test says so."""

    def __init__(self) -> None:
        self.agent = FakeAgent(self._answer)
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.stopped = asyncio.Event()

        async def interrupting(session: FakeSession) -> None:
            self.stopped.set()

        self.agent.interrupting = interrupting

    async def _answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        self.begun.set()
        yield Token("…")
        await self.go_on.wait()
        yield Answered("at last", usage=Usage())


class Talk:
    """A peer by hand: says any bytes, hears messages."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(str(path))
        self._sock.setblocking(False)
        self._conversation = PoolProtocol(server=False)
        self._heard: list[Message] = []
        self.alive = 0
        """How often the server said that it lives."""

    async def say(self, *messages: Message | bytes) -> None:
        data = b"".join(one if isinstance(one, bytes) else encode(one) for one in messages)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def greet(self) -> Message:
        await self.say(hello())
        return await self.hear()

    async def run(self, **more: Any) -> None:
        """Greet, and ask for the smallest run, with `more` in it."""
        await self.greet()
        await self.say({**RUN, **more})

    async def hear(self) -> Message:
        """The next message but for signs of life; `{"type": "closed"}` when the server hung up."""
        while not self._heard:
            await self.listen()
        return self._heard.pop(0)

    async def listen(self) -> None:
        async with asyncio.timeout(PATIENCE):
            data = await asyncio.get_running_loop().sock_recv(self._sock, 65536)
        for message in [*self._conversation.receive(data)] if data else [{"type": "closed"}]:
            if message["type"] == "alive":
                self.alive += 1
            else:
                self._heard.append(message)

    async def all(self) -> list[Message]:
        """Up to the server's hanging up."""
        heard = []
        while (message := await self.hear())["type"] != "closed":
            heard.append(message)
        return heard

    def end_sending(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
