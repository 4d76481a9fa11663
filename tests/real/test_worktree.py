"""Claude Code in a worktree that was made for it: set up, trusted, asked, and resumed there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.commands import Commands

pytestmark = pytest.mark.real


def test_agent_in_a_worktree_starts_after_the_set_up_and_is_resumed_there(
    remuda: Commands, cli: RealCli, model: LoopbackModel
) -> None:
    for words in ("init -q", "-c user.name=n -c user.email=e commit -q --allow-empty -m begin"):
        subprocess.run(["git", *words.split()], cwd=cli.project, check=True)
    remuda.env |= {**cli.env, "REMUDA_HOME": str(remuda.home)}
    config = Path(remuda.env["HOME"]) / ".config" / "remuda"
    config.mkdir(parents=True, exist_ok=True)
    config.joinpath("remuda.toml").write_text("worktree_setup = 'echo made ready; echo ready > ready'")
    remuda("start", "w", "--worktree", "--trust", "--detach", "--cwd", str(cli.project), "--", *cli.argv())
    remuda("send", "w", "the first", "--wait", "--timeout", "60")
    tree = Path(remuda.json("show", "w")["cwd"])
    assert tree == cli.project.parent / f"{cli.project.name}.worktrees" / "w"
    assert "made ready" in remuda("logs", "w").out
    assert str(tree) in str(model.main_requests[-1].body)  # where the agent takes itself to be
    remuda("kill", "w")
    remuda("resume", "w")
    remuda("send", "w", "the second", "--wait", "--timeout", "60")
    last = str(model.main_requests[-1].body)
    assert "the first" in last
    assert str(tree) in last
    remuda("kill", "w")
    assert "new files: ready" in remuda.refused("kill", "w", "--remove-worktree", code=8)
    (tree / "ready").unlink()
    remuda("kill", "w", "--remove-worktree")
    assert not tree.exists()
