"""After a keeper was killed, or lost its files: what `kill`, `start` and `doctor` know of what is left."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import Session
from remuda.errors import SessionDead, SessionExists
from remuda.keeper.survivors import find_survivors, survivors_of
from remuda.paths import SessionPaths
from remuda.process_table import Process as Named
from remuda.proctree import descendants, start_ticks
from support.commands import Commands, run_to_end
from support.keeper import Process, end_processes, until

STUBBORN = """
import os, signal, subprocess, sys, time
for one in (signal.SIGHUP, signal.SIGTERM): signal.signal(one, signal.SIG_IGN)
{more}
open(sys.argv[1], "a").write(f"{{os.getpid()}}\\n")
time.sleep(600)
"""
CHILD = "subprocess.Popen(['sleep', '600'])"
APART = "subprocess.Popen(['setsid', 'sleep', '600'])"
BARE = "subprocess.Popen(['env', '-i', '/bin/sleep', '600'], start_new_session=True)"
# Forked twice, with no variables, in a process session of its own; it has only the terminal.
DAEMON = "subprocess.run(['env', '-i', '/bin/sh', '-c', '/bin/sleep 600 &'], start_new_session=True)"
LEADERLESS = "subprocess.run(['setsid', 'sh', '-c', 'env -i /bin/sleep 600 & sleep 600 &'])"
# As above, with its variables and without the terminal.
DETACHED = "subprocess.run(['setsid', 'sh', '-c', 'sleep 600 < /dev/null > /dev/null 2>&1 &'])"


class Left:
    """A session whose program does not end by itself."""

    def __init__(self, remuda: Commands, name: str = "o", more: str = CHILD, *words: str) -> None:
        self.remuda = remuda
        self.name = name
        self.ready = remuda.home / f"{name}.ready"
        program = [sys.executable, "-c", STUBBORN.format(more=more), str(self.ready)]
        self.pid = remuda.start(name, *words, "--", *program)
        until(lambda: self.ready.exists() and self.ready.read_text(), "the program")
        keeper = remuda.keeper(name)
        self.processes = [Process(pid) for pid in descendants(keeper.pid, surely=True)]
        keeper.close()

    def kill_keeper(self) -> None:
        self.remuda.kill_keeper(self.name)

    @property
    def alive(self) -> list[int]:
        return [one.pid for one in self.processes if one.alive]

    def close(self) -> None:
        end_processes(one.pid for one in self.processes if one.alive)
        for one in self.processes:
            one.close()


@pytest.fixture
def left(remuda: Commands, request: pytest.FixtureRequest) -> Iterator[Left]:
    made = Left(remuda, more=getattr(request, "param", CHILD))
    yield made
    made.close()


@pytest.mark.parametrize(
    "left",
    [CHILD, APART, BARE, DAEMON, LEADERLESS],
    indirect=True,
    ids=["child", "own session", "no environment", "daemon on the terminal", "leaderless session"],
)
def test_kill_after_the_keeper_was_killed_ends_all_that_is_left(remuda: Commands, left: Left) -> None:
    assert len(left.processes) >= 2
    left.kill_keeper()
    assert len(left.alive) == len(left.processes)
    done = remuda("kill", "--grace", "0.2", "o")
    assert done.out == f"o ended {len(left.processes)} processes that were left\n"
    assert left.alive == []
    assert remuda.refused("kill", "o", code=6).startswith("session 'o' has ended")
    assert not (remuda.sessions / "o.pid").exists()


# Each start waits ten seconds for processes to end.
@pytest.mark.parametrize(
    "words",
    [["--resume"], pytest.param(["--", "cat"], marks=pytest.mark.soak(only=True))],
    ids=["resume", "anew"],
)
def test_start_with_survivors_is_refused_and_names_kill(
    remuda: Commands, left: Left, words: list[str]
) -> None:
    left.kill_keeper()
    said = remuda.refused("start", "o", "--detach", *words, code=5)
    assert "still run" in said
    assert "'remuda kill o'" in said
    assert str(left.pid) in said
    assert len(left.alive) == len(left.processes)
    remuda("kill", "--grace", "0", "o")
    remuda("start", "o", "--detach", "--", "cat")


def test_kill_all_and_doctor_know_survivors(remuda: Commands, left: Left) -> None:
    left.kill_keeper()
    found = [one for one in remuda.json("doctor") if "left over from the dead session 'o'" in one["what"]]
    assert [one["fix"] for one in found] == ["remuda kill o"]
    remuda("kill", "--all", "--grace", "0")
    assert left.alive == []


def test_kill_never_ends_a_session_of_the_same_name_elsewhere(remuda: Commands, left: Left) -> None:
    elsewhere = remuda.home / "elsewhere"
    remuda("start", "o", "--detach", "--socket-dir", str(elsewhere), "--", "cat")
    theirs = Session("o", folder=elsewhere)
    other = Left(remuda, "p")
    try:
        left.kill_keeper()
        other.kill_keeper()
        remuda("kill", "--grace", "0", "o")
        assert left.alive == []
        assert theirs.alive
        assert len(other.alive) == len(other.processes)
    finally:
        theirs.kill(0)
        other.close()


def test_survivors_of_a_killed_keeper_elsewhere_are_not_ours(remuda: Commands) -> None:
    elsewhere = remuda.home / "elsewhere"
    remuda("start", "o", "--detach", "--", "cat")
    remuda("kill", "o")
    theirs = remuda.json("start", "o", "--detach", "--socket-dir", str(elsewhere), "--",
                         "sh", "-c", "trap '' HUP; while :; do sleep 0.1; done")  # fmt: skip
    program = Process(theirs["pid"])
    end_processes([theirs["keeper_pid"]])
    assert remuda.refused("kill", "o", code=6)
    assert program.alive
    remuda("kill", "--grace", "0", "--socket-dir", str(elsewhere), "o")
    program.gone()


def test_survivors_never_name_what_a_living_keeper_keeps(remuda: Commands, left: Left) -> None:
    assert find_survivors(remuda.sessions) == {}


def test_start_after_an_orderly_end_is_not_refused_for_what_it_left(
    remuda: Commands, daemon: Process
) -> None:
    remuda("start", "o", "--detach", "--", "cat")
    remuda("kill", "o")
    assert daemon.alive


def test_session_kill_in_python_ends_what_is_left(remuda: Commands, left: Left) -> None:
    session = Session("o", folder=remuda.sessions)
    left.kill_keeper()
    assert session.kill(0) is None
    assert left.alive == []
    with pytest.raises(SessionDead):
        session.kill(0)


def test_signal_never_reaches_a_later_process_of_the_same_number() -> None:
    me = os.getpid()
    ticks = start_ticks(me)
    assert ticks is not None
    Named(me, str(int(ticks) - 1)).signal(signal.SIGKILL)
    Named(me, ticks).signal(0)


# ── files removed under a running keeper ──


@pytest.mark.parametrize("files", ["o.pid o.sock", "o.pid", "o.sock", "o.pid o.sock o.json"])
def test_start_with_the_files_removed_is_refused_and_the_session_is_back(
    remuda: Commands, files: str
) -> None:
    remuda.start("o", "--", "cat")
    keeper = remuda.keeper("o")
    for name in files.split():
        (remuda.sessions / name).unlink()
    said = remuda.refused("start", "o", "--detach", "--", "cat", code=5)
    assert f"already running (keeper pid {keeper.pid}" in said
    assert remuda.json("status", "o")["alive"]
    assert (remuda.sessions / "o.json").exists()
    remuda("kill", "o")
    keeper.gone()
    assert not [one for one in os.listdir(remuda.sessions) if one.endswith((".pid", ".sock"))]


def test_status_with_the_files_removed_brings_the_session_back(remuda: Commands) -> None:
    remuda.start("o", "--", "cat")
    shutil.rmtree(remuda.sessions)
    assert remuda.json("status", "o")["alive"]
    assert [one["name"] for one in remuda.json("ls")] == ["o"]
    remuda("kill", "o")


def test_kill_of_a_hidden_keeper_that_does_not_answer_says_so(remuda: Commands) -> None:
    """One that is stopped cannot put its files back."""
    remuda.start("o", "--", "cat")
    keeper = remuda.keeper("o")
    for name in ("o.pid", "o.sock"):
        (remuda.sessions / name).unlink()
    keeper.signal(signal.SIGSTOP)
    assert str(keeper.pid) in remuda.refused("start", "o", "--detach", "--", "cat", code=5)
    keeper.signal(signal.SIGCONT)
    until(lambda: (remuda.sessions / "o.sock").exists(), "its files")
    remuda("kill", "o")
    keeper.gone()


def test_hidden_keeper_in_another_folder_is_not_ours(remuda: Commands) -> None:
    elsewhere = remuda.home / "elsewhere"
    remuda("start", "o", "--detach", "--socket-dir", str(elsewhere), "--", "cat")
    (elsewhere / "o.pid").unlink()
    (elsewhere / "o.sock").unlink()
    remuda("start", "o", "--detach", "--", "cat")
    remuda("kill", "o")
    remuda("kill", "--socket-dir", str(elsewhere), "o")


def test_survivors_of_an_unknown_session_are_none(home: Path) -> None:
    assert survivors_of(SessionPaths(home / "sessions", "nobody")) == []


@pytest.mark.soak(only=True)
def test_exists_error_is_the_same_for_a_program(remuda: Commands, left: Left) -> None:
    left.kill_keeper()
    with pytest.raises(SessionExists):
        Session.start("o", ["cat"], folder=remuda.sessions)


# ── what an earlier session of that name left when it ended in order ──


@pytest.fixture
def daemon(remuda: Commands) -> Iterator[Process]:
    """A process that a session named 'o' left behind when it ended in order."""
    pid = remuda.home / "pid"
    run_to_end(remuda, "o", "--", "sh", "-c", f"trap '' HUP; setsid sleep 600 & echo $! > {pid}")
    made = Process(int(pid.read_text()))
    yield made
    end_processes([made.pid])
    made.close()


@pytest.mark.parametrize("words", [["o"], ["--all"]], ids=["name", "all"])
def test_kill_of_a_later_session_spares_what_an_earlier_one_left(
    remuda: Commands, daemon: Process, words: list[str]
) -> None:
    remuda("start", "o", "--detach", "--", "cat")
    assert remuda("kill", *words).out.startswith("o ended")
    assert daemon.alive


def test_kill_after_an_orderly_end_says_so_and_spares_what_is_left(remuda: Commands, daemon: Process) -> None:
    assert remuda.refused("kill", "o", code=6).startswith("session 'o' has ended")
    assert remuda("kill", "--all").out == "no sessions\n"
    with pytest.raises(SessionDead):
        Session("o", folder=remuda.sessions).kill(0)
    remuda("clean", "--older-than", "1s", "--force")
    (remuda.sessions / "o.json").unlink(missing_ok=True)
    remuda.refused("kill", "o", code=3)
    assert daemon.alive
    assert not [one for one in remuda.json("doctor") if "left over from the dead session" in one["what"]]


def test_kill_after_the_keeper_was_killed_spares_what_an_earlier_session_left(
    remuda: Commands, daemon: Process
) -> None:
    left = Left(remuda)
    try:
        left.kill_keeper()
        remuda("kill", "--grace", "0", "o")
        assert left.alive == []
        assert daemon.alive
    finally:
        left.close()


# ── a home that is reached through a link ──


@pytest.mark.parametrize("through", ["kill", "start"])
def test_survivors_are_found_when_the_home_is_reached_through_a_link(
    remuda: Commands, tmp_path: Path, through: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(remuda.sessions)
    remuda.sessions.mkdir(mode=0o700, exist_ok=True)
    folder = ["--socket-dir", str(link)]
    left = Left(remuda, "o", DETACHED, *(folder if through == "start" else []))
    try:
        left.kill_keeper()
        done = remuda("kill", "--grace", "0", *(folder if through == "kill" else []), "o")
        assert f"ended {len(left.processes)} processes" in done.out
        assert left.alive == []
    finally:
        left.close()


# ── a program that looks like a keeper ──


def test_survivor_with_the_name_of_our_module_among_its_arguments_is_found(remuda: Commands) -> None:
    ready = remuda.home / "ready"
    script = f"trap '' HUP; echo > {ready}; while :; do sleep 0.1; done"
    pid = remuda.start("o", "--", "sh", "-c", script, "-P", "-m", "remuda.keeper", "o")
    until(ready.exists, "the program")
    program = Process(pid)
    try:
        remuda.kill_keeper("o")
        assert program.alive
        assert "still run" in remuda.refused("start", "o", "--detach", "--", "cat", code=5)
        remuda("kill", "--grace", "0", "o")
        assert program.ended()
    finally:
        end_processes([pid])
        program.close()


# ── looking at a session whose files were removed ──


@pytest.mark.parametrize("files", ["o.pid o.sock", "o.pid", "o.sock"])
@pytest.mark.parametrize("words", [[], ["--all"]], ids=["ls", "ls all"])
def test_ls_with_the_files_removed_shows_the_session_alive(
    remuda: Commands, files: str, words: list[str]
) -> None:
    remuda.start("o", "--", "cat")
    for name in files.split():
        (remuda.sessions / name).unlink()
    assert [(one["name"], one["alive"]) for one in remuda.json("ls", *words)] == [("o", True)]
    remuda("kill", "o")


@pytest.mark.parametrize("words", [["ls", "--json"], ["kill", "--all"]], ids=["ls", "kill all"])
def test_session_whose_folder_was_removed_is_found(remuda: Commands, words: list[str]) -> None:
    remuda.start("o", "--", "cat")
    keeper = remuda.keeper("o")
    shutil.rmtree(remuda.sessions)
    assert "o" in remuda(*words).out
    if words[0] == "ls":
        remuda("kill", "o")
    assert keeper.ended()


def test_session_in_python_with_the_files_removed_is_alive(remuda: Commands) -> None:
    remuda.start("o", "--", "cat")
    for name in ("o.pid", "o.sock"):
        (remuda.sessions / name).unlink()
    session = Session("o", folder=remuda.sessions)
    assert session.alive
    session.kill(0)
    assert not session.alive


def test_doctor_with_the_files_removed_counts_the_session_as_alive(remuda: Commands) -> None:
    remuda.start("o", "--agent", "demo")
    for name in ("o.pid", "o.sock"):
        (remuda.sessions / name).unlink()
    said = [one["what"] for one in remuda.json("doctor")]
    assert "1 live session" in said
    assert not [one for one in said if "left over" in one]
    remuda("kill", "o")


@pytest.mark.parametrize("files", ["o.pid o.sock", "o.pid o.sock o.json"])
def test_clean_with_the_files_removed_removes_nothing_of_a_living_keeper(
    remuda: Commands, files: str
) -> None:
    remuda.start("o", "--agent", "demo")
    keeper = remuda.keeper("o")
    keeper.signal(signal.SIGSTOP)  # it cannot put its files back
    for name in files.split():
        (remuda.sessions / name).unlink()
    before = sorted(os.listdir(remuda.sessions))
    assert {"o.d", "o.log"} <= set(before)
    for path in remuda.sessions.iterdir():
        os.utime(path, (1, 1))
    assert "would remove" not in remuda("clean").out
    assert remuda("clean", "--force").out == "nothing to clean (1 live session, 0 files younger than 24h)\n"
    assert sorted(os.listdir(remuda.sessions)) == before
    keeper.signal(signal.SIGCONT)
    remuda("kill", "o")
    keeper.gone()
