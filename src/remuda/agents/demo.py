"""The scripted agent: behaves as Claude Code does, needs no account and no network."""

from __future__ import annotations

import sys

from .claude.agent import ClaudeAgent


class DemoAgent(ClaudeAgent):
    name = "demo"
    default_argv: tuple[str, ...] = (sys.executable, "-P", "-m", "remuda.testing.scripted_agent")

    def setup(self) -> None:
        """Return None: it reads Claude Code's settings, which `ClaudeAgent` sets up."""
