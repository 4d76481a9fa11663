"""What every warm session does, whatever runs behind it: `CHECKS` is run for each backend, and for the fake.

A bench makes sessions on an agent that takes the prompts of `remuda.testing.script`. What its backend cannot
do it says, and the checks that need it are not among its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from remuda.errors import AgentError, CommandNotFound, SessionCrashed, SessionDirty, SpawnFailed
from remuda.pool.types import (
    Allow,
    Answered,
    Decision,
    Deny,
    PermissionHandler,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.pool.worker import Profile, Worker

PATIENCE = 30.0
TALKING = "SLOW 40"
"""A turn with a word a second, to be stopped."""
_LOOK_INTERVAL = 0.02


class Bench(Protocol):
    warm: bool
    """One process serves many conversations."""
    tools: bool
    """Tools run, and permissions are asked for."""
    raw: bool
    """Messages in the shape of `claude -p` can be had."""
    folder: Path
    """Where the agent runs."""

    def make(self, **profile: Any) -> Worker:
        """A session that is not yet opened. What is not said is the bench's own."""

    async def at_work(self, session: Worker) -> None:
        """Until a turn has begun, where that is known before its first event; else forever."""

    def kill(self, session: Worker) -> None:
        """End the agent behind it, as a crash does."""

    def processes(self) -> list[int]:
        """All that the sessions have running."""


Check = Callable[[Bench], Awaitable[None]]
CHECKS: list[Check] = []
_NEEDS: dict[Check, tuple[str, ...]] = {}


def _check(*needs: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS.append(check)
        _NEEDS[check] = needs
        return check

    return add


def checks_of(bench: type[Bench]) -> list[Any]:
    """Those that this bench can run, as parameters of a test."""
    fitting = (check for check in CHECKS if all(getattr(bench, need) for need in _NEEDS[check]))
    return [pytest.param(check, id=check.__name__) for check in fitting]


def run(check: Check, bench: Bench) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE):
            await check(bench)

    asyncio.run(bounded())


# ── helpers ──


async def nobody(question: PermissionRequest) -> Decision:
    raise AssertionError(f"nobody was to be asked: {question}")


def always_says(decision: Decision) -> PermissionHandler:
    async def decide(_: PermissionRequest) -> Decision:
        return decision

    return decide


@asynccontextmanager
async def opened(bench: Bench, **profile: Any) -> AsyncIterator[Worker]:
    session = bench.make(**profile)
    try:
        await session.open(PATIENCE)
        yield session
    finally:
        await session.close(PATIENCE)


async def events_of(
    session: Worker, prompt: str, decide: PermissionHandler = nobody, *, raw: bool = False
) -> list[SessionEvent]:
    return [event async for event in session.run(Request("r_test", prompt, decide, raw))]


async def answer_of(session: Worker, prompt: str, decide: PermissionHandler = nobody) -> Answered:
    *_, last = await events_of(session, prompt, decide)
    assert isinstance(last, Answered)
    return last


