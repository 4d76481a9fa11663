"""Copilot as a worker of a pool, over ACP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from remuda.agents.acp import protocol
from remuda.agents.copilot.warm import CopilotWorker, make_print_worker, make_worker
from remuda.errors import Aborted, AgentError, InvalidOptions, SessionDirty
from remuda.pool.types import Allow, Deny
from remuda.pool.worker import Profile
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support import counts
from support import pool_conformance as conformance
from support.copilot import shell
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
from support.pool_secrets import SecretRequest, check_bodies, check_secrets
from support.real_pools import StreamBench

pytestmark = pytest.mark.real


class AcpBench(StreamBench):
    tools = raw = False
    agent = "copilot"

    def make_worker(self, name: str, profile: Profile) -> Any:
        return make_worker(name, profile)


class AcpPrintBench(AcpBench):
    warm = False

    def make_worker(self, name: str, profile: Profile) -> Any:
        return make_print_worker(name, profile)


# It says `REPLY#1` by Claude Code's own header; the test of secrets below shows the same for copilot.
_BY_HEADER = "a_renewed_session_has_a_fresh_conversation"
_CHECKS = [one for one in checks_of(AcpBench) if one.id != _BY_HEADER]
_PRINT_CHECKS = [one for one in checks_of(AcpPrintBench) if one.id != _BY_HEADER]


@pytest.mark.soak
@pytest.mark.parametrize("check", _CHECKS)
def test_worker(check: Check, copilot: RealCopilot) -> None:
    conformance.run(check, AcpBench(copilot))


@pytest.mark.soak(only=True)  # each call starts a copilot
@pytest.mark.parametrize("check", _PRINT_CHECKS)
def test_print_worker(check: Check, copilot: RealCopilot) -> None:
    conformance.run(check, AcpPrintBench(copilot))


@pytest.mark.soak
@pytest.mark.timeout(120 + 3 * counts.ACP_REQUESTS)
@pytest.mark.shows("a request of a pool carries nothing of another")
def test_one_worker_secrets_permissions_and_errors_nothing_is_in_a_later_request(
    copilot: RealCopilot, model: LoopbackModel
) -> None:
    """Prompts that its terminal would run are text, and errors that look like answers are not."""
    asked = [SecretRequest.make(number, copilot.project) for number in range(counts.ACP_REQUESTS)]
    copilot.env |= asked[0].env
    bench = AcpBench(copilot)

    async def steps() -> None:
        async with opened(bench, asks=True) as session:

            async def renewed(prompt: str, decision: Any = None) -> str:
                try:
                    return (await answer_of(session, prompt, always_says(decision))).text
                finally:
                    await session.renew(PATIENCE)

            assert "touch allowed" not in await renewed(shell("touch allowed"), Allow())
            with pytest.raises(Aborted, match="denied permission"):
                await renewed(shell("touch denied"), Deny("no"))
            for wrong in (Allow(input={"command": "touch other"}), Allow(always=True)):
                with pytest.raises(InvalidOptions):
                    await events_of(session, shell("touch refused"), always_says(wrong))
                await session.interrupt(PATIENCE)
                await session.renew(PATIENCE)
            for text in ("!touch bang", "/clear", "z" * 40_000):
                assert text[:20] in await renewed(text)
            with pytest.raises(AgentError, match="400 boom"):
                await renewed("err 400 boom")
            for one in asked:
                await renewed(one.prompt(copilot), Allow())
            await events_of(session, shell("sleep 300 & echo begun"), always_says(Allow()))
            with pytest.raises(SessionDirty):
                await session.renew(PATIENCE)

    run_steps(steps)
    made = {path.name for path in copilot.project.iterdir()}
    assert made == {"allowed", *(f"of-{one.number}" for one in asked)}
    check_bodies(model.requests, asked)


@pytest.mark.soak(only=True)
@pytest.mark.timeout(120 + 3 * counts.ACP_REQUESTS)
@pytest.mark.shows("a request of a pool carries nothing of another")
def test_many_requests_with_secrets_none_in_a_later_one(copilot: RealCopilot, model: LoopbackModel) -> None:
    allows = {"allowed_tools": ["shell"]}
    check_secrets("copilot", copilot, model, counts.ACP_REQUESTS, allows, backend="stream")


@pytest.mark.soak(only=True)
@pytest.mark.shows("a request of a pool runs with its own folder, model, environment and tools")
def test_requests_of_several_profiles_each_run_with_their_own(
    copilot: RealCopilot, model: LoopbackModel
) -> None:
    check_profiles("copilot", copilot, model, "other-model", {"allowed_tools": ["shell"]}, backend="stream")


def test_unattended_worker_denied_tool_is_told_and_a_second_prompt_waits_for_the_first(
    copilot: RealCopilot, model: LoopbackModel
) -> None:
    async def prompts_at_once(worker: CopilotWorker) -> None:
        """Why a worker takes one prompt at a time: a second one cancels the first."""

        def asked(text: str) -> asyncio.Task[Mapping[str, Any]]:
            call = worker.client.call("session/prompt", protocol.prompt(worker.conversation_id, text))
            return asyncio.ensure_future(call)

        first = asked("SLOW 60 first")
        await asyncio.to_thread(model.wait_for, "SLOW 60 first", PATIENCE)
        second = asked("second")
        assert (await first)["stopReason"] == "cancelled"
        assert (await second)["stopReason"] == "end_turn"

    async def steps() -> None:
        async with opened(AcpBench(copilot)) as session:
            answered = await answer_of(session, shell("touch denied"))
            assert "tool_result" in answered.text
            assert [one["tool_name"] for one in answered.permission_denials] == ["execute"]
            assert answered.usage is not None
            assert (answered.usage.input_tokens, answered.usage.output_tokens) == (24, 14)
            with pytest.raises(SessionDirty, match="the conversation was not cleared"):
                await answer_of(session, "second")
            await prompts_at_once(cast(CopilotWorker, session))

    run_steps(steps)
    assert not (copilot.project / "denied").exists()
