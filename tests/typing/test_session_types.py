"""What type checkers know of sessions and of the boss. mypy reads this file; only the last test runs."""

from __future__ import annotations

from typing import Any, assert_type

import pytest

from remuda import (
    Accepted,
    Approval,
    AsyncBoss,
    AsyncSession,
    Boss,
    BossDown,
    Cancelled,
    InvalidOptions,
    ReplyResult,
    Session,
    Trace,
    WaitingItem,
)


def check_session(session: Session) -> None:
    assert_type(Session.start("x", agent="claude", cols=120), Session)
    assert_type(Session.list(ended=True), list[Session])
    assert_type(session.send("x", delay="8h", dedup="k"), Accepted)
    assert_type(session.wait("id", 5), Trace)
    assert_type(session.ask("x", timeout=5, literal=True), str)
    assert_type(session.cancel("id"), Cancelled | None)
    assert_type(session.interrupt(), Cancelled | None)
    assert_type(session.screen(), list[str])
    assert_type(session.history(10), list[str])
    assert_type(session.status(), dict[str, Any])
    assert_type(session.kill(), int | None)
    Session.start("x", agnet="claude")  # type: ignore[call-arg]
    Session.start("x", size="widest")  # type: ignore[arg-type]
    session.send("x", dedupe="k")  # type: ignore[call-arg]


async def check_async_session(session: AsyncSession) -> None:
    assert_type(await AsyncSession.start("x", agent="claude", cols=120), AsyncSession)
    assert_type(await AsyncSession.list(), list[AsyncSession])
    assert_type(await session.send("x", delay="8h"), Accepted)
    assert_type(await session.wait("id"), Trace)
    assert_type(await session.ask("x", timeout=5), str)
    assert_type(await session.cancel(), Cancelled | None)
    assert_type(await session.screen(), list[str])
    assert_type(await session.history(), list[str])
    assert_type(await session.kill(), int | None)
    await session.send("x", dedupe="k")  # type: ignore[call-arg]


def check_boss(boss: Boss) -> None:
    assert_type(boss.queue(), list[WaitingItem])
    assert_type(boss.permissions(all=True), list[Approval])
    assert_type(boss.permission("work"), Approval)
    assert_type(boss.approve("work", answers={"Which?": ["a", "b"]}), Approval)
    assert_type(boss.deny(boss.permission("work"), "no"), Approval)
    assert_type(boss.later("work", 60), WaitingItem)
    assert_type(boss.reply("work", "go on"), ReplyResult)
    boss.approve("work", "yes")  # type: ignore[arg-type, call-arg]


async def check_async_boss(boss: AsyncBoss) -> None:
    assert_type(await boss.queue(), list[WaitingItem])
    assert_type(await boss.approve("work", answers={"1": "a"}), Approval)
    assert_type(await boss.reply("work", "go on", wait=60), ReplyResult)


def test_wrong_options_of_the_boss_raise_our_error_before_it_is_asked() -> None:
    boss, item = Boss(folder="/nowhere"), WaitingItem("i", "s", "stopped", 1.0)
    with pytest.raises(InvalidOptions, match="hidden must be"):
        boss.queue(hidden=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptions, match="all must be"):
        boss.permissions(all="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptions, match="limit must be an integer from 1 to 1000, not 0"):
        boss.permissions(limit=0)
    with pytest.raises(InvalidOptions, match="when is 'soon'"):
        boss.later(item, "soon")
    with pytest.raises(InvalidOptions, match="wait must be"):
        boss.reply("s", "x", wait=-1)
    with pytest.raises(BossDown):
        boss.queue()
