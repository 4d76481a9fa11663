"""Our MCP server in opencode's own configuration, by `remuda setup mcp --agent opencode`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from support.mcp_setup import TOOLS, offered, server_in, use
from support.opencode import PATIENCE, Opencode

pytestmark = pytest.mark.real


def test_opencode_lists_and_starts_our_server(opencode: Opencode, home: Path, model: LoopbackModel) -> None:
    env = {**opencode.env, "REMUDA_HOME": str(home)}

    def run(*words: str) -> str:
        return "".join(use([str(opencode.binary), *words], opencode.project, env, PATIENCE))

    config = opencode.home / ".config" / "opencode" / "opencode.json"
    # opencode adds it where it is missing.
    own = {"$schema": "https://opencode.ai/config.json", **json.loads(config.read_text())}
    config.write_text(json.dumps(own))
    with server_in(home, "opencode", env, config):
        listed = run("mcp", "list")
        assert "remuda" in listed
        assert "connected" in listed
        run("run", "--format", "json", "hello")
        assert offered(model) == set(TOOLS)
    assert "remuda" not in run("mcp", "list")
