"""A warm agent to which something happens while no one asks: the next request gets another, and no error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from remuda import Client
from remuda.inbox.journal import Inbox
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.paths import SessionPaths
from remuda.pool.types import BackendName
from support.pool_conformance import PATIENCE, until
from support.pool_terminals import TerminalBench
from support.warm_sessions import ScriptedBench, StreamBench, waking, wicked

Disturb = Callable[[str], Awaitable[None]]


@contextmanager
def spoiling() -> Iterator[asyncio.Event]:
    """Set in the moment in which a session finds that it must end; its process lives on for a while."""
    found = asyncio.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "ending worker" in record.msg:
                found.set()

    handler, log = Handler(), logging.getLogger("remuda.pool")
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)


def idle(client: Client) -> str | None:
    sessions = client.stats()["sessions"]
    assert isinstance(sessions, list)
    [session] = sessions
    return session["session_id"] if session["state"] == "idle" else None


def play(bench: ScriptedBench, client: Client, disturb: Disturb) -> None:
    async def scene() -> None:
        async with asyncio.timeout(3 * PATIENCE), client:
            first = await client.run("hello")
            await until(lambda: idle(client), "its rest")
            with spoiling() as found:
                await disturb(first.session_id)
                await found.wait()
            second = await client.run("hello")
            assert second.text == first.text
            assert second.session_id != first.session_id
            assert 'remuda_pool_evictions_total{reason="crashed"} 1\n' in client.metrics()
        await until(lambda: not bench.processes(), "the end of all processes")

    asyncio.run(scene())


def pool(bench: ScriptedBench, backend: BackendName, binary: Path | None = None) -> Client:
    return Client(
        backend=backend,
        claude_binary=str(binary or bench.binary),
        cwd=bench.folder,
        env=bench.env,
        runtime_dir=bench.folder.parent,
    )


def name_of(session_id: str) -> str:
    return f"pool-{session_id.removeprefix('s_')}"


def test_request_after_somebody_who_typed_into_an_idle_session_is_answered(home: Path) -> None:
    bench = TerminalBench(home)

    async def type_into(session_id: str) -> None:
        keeper = await AsyncKeeperClient.connect(
            name_of(session_id), bench.sessions, lambda _: None, lambda: None
        )
        keeper.type(b"x")
        await keeper.request("status")  # behind which it has been read
        keeper.close()

    play(bench, pool(bench, "terminal"), type_into)


def test_request_after_an_idle_terminal_that_woke_by_itself_is_answered(home: Path) -> None:
    bench = TerminalBench(home)

    async def wake(session_id: str) -> None:
        # As a schedule that outlived a clear would: a prompt that the pool did not give it.
        Inbox(SessionPaths(bench.sessions, name_of(session_id)).inbox).put("SLOW 40")

    play(bench, pool(bench, "terminal"), wake)


def test_request_after_an_idle_stream_that_woke_by_itself_is_answered(home: Path) -> None:
    bench, alarm = StreamBench(home), home / "alarm"
    script = waking(alarm)

    async def wake(session_id: str) -> None:
        await asyncio.to_thread(alarm.write_text, "")

    play(bench, pool(bench, "stream", wicked(home, script)), wake)
