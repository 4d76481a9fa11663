"""The boss and background agents: their files as Claude Code writes them, with processes that do nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.boss import RunningBoss
from support.keeper import Process, until

RECONCILE = "remuda.boss.evidence.reconcile:Reconcile"


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def replace(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document))
    new.rename(path)


class Agent:
    """One background agent: its folder, and while it lives its process and registry file."""

    def __init__(self, config: Path, number: int) -> None:
        self.id = f"{number:08x}-0000-4000-8000-000000000000"
        self._config = config
        self.folder = config / "jobs" / self.id[:8]
        self.transcript = config / "projects" / "-srv" / f"{self.id}.jsonl"
        self.process: Process | None = None
        self.pid = 0
        self._child: subprocess.Popen[bytes] | None = None

    def says(self, state: str, tempo: str = "idle", at: float | None = None, **more: Any) -> None:
        document = {"state": state, "tempo": tempo, "sessionId": self.id, "cwd": "/srv", "name": "work"}
        document |= {"linkScanPath": str(self.transcript), "updatedAt": stamp(at or time.time()), **more}
        replace(self.folder / "state.json", document)

    def lives(self, status: str, kind: str = "bg") -> None:
        if self._child is None:
            self._child = subprocess.Popen(["sleep", "600"])
            self.pid = self._child.pid
            self.process = Process(self.pid)
        document = {"pid": self.pid, "sessionId": self.id, "cwd": "/srv", "kind": kind, "status": status}
        document |= {"jobId": self.id[:8], "statusUpdatedAt": time.time() * 1000, "entrypoint": "cli"}
        replace(self._config / "sessions" / f"{self.pid}.json", document)

    def leaves(self) -> None:
        """As when its service ends its process: that takes its registry file away."""
        (self._config / "sessions" / f"{self.pid}.json").unlink()
        self.end(signal.SIGTERM)

    def end(self, number: int = signal.SIGKILL) -> None:
        if self._child is not None and self.process is not None:
            self.process.signal(number)
            self._child.wait()
            self.process.close()
            self._child = None

    def spoke(self, text: str, at: float) -> None:
        """A prompt and what it said to it, in its transcript."""
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        common = {"sessionId": self.id, "isSidechain": False, "cwd": "/srv"}
        prompt = {**common, "type": "user", "uuid": f"u{at}", "timestamp": stamp(at - 1)}
        prompt["message"] = {"role": "user", "content": "go on"}
        said = {**common, "type": "assistant", "uuid": f"a{at}", "timestamp": stamp(at)}
        content = [{"type": "text", "text": text}]
        said["message"] = {"id": f"m{at}", "role": "assistant", "stop_reason": "end_turn", "content": content}
        with self.transcript.open("a") as file:
            file.write(f"{json.dumps(prompt)}\n{json.dumps(said)}\n")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "claude"
    (folder / "sessions").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


@pytest.fixture
def agents(config: Path) -> Iterator[list[Agent]]:
    made = [Agent(config, number) for number in range(1, 6)]
    yield made
    for one in made:
        one.end()


@pytest.fixture
def boss(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    one = RunningBoss(home, (RECONCILE,))
    yield one
    one.close()


def item(boss: RunningBoss, agent: Agent, message: str = "") -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = [one for one in boss.waiting() if one["session_id"] == agent.id]
        return found[0] if found and message in found[0]["message"] else {}

    return until(look, f"{agent.id[:8]} in the queue")


def waiting(boss: RunningBoss) -> dict[str, str]:
    """The item of each session."""
    return {one["session_id"]: one["id"] for one in boss.waiting()}


def session(boss: RunningBoss, agent: Agent) -> dict[str, Any]:
    found: dict[str, Any] = boss.client.get("sessions", agent.id)["session"]
    return found


def test_boss_that_begins_finds_those_that_wait_and_no_others(boss: RunningBoss, agents: list[Agent]) -> None:
    at = time.time() - 60
    living, parked, silent, done, stopped = agents
    living.spoke("I live", at)
    living.lives("idle")
    living.says("working", "idle", at)
    parked.spoke("Which one do you prefer?", at)
    parked.says("blocked", "blocked", at + 30, needs="which one?")
    silent.says("blocked", "blocked", at, needs="which colour?")  # its transcript was cleaned up
    done.spoke("all done", at)
    done.says("done", "idle", at)
    stopped.spoke("half done", at)
    stopped.says("stopped", "idle", at)
    boss.start()
    assert item(boss, living, "I live")["session"]["origin"] == "background"
    found = item(boss, parked, "Which one do you prefer?")
    assert (found["reason"], found["session"]["origin"], found["session"]["pid"]) == (
        "stopped",
        "background",
        None,
    )
    assert (found["session"]["cwd"], found["session"]["title"]) == ("/srv", "work")
    assert abs(found["since"] - at) < 1
    assert item(boss, silent)["message"] == "which colour?"
    assert waiting(boss).keys() == {living.id, parked.id, silent.id}
    known = {one["id"] for one in boss.client.get("sessions", all=True)["sessions"]}
    assert known == {living.id, parked.id, silent.id}
    parked.says("stopped")
    shutil.rmtree(silent.folder)
    until(lambda: waiting(boss).keys() == {living.id}, "the end of two")


def test_one_whose_process_is_ended_still_waits_until_it_is_stopped_or_removed(
    boss: RunningBoss, agents: list[Agent]
) -> None:
    boss.start()
    stopped, removed, killed, *others = agents
    for one in (stopped, removed, killed):
        one.lives("busy")
        one.says("working", "active")
        one.spoke(f"what now, {one.id[:8]}?", time.time())
        one.lives("idle")
        one.says("blocked", "blocked", needs="what now?")
    for other in others:
        other.lives("idle", "interactive")
    before = {one.id: item(boss, one, "what now, ")["id"] for one in (stopped, removed, killed)}

    def is_known() -> bool:
        return any(
            one["id"] == others[1].id and one["pid"]
            for one in boss.client.get("sessions", all=True)["sessions"]
        )

    until(is_known, "all of them")
    stopped.leaves()
    removed.leaves()
    killed.end()
    killed.says("crashed", detail="SIGKILL (137); respawning")
    others[0].end()
    item(boss, others[0])  # dead: what becomes of those whose process ends has been told
    assert before.items() <= waiting(boss).items()
    boss.end(signal.SIGKILL)
    others[1].end()
    boss.start()
    item(boss, others[1])
    assert before.items() <= waiting(boss).items()
    stopped.says("stopped")
    shutil.rmtree(removed.folder)
    left = {killed.id, *(other.id for other in others)}
    until(lambda: waiting(boss).keys() == left, "the end of two")
    assert session(boss, stopped)["state"] == session(boss, removed)["state"] == "ended"


def test_stop_without_a_report_is_no_death(boss: RunningBoss, agents: list[Agent]) -> None:
    done, at_work, *_ = agents
    boss.start()
    for one in (done, at_work):
        one.lives("busy")
        one.says("working", "active")
    until(lambda: len(boss.client.get("sessions")["sessions"]) == 2, "both")
    until(lambda: session(boss, at_work)["state"] == "working", "that it works")
    until(lambda: session(boss, done)["state"] == "working", "that it works")
    boss.end(signal.SIGKILL)
    done.spoke("all done", time.time())
    done.says("done")
    done.leaves()
    at_work.says("crashed", detail="exit 143; respawning")
    at_work.leaves()
    boss.start()
    assert item(boss, done, "all done")["reason"] == "stopped"
    dead = item(boss, at_work)
    assert dead["reason"] == "dead"
    # Its service starts it again, some seconds later.
    until(lambda: time.time() > dead["since"] + 5.1, "some time")
    at_work.lives("busy")
    until(lambda: session(boss, at_work)["state"] == "working", "that it works again")
    assert waiting(boss).keys() == {done.id}


def test_files_that_mean_nothing_report_nothing(boss: RunningBoss, config: Path, agents: list[Agent]) -> None:
    jobs = config / "jobs"
    for name, text in (("a", "{"), ("b", "[]"), ("c", '"x"'), ("d", '{"state": "blocked"}'), ("e", "")):
        (jobs / name).mkdir(parents=True)
        (jobs / name / "state.json").write_text(text)
    (jobs / "f").mkdir()
    (jobs / "pins.json").write_text("[]")
    os.mkfifo(jobs / "g")
    boss.start()
    assert boss.client.get("sessions", all=True)["sessions"] == []
    agents[0].says("blocked", needs="what now?")
    assert item(boss, agents[0])["message"] == "what now?"
