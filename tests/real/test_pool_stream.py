"""The stream and print backends of the pool on the real CLI."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.stream.workers import PrintWorker
from remuda.errors import Aborted, SessionDirty
from remuda.pool.types import Allow, Deny, Request
from remuda.pool.worker import Profile
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.script import ToolResult
from support import pool_conformance as conformance
from support.keeper import until
from support.pool_conformance import (
    PATIENCE,
    Check,
    always_says,
    answer_of,
    checks_of,
    events_of,
    give_up,
    nobody,
    opened,
    run_steps,
    serves_again,
)
from support.real_pools import StreamBench, check_fresh_conversations, check_question
from support.real_sessions import outcomes, tool

pytestmark = pytest.mark.real

_OWNER = """
import asyncio, json, sys
from pathlib import Path
from support.pool_conformance import nobody, profile_of
from remuda.agents.claude.stream.workers import StreamWorker
from remuda.pool.types import Request

async def main(binary, folder, env):
    profile = profile_of(Path(binary), Path(folder), env, allowed_tools=("Bash",))
    session = StreamWorker("s_000000000000", profile)
    await session.open(60)
    async for _ in session.run(Request("r", "RUNBASH tail -f /dev/null & echo begun", nobody)):
        pass
    print("serving", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"""


class PrintBench(StreamBench):
    warm = False

    def make_worker(self, name: str, profile: Profile) -> Any:
        return PrintWorker(name, profile)


@pytest.mark.parametrize("check", checks_of(StreamBench))
def test_stream(check: Check, cli: RealCli) -> None:
    conformance.run(check, StreamBench(cli))


@pytest.mark.soak(only=True)  # nearly all of it is that of StreamWorker
@pytest.mark.parametrize("check", checks_of(PrintBench))
def test_print(check: Check, cli: RealCli) -> None:
    conformance.run(check, PrintBench(cli))


# ── a fresh conversation ──


def test_nothing_of_a_conversation_is_in_the_next_requests(cli: RealCli, model: LoopbackModel) -> None:
    check_fresh_conversations(StreamBench(cli), model, ())


def test_model_hears_nothing_of_opening_and_renewing(cli: RealCli, model: LoopbackModel) -> None:
    async def steps() -> None:
        async with opened(StreamBench(cli)) as session:
            assert not model.requests
            answered = await answer_of(session, "hello")
            await session.renew(PATIENCE)
            assert answered.entrypoint == "sdk-cli"

    run_steps(steps)
    assert [request.prompt for request in model.requests] == ["hello"]


@pytest.mark.parametrize(
    "prompt",
    [
        tool("Bash", command="tail -f /dev/null", description="x", run_in_background=True),
        tool("CronCreate", cron="0 0 1 1 *", prompt="wake", recurring=False),
        tool("ScheduleWakeup", delaySeconds=3000, prompt="wake", reason="x"),
        tool("EnterWorktree", name="elsewhere"),
        tool("EnterPlanMode"),
    ],
    ids=["shell", "cron", "wakeup", "worktree", "plan"],
)
def test_what_survives_a_clear_makes_the_session_dirty(prompt: str, cli: RealCli) -> None:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=cli.project, check=True
        )
    tools = ("Bash", "CronCreate", "ScheduleWakeup", "EnterWorktree")

    async def steps() -> None:
        async with opened(StreamBench(cli), allowed_tools=tools, asks=True) as session:
            await events_of(session, prompt, always_says(Allow()))
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)
    assert not cli.settle()


def test_agent_in_the_background_is_waited_for(cli: RealCli, model: LoopbackModel) -> None:
    prompt = tool("Agent", description="d", prompt="look around", subagent_type="general-purpose")

    # The notice of its end comes behind the agent's next request, else it is part of that one.
    worker = model.hold(lambda request: request.said == "look around")
    behind = model.hold(lambda request: isinstance(request.said, ToolResult))

    async def steps() -> None:
        async with opened(StreamBench(cli), allowed_tools=("Agent",)) as session:
            turn = asyncio.create_task(answer_of(session, prompt))
            await asyncio.to_thread(behind.wait_reached, PATIENCE)
            worker.open()
            behind.open()
            answered = await turn
            assert answered.usage is not None
            assert answered.usage.output_tokens == 3 * 7
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)
    assert len(model.main_requests) == 4


# ── stopping, asking ──


def test_stopped_turn_lets_go_of_the_model_and_the_next_one_is_clean(
    cli: RealCli, model: LoopbackModel
) -> None:
    async def steps() -> None:
        async with opened(StreamBench(cli)) as session:
            with model.hold() as gate:
                turn = asyncio.create_task(events_of(session, "SECRET held back"))
                await asyncio.to_thread(gate.wait_reached, PATIENCE)
                await give_up(turn)
                assert await session.interrupt(PATIENCE)
            await serves_again(session)

    run_steps(steps)
    assert outcomes(model) == {"abandoned", "answered"}
    assert b"SECRET" not in model.main_requests[-1].raw


def test_turn_that_is_stopped_before_it_began_never_runs(cli: RealCli, model: LoopbackModel) -> None:
    async def steps() -> None:
        async with opened(StreamBench(cli)) as session:
            for number in range(5):
                turn = session.run(Request("r_test", f"never {number}", nobody))
                first = asyncio.ensure_future(anext(turn))
                await asyncio.sleep(0.002 * number)
                first.cancel()
                await asyncio.wait([first])
                assert await session.interrupt(PATIENCE)
                await session.renew(PATIENCE)
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"

    run_steps(steps)
    assert outcomes(model) <= {"abandoned", "answered"}


def test_denial_that_ends_the_turn_is_told_as_aborted(cli: RealCli) -> None:
    async def steps() -> None:
        async with opened(StreamBench(cli), asks=True) as session:
            with pytest.raises(Aborted):
                await events_of(session, "RUNBASH touch made", always_says(Deny("no", interrupt=True)))
            await serves_again(session)

    run_steps(steps)


def test_question_of_the_agent_is_answered_by_the_caller(cli: RealCli) -> None:
    check_question(StreamBench(cli))


# ── what is asked of a process ──


def test_options_of_a_profile_reach_the_agent(cli: RealCli, model: LoopbackModel) -> None:
    server = Path(__file__).with_name("mcp_server.py")
    config = {"mcpServers": {"x": {"command": sys.executable, "args": [str(server)]}}}
    profile: dict[str, Any] = {
        "model": "sonnet",
        "allowed_tools": ("Bash(touch made *)", "Bash(touch other)"),
        "disallowed_tools": ("WebFetch", "Edit"),
        "system_prompt": "-be brief",
        "append_system_prompt": "--and kind",
        "mcp_config": (json.dumps(config),),
        "extra_args": ("--effort", "low"),
    }

    async def steps() -> None:
        async with opened(StreamBench(cli), **profile) as session:
            await events_of(session, "RUNBASH touch made it")
            await session.renew(PATIENCE)
            await events_of(session, "RUNBASH touch other")

    run_steps(steps)
    request = model.main_requests[0]
    assert "sonnet" in request.model
    assert "-be brief" in request.system
    assert "--and kind" in request.system
    assert "Edit" not in request.tools
    assert "Write" in request.tools
    assert "mcp__x__t" in request.raw.decode()
    assert {"made", "it", "other"} <= {path.name for path in cli.project.iterdir()}


def test_killed_owner_leaves_nothing_running(cli: RealCli) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(cli.binary), str(cli.project), json.dumps(cli.env)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    try:
        assert owner.stdout.readline() == "serving\n"
        until(lambda: len(cli.running()) >= 3, "agent, tool and guard")
    finally:
        owner.kill()
        owner.communicate()
    assert not cli.settle()
