"""The hooks by which the boss knows a codex that its user started: each of them comes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from remuda.agents.codex.setup import EVENTS
from remuda.testing.real_cli.codex import RealCodex
from support.codex import escalated
from support.commands import Commands
from support.keeper import until

pytestmark = pytest.mark.real
_FLAGS = ("--no-daemon", "--dangerously-bypass-hook-trust")


def test_every_hook_of_the_boss_comes(codex: RealCodex, home: Path) -> None:
    """No boss runs, so that they are left in its folder."""
    remuda = Commands(home)
    remuda("setup", "boss", "--agent", "codex", "--yes", env={**codex.env, "CODEX_HOME": ""})
    remuda.close()

    def came() -> set[str]:
        bodies = [json.loads(path.read_text()) for path in home.glob("boss/spool/[0-9]*.json")]
        return {body["payload"]["hook_event_name"] for body in bodies}

    with codex.open_terminal(*_FLAGS, escalated(codex.plan.allowed_command)) as terminal:
        until(lambda: "Stop" in came(), "the end of its turn")
        terminal.wait_for(b"Worked")  # before, it would be taken for an interrupt
        terminal.write(b"\x03")
        until(lambda: "SessionEnd" in came(), "its end")
    with codex.open_terminal(*_FLAGS, escalated("touch made")) as terminal:
        terminal.wait_for(b"Would")
        until(lambda: "PermissionRequest" in came(), "its request")
        pressed = 0.0

        def is_interrupted() -> bool:
            nonlocal pressed
            if "Interrupt" not in came() and time.monotonic() > pressed + 1.0:
                terminal.write(b"\x1b")  # it drops keys that come while it draws the dialog
                pressed = time.monotonic()
            return "Interrupt" in came()

        until(is_interrupted, "its interrupt")
    assert came() == {*EVENTS}
