"""How late the boss may be: a change is heard of though no one looks, and found by a look where no one tells.

No time is measured. A look comes once in an hour, or no one is told of anything: what arrives all the same
came by the other way, and how long that takes is what the guide says.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda.agents.claude.setup.boss_hooks import make_hooks
from remuda.boss.attention.model import Activity, BossSession, Item
from remuda.boss.evidence import detector
from remuda.boss.evidence.kept import KeptSessions
from remuda.boss.evidence.reconcile import CYCLE, SETTLE, Reconcile
from remuda.boss.evidence.spool import Spool
from remuda.boss.evidence.watches import PollSettings
from remuda.boss.ports import EventSource
from remuda.boss.service import BossService
from remuda.keeper.environment import session_environment
from support.boss import event, open_service
from support.keeper import Start, event_named
from support.watcher import Watcher

HOOKS = str(Path(remuda.__file__).parent / "boss")
GUIDE = Path(__file__).parents[2] / "docs/reference/boss.md"
TOLD = PollSettings(interval=3600.0)
LOOKED_FOR = PollSettings(interval=0.05, uses_events=False)
both_ways = pytest.mark.parametrize("polling", [TOLD, LOOKED_FOR], ids=["told", "looked_for"])


@asynccontextmanager
async def listening(folder: Path, source: Callable[[BossService], EventSource]) -> AsyncIterator[BossService]:
    """A service to which that source alone tells what it sees."""
    async with open_service(folder, time.time) as service, asyncio.timeout(30):
        one = source(service)
        await one.start()
        try:
            yield service
        finally:
            await one.close()


async def until_session(service: BossService, is_so: Callable[[BossSession], bool]) -> BossSession:
    """As soon as a session is so. Woken by changes alone."""
    watcher = service.feed.watch()
    try:
        while (found := next(filter(is_so, service.sessions()), None)) is None:
            await anext(watcher)
        return found
    finally:
        watcher.close()


async def until_state(service: BossService, state: Activity) -> Item | None:
    session = await until_session(service, lambda one: one.state is state)
    return service.item_of(session.id)


# ── hooks ──


@both_ways
def test_what_a_hook_reports_is_known(tmp_path: Path, polling: PollSettings) -> None:
    """There is no socket: where a boss is not told of files, its hooks leave them all the same."""
    folder = tmp_path / "boss"
    folder.mkdir()

    def run(event: str) -> None:
        payload = {"session_id": "talk", "hook_event_name": event, "cwd": "/srv"}
        command = make_hooks(sys.executable, HOOKS, str(folder))[event]["command"]
        env = {name: value for name, value in os.environ.items() if name != "REMUDA_SESSION"}
        subprocess.run(
            ["/bin/sh", "-c", command], env=env, input=json.dumps(payload).encode(), timeout=30, check=True
        )

    async def work() -> None:
        async with listening(tmp_path, lambda service: Spool(service, folder / "spool", polling)) as service:
            for event_name, state in (
                ("UserPromptSubmit", Activity.WORKING),
                ("Stop", Activity.STOPPED),
            ):
                await asyncio.to_thread(run, event_name)
                await until_state(service, state)

    asyncio.run(work())


# ── agents that no one keeps and whose hooks do not tell ──


class Agent:
    """Writes what an agent writes, with some seconds between. Its process is one that only lives."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "claude"
        self.registry = self.config / "sessions"
        self.registry.mkdir(parents=True)
        self.transcript = self.config / "projects" / "-srv" / "talk.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self.transcript.touch()
        self.process = subprocess.Popen(["sleep", "1000"])
        self._uuid = 0
        self._at = time.time() - 60

    @property
    def file(self) -> Path:
        return self.registry / f"{self.process.pid}.json"

    def source(self, polling: PollSettings) -> Callable[[BossService], EventSource]:
        env = {"CLAUDE_CONFIG_DIR": str(self.config), "TMUX_TMPDIR": str(self.config)}
        return lambda service: Reconcile(service, env, polling)

    def says(self, status: str) -> None:
        at = round(self._later() * 1000)
        told = {"pid": self.process.pid, "sessionId": "talk", "status": status, "statusUpdatedAt": at}
        part = self.registry / ".part"
        part.write_text(json.dumps({**told, "cwd": "/srv"}))
        part.rename(self.file)

    def writes(self, kind: str, text: str) -> None:
        self._uuid += 1
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._later()))
        reason = {"stop_reason": "end_turn", "id": f"m{self._uuid}"} if kind == "assistant" else {}
        message = {"role": kind, "content": [{"type": "text", "text": text}], **reason}
        told = {"type": kind, "uuid": str(self._uuid), "sessionId": "talk", "timestamp": stamp}
        with self.transcript.open("a") as file:
            file.write(json.dumps({**told, "message": message}) + "\n")

    def _later(self) -> float:
        self._at += 3
        return self._at

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    one = Agent(tmp_path)
    yield one
    one.close()


