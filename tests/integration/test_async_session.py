"""`remuda.AsyncSession`, on the scripted agent: the same answers as `Session`, and what cancelling does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import AsyncSession, MessageDead, Session, SessionDead, SessionNotFound, WaitTimeout
from support.heimdall_client import PATIENCE
from support.keeper import until


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("REMUDA_HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("MOCK_TIME_SCALE", "0.01")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    made = home / "sessions"
    yield made
    for session in Session.list(folder=made):
        session.kill(0.0)


def no_thread_is_left() -> bool:
    return not [one for one in threading.enumerate() if one.name == "remuda call"]


def test_session_is_asked_looked_at_and_ended(folder: Path) -> None:
    async def work() -> None:
        session = await AsyncSession.start("work", agent="demo", folder=folder)
        assert (await session.ask("hello there", timeout=PATIENCE)).startswith("REPLY#1 to: hello there")
        assert (await session.wait_idle(PATIENCE))["state"] == "idle"
        assert (await session.status())["name"] == "work"
        assert any("hello there" in line for line in await session.screen())
        assert any("REPLY#1" in line for line in await session.history())
        assert await session.interrupt() is None
        sent = await session.send("later", delay="8h")
        cancelled = await session.cancel(sent.id)
        assert cancelled is not None
        assert cancelled.fate == "taken_back"
        assert (await session.receipt(sent.id)).stage == "dropped"
        await session.kill(0.0)
        assert not session.alive
        with pytest.raises(SessionDead):
            await session.status()
        assert any("REPLY#1" in line for line in await session.screen())

    asyncio.run(work())


def test_turn_is_interrupted_while_its_answer_is_awaited(folder: Path) -> None:
    async def work() -> None:
        session = await AsyncSession.start("work", agent="demo", folder=folder)
        asked = asyncio.create_task(session.ask("SLOW 600000", timeout=PATIENCE))
        while (await session.status())["state"] not in ("thinking", "streaming", "tool_use"):
            await asyncio.sleep(0.05)
        stopped = await session.interrupt(PATIENCE)
        assert stopped is not None
        assert stopped.fate == "interrupted"
        with pytest.raises(MessageDead, match="interrupted"):
            await asked

    asyncio.run(work())


def test_cancelled_wait_ends_at_once_and_leaves_the_message_and_no_thread(folder: Path) -> None:
    async def work() -> str:
        session = await AsyncSession.start("work", agent="demo", folder=folder)
        sent = await session.send("later", delay=3600)
        for wait in (session.wait(sent.id), session.wait(sent.id, 3600)):
            task = asyncio.create_task(wait)
            await asyncio.sleep(0.2)
            before = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - before < 1.0
        with pytest.raises(WaitTimeout):
            await session.wait(sent.id, 0.05)
        return sent.id

    message = asyncio.run(work())
    assert Session("work", folder=folder).receipt(message).stage == "accepted"
    until(no_thread_is_left, "the threads of cancelled waits end")


def test_lists_are_by_name_and_name_the_ended_when_asked(folder: Path) -> None:
    async def work() -> None:
        assert await AsyncSession.list(folder=folder) == []
        first = await AsyncSession.start("b", ["sleep", "600"], folder=folder)
        await AsyncSession.start("a", ["sleep", "600"], folder=folder)
        assert [one.name for one in await AsyncSession.list(folder=folder)] == ["a", "b"]
        await first.kill(0.0)
        assert [one.name for one in await AsyncSession.list(folder=folder)] == ["a"]
        assert [one.name for one in await AsyncSession.list(folder=folder, ended=True)] == ["a", "b"]
        with pytest.raises(SessionNotFound):
            AsyncSession("c", folder=folder)

    asyncio.run(work())
