"""opencode in a pool: one server and its terminal for many requests, each in a conversation of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remuda import Client
from remuda.pool.types import Allow, Decision, PermissionRequest
from support import counts
from support import pool_conformance as conformance
from support.opencode import PATIENCE, Opencode, bash
from support.pool_conformance import Check, checks_of
from support.pool_profiles import check_profiles
from support.pool_secrets import SecretRequest, check_bodies, check_secrets
from support.real_pools import TerminalBench

pytestmark = pytest.mark.real
_PATIENT: dict[str, Any] = {"spawn_timeout": PATIENCE, "acquire_timeout": 10 * PATIENCE}


class OpencodeBench(TerminalBench):
    tools = raw = False
    agent = "opencode"


# It says `REPLY#1` by Claude Code's own header; the tests of secrets below show the same for opencode.
_BY_HEADER = "a_renewed_session_has_a_fresh_conversation"


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", [one for one in checks_of(OpencodeBench) if one.id != _BY_HEADER])
def test_terminal(check: Check, opencode: Opencode, home: Path) -> None:
    conformance.run(check, OpencodeBench(opencode, home))


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
