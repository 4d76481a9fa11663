"""The scripted agent in a home and a project of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.scripted_agent.probe import SCRIPTED, Probe
from support.agents import Start


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.claude").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.claude").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture
def start(home: Path, project: Path) -> Iterator[Start]:
    """Starts the agent in manual mode."""
    with ExitStack() as stack:

        def run(*flags: str, env: Mapping[str, str] | None = None, **given: Any) -> Probe:
            variables = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(env or {})}
            mode = [] if "--permission-mode" in flags else ["--permission-mode", "manual"]
            probe = Probe(SCRIPTED, *mode, *flags, home=home, project=project, env=variables, **given)
            return stack.enter_context(probe)

        yield run


@pytest.fixture
def agent(start: Start) -> Probe:
    """The agent, ready for a prompt."""
    probe = start()
    probe.ready()
    return probe


@pytest.fixture
def ready(start: Start) -> Start:
    """Starts the agent, with dialogs that hear every key, and waits until it is ready."""

    def run(*flags: str, env: Mapping[str, str] | None = None, **given: Any) -> Probe:
        probe = start(*flags, env={"MOCK_DIALOG_GUARD": "0", **(env or {})}, **given)
        probe.ready()
        return probe

    return run
