"""codex in a pool and in `print`: one server for many requests, each alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda import Client
from remuda.agents.codex.workers import AppServerWorker, ExecWorker
from remuda.errors import BudgetExceeded, InvalidOptions, SessionDirty
from remuda.pool.types import Allow, Deny
from remuda.pool.worker import Profile
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support import counts
from support import pool_conformance as conformance
from support.codex import escalated
from support.commands import Commands, until_line
from support.pool_conformance import (
    PATIENCE,
    Check,
    always_says,
    answer_of,
    checks_of,
    events_of,
    opened,
    run_steps,
)
from support.pool_profiles import check_profiles
from support.pool_secrets import check_secrets
from support.real_pools import StreamBench

pytestmark = pytest.mark.real


class CodexBench(StreamBench):
    tools = raw = False
    agent = "codex"

    def make_worker(self, name: str, profile: Profile) -> Any:
        return AppServerWorker(name, profile)


class ExecBench(CodexBench):
    warm = False

    def make_worker(self, name: str, profile: Profile) -> Any:
        return ExecWorker(name, profile)


@pytest.mark.parametrize("check", checks_of(CodexBench))
def test_app_server(check: Check, codex: RealCodex) -> None:
    conformance.run(check, CodexBench(codex))


@pytest.mark.soak(only=True)  # five seconds for each call
@pytest.mark.parametrize("check", checks_of(ExecBench))
def test_exec(check: Check, codex: RealCodex) -> None:
    conformance.run(check, ExecBench(codex))


def test_a_permission_is_decided_by_the_caller(codex: RealCodex, model: LoopbackModel) -> None:
    made = codex.folder / "made"

    async def steps() -> None:
        async with opened(CodexBench(codex), asks=True) as session:
            await answer_of(session, escalated(f"touch {made}"), always_says(Allow()))
            assert made.exists()
            await session.renew(PATIENCE)
            denied = await answer_of(session, escalated(f"rm {made}"), always_says(Deny("use the other way")))
            assert made.exists()
            assert any("use the other way" in text for _, text in model.main_requests[-1].texts)
            assert denied.permission_denials[0]["tool_name"] == "Bash"
            await session.renew(PATIENCE)
            with pytest.raises(InvalidOptions, match="codex cannot run an edited input"):
                await events_of(session, escalated("id"), always_says(Allow({"command": "ls"})))
            assert await session.interrupt(PATIENCE)
            await session.renew(PATIENCE)
            await answer_of(session, escalated("true"), always_says(Allow(always=True)))
            with pytest.raises(SessionDirty, match="a permission for the rest"):
                await session.renew(PATIENCE)

    run_steps(steps)


def test_turn_over_its_tokens_is_stopped_before_its_next_answer(
    codex: RealCodex, model: LoopbackModel
) -> None:
    gate = model.hold(lambda request: not isinstance(request.said, str))  # what follows on the tool

    async def steps() -> None:
        given: dict[str, Any] = {"agent": "codex", "claude_binary": codex.binary, "cwd": codex.project}
        async with Client(**given, env=codex.env, inherit_env=False, permissions="allow") as client:
            with pytest.raises(BudgetExceeded, match="output tokens used, and max_output_tokens is 1"):
                await client.run(escalated("true"), max_output_tokens=1)
            assert "hello" in (await client.run("hello", max_output_tokens=1000)).text

    run_steps(steps)
    gate.open()


@pytest.mark.shows("a request of a pool carries nothing of another")
def test_nothing_of_a_request_is_in_the_next_and_no_setting_stays(
    codex: RealCodex, model: LoopbackModel
) -> None:
    """A model that is named for one turn stays in its thread: requests of two models share no server."""
    other = codex.folder / "other"
    other.mkdir()
    servers: list[str | None] = []

    async def steps() -> None:
        settings: dict[str, Any] = {"agent": "codex", "env": codex.env, "inherit_env": False}
        async with Client(**settings, cwd=str(codex.project)) as client:
            options: list[dict[str, Any]] = [
                {},
                {"model": "another-model"},
                {"append_system_prompt": "SECRET-in-system"},
                {"cwd": str(other)},
            ]
            for n, more in enumerate(options):
                result = await client.run(f"SECRET-{n}", **more)
                assert result.text == f"REPLY#1 to: SECRET-{n}"
                servers.append(result.session_id)
            tool = await client.run("RUNBASH echo SECRET-of-a-tool")
            last = await client.run("last")
            assert last.usage is not None
            assert last.session_id == tool.session_id
            servers.append(last.session_id)

    run_steps(steps)
    assert servers[1] not in (servers[0], *servers[2:])
    last = model.main_requests[-1]
    assert b"SECRET" not in last.raw
    assert (last.model, model.main_requests[1].model) == ("loopback-model", "another-model")
    assert b"SECRET-in-system" in model.main_requests[2].raw
    assert str(other) in model.main_requests[3].raw.decode()
    assert str(other) not in last.raw.decode()
    assert not codex.rollouts()  # nothing of a pool is left on the disk


@pytest.mark.shows("a request of a pool runs with its own folder, model, environment and tools")
def test_requests_of_several_profiles_each_run_with_their_own(codex: RealCodex, model: LoopbackModel) -> None:
    """It has no list of tools: a caller that is asked allows them."""
    check_profiles("codex", codex, model, "other-model", {"permissions": always_says(Allow())})


@pytest.mark.soak
@pytest.mark.timeout(120 + 3 * counts.CODEX_REQUESTS)
@pytest.mark.shows("a request of a pool carries nothing of another")
def test_many_requests_with_secrets_none_in_a_later_one(codex: RealCodex, model: LoopbackModel) -> None:
    check_secrets("codex", codex, model, counts.CODEX_REQUESTS, {"permissions": always_says(Allow())})


# ── print ──


@pytest.mark.parametrize("prompt", ["RUNBASH echo hi\x07", "err 400"])
def test_print_answers_with_usage_or_says_why_not(codex: RealCodex, remuda: Commands, prompt: str) -> None:
    failed = prompt == "err 400"
    words = ("print", "--agent", "codex", "--output-format", "json", prompt)
    done = remuda(*words, env=codex.env, cwd=codex.project, code=1 if failed else 0)
    document = json.loads(done.out)
    assert document["is_error"] is failed
    assert failed or document["usage"]["input_tokens"]


def test_ask_uses_a_served_pool(codex: RealCodex, remuda: Commands, model: LoopbackModel) -> None:
    serving = remuda.begin("pool", "serve", "--agent", "codex", "--prewarm", "0", "--size", "1")
    until_line(serving, b"serving")
    env = {**codex.env, "REMUDA_HOME": remuda.env["REMUDA_HOME"]}
    words = ("ask", "--agent", "codex", "--pool")
    for n in range(2):
        done = remuda(*words, f"question {n}", env=env, cwd=codex.project)
        assert done.out == f"REPLY#1 to: question {n}\n"
    document = json.loads(remuda(*words, "--output-format", "json", "third", env=env, cwd=codex.project).out)
    assert (document["result"], document["is_error"]) == ("REPLY#1 to: third", False)
