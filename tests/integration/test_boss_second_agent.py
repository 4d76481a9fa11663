"""An invented agent with other files, words and tools: the boss needs its sources and one line, no more."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda import agents
from remuda.agents.attention import Event, EventKind
from remuda.agents.permission import PermissionRequest, Refusals
from remuda.agents.plain import PlainAgent
from remuda.agents.sources import (
    AgentSources,
    BackgroundJob,
    NoSources,
    PermissionReader,
    ReadFile,
    RegistryEntry,
)
from remuda.agents.state import Source
from remuda.boss.answers.decision import read_decision
from remuda.boss.answers.idle_proof import check_registry
from remuda.boss.answers.permission_policy import read_policy
from remuda.boss.answers.policy_request import make_request
from remuda.boss.attention.model import Activity, Approval, BossSession, Reason
from remuda.boss.evidence.reconcile import Reconcile
from remuda.boss.evidence.watches import PollSettings
from remuda.boss.navigator import way_to
from remuda.boss.service import BossService
from remuda.errors import InvalidOptions, NotSafe
from support.boss import RunningBoss, open_service
from support.second_agent import installed

_MOODS = {"grazing": EventKind.STOPPED, "running": EventKind.WORKING, "neighing": EventKind.ASKED}


class PonyPermissions:
    command_fields: Mapping[str, str] = {"trot": "line"}
    quiet_tools = frozenset({"sniff"})

    def reason(self, tool: str) -> str:
        return "question" if tool == "neigh" else "permission"

    def facts(self, tool: str, given: object, read: ReadFile | None = None) -> dict[str, Any]:
        return {"reason": self.reason(tool), "tool": tool, "input": given, "message": f"{tool}?"}

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        return set(given) == {field}

    def path_fields(self, given: object) -> Iterator[object]:
        if isinstance(given, dict) and "stable" in given:
            yield given["stable"]

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        return None

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        return {**given, "said": dict(answers)}

    def refusals(self, request: PermissionRequest) -> Refusals:
        return Refusals(always="a pony cannot trot always") if request.tool == "trot" else Refusals()


class PonySources(NoSources):
    agent = "pony"
    permissions: PermissionReader = PonyPermissions()

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002  # the id of the event
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        facts = {"agent": "pony", "message": payload["words"]}
        return [Event(EventKind.STOPPED, payload["ride"], at, Source.HOOK, id, facts)]

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path | None:
        return Path(env["PONY_HOME"]) / "paddock" if "PONY_HOME" in env else None

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        mood, ride = document["mood"], document["ride"]
        facts = {"agent": "pony", "origin": "registry", "pid": document["hoof"]}
        event = Event(_MOODS[mood], ride, document["since"], Source.REGISTRY, f"pony:{ride}:{mood}", facts)
        return RegistryEntry(document["hoof"], event, mood, is_idle=mood == "grazing")

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        path = Path(env["PONY_HOME"]) / "trails" / f"{session_id}.trail"
        return path if path.exists() else None

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> Iterable[Path]:
        return [Path(env["PONY_HOME"]) / "trails", Path(env["PONY_HOME"])]

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        kind = EventKind.PROMPTED if record["who"] == "rider" else EventKind.STOPPED
        facts = {"prompt" if kind is EventKind.PROMPTED else "message": record["words"]}
        return [Event(kind, session_id, record["when"], Source.TRANSCRIPT, f"pony:{record['when']}", facts)]

    def job_files(self, registry: Path) -> Iterable[Path]:
        return sorted(registry.parent.glob("errands/*/note.json"))

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        return BackgroundJob("pony", document["ride"], "blocked", rests=True, at=document["at"], needs="oats")

    def attach_command(self, session_id: str) -> str:
        return f"pony mount {session_id}"


class PonyAgent(PlainAgent):
    sources: AgentSources | None = PonySources()

    def __init__(self) -> None:
        super().__init__("pony", classifier="simple")


@pytest.fixture
def pony(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one line that adds an agent; returns its folder."""
    monkeypatch.setitem(agents._AGENTS, "pony", PonyAgent)
    monkeypatch.setenv("PONY_HOME", str(tmp_path / "pony"))
    monkeypatch.setenv("HOME", str(tmp_path))
    agents.find_sources.cache_clear()
    (tmp_path / "pony" / "paddock").mkdir(parents=True)
    (tmp_path / "pony" / "trails").mkdir()
    yield tmp_path / "pony"
    agents.find_sources.cache_clear()


