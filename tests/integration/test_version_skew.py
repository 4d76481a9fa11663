"""A new command line and an old keeper, or the other way round: they say so, and go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import remuda
from support.keeper import Process

SOURCE = Path(remuda.__file__).parent


def other_version(folder: Path, *, release: str = "9.9.9", protocol: int = 1) -> dict[str, str]:
    """The environment of a Remuda of another version: a copy of ours that says so."""
    copy = folder / "remuda"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "_version.py").write_text(f'__version__ = "{release}"\n')
    messages = copy / "wire" / "messages.py"
    messages.write_text(
        messages.read_text().replace("PROTOCOL_VERSION: Final = 1", f"PROTOCOL_VERSION: Final = {protocol}")
    )
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remuda", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_status_keeper_of_another_release_says_so_and_works(home: Path, tmp_path: Path) -> None:
    env = other_version(tmp_path)
    assert run("start", "old", "--detach", "--", "cat", env=env).returncode == 0
    shown = run("status", "old")
    assert shown.returncode == 0
    assert "9.9.9" in shown.stdout
    assert "9.9.9" in run("doctor").stdout
    assert run("kill", "old").returncode == 0


def test_keeper_of_another_protocol_is_listed_asked_and_killed(home: Path, tmp_path: Path) -> None:
    env = other_version(tmp_path, protocol=2)
    assert run("start", "old", "--detach", "--", "cat", env=env).returncode == 0
    keeper = Process(int((home / "sessions" / "old.pid").read_text().split()[0]))
    assert "old" in run("ls").stdout
    shown = run("status", "old")
    assert (shown.returncode, "idle" in shown.stdout) == (0, True)
    refused = run("screen", "old")
    assert refused.returncode == 7
    assert "another program or version" in refused.stderr
    assert run("kill", "old").returncode == 0
    assert keeper.ended()
    keeper.close()


def test_old_keeper_new_command_line_is_answered(home: Path, tmp_path: Path) -> None:
    env = other_version(tmp_path, protocol=2)
    assert run("start", "ours", "--detach", "--", "cat").returncode == 0
    assert run("status", "ours", env=env).returncode == 0
    assert run("kill", "ours", env=env).returncode == 0
