"""The corners of the stream and print backends, on the scripted agent and on programs that are worse."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.stream import stream_client
from remuda.agents.json_lines import JsonLineReader
from remuda.errors import (
    Aborted,
    BudgetExceeded,
    InputError,
    RemoteProtocolError,
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.pool.client import Client
from remuda.pool.types import Answered, Decision, Deny, PermissionRequest, Request, Token
from support import pool_conformance as conformance
from support.pool_conformance import (
    PATIENCE,
    TALKING,
    always_says,
    answer_of,
    begin,
    events_of,
    give_up,
    opened,
    run_steps,
    serves_again,
    stops_and_serves_again,
    until,
)
from support.print_calls import write_program
from support.warm_sessions import PrintBench, StreamBench, waking, wicked

BACKGROUND = {"name": "Bash", "input": {"command": "tail -f /dev/null", "run_in_background": True}}
AGENT = {"name": "Agent", "input": {"prompt": "look around"}}


def tool(call: dict[str, Any]) -> str:
    return f"TOOL {json.dumps(call)}"


# ── limits ──


@pytest.mark.parametrize("bench_type", [StreamBench, PrintBench])
def test_turn_over_its_tokens_is_stopped_while_its_tool_runs(
    bench_type: type[StreamBench], home: Path
) -> None:
    bench = bench_type(home)
    blocked = tool({"name": "Bash", "input": {"command": "mkfifo go; cat go"}})

    async def steps() -> None:
        given: dict[str, Any] = {"claude_binary": bench.binary, "cwd": bench.folder, "env": bench.env}
        async with Client(**given, inherit_env=False, backend=bench.backend, permissions="allow") as client:
            with pytest.raises(BudgetExceeded, match="7 output tokens used, and max_output_tokens is 6"):
                await client.run(blocked, max_output_tokens=6, timeout=2 * PATIENCE)
            result = await client.run("hello", max_output_tokens=7)
            assert (result.text, result.usage and result.usage.output_tokens) == ("REPLY#1 to: hello", 7)

    run_steps(steps)


# ── crashes ──


def test_crash_in_a_turn_reports_the_code_and_the_last_words(home: Path) -> None:
    bench = StreamBench(home, MOCK_DIE_ON="boom", MOCK_DIE_CODE="3", MOCK_DIE_SAYING="out of hay\n")

    async def steps() -> None:
        told: list[str] = []
        async with opened(bench) as session:
            session.on_exit(told.append)
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"
            await session.renew(PATIENCE)
            with pytest.raises(SessionCrashed) as caught:
                await events_of(session, "boom")
            assert caught.value.detail.startswith("exit:3 -- stderr: out of hay -- stdout: ")
            assert not await session.interrupt(PATIENCE)
            with pytest.raises(SessionCrashed):
                await session.renew(PATIENCE)
            with pytest.raises(SessionCrashed):
                await events_of(session, "hello")
        assert told == [caught.value.detail]

    run_steps(steps)


@pytest.mark.parametrize("bench_type", [StreamBench, PrintBench])
def test_crash_in_the_middle_of_a_line_is_a_crash(bench_type: type[StreamBench], home: Path) -> None:
    bench = bench_type(home, MOCK_DIE_ON="boom", MOCK_DIE_TORN="1", MOCK_DIE_CODE="0")

    async def steps() -> None:
        async with opened(bench) as session:
            with pytest.raises(SessionCrashed) as caught:
                await events_of(session, "boom")
            assert caught.value.detail.startswith("exit:0 -- stdout: ")
            assert caught.value.detail.endswith("hal")

    run_steps(steps)


def test_holder_that_is_killed_is_a_crash_and_takes_the_agent_with_it(home: Path) -> None:
    bench = StreamBench(home)

    async def steps() -> None:
        async with opened(bench) as session:
            turn = await begin(bench, session, TALKING)
            os.kill(bench.holder(), signal.SIGKILL)
            with pytest.raises(SessionCrashed) as caught:
                await asyncio.wait_for(turn, PATIENCE)
            assert caught.value.detail.startswith("exit:-9")
        await until(lambda: not bench.processes(), "the end of the agent")

    run_steps(steps)


# ── coming up ──


def test_program_that_refuses_its_options_is_reported_with_its_reason(home: Path) -> None:
    binary = write_program(home / "refuses", "#!/bin/sh\necho 'error: unknown option' >&2\nexit 2\n")

    async def steps() -> None:
        session = StreamBench(home).make(binary=binary)
        with pytest.raises(SpawnFailed) as caught:
            await session.open(PATIENCE)
        await session.close(PATIENCE)
        assert "exit:2 -- stderr: error: unknown option" in str(caught.value)

    run_steps(steps)


def test_program_that_does_not_come_up_in_time_is_ended(home: Path) -> None:
    bench = StreamBench(home, MOCK_DELAY_START="600000")

    async def steps() -> None:
        session = bench.make()
        with pytest.raises(SpawnTimeout):
            await session.open(0.2)
        await session.close(PATIENCE)
        assert not bench.processes()

    run_steps(steps)


def test_agent_that_forgets_nothing_never_comes_up(home: Path) -> None:
    async def steps() -> None:
        session = StreamBench(home, MOCK_KEEP_CONVERSATION="1").make()
        with pytest.raises(SpawnFailed, match="new conversation"):
            await session.open(PATIENCE)
        await session.close(PATIENCE)

    run_steps(steps)


def test_agent_sees_the_environment_that_was_asked_for_and_no_other(home: Path) -> None:
    bench = StreamBench(home)
    bench.env = {"HOME": str(home), "PATH": bench.env["PATH"], "LANG": "C", "CLAUDECODE": "1", "MINE": "ä b"}
    bench.env |= {name: value for name, value in bench.inherited.items() if name.startswith("REMUDA_TEST")}

    async def steps() -> None:
        async with opened(bench):
            pass

    run_steps(steps)
    lines = (home / "agent.env").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if not line.startswith(("PWD", "OLDPWD", "SHLVL", "_=")))
    del bench.env["CLAUDECODE"]
    added = {
        "NO_PROXY",
        "no_proxy",
        "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS",
    }
    assert {name: value for name, value in seen.items() if name not in added} == bench.env
    assert added <= set(seen)


# ── stopping ──


def test_agent_that_does_not_stop_is_not_proven_stopped(home: Path) -> None:
    bench = StreamBench(home, MOCK_IGNORE_INTERRUPT="1")

    async def steps() -> None:
        async with opened(bench) as session:
            await give_up(await begin(bench, session, TALKING))
            assert not await session.interrupt(0.2)
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)


def test_turn_that_is_stopped_before_it_began_never_runs(home: Path) -> None:
    bench = StreamBench(home)

    async def steps() -> None:
        async with opened(bench) as session:
            for number in range(5):
                turn = session.run(Request("r_test", f"SLOW 600 {number}", conformance.nobody))
                first = asyncio.ensure_future(anext(turn))
                await asyncio.sleep(0)  # its line is sent
                first.cancel()
                await asyncio.wait([first])
                assert await session.interrupt(PATIENCE)
                await session.renew(PATIENCE)
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"

    run_steps(steps)


def test_turn_that_ended_by_itself_counts_as_stopped(home: Path) -> None:
    async def steps() -> None:
        async with opened(StreamBench(home)) as session:
            await answer_of(session, "hello")
            assert await session.interrupt(PATIENCE)
            await session.renew(PATIENCE)

    run_steps(steps)


def test_question_of_a_turn_that_is_stopped_is_withdrawn(home: Path) -> None:
    asked = asyncio.Event()

    async def decide(_: PermissionRequest) -> Decision:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def steps() -> None:
        async with opened(StreamBench(home), asks=True) as session:
            turn = asyncio.create_task(events_of(session, "RUNBASH touch made", decide))
            await asyncio.wait_for(asked.wait(), PATIENCE)
            await give_up(turn)
            await stops_and_serves_again(session)

    run_steps(steps)


def test_question_that_the_agent_withdraws_is_asked_no_more(home: Path) -> None:
    asked, withdrawn = home / "asked", home / "withdrawn"
    os.mkfifo(asked)
    os.mkfifo(withdrawn)
    script = f"""
        command = message["uuid"]
        request = {{"subtype": "can_use_tool", "tool_name": "Bash", "input": {{}}}}
        say({{"type": "control_request", "request_id": "q", "request": request}})
        open({str(asked)!r}).close()
        say({{"type": "control_cancel_request", "request_id": "q"}})
        open({str(withdrawn)!r}).close()
        result(command, "never mind", f"c{{clears}}")
