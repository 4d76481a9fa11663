"""Claude Code's background agents (`claude --bg`), which a service of its own keeps, and the boss."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.sources import ClaudeSources, registry_events
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.boss import RunningBoss, event
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import Process, until
from support.pane_agent import install_hooks

pytestmark = pytest.mark.real

SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")
QUESTION = "I looked at all of it.\n\nWhich option do you prefer, A or B?"
RESULT = "I did it.\n\nresult: all twelve files were renamed"


class Background:
    """The background agents of one home, and the CLI's commands for them."""

    def __init__(self, cli: RealCli) -> None:
        self._cli = cli
        self._folder = cli.home / ".claude"

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self._cli.argv(*words),
            cwd=self._cli.project,
            env=self._cli.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def begin(self, prompt: str) -> str:
        """Its short id: the beginning of its session's."""
        told = self.run("--bg", "--permission-mode", "default", prompt)
        return told.partition("·")[2].split()[0]

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("agents", "--json", "--all"))
        return sorted(found, key=lambda row: str(row["sessionId"]))

    def registered(self) -> list[dict[str, Any]]:
        """The registry files of those that live; half written ones are left out."""
        found = []
        for path in (self._folder / "sessions").glob("*.json"):
            document = _read(path)
            if document and Path(f"/proc/{document['pid']}").exists():
                found.append(document)
        return found

    def pid(self, number: str) -> int:
        def look() -> list[int]:
            return [int(one["pid"]) for one in self.registered() if one.get("jobId") == number]

        return until(look, f"{number} in the registry")[0]

    def job(self, number: str) -> dict[str, Any]:
        return _read(self._folder / "jobs" / number / "state.json")

    def until(self, number: str, state: str) -> None:
        def look() -> bool:
            job = ClaudeSources().read_job(self.job(number))
            return job is not None and job.state == state

        until(look, f"{state} in the files of {number}")

    def leave(self, *numbers: str) -> None:
        """End their processes alone, as their service does when they have nothing to do for long.

        It starts them again when another ends them, so it goes first.
        """
        status = until(lambda: _read(self._folder / "daemon.status.json"), "who the service is")
        _end(status["supervisorPid"], signal.SIGKILL)
        for number in numbers:
            _end(self.pid(number), signal.SIGTERM)

    def in_files(self) -> list[dict[str, Any]]:
        """The list, made from the files."""
        rows = {str(one["sessionId"]): _row(one) for one in self.registered()}
        for folder in (self._folder / "jobs").iterdir():
            document = _read(folder / "state.json") if folder.is_dir() else {}
            if (job := ClaudeSources().read_job(document)) is not None:
                row = rows.setdefault(job.session_id, {"sessionId": job.session_id, "cwd": job.cwd})
                row |= {"id": folder.name, "kind": "background", "state": job.state}
        return [rows[one] for one in sorted(rows)]


def _end(pid: int, number: int) -> None:
    process = Process(pid)
    process.signal(number)
    process.gone()


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _row(registered: dict[str, Any]) -> dict[str, Any]:
    names = ("pid", "cwd", "kind", "startedAt", "sessionId", "name", "status", "waitingFor")
    row = {name: registered[name] for name in names if registered.get(name) is not None}
    return row | {"kind": "background" if row["kind"] == "bg" else row["kind"]}


@pytest.fixture
def background(model: LoopbackModel, cli: RealCli) -> Iterator[Background]:
    model.when("what now", QUESTION)
    model.when("rename", RESULT)
    one = Background(cli)
    yield one
    one.run("daemon", "stop", "--any")


