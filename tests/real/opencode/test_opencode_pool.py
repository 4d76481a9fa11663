"""opencode in a pool: one server and its terminal for many requests, each in a conversation of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path
from typing import Any

import pytest

from remuda import Client
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.types import Allow, Decision, PermissionRequest
from remuda.pool.worker import Worker
from support import counts
from support import pool_conformance as conformance
from support.opencode import PATIENCE, Opencode, bash
from support.pool_conformance import Check, checks_of, profile_of
from support.pool_profiles import check_profiles
from support.pool_secrets import SecretRequest, check_bodies, check_secrets
from support.pool_terminals import looking

pytestmark = pytest.mark.real
_PATIENT: dict[str, Any] = {"spawn_timeout": PATIENCE, "acquire_timeout": 10 * PATIENCE}


class TerminalBench:
    warm = True
    tools = raw = False

    def __init__(self, cli: Opencode, home: Path) -> None:
        self._cli = cli
        self.folder = cli.project
        self.sessions = home / "sessions"

    def make(self, **profile: Any) -> Worker:
        made = profile_of(self._cli.binary, self.folder, self._cli.env, agent="opencode", **profile)
        return TerminalWorker(f"s_{secrets.token_hex(6)}", made, self.sessions)

    async def at_work(self, session: Worker) -> None:
        assert isinstance(session, TerminalWorker)
        async with looking(session, self.sessions) as look:
            await look.state("streaming")

    def kill(self, session: Worker) -> None:
        assert isinstance(session, TerminalWorker)
        os.kill(session.agent_pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        return list(self._cli.running())


# It says `REPLY#1` by Claude Code's own header; the tests of secrets below show the same for opencode.
_BY_HEADER = "a_renewed_session_has_a_fresh_conversation"


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", [one for one in checks_of(TerminalBench) if one.id != _BY_HEADER])
def test_terminal(check: Check, opencode: Opencode, home: Path) -> None:
    conformance.run(check, TerminalBench(opencode, home))


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
@pytest.mark.shows("a request of a pool runs with its own folder, model, environment and tools")
def test_requests_of_several_profiles_each_run_with_their_own(opencode: Opencode, home: Path) -> None:
    model = "anthropic/claude-opus-4-5"
    check_profiles("opencode", opencode, opencode.model, model, {"allowed_tools": ["bash"]}, **_PATIENT)


def test_pool_serves_requests_in_conversations_of_their_own(opencode: Opencode, home: Path) -> None:
    asked: list[PermissionRequest] = []
    secret = [SecretRequest.make(number, opencode.project) for number in range(2)]
    opencode.env |= secret[0].env

    async def decide(request: PermissionRequest) -> Decision:
        asked.append(request)
        return Allow()

    async def work() -> list[tuple[str, str | None, str | None]]:
        async with Client(
            agent="opencode", env=opencode.env, pool_size=1, permissions=decide, spawn_timeout=PATIENCE
        ) as client:
            prompts = ["what is it?", *(one.prompt(opencode) for one in secret), bash("echo pooled")]
            replies = [await client.run(prompt, cwd=str(opencode.project)) for prompt in prompts]
            return [(reply.text, reply.conversation_id, reply.session_id) for reply in replies]

    replies = asyncio.run(work())
    assert len({conversation for _, conversation, _ in replies}) == 4
    assert len({worker for _, _, worker in replies}) == 1
    assert replies[0][0].endswith("to: what is it?")
    check_bodies(opencode.model.requests, secret)
    assert (asked[-1].tool, asked[-1].input["command"]) == ("bash", "echo pooled")


@pytest.mark.soak(only=True)
@pytest.mark.timeout(1200)
@pytest.mark.shows("a request of a pool carries nothing of another")
def test_no_secret_of_a_request_is_in_a_later_one(opencode: Opencode, home: Path) -> None:
    allows = {"allowed_tools": ["bash"]}
    check_secrets("opencode", opencode, opencode.model, counts.OPENCODE_REQUESTS, allows, **_PATIENT)
