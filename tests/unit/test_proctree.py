"""Who descends from whom, and who is alive: by /proc, and as it is asked for where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remuda import process_table, proctree
from remuda.process_table import with_variable
from remuda.proctree import (
    command_lines,
    command_of,
    descendants,
    folder_of,
    is_alive,
    start_ticks,
    variable_of,
)
from support.keeper import until


@pytest.fixture(params=["proc", "ps"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ps":
        for module in (proctree, process_table):
            monkeypatch.setattr(module, "_LINUX", False)
        monkeypatch.setattr(proctree, "_listed_children", lambda _pid: [])
    return str(request.param)


def test_descendants_child_and_grandchild_are_found_parents_first() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "setsid sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert shell.stdout is not None
    with shell.stdout:
        grandchild = int(shell.stdout.readline())
        found = descendants(os.getpid())
        assert found.index(shell.pid) < found.index(grandchild)
        assert grandchild in descendants(shell.pid)
        os.kill(grandchild, 9)
    assert shell.wait() >= 0


def test_descendants_and_is_alive_a_zombie_counts_as_dead() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.pid)
    assert child.pid not in descendants(os.getpid())
    child.wait()


def test_is_alive_self_and_no_process() -> None:
    assert is_alive(os.getpid())
    assert not is_alive(2147483647)
    assert not is_alive(0)
    assert not is_alive(-1)


def test_start_ticks_same_process_is_the_same_and_none_without_one() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    assert start_ticks(2147483647) is None


def test_start_ticks_name_with_parentheses_and_spaces_is_read_past(way: str) -> None:
    rename = "ctypes.CDLL(None).prctl(15, b') R 1 (', 0, 0, 0)"
    code = f"import ctypes, sys; {rename}; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in descendants(os.getpid())
    assert (start_ticks(child.pid) or "").isdigit() is (way == "proc")
    child.communicate()


def test_descendants_do_not_include_the_process_itself() -> None:
    assert descendants(os.getpid(), surely=True) == []


def test_start_ticks_do_not_hang_on_where_the_user_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here = start_ticks(os.getpid())
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert start_ticks(os.getpid()) == here


def test_variable_is_found_in_a_process_and_a_process_by_its_variable() -> None:
    mark = f"one{os.getpid()}"  # of this run alone: all processes of the machine are looked at
    env = {**os.environ, "REMUDA_TEST_MARK": mark}
    child = subprocess.Popen(
        ["sh", "-c", "echo; read line", "word"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert child.stdout is not None
    try:
        child.stdout.readline()  # a program is running before its environment can be read
        assert variable_of(child.pid, "REMUDA_TEST_MARK") == mark
        assert variable_of(child.pid, "REMUDA_TEST_MAR") is None
        assert variable_of(2147483647, "REMUDA_TEST_MARK") is None
        assert list(with_variable("REMUDA_TEST_MARK", mark)) == [child.pid]
        assert list(with_variable("REMUDA_TEST_MARK", mark[:-1])) == []
        assert "word" in dict(command_lines())[child.pid]
    finally:
        child.kill()
        child.communicate()
    assert list(with_variable("REMUDA_TEST_MARK", mark)) == []


_ADOPTS = """
import os, subprocess, sys
from remuda.proctree import adopt_orphans, descendants
assert adopt_orphans()
shell = subprocess.run(["sh", "-c", "(setsid sleep 60 >/dev/null & echo $!)"], stdout=subprocess.PIPE)
daemon = int(shell.stdout)
found = descendants(os.getpid())
os.kill(daemon, 9)
os.waitpid(daemon, 0)
assert daemon in found, found
"""


def test_adopt_orphans_a_daemon_that_forked_twice_is_still_a_descendant() -> None:
    subprocess.run([sys.executable, "-c", _ADOPTS], check=True, timeout=30)


def test_command_and_folder_of_a_process(tmp_path: Path, way: str) -> None:
    child = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    try:
        # It is empty for a moment while the program is loaded.
        until(lambda: command_of(child.pid) == ["sleep", "60"], "its command")
        if way == "proc" or shutil.which("lsof"):
            assert folder_of(child.pid) == str(tmp_path)
    finally:
        child.kill()
        child.wait()
    assert command_of(child.pid) == []
    assert folder_of(child.pid) is None
