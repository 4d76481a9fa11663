"""The real Claude Code in sessions of `--restart`: it dies, it exits, it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.paths import SessionPaths
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.boss_whole import CommandedBoss
from support.commands import Commands
from support.restarts import back, kill_program, without_pause
from support.watcher import Watcher

pytestmark = pytest.mark.real


def test_claude_that_dies_or_exits_comes_back_with_its_conversation_and_stays_dead_after_kill(
    remuda: Commands, cli: RealCli, model: LoopbackModel, home: Path
) -> None:
    remuda.env |= {**cli.env, "REMUDA_HOME": str(home)}
    without_pause(remuda)
    boss = CommandedBoss(home, remuda)
    boss.start()
    try:
        remuda.start("one", "--cwd", str(cli.project), "--restart", "always", "--", *cli.argv())
        remuda.start("other", "--restart", "always", "--", "sleep", "600")
        remuda("send", "one", "the word is swordfish", "--wait")

        killed = kill_program(remuda, "one")
        second = back(remuda, "one", killed)
        remuda("send", "one", "which word was it?", "--wait")
        assert "swordfish" in str(model.main_requests[-1].body)

        with KeeperClient.connect("one", remuda.sessions) as client:
            watcher = Watcher(client)
            watcher.settled("idle")
            watcher.paste("/exit")  # by a human
            watcher.until("dead")
        back(remuda, "one", second)
        remuda("send", "one", "and after the exit?", "--wait")
        assert "swordfish" in str(model.main_requests[-1].body)

        remuda("kill", "one")
        back(remuda, "other", kill_program(remuda, "other"))  # the boss has looked at all sessions since
        assert read_holder(SessionPaths(remuda.sessions, "one")) is None
        remuda("kill", "other")
    finally:
        boss.close()
