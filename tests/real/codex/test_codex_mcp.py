"""Our MCP server in codex's own configuration, by `remuda setup mcp --agent codex`."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support.mcp_setup import TOOLS, offered, server_in, use

pytestmark = pytest.mark.real


def test_codex_lists_and_starts_our_server(codex: RealCodex, home: Path, model: LoopbackModel) -> None:
    env = {**codex.env, "REMUDA_HOME": str(home)}

    def run(*words: str) -> str:
        return use(codex.argv(*words), codex.project, env)[0]

    with server_in(home, "codex", env, codex.home / ".codex" / "config.toml"):
        assert "remuda" in run("mcp", "list")
        # Without `required` codex does not wait for a server before its first request.
        run("exec", "-c", "mcp_servers.remuda.required=true", "--json", "hello")
        assert offered(model) == set(TOOLS)
    assert "remuda" not in run("mcp", "list")