"""
    ended: list[type[BaseException]] = []

    async def decide(_: PermissionRequest) -> Decision:
        try:
            await asyncio.to_thread(asked.write_text, "")
            await asyncio.Event().wait()
        except BaseException as error:
            ended.append(type(error))
            await asyncio.to_thread(withdrawn.write_text, "")
            raise
        raise AssertionError

    async def steps() -> None:
        async with opened(StreamBench(home), binary=wicked(home, script), asks=True) as session:
            seen = [list(ended) async for _ in session.run(Request("r_test", "hello", decide))]
            assert seen[-1] == [asyncio.CancelledError]

    run_steps(steps)


@pytest.mark.parametrize("bench_type", [StreamBench, PrintBench])
def test_denial_that_ends_the_turn_is_reported_as_aborted(bench_type: type[StreamBench], home: Path) -> None:
    async def steps() -> None:
        async with opened(bench_type(home), asks=True) as session:
            with pytest.raises(Aborted):
                await events_of(session, "RUNBASH touch made", always_says(Deny("no", interrupt=True)))
            await serves_again(session)

    run_steps(steps)


def test_denial_that_ends_the_turn_costs_no_session(home: Path) -> None:
    bench = StreamBench(home)

    async def decide(question: PermissionRequest) -> Decision:
        return Deny("no", interrupt=True)

    async def steps() -> None:
        options: dict[str, Any] = {"cwd": bench.folder, "env": bench.env, "permissions": decide}
        async with Client(backend="stream", claude_binary=str(bench.binary)) as client:
            with pytest.raises(Aborted):
                await client.run("RUNBASH touch made", **options)
            assert (await client.run("hello", **options)).text == "REPLY#1 to: hello"
            assert "remuda_pool_spawns_total 1\n" in client.metrics()

    run_steps(steps)


def test_handler_that_fails_denies_and_its_error_is_raised(home: Path) -> None:
    async def decide(_: PermissionRequest) -> Decision:
        raise KeyError("lost")

    bench = StreamBench(home)

    async def steps() -> None:
        async with opened(bench, asks=True) as session:
            with pytest.raises(KeyError):
                await events_of(session, "RUNBASH touch made", decide)
            assert await session.interrupt(PATIENCE)
            await session.renew(PATIENCE)
        assert not (bench.folder / "made").exists()

    run_steps(steps)


# ── clearing ──


def test_clear_that_takes_too_long_is_reported(home: Path) -> None:
    bench = StreamBench(home, MOCK_DELAY_CLEAR="400")

    async def steps() -> None:
        async with opened(bench) as session:
            await answer_of(session, "hello")
            with pytest.raises(WaitTimeout):
                await session.renew(0.05)

    run_steps(steps)


def test_session_that_was_not_renewed_serves_no_one(home: Path) -> None:
    async def steps() -> None:
        async with opened(StreamBench(home)) as session:
            await answer_of(session, "hello")
            with pytest.raises(SessionDirty):
                await events_of(session, "again")

    run_steps(steps)


def test_agent_that_begins_a_turn_by_itself_is_not_handed_out(home: Path) -> None:
    async def steps() -> None:
        told: list[str] = []
        session = StreamBench(home, MOCK_IS_STRAY="1").make()
        session.on_exit(told.append)
        try:
            await session.open(PATIENCE)
            await until(lambda: told, "its end")
        except SpawnFailed:  # it was seen before the session was called ready
            pass
        await session.close(PATIENCE)

    run_steps(steps)


def test_agent_that_wakes_while_no_one_asks_is_ended(home: Path) -> None:
    alarm = home / "alarm"
    script = waking(alarm)

    async def steps() -> None:
        told: list[str] = []
        async with opened(StreamBench(home), binary=wicked(home, script)) as session:
            session.on_exit(told.append)
            await answer_of(session, "hello")
            await session.renew(PATIENCE)
            await asyncio.to_thread(alarm.write_text, "")
            await until(lambda: told, "its end")

    run_steps(steps)


@pytest.mark.parametrize("call", [BACKGROUND, {"name": "CronCreate", "input": {"prompt": "x"}}])
def test_what_outlives_a_clear_makes_a_session_dirty(call: dict[str, Any], home: Path) -> None:
    async def steps() -> None:
        async with opened(StreamBench(home), allowed_tools=("Bash", "CronCreate")) as session:
            await events_of(session, tool(call))
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)


def test_agent_in_the_background_is_waited_for(home: Path) -> None:
    async def steps() -> None:
        async with opened(StreamBench(home), allowed_tools=("Agent",)) as session:
            answered = await answer_of(session, tool(AGENT))
            assert "task-notification" in answered.text
            assert answered.usage is not None
            assert answered.usage.output_tokens == 3 * 7
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)


def test_shell_in_the_background_is_not_waited_for_unless_the_process_does(home: Path) -> None:
    short = {"name": "Bash", "input": {"command": "sleep 0.3", "run_in_background": True}}

    async def steps() -> None:
        async with opened(PrintBench(home), allowed_tools=("Bash",)) as session:
            assert "task-notification" in (await answer_of(session, tool(short))).text
            await session.renew(PATIENCE)

    run_steps(steps)


# ── what is said ──


def test_prompt_that_would_run_a_command_is_refused_and_nothing_is_lost(home: Path) -> None:
    async def steps() -> None:
        async with opened(StreamBench(home)) as session:
            with pytest.raises(InputError):
                await events_of(session, "/clear now")
            assert (await answer_of(session, " /clear")).text == "REPLY#1 to: /clear"
            await session.renew(PATIENCE)
            assert (await answer_of(session, "/tmp/file is a path")).text.endswith("/tmp/file is a path")

    run_steps(steps)


@pytest.mark.parametrize("bench_type", [StreamBench, PrintBench])
def test_prompt_and_answer_of_megabytes_pass(bench_type: type[StreamBench], home: Path) -> None:
    async def steps() -> None:
        async with opened(bench_type(home)) as session:
            assert (await answer_of(session, "x" * 3_000_000)).text == "REPLY#1 to: " + "x" * 200
            await session.renew(PATIENCE)
            events = await events_of(session, "BIG 3000000")
            tokens = [event.text for event in events if isinstance(event, Token)]
            assert isinstance(events[-1], Answered)
            assert "".join(tokens) == events[-1].text
            assert len(events[-1].text) == 3_000_000

    run_steps(steps)


def test_junk_between_messages_is_nothing(home: Path) -> None:
    script = """
        print("warning: something")
        print('{"type": "odd"}')
        os.write(1, b"\\xff\\xfe\\n")
        result(message["uuid"], "well", f"c{clears}")
