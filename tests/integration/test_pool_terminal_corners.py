"""The terminal backend's own corners, on the scripted agent: people at its keys, deaths, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import (
    Aborted,
    AgentError,
    InputError,
    InvalidOptions,
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.inbox.journal import Inbox
from remuda.keeper.claim import read_holder
from remuda.paths import SessionPaths
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.types import Allow, Decision, Deny, PermissionRequest, Request, Token, ToolResult
from remuda.pool.worker import Profile
from support.keeper import Process
from support.keeper import until as wait_until
from support.pool_conformance import (
    PATIENCE,
    TALKING,
    always_says,
    answer_of,
    begin,
    events_of,
    give_up,
    nobody,
    opened,
    serves_again,
    stops_and_serves_again,
    until,
)
from support.pool_terminals import Look, TerminalBench, looking

Scene = Callable[[TerminalBench], Awaitable[None]]
TOUCH = "RUNBASH touch made"


def play(scene: Scene, bench: TerminalBench) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE):
            await scene(bench)

    asyncio.run(bounded())


@pytest.fixture
def bench(home: Path) -> TerminalBench:
    return TerminalBench(home, MOCK_DIALOG_GUARD="0")


@asynccontextmanager
async def ready(bench: TerminalBench, **profile: Any) -> AsyncIterator[tuple[TerminalWorker, Look]]:
    """A session, and someone who looks at it."""
    async with opened(bench, **profile) as session:
        assert isinstance(session, TerminalWorker)
        async with looking(session, bench.sessions) as look:
            yield session, look


async def keeper_of(paths: SessionPaths, *, listening: bool) -> int:
    """The number of one that is about to come up."""
    while listening and not paths.socket.exists():
        await asyncio.sleep(0.0005)
    while (holder := read_holder(paths)) is None or not holder.keeper_pid:
        await asyncio.sleep(0.0005)
    return holder.keeper_pid


async def dirty(session: TerminalWorker) -> str:
    with pytest.raises(SessionDirty) as caught:
        await session.renew(PATIENCE)
    return str(caught.value)


def test_model_that_was_not_known_when_it_came_up_is_in_the_answer(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            known = (await answer_of(session, "hello")).model
            assert known
            await session.renew(PATIENCE)
            session._model = None  # as where its keeper is asked before the agent has told it
            assert (await answer_of(session, "hello")).model == known

    play(scene, bench)


# ── what it refuses ──


@pytest.mark.parametrize("prompt", ["/clear", " /compact now", "a\0b", "\x1b[201~", " \n "])
def test_prompt_that_no_terminal_can_be_given_is_refused_and_nothing_is_typed(
    bench: TerminalBench, prompt: str
) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            with pytest.raises(InputError) as refused:
                await events_of(session, prompt)
            assert "--command" not in str(refused.value)  # there is no such flag here
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"

    play(scene, bench)


def test_agent_whose_hooks_are_off_is_refused(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        session = bench.make(settings=json.dumps({"disableAllHooks": True}))
        with pytest.raises(InvalidOptions, match="hooks"):
            await session.open(PATIENCE)
        await session.close(PATIENCE)

    play(scene, bench)


def test_agent_that_ends_at_its_start_says_why(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        session = bench.make(permission_mode="nonsense")
        with pytest.raises(SpawnFailed, match=r"exit:1 -- .*nonsense"):
            await session.open(PATIENCE)
        await session.close(PATIENCE)

    play(scene, bench)


def test_agent_that_never_gets_ready_is_a_timeout_that_shows_its_screen(home: Path) -> None:
    async def scene(bench: TerminalBench) -> None:
        said = ""
        for seconds in (3.0, 12.0, 40.0):  # a busy machine may need that long for its first screen
            session = bench.make()
            with pytest.raises(SpawnTimeout) as refused:
                await session.open(seconds)
            await session.close(PATIENCE)
            assert not bench.processes()
            said = str(refused.value)
            if "permission" in said:
                break
        assert "permission" in said

    play(scene, TerminalBench(home, MOCK_TRUST_DIALOG="1", MOCK_TRUST_WORDING="unresolvable"))


def test_folder_is_trusted_for_a_caller_who_named_it(home: Path) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"

    play(scene, TerminalBench(home, MOCK_TRUST_DIALOG="1"))


# ── people at its keys ──


def test_draft_that_somebody_left_makes_it_dirty(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, look):
            turn = asyncio.create_task(answer_of(session, "SLOW 2"))
            await look.state("streaming")
            look.press(b"a thought of mine")
            await turn
            assert "typed" in await dirty(session)

    play(scene, bench)


def test_conversation_that_is_not_cleared_in_time_says_what_it_waits_for(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, look):
            assert (await answer_of(session, "hello")).text
            await session.usage(PATIENCE)  # at its end
            registry = bench.sessions / ".claude/sessions" / f"{session.agent_pid}.json"
            busy = {
                **json.loads(registry.read_text()),
                "status": "busy",
                "statusUpdatedAt": time.time() * 1000,
            }
            look.events.clear()
            registry.write_text(json.dumps(busy))
            await look.state("thinking")
            with pytest.raises(WaitTimeout, match=r"cleared within 0\.3 s: the session is thinking"):
                await session.renew(0.3)

    play(scene, bench)


def test_session_that_waits_and_is_typed_into_is_ended_and_reported(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        told: list[str] = []
        async with ready(bench) as (session, look):
            session.on_exit(told.append)
            look.press(b"x")
            await until(lambda: told, "the news of its end")
            with pytest.raises((SessionCrashed, SessionDirty)):
                await events_of(session, "hello")
            await until(lambda: not bench.processes(), "its end")
            assert told == ["a user typed into it"]

    play(scene, bench)


def test_session_that_begins_to_work_by_itself_is_ended(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        told: list[str] = []
        async with ready(bench) as (session, _):
            session.on_exit(told.append)
            # As a schedule that outlived a clear would: a prompt that the pool did not give it.
            Inbox(SessionPaths(bench.sessions, session.name).inbox).put("hello")
            await until(lambda: told, "the news of its end")

    play(scene, bench)


# ── questions ──


def test_human_at_the_terminal_who_is_first_has_decided(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        withdrawn = asyncio.Event()

        async def decide(_: PermissionRequest) -> Decision:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                withdrawn.set()
                raise
            return Deny()

        async with ready(bench, asks=True) as (session, look):
            turn = asyncio.create_task(answer_of(session, TOUCH, decide))
            await look.until(lambda event: event["event"] == "ask")
            await look.state("waiting_permission")
            look.press(b"1")
            assert (await turn).text.startswith("REPLY#2 to: tool_result")
            assert withdrawn.is_set()
            assert (bench.folder / "made").exists()

    play(scene, bench)


def test_denial_that_ends_the_turn_is_an_abort(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench, asks=True) as (session, _):
            with pytest.raises(Aborted):
                await events_of(session, TOUCH, always_says(Deny("stop", interrupt=True)))
            await serves_again(session)

    play(scene, bench)


def test_handler_that_fails_fails_its_own_request(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async def decide(_: PermissionRequest) -> Decision:
            raise LookupError("no idea")

        async with ready(bench, asks=True) as (session, _):
            with pytest.raises(LookupError):
                await events_of(session, TOUCH, decide)
            assert not (bench.folder / "made").exists()

    play(scene, bench)


def test_question_to_the_user_is_answered_by_the_caller(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        ask = {"question": "Which colour?", "header": "Colour", "options": [{"label": "Red"}]}
        call = {"name": "AskUserQuestion", "input": {"questions": [ask]}}

        async def decide(question: PermissionRequest) -> Decision:
            return Allow({**question.input, "answers": {"Which colour?": "Red"}})

        async with ready(bench, asks=True) as (session, _):
            events = await events_of(session, f"TOOL {json.dumps(call)}", decide)
            [result] = [event for event in events if isinstance(event, ToolResult)]
            assert '"Which colour?"="Red"' in str(result.content)

    play(scene, bench)


def test_denials_are_in_the_answer_where_no_one_is_asked_and_in_every_conversation(
    bench: TerminalBench,
) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            for _round in range(2):
                answered = await answer_of(session, TOUCH)
                [denial] = answered.permission_denials
                assert (denial["tool_name"], denial["tool_input"]["command"]) == ("Bash", "touch made")
                assert answered.num_turns == 2
                await session.renew(PATIENCE)
            assert not (bench.folder / "made").exists()

    play(scene, bench)


# ── stopping ──


def test_turn_stopped_before_its_first_word_leaves_a_clean_session(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, look):
            turn = asyncio.create_task(answer_of(session, "THINK 600 of me"))
            await look.state("thinking")
            await give_up(turn)
            await stops_and_serves_again(session)

    play(scene, bench)


def test_prompt_given_up_before_the_agent_has_read_it_leaves_a_clean_session(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            os.kill(session.agent_pid, signal.SIGSTOP)
            try:
                turn = asyncio.create_task(answer_of(session, "too late"))
                await asyncio.sleep(0)
                await give_up(turn)
            finally:
                os.kill(session.agent_pid, signal.SIGCONT)
            await stops_and_serves_again(session)

    play(scene, bench)


# ── large things ──


def test_answer_and_its_tokens_may_be_larger_than_a_frame(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            *events, answered = await events_of(session, "BIG 1500000")
            text = "".join(event.text for event in events if isinstance(event, Token))
            assert text.rstrip() == getattr(answered, "text", None) == ("big " * 375_000).rstrip()

    play(scene, bench)


def test_input_of_a_tool_that_needs_permission_may_be_larger_than_a_frame(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        call = {"name": "Write", "input": {"file_path": "made", "content": "x" * 1_200_000}}
        asked: list[PermissionRequest] = []

        async def decide(question: PermissionRequest) -> Decision:
            asked.append(question)
            return Allow()

        async with ready(bench, asks=True) as (session, _):
            await events_of(session, f"TOOL {json.dumps(call)}", decide)
            assert [one.input for one in asked] == [call["input"]]
            assert (bench.folder / "made").stat().st_size == 1_200_000

    play(scene, bench)


# ── deaths ──


def test_keeper_that_is_killed_in_a_turn_is_a_crash_and_nothing_is_left(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with opened(bench) as session:
            assert isinstance(session, TerminalWorker)
            turn = await begin(bench, session, TALKING)
            holder = read_holder(SessionPaths(bench.sessions, session.name))
            assert holder is not None
            os.kill(holder.keeper_pid, signal.SIGKILL)
            with pytest.raises(SessionCrashed, match="exited"):
                await asyncio.wait_for(turn, PATIENCE)
        await until(lambda: not bench.processes(), "the end of all processes")
        assert not list(bench.sessions.glob("*pool-*"))

    play(scene, bench)


def test_keeper_that_is_killed_in_its_start_is_a_failed_start_and_nothing_is_left(
    bench: TerminalBench,
) -> None:
    async def scene(bench: TerminalBench) -> None:
        for later in range(0, 240, 20):  # milliseconds: before it reports, is reached, is ready
            session = bench.make()
            assert isinstance(session, TerminalWorker)
            paths = SessionPaths(bench.sessions, session.name)
            opening = asyncio.ensure_future(session.open(PATIENCE))
            keeper_pid = await keeper_of(paths, listening=later > 0)
            await asyncio.sleep(later * 0.001)
            os.kill(keeper_pid, signal.SIGKILL)
            with suppress(SpawnFailed):
                await opening
            await session.close(PATIENCE)
            await until(lambda: not bench.processes(), "the end of all processes")
            assert not list(bench.sessions.glob("*pool-*"))

    play(scene, bench)


def test_crash_has_the_code_and_the_last_output(home: Path) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with opened(bench) as session:
            with pytest.raises(SessionCrashed) as caught:
                await events_of(session, "hello")
            assert caught.value.detail.startswith("exit:1")
            assert len(caught.value.detail) < 2048

    play(scene, TerminalBench(home, MOCK_EXIT_BEFORE_STOP="1"))


def test_api_error_is_the_agents_own_text(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            with pytest.raises(AgentError, match="API Error: 400"):
                await events_of(session, "err 400")
            assert await session.interrupt(PATIENCE)  # it stands still already

    play(scene, bench)


OWNER = """
import asyncio, json, sys
from pathlib import Path
from remuda.pool.worker import Profile
from remuda.pool.terminal_worker import TerminalWorker


