"""The boss and agents that no one keeps and whose hooks do not tell: their files, processes and panes do."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from remuda.boss.attention.model import Event, EventKind, Source
from remuda.boss.evidence.reconcile import Reconcile
from remuda.boss.evidence.watches import PollSettings
from remuda.boss.service import BossService
from remuda.keeper.environment import session_environment
from remuda.tmux.address import Address
from remuda.tmux.command import Tmux
from support.boss import RunningBoss, event, with_service
from support.heimdall_client import PATIENCE
from support.keeper import Process, Start, until
from support.tmux_attention import TmuxBench

RECONCILE = "remuda.boss.evidence.reconcile:Reconcile"
AGENT = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", "--permission-mode", "default"]


class Foreign:
    """A scripted agent in a pane, without hooks."""

    def __init__(self, tmux: TmuxBench, config: Path, boss: RunningBoss) -> None:
        self._tmux = tmux
        self._boss = boss
        self.config = config
        project = config.parent / "project"
        project.mkdir()
        env = {"CLAUDE_CONFIG_DIR": str(config), "MOCK_DIALOG_GUARD": "0", "MOCK_TIME_SCALE": "0.01"}
        command = shlex.join(["env", *(f"{name}={value}" for name, value in env.items()), *AGENT])
        tmux.run("new-session", "-d", "-s", "w", "-x", "100", "-y", "30", "-c", str(project), command)
        tmux.start()
        self.pane = tmux.run("display-message", "-p", "-t", "w", "#{pane_id}")
        until(lambda: "for shortcuts" in self.shown(), "the agent")

    def shown(self) -> str:
        return self._tmux.run("capture-pane", "-p", "-t", self.pane)

    def paste(self, text: str) -> None:
        self._tmux.run("set-buffer", text)
        self._tmux.run("paste-buffer", "-p", "-d", "-t", self.pane)
        self._tmux.run("send-keys", "-t", self.pane, "Enter")

    def press(self, key: str) -> None:
        self._tmux.run("send-keys", "-t", self.pane, key)

    def registered(self) -> dict[str, Any]:
        """What it says of itself."""
        (file,) = (self.config / "sessions").glob("*.json")
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def item(self, reason: str, message: str = "") -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = [one for one in self._boss.waiting() if one["reason"] == reason]
            return found[0] if found and message in found[0]["message"] else {}

        return until(look, f"{reason} in the queue")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "claude"
    (folder / "sessions").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


@pytest.fixture
def boss(home: Path, tmux: TmuxBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("TMUX_TMPDIR", tmux.env["TMUX_TMPDIR"])
    one = RunningBoss(home, (RECONCILE,))
    yield one
    one.close()


def test_agent_without_hooks_is_in_the_queue_with_its_pane(
    boss: RunningBoss, config: Path, tmux: TmuxBench
) -> None:
    boss.start()
    agent = Foreign(tmux, config, boss)
    agent.paste("hello")
    stopped = agent.item("stopped", "REPLY#1 to: hello")
    pid = stopped["session"]["pid"]
    assert (pid, stopped["session"]["origin"]) == (agent.registered()["pid"], "registry")
    until(lambda: agent.item("stopped")["session"]["pane"] == agent.pane, "its pane")
    agent.paste("RUNBASH touch made")
    agent.item("permission")
    agent.press("1")
    agent.item("stopped", "tool_result")
    agent.paste("SLOW 30 never mind")
    until(lambda: not boss.waiting() and "↓" in agent.shown(), "the first words of an answer")
    agent.press("Escape")
    until(lambda: agent.item("stopped")["detail"].get("interrupted"), "why it stopped")
    os.kill(pid, signal.SIGKILL)
    agent.item("dead")


def test_question_without_hooks_has_its_options(boss: RunningBoss, config: Path, tmux: TmuxBench) -> None:
    boss.start()
    agent = Foreign(tmux, config, boss)
    asked = {
        "question": "Which colour?",
        "header": "Colour",
        "options": [{"label": "Red"}, {"label": "Blue"}],
    }
    agent.paste(f"TOOL {json.dumps({'name': 'AskUserQuestion', 'input': {'questions': [asked]}})}")
    assert agent.item("question", "Which colour?")["detail"]["options"] == [asked]


def test_pane_on_a_socket_outside_the_usual_folder_is_found_by_its_process(
    boss: RunningBoss, config: Path, tmux: TmuxBench, home: Path
) -> None:
    tmux.address = Address.of(str(home / "elsewhere"))
    tmux.tmux = Tmux(tmux.address, tmux.env)
    boss.start()
    agent = Foreign(tmux, config, boss)
    agent.paste("hello")
    until(lambda: agent.item("stopped")["session"]["pane"] == agent.pane, "its pane")
    assert agent.item("stopped")["session"]["tmux"] == tmux.address.path


def test_first_turn_is_found_without_a_look(config: Path, tmp_path: Path) -> None:
    """Its transcript is made in that turn, and its registry file may not change."""
    document = {"pid": os.getpid(), "sessionId": "a", "status": "idle", "cwd": str(tmp_path)}
    document |= {"statusUpdatedAt": round(time.time() * 1000)}
    (config / "sessions" / f"{os.getpid()}.json").write_text(json.dumps(document))
    project = config / "projects" / "".join(c if c.isalnum() else "-" for c in str(tmp_path.resolve()))

    def record(**more: Any) -> str:
        at = datetime.now(UTC).isoformat()
        return json.dumps({"sessionId": "a", "uuid": str(uuid4()), "timestamp": at, **more}) + "\n"

    async def whole(service: BossService) -> None:
        source = Reconcile(service, {"CLAUDE_CONFIG_DIR": str(config)}, PollSettings(interval=3600.0))
        await source.start()
        try:
            async with asyncio.timeout(PATIENCE):
                while [session.state for session in service.sessions()] != ["started"]:
                    await asyncio.sleep(0.02)
            project.mkdir(parents=True)
            said = {
                "id": "m1",
                "role": "assistant",
                "content": [{"type": "text", "text": "done"}],
                "stop_reason": "end_turn",
            }
            (project / "a.jsonl").write_text(
                record(type="user", message={"role": "user", "content": "hello"})
                + record(type="assistant", message=said)
            )
            async with asyncio.timeout(PATIENCE):
                while [item.message for item in service.queue()] != ["done"]:
                    await asyncio.sleep(0.02)
        finally:
            await source.close()

    with_service(tmp_path, whole, time.time)


def test_stop_whose_last_words_come_late_is_never_listed_without_them(config: Path, tmp_path: Path) -> None:
    def write(session: str, pid: int, status: str) -> None:
        document = {"pid": pid, "sessionId": session, "status": status, "cwd": str(tmp_path)}
        document |= {"statusUpdatedAt": round(time.time() * 1000)}
        (config / "sessions" / f"{pid}.json").write_text(json.dumps(document))

    async def state(service: BossService, session: str, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while wanted not in [one.state for one in service.sessions() if one.id == session]:
                await asyncio.sleep(0.02)

    async def whole(service: BossService) -> None:
        polling = PollSettings(interval=3600.0, last_words_timeout=PATIENCE)
        source = Reconcile(service, {"CLAUDE_CONFIG_DIR": str(config)}, polling)
        await source.start()
        try:
            write("a", os.getpid(), "busy")
            await state(service, "a", "working")
            write("a", os.getpid(), "idle")
            write("b", os.getppid(), "busy")  # read after the stop of the other
            await state(service, "b", "working")
            assert [item.message for item in service.queue()] == []
            await service.take(
                Event(EventKind.STOPPED, "a", time.time(), Source.HOOK, "", {"message": "done"})
            )
            await state(service, "a", "stopped")
            assert [item.message for item in service.queue()] == ["done"]
        finally:
            await source.close()

    with_service(tmp_path, whole, time.time)


def test_stop_and_deaths_while_no_boss_ran_are_found(
    boss: RunningBoss, config: Path, tmux: TmuxBench
) -> None:
    agent = Foreign(tmux, config, boss)
    pid = agent.registered()["pid"]
    agent.paste("hello")
    until(lambda: agent.registered().get("status") == "idle" and "to: hello" in agent.shown(), "rest")
    boss.start()
    agent.item("stopped", "REPLY#1 to: hello")
    boss.end(signal.SIGKILL)
    agent.paste("again")
    until(lambda: "to: again" in agent.shown(), "an answer")
    boss.start()
    agent.item("stopped", "REPLY#2 to: again")
    boss.end(signal.SIGKILL)
    process = Process(pid)
    process.kill()
    process.close()
    boss.start()
    agent.item("dead")
    assert len(boss.waiting()) == 1


def test_clean_exit_is_no_death(boss: RunningBoss, config: Path, tmux: TmuxBench) -> None:
    boss.start()
    agent = Foreign(tmux, config, boss)
    agent.paste("hello")
    found = agent.item("stopped")["session"]
    process = Process(found["pid"])
    process.signal(signal.SIGTERM)
    process.gone()
    until(lambda: not boss.waiting(), "its end")
    assert boss.client.get("sessions", found["id"])["session"]["state"] == "ended"


def test_registry_files_that_mean_nothing_report_nothing(boss: RunningBoss, config: Path) -> None:
    folder = config / "sessions"
    own = {"pid": os.getpid(), "status": "idle", "statusUpdatedAt": 1000.0, "sessionId": "a"}
    (folder / "1.json").write_text("{")
    (folder / "2.json").write_text("[]")
    (folder / "x.json").write_text(json.dumps(own))
    (folder / "999999999.json").write_text(json.dumps({**own, "pid": 999999999}))
    (folder / f"{os.getppid()}.json").write_text(json.dumps(own))
    (folder / f"{os.getpid()}.json").write_text(json.dumps({**own, "procStart": "1"}))
    boss.start()
    assert boss.client.get("sessions", all=True)["sessions"] == []
    (folder / f"{os.getpid()}.json").write_text(json.dumps(own))
    until(lambda: boss.client.get("sessions")["sessions"], "the one that is true")


@pytest.mark.parametrize(
    "set_by",
    [pytest.param(0, marks=pytest.mark.soak(only=True)), 36000],
    ids=["clock as it was", "clock set forward since"],
)
def test_registry_that_contradicts_all_else_for_a_cycle_is_believed(
    boss: RunningBoss, config: Path, set_by: int
) -> None:
    now = time.time() - set_by
    began = round((now - 1) * 1000)
    told = {"pid": os.getpid(), "sessionId": "a", "status": "idle", "statusUpdatedAt": began}
    (config / "sessions" / f"{os.getpid()}.json").write_text(json.dumps(told))
    boss.start()
    # A hook that came late says that it works, after it had come to rest.
    boss.tell(event("prompted", now, session="a", pid=os.getpid()))
    assert boss.client.get("sessions", "a")["session"]["state"] == "working"
    until(lambda: boss.client.get("sessions", "a")["session"]["state"] == "stopped", "the registry's word")


def test_kept_session_is_left_to_its_keeper(boss: RunningBoss, config: Path, start: Start) -> None:
    boss.start()
    env = session_environment({**os.environ, "CLAUDE_CONFIG_DIR": str(config)}, "k", "HEIMDALL", {})
    start("k", AGENT, agent="demo", env=env, cwd=str(config))
    until(lambda: list((config / "sessions").glob("*.json")), "its registry file")
    (config / "sessions" / f"{os.getpid()}.json").write_text(
        json.dumps({"pid": os.getpid(), "sessionId": "other", "status": "idle", "statusUpdatedAt": 1000.0})
    )
    found = until(lambda: boss.client.get("sessions")["sessions"], "a session that nobody keeps")
    assert [one["id"] for one in found] == ["other"]
