"""A kept session of a real CLI, and how long messages to it take."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.scene import Scene

from remuda.agents import find_agent
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import follow
from remuda.keeper.environment import session_environment
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import start_session
from remuda.paths import SessionPaths
from remuda.testing.real_cli import RealCli

_PATIENCE = 150.0
"""Seconds for a message. The first one waits for the start, which took opencode 45 s at load 20."""


class KeptAgent:
    def __init__(self, scene: Scene, cli: RealCli, agent: str = "claude", *, kill_grace: float = 1.0) -> None:
        name = scene.name("a")
        spec = SessionSpec(
            name=name,
            folder=str(scene.sessions),
            argv=cli.argv(),
            cwd=str(cli.project),
            env=session_environment({**cli.env, "REMUDA_HOME": str(scene.folder)}, name, "REMUDA_ID", {}),
            agent=agent,
            classifier=find_agent(agent).classifier,
            cols=100,
            rows=30,
            kill_grace=kill_grace,
        )
        self.paths = SessionPaths(Path(spec.folder), name)
        cli.sockets.add(self.paths.scratch / "s")
        self.keeper_pid = start_session(spec).keeper_pid
        self._inbox = Inbox(self.paths.inbox)

    def send(self, prompt: str) -> float:
        """Seconds until the agent says that it took it. Returns when the turn has ended."""
        began = time.time()
        *_, last = follow(self._inbox.folder, self._inbox.put(prompt).id, _PATIENCE)
        return next(float(step["at"]) for step in last.steps if step["stage"] == "submitted") - began
