"""A client of a keeper in an event loop: requests, events, and every way to lose the keeper."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import InvalidOptions, PermissionRefused, SessionNotFound, SessionUnreachable
from remuda.keeper.aclient import AsyncKeeperClient
from support.keeper import Kept, Start

PATIENCE = 30.0
CAT = ["sh", "-c", "stty -echo; exec cat"]
Document = dict[str, Any]


class Heard:
    """What a client was told."""

    def __init__(self) -> None:
        self.events: list[Document] = []
        self.ends = 0
        self._changed = asyncio.Event()

    def event(self, document: Document) -> None:
        self.events.append(document)
        self._changed.set()

    def end(self) -> None:
        self.ends += 1
        self._changed.set()

    async def until(self, look: Callable[[], Any]) -> None:
        while not look():
            self._changed.clear()
            await self._changed.wait()


def run(steps: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await steps()

    asyncio.run(bounded())


async def connect(kept: Kept, heard: Heard, **more: Any) -> AsyncKeeperClient:
    return await AsyncKeeperClient.connect(kept.name, kept.folder, heard.event, heard.end, **more)


def test_requests_are_answered_and_refusals_have_their_type(start: Start) -> None:
    kept = start("s", CAT)

    async def steps() -> None:
        client = await connect(kept, Heard())
        assert client.welcome["name"] == "s"
        sizes = await asyncio.gather(*(client.request("resize", cols=80 + n, rows=24) for n in range(20)))
        assert [size["cols"] for size in sizes] == list(range(80, 100))
        with pytest.raises(InvalidOptions):
            await client.request("no such thing")
        client.close()
        with pytest.raises(SessionUnreachable):
            await client.request("status")
        watcher = await connect(kept, Heard(), read_only=True)
        with pytest.raises(PermissionRefused):
            await watcher.request("kill")
        watcher.close()

    run(steps)


def test_keys_are_typed_and_events_come(start: Start) -> None:
    kept = start("s", CAT)

    async def steps() -> None:
        heard = Heard()
        client = await connect(kept, heard)
        await client.request("watch")
        client.type(b"hello\n")
        await heard.until(lambda: any(event["event"] == "typed" for event in heard.events))
        while "hello" not in (await client.request("screen"))["lines"][0]:
            await asyncio.sleep(0.02)
        client.close()
        assert heard.ends == 0

    run(steps)


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_end_of_the_keeper_is_reported_once_and_ends_requests(start: Start, how: str) -> None:
    kept = start("s", CAT)
    kept.may_complain = True

    async def steps() -> None:
        heard = Heard()
        client = await connect(kept, heard)
        await client.request("watch")
        if how == "kill":
            kept.keeper.signal(signal.SIGSTOP)
            asked = asyncio.create_task(client.request("status", within=PATIENCE))
            await asyncio.sleep(0)
            kept.keeper.signal(signal.SIGKILL)
            with pytest.raises(SessionUnreachable):
                await asked
        else:
            await client.request("kill")
        await heard.until(lambda: heard.ends)
        assert (how == "exit") is any(event["event"] == "exited" for event in heard.events)
        with pytest.raises(SessionUnreachable):
            await client.request("status")
        client.close()
        assert heard.ends == 1

    run(steps)


def test_keeper_that_does_not_answer_is_waited_for_no_longer_than_that(start: Start) -> None:
    kept = start("s", CAT)

    async def steps() -> None:
        heard = Heard()
        client = await connect(kept, heard)
        kept.keeper.signal(signal.SIGSTOP)
        try:
            with pytest.raises(SessionUnreachable):
                await client.request("status", within=0.2)
            with pytest.raises(SessionUnreachable):
                await connect(kept, heard, timeout=0.2)
        finally:
            kept.keeper.signal(signal.SIGCONT)
        assert (await client.request("status"))["alive"]
        client.close()

    run(steps)


def test_session_that_is_not_there_is_reported_as_such(home: Path) -> None:
    async def steps() -> None:
        heard = Heard()
        with pytest.raises(SessionNotFound):
            await AsyncKeeperClient.connect("nobody", home / "sessions", heard.event, heard.end)
        assert heard.ends == 0

    run(steps)


def test_any_loop_of_any_thread_will_do(start: Start) -> None:
    kept = start("s", CAT)
    names: list[str] = []

    async def steps() -> None:
        client = await connect(kept, Heard())
        names.append((await client.request("status"))["name"])
        client.close()

    threads = [threading.Thread(target=run, args=(steps,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == ["s"] * 3