def test_list_of_agents_says_what_their_files_say_and_no_more(cli: RealCli, background: Background) -> None:
    def agree() -> bool:
        listed, found = background.listed(), background.in_files()
        for row in listed:  # where no process is, when it began and what it is called are the service's words
            if "pid" not in row:
                del row["startedAt"], row["name"]
        return listed == found

    with cli.open_terminal("--permission-mode", "default", "hello") as terminal:
        terminal.wait_for(b"REPLY#1")
        asks = background.begin("what now")
        permission = background.begin("RUNBASH touch made; echo done")
        renames = background.begin("rename them")
        background.until(asks, "blocked")
        background.until(permission, "blocked")
        background.until(renames, "done")
        until(agree, "the same in the list and in the files")
        rows = {str(row.get("id")): row for row in background.listed()}
        assert rows.keys() == {asks, permission, renames, "None"}
        assert rows["None"]["kind"] == "interactive"
        assert (rows[permission]["status"], rows[permission]["waitingFor"]) == (
            "waiting",
            "permission prompt",
        )
        assert rows[asks]["status"] == rows[renames]["status"] == "idle"
        for found in background.registered():
            (of_file,) = registry_events(found)
            (of_list,) = registry_events(rows[str(found.get("jobId"))])
            assert (of_list.kind, of_list.session_id) == (of_file.kind, of_file.session_id)
            assert dict(of_list.facts).items() <= dict(of_file.facts).items()
        background.leave(asks)
        until(agree, "the same in the list and in the files, of one without a process")
        (row,) = (row for row in background.listed() if row.get("id") == asks)
        assert (row["state"], "pid" in row) == ("blocked", False)


def item(boss: RunningBoss, number: str, reason: str, message: str = "") -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = [one for one in boss.waiting() if one["session_id"].startswith(number)]
        return found[0] if found and found[0]["reason"] == reason and message in found[0]["message"] else {}

    return until(look, f"{number} in the queue: {reason}")


def asked(boss: RunningBoss, number: str, command: str) -> str:
    """The number of the request. That a dialog is open may be known a moment before what it asks."""

    def look() -> str:
        detail = item(boss, number, "permission")["detail"]
        return str(detail["ask"]) if detail.get("input", {}).get("command") == command else ""

    return until(look, f"leave for {command!r} in the queue")


def see_an_end(boss: RunningBoss) -> None:
    """Returns when the boss has told what became of every process that has ended until now."""
    child = subprocess.Popen(["sleep", "600"])
    boss.tell(event("working", time.time(), session="witness", pid=child.pid))
    child.kill()
    child.wait()
    item(boss, "witness", "dead")


@pytest.fixture
def boss(home: Path, cli: RealCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(cli.home / ".claude"))
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    one = RunningBoss(home, SOURCES)
    yield one
    one.close()


def test_background_agents_are_found_answered_and_wait_without_their_process(
    remuda: Commands, cli: RealCli, background: Background, boss: RunningBoss
) -> None:
    install_hooks(remuda, cli.home / ".claude" / "settings.json")
    asks = background.begin("what now")
    background.until(asks, "blocked")
    boss.start()
    found = item(boss, asks, "stopped", QUESTION)
    assert (found["session"]["origin"], found["session"]["cwd"]) == ("background", str(cli.project))
    assert f"open it with 'claude attach {asks}'" in remuda("preview", asks, code=4).err
    works = background.begin("RUNBASH touch made; echo done")
    path = f"/v1/approvals/{asked(boss, works, 'touch made; echo done')}/answer"
    answer = {"behavior": "allow", "by": "me", "updated_input": {"command": "touch edited; echo done"}}
    until(lambda: boss.ask("POST", path, answer).status == 200, "a hook that waits for the answer")
    assert item(boss, works, "stopped", "tool_result")["session"]["origin"] == "background"
    assert (cli.project / "edited").exists()
    assert not (cli.project / "made").exists()
    background.run("rm", works)
    until(lambda: len(boss.waiting()) == 1, "the end of the one that was removed")
    background.leave(asks)
    see_an_end(boss)
    assert item(boss, asks, "stopped", QUESTION)["id"] == found["id"]
    boss.restart(signal.SIGKILL)
    assert item(boss, asks, "stopped", QUESTION)["id"] == found["id"]
    background.run("daemon", "stop", "--any")  # and everything that it keeps
    until(lambda: [one["session_id"] for one in boss.waiting()] == ["witness"], "the end of the stopped one")


def test_background_agent_without_a_process_is_found_by_a_boss_that_never_heard_of_it(
    background: Background, boss: RunningBoss
) -> None:
    asks, renames = background.begin("what now"), background.begin("rename them")
    background.until(asks, "blocked")
    background.until(renames, "done")
    background.leave(asks, renames)
    boss.start()
    found = item(boss, asks, "stopped", QUESTION)["session"]
    assert (found["origin"], found["pid"], found["pane"]) == ("background", None, None)
    assert os.path.exists(found["transcript_path"])
    assert len(boss.waiting()) == 1
