"""What print and pools promise on every version of Claude Code that docs/reference/versions.md lists."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from remuda import Client
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import PINNED, VERSION, RealCli
from support.commands import Commands
from support.counts import SOAK
from support.print_calls import Calls

pytestmark = [pytest.mark.real, pytest.mark.versions]
CALLS = 2 if VERSION == PINNED and not SOAK else 5
"""On some older versions half of all answers are written before their prompts."""


@pytest.fixture
def calls(cli: RealCli, remuda: Commands) -> Calls:
    return Calls(remuda, cli.binary, cli.env, cli.project)


def tokens(usage: Mapping[str, Any]) -> tuple[int, int]:
    return usage["input_tokens"], usage["output_tokens"]


def test_print_has_answer_usage_and_stop_reason_every_time(calls: Calls) -> None:
    for number in range(CALLS):
        result = calls.json(f"hello {number}")
        assert result["result"].endswith(f"to: hello {number}")
        assert (tokens(result["usage"]), result["stop_reason"]) == ((12, 7), "end_turn")
        assert [one["outputTokens"] for one in result["modelUsage"].values()] == [7]
        assert "degraded" not in result


def test_print_api_error_and_turn_limit_end_with_1_and_the_reason(calls: Calls) -> None:
    failed = calls.json("err 400", code=1)
    assert (failed["is_error"], failed["terminal_reason"]) == (True, "api_error")
    assert "400" in failed["result"]
    limited = calls.json("RUNBASH echo one", "--allowedTools", "Bash(echo:*)", "--max-turns", "1", code=1)
    assert limited["subtype"] == "error_max_turns"


def test_print_runs_allowed_tools_and_denies_others(calls: Calls, cli: RealCli) -> None:
    made = calls.json("RUNBASH touch made", "--allowedTools", "Bash(touch:*)")
    assert (made["num_turns"], tokens(made["usage"])) == (2, (24, 14))
    assert (cli.project / "made").exists()
    denied = calls.json("RUNBASH touch not-made")
    assert [one["tool_name"] for one in denied["permission_denials"]] == ["Bash"]
    assert not (cli.project / "not-made").exists()


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_pool_answers_again_and_again_with_usage_and_forgets(
    cli: RealCli, model: LoopbackModel, remuda: Commands, monkeypatch: pytest.MonkeyPatch, backend: Any
) -> None:
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)

    async def main() -> None:
        options: dict[str, Any] = {"claude_binary": str(cli.binary), "cwd": str(cli.project)}
        options["allowed_tools"] = ["Bash(touch:*)"]
        async with Client(backend=backend, **options) as client:
            for number in range(3):
                result = await client.run(f"hello {number}")
                assert result.text.endswith(f"to: hello {number}")
                await client.complete(result)
                assert result.usage is not None
                assert result.usage.output_tokens == 7
            await client.run("RUNBASH touch made")

    asyncio.run(main())
    assert not any("hello 0" in text for _, text in model.main_requests[-1].texts)
    assert (cli.project / "made").exists()
