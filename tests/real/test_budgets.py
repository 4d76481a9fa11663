"""Budgets on the real Claude Code: a session over its limit is paused, and a pool's request is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuda.errors import BudgetExceeded
from remuda.pool.client import Client
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.budgets import boss_with_limit, paused, show_pause
from support.commands import Commands
from support.keeper import Start
from support.messages import Post, prompts
from support.real_sessions import keep, tool

pytestmark = pytest.mark.real


def test_session_over_its_budget_is_paused_until_a_human_allows_more(
    cli: RealCli, start: Start, model: LoopbackModel, home: Path
) -> None:
    show_pause(Post(keep(start, cli)), home)
    assert prompts(model) == ["hello", "more"]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="it waits for a permission"),
        pytest.param(("--allowedTools", "Bash"), id="its tool runs", marks=pytest.mark.soak(only=True)),
    ],
)
def test_turn_over_a_budget_that_stops_is_interrupted(
    remuda: Commands, cli: RealCli, start: Start, model: LoopbackModel, home: Path, flags: tuple[str, ...]
) -> None:
    with boss_with_limit(home, "output_tokens = 5", "step = 1000", 'action = "stop"') as boss:
        post = Post(keep(start, cli, *flags))
        asked = tool("Bash", command="mkfifo go; cat go")
        found = post.send(asked)
        assert (found.stage, "budget 'output tokens per session'" in found.reason) == ("dead", True), found
        paused(boss, "c")
        remuda("approve", "c", "--yes")
        post.run("hello")
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


@pytest.mark.soak(only=True)
def test_request_of_a_pool_over_its_cost_fails_and_the_worker_serves_the_next(cli: RealCli) -> None:
    async def scene() -> None:
        given = {"claude_binary": cli.argv()[0], "cwd": cli.project, "env": cli.env, "inherit_env": False}
        async with Client(**given, backend="stream") as client:  # type: ignore[arg-type]
            with pytest.raises(BudgetExceeded, match="max_cost"):
                await client.run("hello", max_cost=1e-9)
            assert "again" in (await client.run("again", max_cost=10.0)).text

    asyncio.run(scene())
