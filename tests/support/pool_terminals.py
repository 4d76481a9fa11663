"""Warm sessions on terminals under test: the scripted agent behind that backend, and a way to look."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remuda.keeper.aclient import AsyncKeeperClient
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.types import BackendName
from remuda.pool.worker import Worker
from support.warm_sessions import ScriptedBench

Document = dict[str, Any]


class Look:
    """A second client of a session's keeper: what it says, and what a human there would do."""

    def __init__(self) -> None:
        self.client: AsyncKeeperClient
        self.events: list[Document] = []
        self._changed = asyncio.Event()

    def hear(self, event: Document) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, fits: Callable[[Document], bool]) -> Document:
        """The first event, of those that came so far too, that fits."""
        at = 0
        while True:
            while at < len(self.events):
                if fits(self.events[at]):
                    return self.events[at]
                at += 1
            self._changed.clear()
            await self._changed.wait()

    async def state(self, *states: str) -> Document:
        return await self.until(lambda event: event.get("state") in states)

    def press(self, keys: bytes) -> None:
        self.client.type(keys)


@asynccontextmanager
async def looking(session: TerminalWorker, folder: Path, **more: Any) -> AsyncIterator[Look]:
    look = Look()
    look.client = await AsyncKeeperClient.connect(session.name, folder, look.hear, lambda: None, **more)
    try:
        look.hear({"event": "state", **await look.client.request("watch", tools=True)})
        yield look
    finally:
        look.client.close()


class TerminalBench(ScriptedBench):
    backend: BackendName = "terminal"

    @property
    def sessions(self) -> Path:
        return self.folder.parent

    def kill(self, session: Worker) -> None:
        assert isinstance(session, TerminalWorker)
        os.kill(session.agent_pid, signal.SIGKILL)

    async def at_work(self, session: Worker) -> None:
        assert isinstance(session, TerminalWorker)
        async with looking(session, self.sessions) as look:
            await look.state("streaming")
