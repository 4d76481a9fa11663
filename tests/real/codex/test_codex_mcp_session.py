"""An agent in a kept codex asks through MCP: it is known as its session, though codex's server runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.mcp.ledger import read_ledger
from remuda.testing.real_cli.codex import RealCodex
from support.codex import keep
from support.commands import Commands
from support.keeper import Start, until
from support.real_sessions import tool

pytestmark = pytest.mark.real


def test_agent_in_a_kept_codex_is_known_as_its_session(codex: RealCodex, home: Path, start: Start) -> None:
    env, remuda = {**codex.env, "REMUDA_HOME": str(home)}, Commands(home)
    remuda("setup", "mcp", "--agent", "codex", "--yes", env={**env, "CODEX_HOME": ""})
    post = keep(start, codex, env=env)

    def callers() -> set[str]:
        post.send(tool("list_mcp_resources", server="remuda"))
        return {one["who"].rpartition(":")[0] for one in read_ledger(100)}

    assert until(callers, "a call of our server") == {"session:c"}
    # codex's terminal has changed its configuration by now: what it wrote stays.
    config = codex.home / ".codex" / "config.toml"
    remuda("setup", "mcp", "--agent", "codex", "--remove", "--yes", env={**env, "CODEX_HOME": ""})
    assert "mcp_servers" not in config.read_text()
    assert 'model_provider = "loopback"' in config.read_text()
