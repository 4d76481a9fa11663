"""The terminal backend of the pool on the real CLI."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import SessionDirty
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.types import Allow, Decision, PermissionRequest, Request
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support import pool_conformance as conformance
from support.keeper import until as wait_until
from support.pool_conformance import (
    PATIENCE,
    Check,
    answer_of,
    checks_of,
    events_of,
    give_up,
    nobody,
    opened,
    run_steps,
    serves_again,
)
from support.pool_terminals import looking
from support.real_pools import TerminalBench, check_fresh_conversations, check_question
from support.real_sessions import MakeCli, outcomes, tool

pytestmark = pytest.mark.real

_OWNER = """
import asyncio, json, sys
from pathlib import Path
from support.pool_conformance import nobody, profile_of
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.types import Request

async def main(binary, folder, sessions, env):
    profile = profile_of(Path(binary), Path(folder), env, allowed_tools=("Bash",))
    session = TerminalWorker("s_000000000000", profile, Path(sessions))
    await session.open(60)
    async for _ in session.run(Request("r", "RUNBASH tail -f /dev/null & echo begun", nobody)):
        pass
    print("serving", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
"""


@pytest.fixture
def bench(cli: RealCli, home: Path) -> TerminalBench:
    return TerminalBench(cli, home)


@pytest.mark.parametrize("check", checks_of(TerminalBench))
def test_terminal(check: Check, bench: TerminalBench) -> None:
    conformance.run(check, bench)


# ── a fresh conversation ──


def test_nothing_of_a_conversation_is_in_the_next_requests(
    bench: TerminalBench, cli: RealCli, model: LoopbackModel
) -> None:
    todos = [{"content": "SECRET-todo", "status": "pending", "activeForm": "x"}]
    check_fresh_conversations(bench, model, ("TodoWrite",), tool("TodoWrite", todos=todos))


def test_a_folder_that_nobody_trusted_is_trusted_for_the_start_of_a_session_only(
    make_cli: MakeCli, home: Path
) -> None:
    """In a repository, whose root is what the CLI trusts. What its settings allow counts in every request."""
    cli = make_cli(trust=False)
    subprocess.run(["git", "init", "-q"], cwd=cli.project, check=True)
    below = cli.project / "below"
    (below / ".claude").mkdir(parents=True)
    settings = {"permissions": {"allow": ["Bash(touch:*)"]}}
    (below / ".claude" / "settings.json").write_text(json.dumps(settings))
    config, notes = cli.home / ".claude.json", cli.home / ".claude.json.remuda-trust"
    bench = TerminalBench(cli, home)
    bench.folder = below

    def trusted() -> list[str]:
        projects = json.loads(config.read_text())["projects"]
        return [folder for folder, entry in projects.items() if entry.get("hasTrustDialogAccepted")]

    async def steps() -> None:
        async with opened(bench) as session:
            await asyncio.to_thread(
                wait_until, lambda: not (notes.exists() or trusted()), "the end of the loan"
            )
            for word in ("first", "second"):
                await answer_of(session, f"RUNBASH touch {word}")
                assert (below / word).exists()
                await session.renew(PATIENCE)

    run_steps(steps)
    assert not trusted()


def test_model_hears_nothing_of_opening_and_renewing(bench: TerminalBench, model: LoopbackModel) -> None:
    async def steps() -> None:
        async with opened(bench) as session:
            assert not model.requests
            answered = await answer_of(session, "hello")
            await session.renew(PATIENCE)
            assert answered.entrypoint == "cli"
            assert answered.conversation_id == model.requests[0].session_id
            assert answered.model == model.requests[0].body["model"]

    run_steps(steps)
    assert [request.prompt for request in model.requests] == ["hello"]


def test_long_prompt_that_comes_twice_arrives_twice(bench: TerminalBench, model: LoopbackModel) -> None:
    # The CLI shows a long paste as a mark, and one that comes again "expands" it.
    prompt = "\n".join(f"line {number} of a long prompt" for number in range(80))

    async def steps() -> None:
        async with opened(bench) as session:
            for _ in range(2):
                await answer_of(session, prompt)
                await session.renew(PATIENCE)

    run_steps(steps)
    assert [request.prompt for request in model.main_requests] == [prompt, prompt]


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
def test_what_survives_a_clear_makes_the_session_dirty(
    prompt: str, bench: TerminalBench, cli: RealCli
) -> None:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=cli.project, check=True
        )
    tools = ("Bash", "CronCreate", "ScheduleWakeup", "EnterWorktree")

    async def steps() -> None:
        async with opened(bench, allowed_tools=tools, asks=True) as session:
            await events_of(session, prompt, conformance.always_says(Allow()))
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)
    assert not cli.settle()


def test_server_of_tools_that_comes_up_late_is_no_dirt(bench: TerminalBench, model: LoopbackModel) -> None:
    server = Path(__file__).with_name("mcp_server.py")
    config = {"mcpServers": {"x": {"command": sys.executable, "args": [str(server)]}}}

    async def steps() -> None:
        async with opened(
            bench, mcp_config=(json.dumps(config),), extra_args=("--strict-mcp-config",)
        ) as one:
            for _ in range(2):
                await answer_of(one, "hello")
                await one.renew(PATIENCE)

    run_steps(steps)


def test_agent_in_the_background_is_waited_for(bench: TerminalBench, model: LoopbackModel) -> None:
    prompt = tool("Agent", description="d", prompt="look around", subagent_type="general-purpose")

    async def steps() -> None:
        async with opened(bench, allowed_tools=("Agent",)) as session:
            answered = await answer_of(session, prompt)
            # Its notice comes behind the stop, or in the middle of the turn.
            assert answered.text.startswith(f"REPLY#{len(model.main_requests)} ")
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)
    assert "look around" in [request.prompt for request in model.main_requests]


# ── stopping, asking ──


def test_stopped_turn_lets_go_of_the_model_and_the_next_one_is_clean(
    bench: TerminalBench, model: LoopbackModel
) -> None:
    async def steps() -> None:
        async with opened(bench) as session:
            with model.hold() as gate:
                turn = asyncio.create_task(events_of(session, "SECRET held back"))
                await asyncio.to_thread(gate.wait_reached, PATIENCE)
                await give_up(turn)
                assert await session.interrupt(PATIENCE)
            await serves_again(session)

    run_steps(steps)
    assert outcomes(model) == {"abandoned", "answered"}
    assert b"SECRET" not in model.main_requests[-1].raw


def test_turn_that_is_stopped_in_a_tool_leaves_no_process(bench: TerminalBench, cli: RealCli) -> None:
    async def steps() -> None:
        async with opened(bench, allowed_tools=("Bash",)) as session:
            assert isinstance(session, TerminalWorker)
            async with looking(session, bench.sessions) as look:
                turn = asyncio.create_task(events_of(session, "RUNBASH tail -f /dev/null"))
                await look.state("tool_use")
                await conformance.until(
                    lambda: any("tail -f" in command for command in cli.running().values()), "the tool"
                )
                await give_up(turn)
                assert await session.interrupt(PATIENCE)
            await serves_again(session)

    run_steps(steps)


def test_turn_that_is_stopped_before_it_began_leaves_a_clean_session(
    bench: TerminalBench, model: LoopbackModel
) -> None:
    async def steps() -> None:
        async with opened(bench) as session:
            for number in range(5):
                turn = session.run(Request("r_test", f"unwanted-secret-{number}", nobody))
                first = asyncio.ensure_future(anext(turn))
                await asyncio.sleep(0.01 * number)
                first.cancel()
                await asyncio.wait([first])
                assert await session.interrupt(PATIENCE)
                await session.renew(PATIENCE)
            assert (await answer_of(session, "hello")).text == "REPLY#1 to: hello"

    run_steps(steps)
    assert outcomes(model) <= {"abandoned", "answered"}
    assert b"unwanted-secret" not in model.main_requests[-1].raw


def test_question_of_the_agent_is_answered_by_the_caller(bench: TerminalBench) -> None:
    check_question(bench)


def test_permission_may_take_longer_than_a_hook_has(bench: TerminalBench, cli: RealCli) -> None:
    async def steps() -> None:
        async with opened(bench, asks=True) as session:
            assert isinstance(session, TerminalWorker)

            async def decide(_: PermissionRequest) -> Decision:
                # The dialog is on the screen by then, and goes away with the answer.
                await looked.state("waiting_permission")
                await conformance.until(lambda: shown, "the dialog")
                return Allow({"command": "touch edited", "description": "x"})

            shown: list[bool] = []
            async with looking(session, bench.sessions) as looked:
                turn = asyncio.create_task(answer_of(session, "RUNBASH touch made", decide))
                while not any("Do you want to proceed" in line for line in await lines(looked.client)):
                    await asyncio.sleep(0.05)
                shown.append(True)
                assert (await turn).text.startswith("REPLY#2 to: tool_result")
            await session.renew(PATIENCE)

    run_steps(steps)
    assert (cli.project / "edited").exists()
    assert not (cli.project / "made").exists()


async def lines(client: Any) -> list[str]:
    found: list[str] = (await client.request("screen"))["lines"]
    return found


# ── the end ──


def test_owner_that_is_killed_leaves_nothing(bench: TerminalBench, cli: RealCli, home: Path) -> None:
    arguments = [str(cli.binary), str(cli.project), str(bench.sessions), json.dumps(cli.env)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, *arguments], stdout=subprocess.PIPE, text=True, env=env
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "serving\n"
        assert cli.running()
        owner.kill()
    assert not cli.settle()
    wait_until(lambda: not list(bench.sessions.glob("*pool-*")), "the end of its traces")
