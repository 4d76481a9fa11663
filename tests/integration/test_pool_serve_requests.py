"""Requests of other processes to a pool behind its socket: answers, errors, and what else can be asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.errors import AgentError, InvalidOptions, SessionCrashed
from remuda.pool.pool_connection import request
from remuda.pool.types import (
    Allow,
    Answered,
    Done,
    Failed,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.testing.pool import FakeAgent, FakeSession
from support.pool_in_loop import served, within

# ── requests ──


def test_run_through_the_server_is_as_in_the_same_process(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            here = await pool.client.run("one", env={}, cwd="/")
            there = await pool.remote.run("one", cwd="/", env=dict.fromkeys(os.environ))
            assert (here.text, there.text) == ("REPLY#1 to: one", "REPLY#2 to: one")
            assert there.session_id == here.session_id
            assert there.usage == here.usage
            assert there.backend == here.backend
            assert there.duration > 0

    within(test())


def test_run_folder_and_environment_are_the_callers_and_nothing_of_the_servers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setenv("ONLY_OF_THE_SERVER", "1")
        async with served(home, pool_size=2) as pool:
            monkeypatch.delenv("ONLY_OF_THE_SERVER")
            monkeypatch.setenv("OF_THE_CALLER", "secret")
            monkeypatch.setenv("SHLVL", "7")
            await pool.remote.run("x", cwd=home, env={"MORE": "1"})
            profile = pool.agent.sessions[0].profile
            assert profile.cwd == str(home)
            assert profile.env["OF_THE_CALLER"] == "secret"
            assert profile.env["MORE"] == "1"
            assert profile.env["PWD"] == str(home)
            assert not {"ONLY_OF_THE_SERVER", "SHLVL"} & profile.env.keys()
            # From another shell, in another terminal: the same session.
            monkeypatch.setenv("SHLVL", "8")
            monkeypatch.setenv("TMUX_PANE", "%9")
            result = await pool.remote.run("x", cwd=home, env={"MORE": "1"})
            assert result.session_id == pool.agent.sessions[0].id

    within(test())


def test_stream_gives_every_event_in_order(home: Path) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("grü")
        yield ToolUse("t1", "Bash", {"command": "ls"})
        if request.raw:
            yield Raw({"type": "system"})
        yield ToolResult("t1", [{"type": "text", "text": "x"}], is_error=True)
        yield Answered("grüße", usage=Usage(1))

    async def test() -> None:
        async with served(home, FakeAgent(answer)) as pool:
            events = [event async for event in pool.remote.stream("x")]
            assert events[:3] == [
                Token("grü"),
                ToolUse("t1", "Bash", {"command": "ls"}),
                ToolResult("t1", [{"type": "text", "text": "x"}], is_error=True, name="Bash"),
            ]
            assert isinstance(events[3], Done)
            assert events[3].result.usage == Usage(1)
            raw = [event async for event in pool.remote.stream("x", raw=True)]
            assert Raw({"type": "system"}) in raw

    within(test())


def test_complete_learns_the_usage_that_comes_after_the_answer(home: Path) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Answered("x")

    async def test() -> None:
        agent = FakeAgent(answer)
        agent.late_usage = Usage(7, 8)
        async with served(home, agent) as pool:
            result = await pool.remote.run("x")
            assert (await pool.remote.complete(result)).usage == Usage(7, 8)
            assert (await pool.remote.complete(result)).usage == Usage(7, 8)

    within(test())


def test_run_many_at_once_each_gets_its_own_answer_and_no_more_sessions_than_the_pool_has(
    home: Path,
) -> None:
    async def test() -> None:
        async with served(home, pool_size=3) as pool:
            results = await asyncio.gather(*(pool.remote.run(f"number {n}") for n in range(40)))
            assert [one.text.partition(": ")[2] for one in results] == [f"number {n}" for n in range(40)]
            assert pool.agent.peak <= 3

    within(test())


def test_run_the_longest_prompt_comes_through(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            prompt = "\x01ä\n" * (10 * 2**20 // 4)
            result = await pool.remote.run(prompt)
            assert result.text == f"REPLY#1 to: {prompt}"

    within(test())


def test_run_a_pool_that_is_as_required_serves(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pool.talk() as talk:
                await talk.run(requires={"backend": "terminal"})
                assert (await talk.hear())["type"] == "done"

    within(test())


# ── errors ──


@pytest.mark.parametrize(
    "error", [AgentError("API Error: 400"), SessionCrashed("gone", detail="exit:1 -- stderr: boom")]
)
def test_run_what_the_agent_fails_with_is_raised_at_the_caller(home: Path, error: Exception) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("x")
        raise error

    async def test() -> None:
        async with served(home, FakeAgent(answer)) as pool:
            with pytest.raises(type(error)) as caught:
                await pool.remote.run("x")
            if isinstance(error, SessionCrashed):
                assert isinstance(caught.value, SessionCrashed)
                assert caught.value.detail == error.detail
            stream = pool.remote.stream("x")
            assert isinstance(await anext(stream), Token)
            assert isinstance(await anext(stream), Failed)
            with pytest.raises(type(error)):
                await anext(stream)

    within(test())


@pytest.mark.parametrize(
    "options",
    [{"model": 5}, {"max_turns": 3}, {"extra_args": ["--resume", "x"]}, {"cwd": "/no/such"}, {"timeout": -1}],
)
def test_run_options_that_cannot_be_honoured_are_refused_before_anything_runs(
    home: Path, options: dict[str, object]
) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pytest.raises(InvalidOptions):
                await pool.remote.run("x", **options)  # type: ignore[arg-type]
            assert not pool.agent.sessions

    within(test())


def test_timeout_that_is_no_number_is_refused(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pytest.raises(InvalidOptions):
                await pool.remote.run("x", timeout="long")  # type: ignore[arg-type]

    within(test())


# ── what else can be asked ──


def test_stats_and_metrics_report_the_pool(home: Path) -> None:
    async def test() -> None:
        async with served(home, pool_size=2) as pool:
            await pool.remote.run("x")
            stats = await pool.remote.stats()
            assert stats["pool_size"] == 2
            assert stats["pid"] == os.getpid()
            assert stats["served"] == 1
            assert len(stats["pool"]["sessions"]) == 1
            assert "remuda_pool_requests_total" in await pool.remote.metrics()

    within(test())


def test_prewarm_makes_sessions_that_serve_the_same_caller(home: Path) -> None:
    async def test() -> None:
        async with served(home, pool_size=2) as pool:
            await pool.remote.prewarm(2, model="opus")
            assert len(pool.agent.alive) == 2
            assert (await pool.remote.run("x", model="opus")).warm
            with pytest.raises(InvalidOptions):
                await pool.remote.prewarm(9)

    within(test())


def test_prewarm_for_callers_that_decide_on_permissions_serves_them(home: Path) -> None:
    async def decide(request: PermissionRequest) -> Allow:
        return Allow()

    async def test() -> None:
        async with served(home, pool_size=2) as pool:
            await pool.remote.prewarm(1, permissions=decide)
            assert (await pool.remote.run("x", permissions="allow")).warm
            assert not (await pool.remote.run("x")).warm

    within(test())


def test_blocking_question_is_answered(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            answer = await asyncio.to_thread(request, str(pool.path), {"type": "status"})
            assert answer["status"]["state"] == "serving"

    within(test())
