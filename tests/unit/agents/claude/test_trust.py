"""Trust that is lent for one start: whatever else happens to the file, that alone is taken back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.trust import ClaudeTrust, pretrust
from remuda.errors import FolderUnusable

KEY = "hasTrustDialogAccepted"
BLANK = {"allowedTools": [], "mcpServers": {}, KEY: False}
DEAD = """
import os, sys
from remuda.agents.claude.trust import ClaudeTrust
ClaudeTrust(os.environ, sys.argv[1]).lend("killed")
os.kill(os.getpid(), 9)
"""


class Bench:
    """A home with the CLI's file, and a folder in it that no one trusts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {"HOME": str(home)}
        self.config = home / ".claude.json"
        self.folder = home / "project"
        self.folder.mkdir()
        self.write({"theme": "dark", "projects": {"/other": {KEY: True}}})

    def write(self, document: object) -> None:
        self.config.write_text(json.dumps(document, indent=2))

    def read(self) -> Any:
        return json.loads(self.config.read_text())

    def record(self, folder: Path | None = None) -> ClaudeTrust:
        return ClaudeTrust(self.env, str(folder or self.folder))

    def accept(self, folder: Path | None = None) -> None:
        """As the CLI writes an accepted dialog down: nothing, where it was written down before."""
        document = self.read()
        entry = document["projects"].setdefault(str(folder or self.folder), dict(BLANK))
        entry[KEY] = True
        self.write(document)

    @property
    def trust(self) -> object:
        return self.read()["projects"].get(str(self.folder), {}).get(KEY)

    @property
    def files(self) -> list[str]:
        return sorted(os.listdir(self.home))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Path(os.path.realpath(tmp_path)))


@pytest.mark.parametrize("before", [None, False])
def test_what_was_lent_is_taken_back_and_all_else_stays(bench: Bench, before: bool | None) -> None:
    if before is not None:
        bench.write({"projects": {"/other": {KEY: True}, str(bench.folder): {KEY: before, "lastCost": 1}}})
    record = bench.record()
    record.lend("a")
    bench.accept()
    changed = bench.read()
    changed["numStartups"] = 7  # the CLI goes on to write, in this entry too
    changed["projects"][str(bench.folder)]["lastSessionId"] = "x"
    bench.write(changed)
    bench.config.chmod(0o640)
    record.take_back("a")
    expected = changed
    if before is None:
        del expected["projects"][str(bench.folder)][KEY]
    else:
        expected["projects"][str(bench.folder)][KEY] = before
    assert bench.config.read_text() == json.dumps(expected, indent=2)
    assert bench.config.stat().st_mode & 0o777 == 0o640
    assert bench.files == [".claude.json", "project"], "neither notes nor locks stay"


def test_an_answer_that_the_agent_never_wrote_down_changes_nothing(bench: Bench) -> None:
    text = bench.config.read_text()
    bench.record().lend("a")
    bench.record().take_back("a")
    assert bench.config.read_text() == text


def test_trust_of_a_human_stays_whenever_it_came(bench: Bench) -> None:
    record = bench.record()
    bench.accept()
    record.lend("before")
    record.take_back("before")
    assert bench.trust is True

    bench.write({"projects": {}})
    record.lend("attached")
    bench.accept()
    record.take_back("attached", accepted=True)
    assert bench.trust is True

    bench.write({"projects": {}})
    record.lend("after")
    bench.accept()
    record.take_back("after")
    bench.accept()
    bench.record().take_back()
    assert bench.trust is True


@pytest.mark.parametrize("order", ["abAaBb", "aAbaBb", "aAbBab", "abAbBa", "abABba"])
def test_two_sessions_at_once_in_one_folder_leave_no_trust(bench: Bench, order: str) -> None:
    """Small letters lend, then take back; large ones accept the dialog."""
    lent: set[str] = set()
    for step in order:
        if step.isupper():
            bench.accept()
        elif step in lent:
            bench.record().take_back(step)
        else:
            lent.add(step)
            bench.record().lend(step)
    assert not bench.trust
    assert bench.files == [".claude.json", "project"]


def test_pretrust_ends_a_loan(bench: Bench) -> None:
    record = bench.record()
    record.lend("a")
    bench.accept()
    assert pretrust(bench.env, str(bench.folder), pytest.fail)
    record.take_back("a")
    assert bench.trust is True
    assert not pretrust(bench.env, str(bench.folder), pytest.fail)


def test_what_a_killed_keeper_was_lent_is_taken_back_by_the_next(bench: Bench) -> None:
    env = {**os.environ, **bench.env}
    env.pop("CLAUDE_CONFIG_DIR", None)
    killed = subprocess.Popen([sys.executable, "-c", DEAD, str(bench.folder)], env=env)
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    bench.accept()
    bench.record(bench.home).lend("alive")  # in another folder: it does not hide the dead one's loan
    assert bench.record().has_loans()
    bench.record(bench.home).take_back()
    assert not bench.trust
    assert bench.record().has_loans(), "that of a keeper that lives stays"
    bench.record(bench.home).take_back("alive")
    assert not bench.record().has_loans()
    killed.wait()


def test_trust_of_a_repository_and_of_a_worktrees_repository_is_taken_back(bench: Bench) -> None:
    (bench.folder / ".git" / "worktrees" / "one").mkdir(parents=True)
    (bench.folder / ".git" / "worktrees" / "one" / "commondir").write_text("../..\n")
    below = bench.folder / "a" / "b"
    below.mkdir(parents=True)
    worktree = bench.home / "one"
    (worktree / "deep").mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {bench.folder}/.git/worktrees/one\n")
    for folder in (below, worktree / "deep"):
        record = bench.record(folder)
        record.lend("a")
        bench.accept(bench.folder)
        record.take_back("a")
        assert not bench.trust, folder


@pytest.mark.parametrize("text", ["", "{broken", "[3]", '[{"session": 1}]', '[{"keys": {"a": 5}}]', "{}"])
def test_notes_that_are_none_are_removed_and_change_nothing(bench: Bench, text: str) -> None:
    bench.accept()
    config = bench.config.read_text()
    (bench.home / ".claude.json.remuda-trust").write_text(text)
    bench.record().take_back()
    assert bench.config.read_text() == config
    assert bench.files == [".claude.json", "project"]


@pytest.mark.parametrize("text", ["{broken", "[1]", '{"projects": 3}', '{"projects": {"FOLDER": 3}}'])
def test_a_file_of_another_shape_is_left_alone(bench: Bench, text: str) -> None:
    text = text.replace("FOLDER", str(bench.folder))
    bench.config.write_text(text)
    bench.record().lend("a")
    bench.record().take_back("a")
    assert bench.config.read_text() == text


def test_the_agents_own_lock_is_waited_for_and_a_stale_one_is_not(bench: Bench) -> None:
    lock = bench.home / ".claude.json.lock"
    lock.mkdir()
    waiting = threading.Thread(target=bench.record().lend, args=["a"])
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    assert not bench.record().has_loans()
    lock.rmdir()
    waiting.join()
    assert bench.record().has_loans()

    lock.mkdir()
    os.utime(lock, (time.time() - 60,) * 2)
    bench.record().take_back("a")
    assert bench.files == [".claude.json", "project"]


def test_nothing_is_noted_where_no_one_can_write(bench: Bench) -> None:
    gone = ClaudeTrust({"CLAUDE_CONFIG_DIR": str(bench.home / "missing")}, str(bench.folder))
    with pytest.raises(FolderUnusable):
        gone.lend("a")
    assert not gone.has_loans()
    gone.take_back("a")
