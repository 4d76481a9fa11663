"""Budgets on the real Claude Code: a session over its limit is paused, and a pool's request is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.errors import BudgetExceeded
from remuda.pool.client import Client
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support import counts
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import Start, until
from support.messages import Post, prompts, stages
from support.real_sessions import keep, tool

pytestmark = pytest.mark.real

SOURCES = (
    "remuda.boss.evidence.kept:KeptSessions",
    "remuda.boss.evidence.usage:Usage",
    "remuda.boss.evidence.spending:Spending",
)


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, SOURCES)
    one.folder.path.mkdir(parents=True, exist_ok=True)
    (one.folder.path / "budget.toml").write_text("[[limit]]\noutput_tokens = 5\nstep = 1000\n")
    one.start()
    yield one
    one.close()


def test_session_over_its_budget_is_paused_until_a_human_allows_more(
    remuda: Commands, cli: RealCli, start: Start, model: LoopbackModel, boss: RunningBoss
) -> None:
    post = Post(keep(start, cli))
    assert post.send("hello").stage == "acked"
    (item,) = until(lambda: [one for one in boss.waiting() if one["reason"] == "budget"], "the pause")
    held = post.put("more")
    post.held("budget 'output tokens per session'")
    assert stages(post.trace(held)) == ["accepted"]
    remuda("approve", "c", "--yes")
    assert post.ended(held).stage == "acked"
    assert prompts(model) == ["hello", "more"]
    assert boss.client.get("approvals", item["detail"]["ask"])["by"] == "api: command line"


if counts.SOAK:

    @pytest.mark.soak
    def test_turn_over_a_budget_that_stops_is_interrupted(
        remuda: Commands, cli: RealCli, start: Start, model: LoopbackModel, boss: RunningBoss
    ) -> None:
        limit = '[[limit]]\noutput_tokens = 5\nstep = 1000\naction = "stop"\n'
        (boss.folder.path / "budget.toml").write_text(limit)
        post = Post(keep(start, cli, "--allowedTools", "Bash"))
        asked = tool("Bash", command="mkfifo go; cat go")
        found = post.send(asked)
        assert (found.stage, "budget 'output tokens per session'" in found.reason) == ("dead", True), found
        until(lambda: [one for one in boss.waiting() if one["reason"] == "budget"], "the pause")
        remuda("approve", "c", "--yes")
        assert post.send("hello").stage == "acked"
        assert prompts(model) == [asked, "hello"]


@pytest.mark.parametrize(
    ("backend", "prompt"),
    [("terminal", "RUNBASH echo one"), ("stream", tool("Bash", command="mkfifo go; cat go"))],
)
def test_request_of_a_pool_over_its_tokens_is_stopped_and_the_worker_serves_the_next(
    cli: RealCli, backend: str, prompt: str
) -> None:
    async def scene() -> None:
        given = {"claude_binary": cli.argv()[0], "cwd": cli.project, "env": cli.env, "inherit_env": False}
        async with Client(**given, backend=backend, permissions="allow") as client:  # type: ignore[arg-type]
            with pytest.raises(BudgetExceeded, match="output tokens used, and max_output_tokens is 1"):
                await client.run(prompt, max_output_tokens=1)
            result = await client.run("hello", max_output_tokens=1000)
            assert "hello" in result.text
            assert result.usage is not None
            assert 0 < result.usage.output_tokens <= 1000

    asyncio.run(scene())


if counts.SOAK:

    @pytest.mark.soak
    def test_request_of_a_pool_over_its_cost_fails_and_the_worker_serves_the_next(cli: RealCli) -> None:
        async def scene() -> None:
            given = {"claude_binary": cli.argv()[0], "cwd": cli.project, "env": cli.env, "inherit_env": False}
            async with Client(**given, backend="stream") as client:  # type: ignore[arg-type]
                with pytest.raises(BudgetExceeded, match="max_cost"):
                    await client.run("hello", max_cost=1e-9)
                assert "again" in (await client.run("again", max_cost=10.0)).text

        asyncio.run(scene())
