"""The connection to codex's app-server, with a server whose notices come when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import unix_connect
from websockets.asyncio.server import ServerConnection, unix_serve

from remuda.agents.codex.channel import SCHEME, CodexChannel
from remuda.agents.codex.notices import ThreadReader
from remuda.agents.events import PromptRecorded, Report, TurnStopped
from remuda.agents.prompting import CallAddress, PromptCall
from remuda.untrusted import dump_json, parse_object

PATIENCE = 20.0


def prompt(text: str) -> dict[str, Any]:
    return {"type": "userMessage", "id": f"u-{text}", "content": [{"type": "text", "text": text}]}


class AppServer:
    """Has the threads that it is told. `before_read` may say more before a thread is read."""

    def __init__(self) -> None:
        self.threads = ["t1"]
        self.turns: list[dict[str, Any]] = []
        self.read: list[str] = []
        self.before_read: Callable[[], Awaitable[None]] | None = None
        self._clients: list[ServerConnection] = []

    async def serve(self, client: ServerConnection) -> None:
        async for data in client:
            message = parse_object(data)
            if message["method"] == "initialize":
                self._clients.append(client)
            if "id" in message:
                result = await self._answer(message["method"], message.get("params", {}))
                await client.send(dump_json({"id": message["id"], "result": result}))

    async def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "thread/loaded/list":
            return {"data": self.threads}
        if method == "thread/turns/list":
            return {"data": self.turns}
        if method == "thread/read":
            self.read.append(params["threadId"])
            if self.before_read is not None:
                await self.before_read()
        return {"thread": {"id": params.get("threadId")}}

    async def notify(self, method: str, thread_id: str, **params: Any) -> None:
        for client in self._clients:
            await client.send(dump_json({"method": method, "params": {"threadId": thread_id, **params}}))

    async def start_thread(self, thread: str) -> None:
        await self.notify("thread/started", thread, thread={"id": thread})


class Joined:
    def __init__(self, channel: CodexChannel, reader: ThreadReader) -> None:
        self.reader = reader
        self._channel = channel
        self._reports = channel.reports()

    async def until(self, name: str) -> Report:
        async with asyncio.timeout(PATIENCE):
            while (report := await anext(self._reports)).name != name:
                pass
        return report

    async def settled(self) -> None:
        """Wait until the server has answered the calls that the notices so far led to."""
        await self._channel.find(PromptCall("m", "prompt"))


@asynccontextmanager
async def joined(folder: Path, server: AppServer) -> AsyncIterator[Joined]:
    path, reader = str(folder / "s"), ThreadReader()
    channel = CodexChannel(CallAddress(SCHEME + path, ""), reader)
    async with unix_serve(server.serve, path), unix_connect(path, uri="ws://localhost/"):  # the terminal
        try:
            await channel.connect({})
            yield Joined(channel, reader)
        finally:
            await channel.aclose()


def test_late_notice_of_a_conversation_that_the_user_left_does_not_lead_back(tmp_path: Path) -> None:
    async def scene() -> None:
        server = AppServer()
        async with joined(tmp_path, server) as channel:
            await channel.until("thread startup")
            await server.start_thread("t2")
            await channel.until("thread clear")
            server.read.clear()
            await server.notify("thread/name/updated", "t1", threadName="its title")
            await server.notify("thread/status/changed", "t1", status={"type": "idle"})
            await server.notify("item/completed", "t2", turnId="a", item=prompt("hello"))
            recorded = await channel.until("item/completed")
            assert PromptRecorded("hello", "a", "t2") in recorded.events
            await channel.settled()
            assert (server.read, channel.reader.thread) == ([], "t2")
            await server.notify("thread/goal/cleared", "t1")  # the user resumes it
            assert (await channel.until("thread resume")).session_id == "t1"

    asyncio.run(scene())


def test_conversation_that_is_begun_while_another_one_is_looked_at_is_the_newer_one(tmp_path: Path) -> None:
    async def scene() -> None:
        server = AppServer()
        async with joined(tmp_path, server) as channel:
            await channel.until("thread startup")
            server.before_read = lambda: server.start_thread("t2")
            await server.notify("thread/goal/cleared", "t3")
            await channel.until("thread clear")
            server.before_read = None
            await server.notify("item/completed", "t2", turnId="a", item=prompt("hello"))
            await channel.until("item/completed")
            await channel.settled()
            assert (server.read[-1], channel.reader.thread) == ("t3", "t2")
            await server.notify("thread/goal/cleared", "t3")
            assert (await channel.until("thread resume")).session_id == "t3"

    asyncio.run(scene())


def test_turn_that_was_over_before_we_subscribed_ends_without_a_notice(tmp_path: Path) -> None:
    async def scene() -> None:
        server = AppServer()
        answer = {"type": "agentMessage", "text": "the answer"}
        server.turns = [{"id": "a", "status": "completed", "items": [prompt("hello"), answer]}]
        async with joined(tmp_path, server) as channel:
            recorded = await channel.until("thread/turns/list")
            assert PromptRecorded("hello", "a", "t1") in recorded.events
            ended = await channel.until("thread/turns/list")
            assert TurnStopped("the answer", "a", conversation="t1") in ended.events
            assert channel.reader.running is None

    asyncio.run(scene())
