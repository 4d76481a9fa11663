"""Agents by name: ours, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import agents
from remuda.errors import InvalidOptions


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages, which Python searches."""
    monkeypatch.syspath_prepend(str(tmp_path))
    agents._installed.cache_clear()
    agents.find_sources.cache_clear()
    yield tmp_path
    agents._installed.cache_clear()
    agents.find_sources.cache_clear()


def name_agent(folder: Path, line: str) -> None:
    (folder / "other-1.dist-info").mkdir()
    (folder / "other-1.dist-info" / "entry_points.txt").write_text(f"[remuda.agents]\n{line}\n")


def test_package_brings_an_agent_and_cannot_replace_one_of_ours(packages: Path) -> None:
    name_agent(packages, "burro = remuda.agents.claude.agent:DemoAgent\nclaude = nothing:At")
    assert agents.agent_names()[-1] == "burro"
    assert agents.find_agent("burro").name == "demo"
    assert agents.find_agent("claude").name == "claude"


def test_agent_that_cannot_be_loaded_is_an_error_for_itself_alone(packages: Path) -> None:
    name_agent(packages, "burro = nothing_of_the_kind:Burro")
    with pytest.raises(InvalidOptions, match="agent 'burro' cannot be loaded: No module named"):
        agents.find_agent("burro")
    assert {"claude", "codex", "copilot", "opencode"} <= {one.agent for one in agents.all_sources()}
    assert agents.agent_setups()


@pytest.mark.usefixtures("packages")
def test_unknown_agent_is_named_with_those_that_there_are() -> None:
    with pytest.raises(InvalidOptions, match="unknown agent 'mule'") as raised:
        agents.find_agent("mule")
    assert raised.value.hint == f"use one of: {', '.join(agents.agent_names())}"
    assert {"claude", "codex", "copilot", "opencode", "simple", "none", "demo"} <= set(agents.agent_names())
    assert not agents.is_agent("mule")
    assert agents.find_sources("mule") is None
