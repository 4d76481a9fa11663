"""What an agent's registry must say before anything is typed into its pane."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.sources import ClaudeSources
from remuda.boss.answers.idle_proof import check_registry
from remuda.boss.attention.model import BossSession
from remuda.durable import replace_file
from remuda.errors import NotSafe

PATIENCE = 30.0


class Agent:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "sessions" / "7.json"
        self._file.parent.mkdir()
        transcript = folder / "projects" / "p" / "s.jsonl"
        self.session = BossSession("s", pid=7, transcript_path=str(transcript))

    def says(self, status: str, **more: Any) -> None:
        replace_file(self._file, json.dumps({"pid": 7, "sessionId": "s", "status": status, **more}).encode())

    def tears(self) -> None:
        replace_file(self._file, b'{"sessionId": "s", "st')


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def refused(agent: Agent) -> str:
    with pytest.raises(NotSafe) as told:
        check_registry(agent.session, ClaudeSources())
    return str(told.value)


def test_registry_that_says_idle_is_enough(agent: Agent) -> None:
    agent.says("busy")
    assert refused(agent)
    agent.says("idle")
    check_registry(agent.session, ClaudeSources())  # raises NotSafe otherwise


def test_registry_that_says_anything_else_is_reported(agent: Agent) -> None:
    assert "cannot read" in refused(agent)
    agent.tears()
    assert "cannot read" in refused(agent)
    agent.says("busy")
    assert refused(agent) == "the agent's registry file says: busy"
    agent.says("waiting", waitingFor="permission prompt")
    assert refused(agent) == "the agent's registry file says: waiting, permission prompt"
    agent.says("idle", sessionId="other")
    assert "another conversation" in refused(agent)


@pytest.mark.parametrize("before", ["busy", "torn"])
def test_registry_that_is_a_moment_behind_is_waited_for(agent: Agent, before: str) -> None:
    agent.says("busy")
    if before == "torn":
        agent.tears()
    with ThreadPoolExecutor(1) as beside:
        checking = beside.submit(check_registry, agent.session, ClaudeSources(), PATIENCE)
        with pytest.raises(TimeoutError):
            checking.result(0.2)
        agent.says("idle")
        checking.result(PATIENCE)


def test_dialog_is_not_waited_for(agent: Agent) -> None:
    agent.says("waiting")
    with ThreadPoolExecutor(1) as beside:
        assert isinstance(
            beside.submit(check_registry, agent.session, ClaudeSources(), 2 * PATIENCE).exception(PATIENCE),
            NotSafe,
        )