@both_ways
def test_change_of_a_registry_file_is_known(agent: Agent, tmp_path: Path, polling: PollSettings) -> None:
    async def work() -> None:
        async with listening(tmp_path, agent.source(polling)) as service:
            for status, state in (
                ("busy", Activity.WORKING),
                ("idle", Activity.STOPPED),
                ("busy", Activity.WORKING),
            ):
                agent.says(status)
                await until_state(service, state)
            agent.file.unlink()
            await until_state(service, Activity.ENDED)

    asyncio.run(work())


@both_ways
def test_record_of_a_transcript_is_known(agent: Agent, tmp_path: Path, polling: PollSettings) -> None:
    async def work() -> None:
        async with listening(tmp_path, agent.source(polling)) as service:
            began = time.time() - 60
            await service.take(
                event("prompted", began, session="talk", transcript_path=str(agent.transcript))
            )
            for number in range(3):
                agent.writes("assistant", f"done {number}")
                item = await until_state(service, Activity.STOPPED)
                assert item is not None
                assert item.message == f"done {number}"
                agent.writes("user", f"more {number}")
                await until_state(service, Activity.WORKING)
            agent.writes("user", "[Request interrupted by user]")
            item = await until_state(service, Activity.STOPPED)
            assert item is not None
            assert item.detail == {"interrupted": True}

    asyncio.run(work())


@both_ways
def test_death_of_a_process_is_known(agent: Agent, tmp_path: Path, polling: PollSettings) -> None:
    async def work() -> None:
        agent.says("busy")
        async with listening(tmp_path, agent.source(polling)) as service:
            await until_state(service, Activity.WORKING)
            agent.process.send_signal(signal.SIGKILL)
            agent.process.wait()
            await until_state(service, Activity.DEAD)

    asyncio.run(work())


def test_registry_folder_that_appears_later_is_found_by_a_look(agent: Agent, tmp_path: Path) -> None:
    async def work() -> None:
        agent.registry.rename(tmp_path / "later")
        async with listening(tmp_path, agent.source(PollSettings(interval=0.05))) as service:
            (tmp_path / "later").rename(agent.registry)
            agent.says("busy")
            await until_state(service, Activity.WORKING)

    asyncio.run(work())


# ── kept sessions ──


@both_ways
def test_kept_session_that_begins_stops_and_ends_is_known(
    start: Start, tmp_path: Path, home: Path, polling: PollSettings
) -> None:
    config, project = tmp_path / "claude", tmp_path / "project"
    config.mkdir()
    project.mkdir()

    def begin() -> Watcher:
        own = {"CLAUDE_CONFIG_DIR": str(config), "MOCK_TIME_SCALE": "0.01"}
        env = session_environment({**os.environ, **own}, "k", "HEIMDALL", {})
        argv = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent"]
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30}
        kept = start("k", argv, cwd=str(project), env=env, **given)
        client = kept.hello()
        client.request("watch")
        if not client.request("ready")["ready"]:
            event_named(client, "ready")
        return Watcher(kept.hello())

    async def work() -> None:
        async with listening(
            tmp_path, lambda service: KeptSessions(service, home / "sessions", polling)
        ) as service:
            watcher = await asyncio.to_thread(begin)
            session = await until_session(service, lambda one: one.name == "k")
            watcher.paste("hello")
            item = await until_state(service, Activity.STOPPED)
            assert item is not None
            assert item.message == "REPLY#1 to: hello"
            assert session.pid is not None
            os.kill(session.pid, signal.SIGKILL)
            await until_state(service, Activity.DEAD)

    asyncio.run(work())


# ── the guide ──


def test_guide_says_how_late_it_may_be() -> None:
    told = dict(re.findall(r"^\| ([^|]+?) \|.*\| ([^|]+?) \|$", GUIDE.read_text(), re.MULTILINE))
    assert PollSettings().interval == CYCLE == 5.0
    assert told["any of these where the system reports no file changes"] == f"{CYCLE:g} s"
    assert told["a Claude session without our hooks"] == f"1 s; its pane {CYCLE:g} s"
    assert SETTLE < 0.5  # a second, with the reading of a file
    settings = detector.DetectorSettings()
    looks = f"{settings.quiet_threshold:g} s and a poll of {settings.poll_interval:g} s"
    assert looks in told.values()
