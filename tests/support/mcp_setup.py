"""`remuda setup mcp` for an agent under test: what it adds, and that the agent starts our server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from remuda.testing.loopback_model import LoopbackModel
from support.commands import Commands

TOOLS = ("whoami", "list_agents", "answer_permission")


@contextmanager
def server_in(home: Path, agent: str, env: Mapping[str, str], config: Path) -> Iterator[None]:
    """Our server in the agent's configuration. Afterwards the file is as it was, to the byte."""
    before = config.read_bytes() if config.exists() else None
    commands = Commands(home)
    own = {**env, "XDG_CONFIG_HOME": "", "CODEX_HOME": "", "COPILOT_HOME": ""}
    commands("setup", "mcp", "--agent", agent, "--yes", env=own)
    assert config.read_bytes() != before
    try:
        yield
        commands("setup", "mcp", "--agent", agent, "--remove", "--yes", env=own)
        assert (config.read_bytes() if config.exists() else None) == before
    finally:
        commands.close()


def use(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float = 90) -> tuple[str, str]:
    """Run the agent once, without a terminal. Returns its output and its errors."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=True,
    )
    return done.stdout, done.stderr


def offered(model: LoopbackModel) -> set[str]:
    """Which of our tools some request has offered to the model."""
    said = [json.dumps(request.body) for request in model.requests]
    return {name for name in TOOLS if any("remuda" in text and name in text for text in said)}
