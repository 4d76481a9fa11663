"""Kept sessions that come back, by the commands of a user."""

from __future__ import annotations

from pathlib import Path

from support.commands import Commands
from support.keeper import Process, until


def without_pause(remuda: Commands) -> None:
    folder = Path(remuda.env["HOME"]) / ".config" / "remuda"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "remuda.toml").write_text("restart_pause = 0.0\n")


def program(remuda: Commands, name: str) -> int:
    """The pid of what runs in it now; 0 for nothing, also while it starts."""
    (found,) = (one for one in remuda.json("ls", "--all") if one["name"] == name)
    return int(found["pid"] or 0) if found["alive"] else 0


def back(remuda: Commands, name: str, before: int) -> int:
    """The pid of its next program."""
    return until(lambda: pid if (pid := program(remuda, name)) not in (0, before) else 0, f"{name} again")


def kill_program(remuda: Commands, name: str) -> int:
    """Kill that alone, and wait until its keeper has ended by itself. Returns what was killed."""
    keeper, pid = remuda.keeper(name), program(remuda, name)
    agent = Process(pid)
    agent.signal(9)
    assert agent.ended()
    assert keeper.ended()
    agent.close()
    keeper.close()
    return pid