async def begin(bench: Bench, session: Worker, prompt: str) -> asyncio.Task[Any]:
    """The turn has begun: it was heard of, or its bench knows better."""
    begun = asyncio.Event()

    async def follow() -> None:
        async for _ in session.run(Request("r_test", prompt, nobody)):
            begun.set()

    task = asyncio.create_task(follow())
    signs = [asyncio.create_task(begun.wait()), asyncio.create_task(bench.at_work(session))]
    await asyncio.wait([task, *signs], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for sign in signs:
        sign.cancel()
    await asyncio.gather(*signs, return_exceptions=True)
    return task


def run_steps(steps: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE):
            await steps()

    asyncio.run(bounded())


async def give_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.cancelled()


async def serves_again(session: Worker) -> None:
    """Renew it; its next conversation is a fresh one."""
    await session.renew(PATIENCE)
    assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"


async def stops_and_serves_again(session: Worker) -> None:
    assert await session.interrupt(PATIENCE)
    await serves_again(session)


async def until(look: Callable[[], Any], what: str) -> None:
    """For what no event reports: processes that come and go."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while not look():
        assert loop.time() < deadline, f"{what} never came"
        await asyncio.sleep(_LOOK_INTERVAL)


# ── a request ──


@_check()
async def a_turn_is_answered_once_and_last(bench: Bench) -> None:
    async with opened(bench) as session:
        events = await events_of(session, "hello")
        assert [type(event) for event in events].count(Answered) == 1
        answered = events[-1]
        assert isinstance(answered, Answered)
        assert answered.text == "REPLY#1 to: hello"
        tokens = [event.text for event in events if isinstance(event, Token)]
        assert "".join(tokens).strip() == answered.text
        assert answered.conversation_id


@_check()
async def usage_is_known_with_the_answer_or_before_the_next(bench: Bench) -> None:
    async with opened(bench) as session:
        answered = await answer_of(session, "hello")
        usage = answered.usage or await session.usage(PATIENCE)
        assert isinstance(usage, Usage)
        assert usage.output_tokens > 0


@_check()
async def a_renewed_session_has_a_fresh_conversation(bench: Bench) -> None:
    async with opened(bench) as session:
        seen = set()
        for number in range(3):
            answered = await answer_of(session, f"prompt {number}")
            assert answered.text == f"REPLY#1 to: prompt {number}"
            seen.add(answered.conversation_id)
            await session.renew(PATIENCE)
        assert len(seen) == 3


@_check()
async def an_error_of_the_agent_leaves_a_session_that_can_be_renewed(bench: Bench) -> None:
    async with opened(bench) as session:
        with pytest.raises(AgentError) as caught:
            await events_of(session, "err 400")
        assert "400" in str(caught.value)
        await serves_again(session)


@_check()
async def a_stopped_turn_leaves_a_session_that_can_be_renewed(bench: Bench) -> None:
    async with opened(bench) as session:
        turn = await begin(bench, session, TALKING)
        await give_up(turn)
        await stops_and_serves_again(session)


@_check("warm")
async def a_turn_that_nobody_stopped_is_not_renewed(bench: Bench) -> None:
    async with opened(bench) as session:
        turn = await begin(bench, session, TALKING)
        await give_up(turn)
        with pytest.raises(SessionDirty):
            await session.renew(PATIENCE)


@_check("raw")
async def raw_messages_are_those_of_the_print_mode(bench: Bench) -> None:
    async with opened(bench) as session:
        events = await events_of(session, "hello", raw=True)
        kinds = [event.message["type"] for event in events if isinstance(event, Raw)]
        assert kinds[0] == "system"
        assert kinds[-1] == "result"
        assert not [kind for kind in kinds if kind.startswith(("control", "command"))]


# ── tools ──


@_check("tools")
async def tools_are_told_with_their_results(bench: Bench) -> None:
    async with opened(bench, allowed_tools=("Bash",)) as session:
        events = await events_of(session, "RUNBASH echo from-the-tool")
        [used] = [event for event in events if isinstance(event, ToolUse)]
        [result] = [event for event in events if isinstance(event, ToolResult)]
        assert used.name == "Bash"
        assert used.input["command"] == "echo from-the-tool"
        assert result.id == used.id
        assert "from-the-tool" in str(result.content)
        assert not result.is_error


@_check("tools")
async def a_tool_that_needs_a_permission_is_refused_where_nobody_is_asked(bench: Bench) -> None:
    async with opened(bench) as session:
        answered = await answer_of(session, "RUNBASH touch made")
        assert "tool_result" in answered.text
        assert not (bench.folder / "made").exists()


@_check("tools")
async def an_allowed_permission_lets_the_tool_run(bench: Bench) -> None:
    asked: list[PermissionRequest] = []

    async def decide(question: PermissionRequest) -> Decision:
        asked.append(question)
        return Allow()

    async with opened(bench, asks=True) as session:
        events = await events_of(session, "RUNBASH touch made", decide)
        assert [(one.tool, one.input["command"]) for one in asked] == [("Bash", "touch made")]
        assert asked == [event for event in events if isinstance(event, PermissionRequest)]
        assert (bench.folder / "made").exists()
        await serves_again(session)


@_check("tools")
async def a_denied_permission_is_told_to_the_agent(bench: Bench) -> None:
    async with opened(bench, asks=True) as session:
        answered = await answer_of(session, "RUNBASH touch made", always_says(Deny("not today")))
        assert answered.text == "REPLY#2 to: tool_result not today"
        assert not (bench.folder / "made").exists()
        assert len(answered.permission_denials) <= 1
        await session.renew(PATIENCE)


@_check("tools")
async def an_edited_permission_runs_what_was_said_instead(bench: Bench) -> None:
    edited = Allow({"command": "touch other", "description": "x"})
    async with opened(bench, asks=True) as session:
        await events_of(session, "RUNBASH touch made", always_says(edited))
        assert (bench.folder / "other").exists()
        assert not (bench.folder / "made").exists()


@_check("tools", "warm")
async def a_lasting_permission_is_for_one_conversation(bench: Bench) -> None:
    async with opened(bench, asks=True) as session:
        await events_of(session, "RUNBASH touch made", always_says(Allow(always=True)))
        assert (bench.folder / "made").exists()
        with pytest.raises(SessionDirty):
            await session.renew(PATIENCE)


@_check("tools", "warm")
async def what_still_runs_makes_a_session_dirty(bench: Bench) -> None:
    async with opened(bench, allowed_tools=("Bash",)) as session:
        await events_of(session, "RUNBASH (setsid tail -f /dev/null > /dev/null 2>&1 &); echo begun")
        with pytest.raises(SessionDirty):
            await session.renew(PATIENCE)
    await until(lambda: not bench.processes(), "the end of all processes")


# ── the end ──


@_check()
async def an_agent_that_ends_in_a_turn_is_a_crash_at_once(bench: Bench) -> None:
    async with opened(bench) as session:
        turn = await begin(bench, session, TALKING)
        bench.kill(session)
        with pytest.raises(SessionCrashed) as caught:
            await asyncio.wait_for(turn, PATIENCE)
        assert caught.value.detail
        assert len(caught.value.detail) < 2048
        assert not await session.interrupt(PATIENCE) or not bench.warm


@_check("warm")
async def an_agent_that_ends_between_two_requests_is_told_once(bench: Bench) -> None:
    told: list[str] = []
    async with opened(bench) as session:
        session.on_exit(told.append)
        bench.kill(session)
        await until(lambda: told, "the news of its end")
        with pytest.raises((SessionCrashed, SessionDirty)):
            await session.renew(PATIENCE)
    assert len(told) == 1


@_check()
async def closing_is_no_exit_and_may_be_done_twice(bench: Bench) -> None:
    told: list[str] = []
    session = bench.make()
    session.on_exit(told.append)
    await session.open(PATIENCE)
    await answer_of(session, "hello")
    await asyncio.gather(session.close(PATIENCE), session.close(PATIENCE))
    await session.close(PATIENCE)
    await until(lambda: not bench.processes(), "the end of all processes")
    assert not told


@_check()
async def closing_before_anything_was_opened_is_nothing(bench: Bench) -> None:
    await bench.make().close(PATIENCE)
    assert not bench.processes()


@_check()
async def closing_in_a_turn_ends_it_and_all_that_runs(bench: Bench) -> None:
    session = bench.make()
    await session.open(PATIENCE)
    turn = await begin(bench, session, TALKING)
    await session.close(PATIENCE)
    await asyncio.wait([turn], timeout=PATIENCE)
    assert turn.done()
    with pytest.raises(SessionCrashed):
        turn.result()
    await until(lambda: not bench.processes(), "the end of all processes")


@_check("tools")
async def a_program_that_is_not_there_is_told_at_once(bench: Bench) -> None:
    session = bench.make(binary=os.fspath(bench.folder / "no-such-program"))
    with pytest.raises((CommandNotFound, SpawnFailed)):
        await session.open(PATIENCE)
    await session.close(PATIENCE)


def profile_of(binary: Path, folder: Path, env: dict[str, str], **more: Any) -> Profile:
    given: dict[str, Any] = {"agent": "claude", "binary": str(binary), "cwd": str(folder), "env": env}
    return Profile(**{**given, **more})
