"""A copilot that its user started, in the queue by the hooks of `remuda setup boss`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.boss import RunningBoss
from support.commands import Commands
from support.copilot import CopilotCli, shell
from support.keeper import until

pytestmark = pytest.mark.real
_SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")


@pytest.fixture
def boss(home: Path, copilot: CopilotCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("COPILOT_HOME", str(copilot.home / ".copilot"))
    one = RunningBoss(home, _SOURCES)
    yield one
    one.close()


@pytest.mark.shows("an agent that you started yourself is in the queue")
def test_queue_stop_and_permission_of_a_session_without_a_keeper(
    copilot: CopilotCli, home: Path, boss: RunningBoss
) -> None:
    commands = Commands(home)
    hooks = copilot.home / ".copilot" / "hooks" / "remuda.json"
    commands("hooks", "install", "--boss", "--yes")
    assert hooks.exists()
    boss.start()

    def item(reason: str) -> dict[str, Any]:
        found = [one for one in boss.waiting() if one["session"]["agent"] == "copilot"]
        return found[0] if found and found[0]["reason"] == reason else {}

    with copilot.open_terminal() as terminal:
        terminal.wait_for(b"open sidebar")
        terminal.write(b"\x1b[200~hello boss\x1b[201~\r")
        stopped = until(lambda: item("stopped"), "the stop in the queue")
        assert stopped["session"]["cwd"] == str(copilot.project)
        terminal.write(b"\x1b[200~" + shell("touch asked").encode() + b"\x1b[201~\r")
        asked = until(lambda: item("permission"), "the request in the queue")
        assert "touch asked" in asked["message"]
        terminal.wait_for(b"Do you want to run")
        terminal.write(b"\r")
        until(lambda: item("stopped"), "the second stop")
        assert (copilot.project / "asked").exists()
    commands("hooks", "uninstall", "--boss", "--yes")
    assert not hooks.exists()
