"""Claude Code whose service does not answer: at work, as its own files say, and nothing is heard of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.ports import SOURCES
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import Start, until, until_equal
from support.pane_agent import AgentPane, install_hooks
from support.real_sessions import keep
from support.tmux_attention import TmuxBench
from support.watcher import Watcher

pytestmark = pytest.mark.real


@pytest.fixture
def boss(home: Path, remuda: Commands, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    """It is closed before the commands are, who take what they find for a session's."""
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    monkeypatch.setenv("REMUDA_HUNG_AFTER", "3s")
    one = RunningBoss(home, SOURCES)
    yield one
    one.close()


def item(boss: RunningBoss, reason: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = boss.waiting()
        return found[0] if len(found) == 1 and found[0]["reason"] == reason else {}

    return until(look, f"{reason} in the queue")


def test_agent_in_a_pane_that_hangs_is_in_the_queue_until_it_goes_on(
    model: LoopbackModel, cli: RealCli, remuda: Commands, boss: RunningBoss, tmux: TmuxBench
) -> None:
    install_hooks(remuda, cli.home / ".claude" / "settings.json")
    boss.start()
    pane = AgentPane(tmux, boss, cli.argv("--permission-mode", "default"), cli.env, cli.project)
    pane.until_shows("for shortcuts")
    pane.session("started", "stopped")
    with model.hold() as gate:
        pane.prompt("are you there")
        gate.wait_reached()
        hung = item(boss, "hung")
        assert (hung["session"]["pane"], hung["session"]["state"]) == (pane.id, "hung")
        assert hung["detail"]["quiet"] >= 3
        assert "hung: silent for " in remuda("queue").out
    until_equal(lambda: item(boss, "stopped")["message"], "REPLY#1 to: are you there", "its answer")


def test_kept_agent_that_hangs_is_in_the_queue_until_it_goes_on(
    model: LoopbackModel, cli: RealCli, start: Start, boss: RunningBoss
) -> None:
    boss.start()
    watcher = Watcher(keep(start, cli).hello())
    watcher.settled("idle")
    with model.hold() as gate:
        watcher.paste("are you there")
        gate.wait_reached()
        assert item(boss, "hung")["session"]["name"] == "c"
    until_equal(lambda: item(boss, "stopped")["message"], "REPLY#1 to: are you there", "its answer")