async def main():
    given = json.loads(sys.stdin.readline())
    session = TerminalWorker(given["id"], Profile(**given["profile"]), Path(given["folder"]))
    await session.open(60)
    print(session.agent_pid, flush=True)
    await asyncio.sleep(600)


asyncio.run(main())
"""


def test_owner_that_is_killed_leaves_nothing(bench: TerminalBench) -> None:
    session = bench.make()
    profile: Profile = session.profile
    given = {
        "id": session.id,
        "folder": str(bench.sessions),
        "profile": {
            "agent": profile.agent,
            "binary": profile.binary,
            "cwd": profile.cwd,
            "env": dict(profile.env),
        },
    }
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(json.dumps(given) + "\n")
        owner.stdin.flush()
        agent = Process(int(owner.stdout.readline()))
        owner.kill()
    agent.gone()
    wait_until(lambda: not list(bench.sessions.glob("*pool-*")), "the end of its traces")
    wait_until(lambda: not bench.processes(), "the end of all processes")


def test_loop_of_another_thread_serves_as_well(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"

    import threading

    errors: list[BaseException] = []

    def run() -> None:
        try:
            play(scene, bench)
        except BaseException as error:  # noqa: BLE001  # told in the test's own thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not errors


def test_request_without_a_fresh_conversation_is_refused(bench: TerminalBench) -> None:
    async def scene(bench: TerminalBench) -> None:
        async with ready(bench) as (session, _):
            await answer_of(session, "hello")
            with pytest.raises(SessionDirty):
                await anext(session.run(Request("r", "again", nobody)))

    play(scene, bench)
