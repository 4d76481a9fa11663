"""Our MCP server in copilot's own configuration, by `remuda setup mcp --agent copilot`."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support.mcp_setup import TOOLS, offered, server_in, use

pytestmark = pytest.mark.real
_TRIES = 10


def test_copilot_lists_and_starts_our_server(copilot: RealCopilot, home: Path, model: LoopbackModel) -> None:
    env = {**copilot.env, "REMUDA_HOME": str(home)}

    def run(*words: str) -> str:
        return use(copilot.argv(*words), copilot.project, env)[0]

    with server_in(home, "copilot", env, copilot.home / ".copilot" / "mcp-config.json"):
        assert "remuda" in run("mcp", "list")

        def has_tools() -> bool:
            """copilot does not wait long for a server before its first request."""
            run("-p", "hello", "--output-format", "json")
            return offered(model) == set(TOOLS)

        assert any(has_tools() for _ in range(_TRIES)), offered(model)
    assert "remuda" not in run("mcp", "list")
