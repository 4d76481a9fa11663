"""An agent in a tmux pane that nobody keeps, with the boss's hooks in its user's settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bossing import RunningBoss
from commands import Commands
from keeping import until
from tmux_bench import TmuxBench


def install_hooks(commands: Commands, settings: Path) -> None:
    settings.parent.mkdir(parents=True, exist_ok=True)
    commands("hooks", "install", "--boss", "--yes", "--settings", str(settings))


class AgentPane:
    """The agent in a shell of its pane, as a user starts it."""

    def __init__(
        self, tmux: TmuxBench, boss: RunningBoss, argv: Sequence[str], env: Mapping[str, str], cwd: Path
    ) -> None:
        self._tmux = tmux
        self._boss = boss
        more = {"TERM": "xterm-256color", "REMUDA_TEST_RUN": os.environ["REMUDA_TEST_RUN"]}
        words = ["env", "-i", *(f"{name}={value}" for name, value in {**env, **more}.items())]
        passed = ' TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" '
        command = f"{shlex.join(words)}{passed}{shlex.join(argv)}"
        tmux.run("new-session", "-d", "-s", "w", "-x", "120", "-y", "40", "-c", str(cwd), "/bin/sh")
        tmux.start()
        self.id = tmux.run("display-message", "-p", "-t", "w", "#{pane_id}")
        tmux.run("set-buffer", f"{command}\n")
        tmux.run("paste-buffer", "-d", "-t", self.id)

    def shown(self) -> str:
        return self._tmux.run("capture-pane", "-p", "-t", self.id)

    def until_shows(self, text: str) -> None:
        until(lambda: text in self.shown(), f"{text!r} on the screen")

    def press(self, *keys: str) -> None:
        self._tmux.run("send-keys", "-t", self.id, *keys)

    def session(self, *states: str) -> dict[str, Any]:
        """As the boss knows it, once it is in one of these states."""

        def look() -> dict[str, Any]:
            found = [one for one in self._boss.client.get("sessions")["sessions"] if one["pane"] == self.id]
            return found[0] if found and found[0]["pid"] and found[0]["state"] in states else {}

        return until(look, f"a session in {self.id} that is {' or '.join(states)}")