def says(pony: Path, mood: str) -> None:
    document = {"hoof": os.getpid(), "ride": "r1", "mood": mood, "since": time.time()}
    part = pony / "part"
    part.write_text(json.dumps(document))
    part.rename(pony / "paddock" / f"{os.getpid()}.json")


@asynccontextmanager
async def reconciled(folder: Path, pony: Path) -> AsyncIterator[BossService]:
    async with open_service(folder, time.time) as service, asyncio.timeout(30):
        env = {"PONY_HOME": str(pony), "HOME": str(folder), "TMUX_TMPDIR": str(folder)}
        source = Reconcile(service, env, PollSettings(interval=0.1))
        await source.start()
        try:
            yield service
        finally:
            await source.close()


async def until_waits(service: BossService, session_id: str) -> str:
    while (item := service.item_of(session_id)) is None or not item.message:
        await asyncio.sleep(0.02)
    return item.message


def test_registry_and_transcript_of_a_second_agent_lead_to_the_queue(pony: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with reconciled(tmp_path, pony) as service:
            says(pony, "running")
            while not any(one.state is Activity.WORKING for one in service.sessions()):
                await asyncio.sleep(0.02)
            with (pony / "trails" / "r1.trail").open("w") as file:
                for who, words in (("rider", "go"), ("pony", "we are there")):
                    file.write(json.dumps({"who": who, "words": words, "when": time.time()}) + "\n")
            assert await until_waits(service, "r1") == "we are there"
            (session,) = service.sessions()
            assert (session.agent, session.pid) == ("pony", os.getpid())

    asyncio.run(work())


def test_background_job_of_a_second_agent_leads_to_the_queue(pony: Path, tmp_path: Path) -> None:
    note = pony / "errands" / "e1" / "note.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"ride": "r2", "at": time.time()}))

    async def work() -> None:
        async with reconciled(tmp_path, pony) as service:
            assert await until_waits(service, "r2") == "oats"

    asyncio.run(work())
    item = {"session": {"id": "r2", "origin": "background", "agent": "pony"}}
    assert way_to(item) == "open it with 'pony mount r2'"


def test_registry_of_a_second_agent_proves_that_it_is_idle(pony: Path) -> None:
    session = BossSession("r1", agent="pony", pid=os.getpid())
    sources = agents.find_sources("pony")
    assert sources is not None
    says(pony, "neighing")
    with pytest.raises(NotSafe, match="neighing"):
        check_registry(session, sources)
    says(pony, "grazing")
    check_registry(session, sources)


@pytest.mark.usefixtures("pony")
def test_policy_and_decisions_use_the_words_of_a_second_agent() -> None:
    policy = read_policy({"rule": [{"decision": "allow", "command": "echo *"}]}, "/", str)
    request = make_request("trot", Reason.PERMISSION, {"line": "echo home"}, [], "/", agent="pony")
    assert (request.command, str(policy.decide(request).decision)) == ("echo home", "allow")
    other = make_request("trot", Reason.PERMISSION, {"line": "echo home"}, [], "/")
    assert (other.command, str(policy.decide(other).decision)) == (None, "ask")
    question = Approval("1", "r1", Reason.QUESTION, "neigh", {}, 1.0)
    answer = {"behavior": "allow", "answers": {"why": "oats"}}
    assert read_decision(question, answer, "pony").input == {"said": {"why": "oats"}}
    trot = Approval("2", "r1", Reason.PERMISSION, "trot", {"line": "x"}, 1.0)
    with pytest.raises(InvalidOptions, match="cannot trot always"):
        read_decision(trot, {"behavior": "allow", "always": True}, "pony")


def test_edit_request_of_a_second_agent_over_http_is_shown_as_a_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = tmp_path / "fence"
    fence.write_text("oak")
    wanted = {"line": "pine", "fence": str(fence)}
    note = {"gait": "balked", "trail": "t1", "path": "", "kick": "k1", "tool": "mend", "input": wanted}
    boss = RunningBoss(tmp_path)
    with installed(monkeypatch):
        boss.start()
        try:
            boss.client.post("hooks", body={"agent": "pinto", "payload": {"session_id": "t1", **note}})
            (approval,) = boss.client.get("approvals", state="open")["approvals"]
        finally:
            boss.close()
    assert (approval["tool"], approval["detail"]["diff"]) == ("mend", "-oak\n+pine\n")
