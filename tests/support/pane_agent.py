"""An agent in a tmux pane that no one keeps, with the boss's hooks in its user's settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import until
from support.tmux_attention import TmuxBench


def install_hooks(commands: Commands, settings: Path) -> None:
    settings.parent.mkdir(parents=True, exist_ok=True)
    commands("hooks", "install", "--boss", "--yes", "--settings", str(settings))


class AgentPane:
    """The agent in a shell of its pane, as a user starts it: in a server of its own, or in that `pane`."""

    def __init__(
        self,
        tmux: TmuxBench,
        boss: RunningBoss,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        pane: str = "",
    ) -> None:
        self._tmux = tmux
        self._boss = boss
        more = {"TERM": "xterm-256color", "REMUDA_TEST_RUN": os.environ["REMUDA_TEST_RUN"]}
        words = ["env", "-i", *(f"{name}={value}" for name, value in {**env, **more}.items())]
        passed = ' TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" '
        command = f"{shlex.join(words)}{passed}{shlex.join(argv)}"
        if not pane:
            tmux.run("new-session", "-d", "-s", "w", "-x", "120", "-y", "40", "-c", str(cwd), "/bin/sh")
            tmux.start()
        self.id = pane or tmux.run("display-message", "-p", "-t", "w", "#{pane_id}")
        self._paste(f"{command}\n")

    def _paste(self, text: str, *how: str) -> None:
        self._tmux.run("set-buffer", text)
        self._tmux.run("paste-buffer", "-d", *how, "-t", self.id)

    def prompt(self, text: str) -> None:
        """As its user gives it one: pasted, and entered when it stands in the composer."""
        self._paste(text, "-p")
        self.until_shows(text[:20])
        self.press("Enter")

    def shown(self) -> str:
        return self._tmux.run("capture-pane", "-p", "-t", self.id)

    def until_shows(self, text: str) -> None:
        until(lambda: text in self.shown(), f"{text!r} on the screen")

    def press(self, *keys: str) -> None:
        self._tmux.run("send-keys", "-t", self.id, *keys)

    def agrees(self) -> bool:
        """Agree to what the dialog asks, while it is there: it drops what comes in its first moments."""
        if "Do you want to proceed?" in self.shown():
            self.press("Enter")
        return "Do you want to proceed?" not in self.shown()

    def session(self, *states: str) -> dict[str, Any]:
        """As the boss knows it, once it is in one of these states."""

        def look() -> dict[str, Any]:
            found = [one for one in self._boss.client.get("sessions")["sessions"] if one["pane"] == self.id]
            return found[0] if found and found[0]["pid"] and found[0]["state"] in states else {}

        return until(look, f"a session in {self.id} that is {' or '.join(states)}")