"""

    async def steps() -> None:
        async with opened(StreamBench(home), binary=wicked(home, script)) as session:
            assert (await answer_of(session, "hello")).text == "well"
            await session.renew(PATIENCE)

    run_steps(steps)


def test_result_in_a_last_line_without_an_end_is_an_answer(home: Path) -> None:
    script = """
        last = {"type": "result", "result": "last words", "user_message_uuid": message["uuid"]}
        os.write(1, json.dumps(last).encode())
        os._exit(0)
"""

    async def steps() -> None:
        async with opened(StreamBench(home), binary=wicked(home, script)) as session:
            assert (await answer_of(session, "hello")).text == "last words"
            with pytest.raises(SessionCrashed):
                await session.renew(PATIENCE)

    run_steps(steps)


def test_question_that_no_one_can_answer_is_refused(home: Path) -> None:
    script = """
        if message["type"] == "user":
            command = message["uuid"]
            say({"type": "control_request", "request_id": "odd", "request": {"subtype": "elicitation"}})
        else:
            result(command, json.dumps(message["response"]), f"c{clears}")
"""

    async def steps() -> None:
        async with opened(StreamBench(home), binary=wicked(home, script)) as session:
            reply = json.loads((await answer_of(session, "hello")).text)
            assert reply["subtype"] == "error"
            assert reply["request_id"] == "odd"

    run_steps(steps)


def test_message_that_is_too_long_fails_the_turn(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
        result(message["uuid"], "x" * 200_000, f"c{clears}")
"""
    monkeypatch.setattr(stream_client, "JsonLineReader", lambda: JsonLineReader(100_000))

    async def steps() -> None:
        async with opened(StreamBench(home), binary=wicked(home, script)) as session:
            with pytest.raises(RemoteProtocolError):
                await events_of(session, "hello")
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)


def test_result_of_another_prompt_is_not_taken_for_ours(home: Path) -> None:
    script = """
        say({"type": "command_lifecycle", "command_uuid": message["uuid"], "state": "queued"})
        result(None, "not yours", f"c{clears}")
        time.sleep(0.2)
        result(message["uuid"], "yours", f"c{clears}")
        result(None, "nobody's", f"c{clears}")
"""

    async def steps() -> None:
        async with opened(StreamBench(home), binary=wicked(home, script)) as session:
            assert (await answer_of(session, "hello")).text == "yours"

    run_steps(steps)


# ── the caller's process ──


def test_loop_in_another_thread_serves_as_well(home: Path) -> None:
    bench = StreamBench(home)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            conformance.run(conformance.a_renewed_session_has_a_fresh_conversation, bench)
        except BaseException as error:  # noqa: BLE001  # told in the thread of the test
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(3 * PATIENCE)
    assert not thread.is_alive()
    assert not failures
