"""A running turn of a served pool: stopped by its time, its caller or a lost peer; its permissions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.errors import Aborted, WaitTimeout
from remuda.pool.types import (
    Allow,
    Answered,
    Decision,
    Deny,
    PermissionRequest,
    Request,
    SessionEvent,
    Token,
    Usage,
)
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool_in_loop import Busy, served, within

# ── stopping ──


def test_run_timeout_is_the_requests_own(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            await pool.remote.prewarm(1)  # the time begins before there is a session
            with pytest.raises(WaitTimeout):
                await pool.remote.run("x", timeout=2)
            await busy.stopped.wait()

    within(test())


def test_run_cancelled_stops_the_turn_and_the_session_serves_on(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            task = asyncio.create_task(pool.remote.run("x"))
            await busy.begun.wait()
            task.cancel()
            await busy.stopped.wait()
            busy.go_on.set()
            assert (await pool.remote.run("y")).text == "at last"
            assert len(busy.agent.sessions) == 1

    within(test())


def test_run_signal_is_aborted_and_stops_the_turn(home: Path) -> None:
    async def test() -> None:
        busy, signal = Busy(), asyncio.Event()
        async with served(home, busy.agent) as pool:
            task = asyncio.create_task(pool.remote.run("x", signal=signal))
            await busy.begun.wait()
            signal.set()
            with pytest.raises(Aborted):
                await task
            await busy.stopped.wait()

    within(test())


def test_stream_left_early_stops_the_turn(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            stream = pool.remote.stream("x")
            assert isinstance(await anext(stream), Token)
            await stream.aclose()
            await busy.stopped.wait()

    within(test())


def test_cancel_by_message_is_answered_with_aborted(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            with pool.talk() as talk:
                await talk.run()
                await busy.begun.wait()
                await talk.say({"type": "cancel"})
                assert [message["code"] for message in await talk.all()] == ["ABORTED"]
            await busy.stopped.wait()

    within(test())


def test_cancel_by_the_end_of_sending_stops_the_turn(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            with pool.talk() as talk:
                await talk.run()
                await busy.begun.wait()
                talk.end_sending()
                await busy.stopped.wait()

    within(test())


# ── permissions ──


def asking() -> tuple[FakeAgent, list[Decision]]:
    """An agent that wants a permission for each turn, and what it was told."""
    told: list[Decision] = []

    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        asked = PermissionRequest("p1", "Bash", {"command": "ls"}, request.id, ({"type": "x"},))
        yield asked
        told.append(await request.decide(asked))
        yield Answered("done", usage=Usage())

    return FakeAgent(answer), told


@pytest.mark.parametrize("decision", [Allow({"command": "pwd"}), Deny("not today")])
def test_permission_is_the_peers_to_decide_over_the_same_connection(home: Path, decision: Decision) -> None:
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Decision:
        asked.append(request)
        return decision

    async def test() -> None:
        agent, told = asking()
        async with served(home, agent) as pool:
            result = await pool.remote.run("x", permissions=decide, request_id="mine")
            assert result.request_id == "mine"
            events = [event async for event in pool.remote.stream("x", permissions=decide)]
        assert told == [decision, decision]
        assert asked[0] == PermissionRequest("p1", "Bash", {"command": "ls"}, "mine", ({"type": "x"},))
        assert sum(isinstance(event, PermissionRequest) for event in events) == 1

    within(test())


@pytest.mark.parametrize(("policy", "kind"), [(None, Allow), ("deny", Deny), ("allow", Allow)])
def test_permission_without_a_peer_who_decides_follows_the_policy(
    home: Path, policy: str | None, kind: type
) -> None:
    async def test() -> None:
        agent, told = asking()
        async with served(home, agent, permissions="allow") as pool:
            await pool.remote.run("x", permissions=policy)  # type: ignore[arg-type]
        assert [type(one) for one in told] == [kind]

    within(test())


def test_permission_of_a_peer_who_hangs_up_is_not_given(home: Path) -> None:
    async def test() -> None:
        agent, told = asking()
        async with served(home, agent) as pool:
            with pool.talk() as talk:
                await talk.run(permissions="ask")
                assert (await talk.hear())["decide"] is True
            while not pool.server.status()["pool"]["aborts"]:
                await asyncio.sleep(0.01)
        assert not any(isinstance(one, Allow) for one in told)

    within(test())
