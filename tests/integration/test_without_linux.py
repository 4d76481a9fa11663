"""Our programs where there is nothing that Linux alone has: no /proc, no inotify, no epoll, no pidfd.

Not a macOS, but as much of one as can be had on Linux: see `without_linux/sitecustomize.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.proctree import is_alive
from support.commands import Commands
from support.keeper import until
from support.print_calls import Calls

ELSEWHERE = str(Path(__file__).parents[1] / "without_linux")


@pytest.fixture(autouse=True)
def elsewhere(remuda: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """For everything that is started from here on."""
    monkeypatch.setenv("PYTHONPATH", ELSEWHERE)
    remuda.env["PYTHONPATH"] = ELSEWHERE


def test_started_processes_find_nothing_of_linux(remuda: Commands) -> None:
    look = "import os, sys; print(sys.platform, hasattr(os, 'pidfd_open'), os.path.exists('/proc/self'))"
    done = subprocess.run([sys.executable, "-c", look], env=remuda.env, capture_output=True, check=True)
    assert done.stdout.split() == [b"darwin", b"False", b"False"]


def test_session_is_kept_sent_to_and_ended(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    assert remuda("send", "work", "are you there?", "--wait").out == "REPLY#1 to: are you there?\n"
    (listed,) = remuda.json("ls")
    assert (listed["name"], listed["state"]) == ("work", "idle")
    assert "registry" in remuda("status", "work", "--explain").out
    pid = listed["pid"]
    remuda("kill", "work")
    assert not is_alive(pid)


def test_kill_ends_what_a_session_started(remuda: Commands, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    remuda.start("work", "--", "sh", "-c", f"sleep 1000 & echo $! > {told}; wait")
    child = until(lambda: told.exists() and told.read_text().strip(), "the child's number")
    remuda("kill", "work")
    until(lambda: not is_alive(int(child)), "the end of the child")


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_print_answers_and_leaves_nothing(calls: Calls, backend: str) -> None:
    calls.env["PYTHONPATH"] = ELSEWHERE
    assert calls("--backend", backend, "hello").out == "REPLY#1 to: hello\n"


def test_boss_knows_a_kept_session_once(remuda: Commands, home: Path) -> None:
    remuda.env |= {"CLAUDE_CONFIG_DIR": str(home / "claude"), "TMUX_TMPDIR": str(home)}
    remuda("up", "--detach", "--port", "0")
    try:
        remuda.start("work", "--agent", "demo")
        remuda("send", "work", "are you there?", "--wait")
        until(lambda: remuda.json("queue")["items"], "its place in the queue")
        assert [one["name"] for one in remuda.json("agents")["sessions"]] == ["work"]
        assert (
            "reconcile, detector, silence, usage, budgets, messages, plans, restarts: running"
            in remuda("status").out
        )
        assert remuda("reply", "work", "and now?", "--wait").out == "REPLY#2 to: and now?\n"
        assert not os.path.exists(home / "boss" / "spool" / ".watched")
    finally:
        remuda("down", "--force")


def test_doctor_finds_all_well(remuda: Commands) -> None:
    assert "darwin" in remuda("doctor").out
