"""Whether a stop is the end: who else could send the agent on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.agents import find_agent
from remuda.agents.claude.last_word import LastWord

STOP = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
HARMLESS = {"hooks": {"PreToolUse": [], "Stop": []}, "enabledPlugins": {"x@y": False}, "model": "m"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "project" / ".claude").mkdir(parents=True)
    return tmp_path


def last_word(folder: Path, *arguments: str, given: Mapping[str, Any] | None = None) -> LastWord:
    return LastWord(arguments, given or {}, {"HOME": str(folder / "home")}, folder / "project")


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


FILES = ["home/.claude/settings.json", "project/.claude/settings.json", "project/.claude/settings.local.json"]


def test_without_hooks_of_others_it_is_ours(folder: Path) -> None:
    assert last_word(folder)()
    for name in FILES:
        write(folder / name, HARMLESS)
    assert last_word(folder)()


@pytest.mark.parametrize("name", [*FILES, "home/.claude/remote-settings.json"])
@pytest.mark.parametrize("document", [STOP, {"enabledPlugins": {"x@y": True}}, {"agent": "reviewer"}])
def test_others_in_any_settings_file_have_a_say(folder: Path, name: str, document: object) -> None:
    write(folder / name, document)
    assert not last_word(folder)()


def test_hook_that_comes_and_goes_while_the_agent_runs_counts_at_once(folder: Path) -> None:
    asked = last_word(folder)
    assert asked()
    write(folder / FILES[1], STOP)
    assert not asked()
    (folder / FILES[1]).unlink()
    assert asked()


@pytest.mark.parametrize(
    ("chosen", "ours"),
    [("--setting-sources=", [True, True, True]), ("--setting-sources=user", [False, True, True])],
)
def test_sources_that_were_left_out_have_no_say(folder: Path, chosen: str, ours: list[bool]) -> None:
    for name, expected in zip(FILES, ours, strict=True):
        write(folder / name, STOP)
        assert last_word(folder, chosen)() is expected
        (folder / name).unlink()


def test_sources_may_be_a_word_of_their_own(folder: Path) -> None:
    write(folder / FILES[0], STOP)
    assert last_word(folder, "--setting-sources", "project,local")()
    assert not last_word(folder, "--setting-sources", "user")()


@pytest.mark.parametrize(
    "flag", ["--plugin-dir=x", "--agents={}", "--agent=reviewer", "--managed-settings=x"]
)
def test_flags_that_may_bring_hooks_have_a_say(folder: Path, flag: str) -> None:
    assert not last_word(folder, flag)()


def test_given_settings_have_a_say(folder: Path) -> None:
    assert not last_word(folder, given=STOP)()
    assert last_word(folder, given=HARMLESS)()


@pytest.mark.parametrize(
    "where", ["home/.claude/skills/x/SKILL.md", "project/.claude/commands/y.md", ".claude/skills/z/SKILL.md"]
)
def test_skill_with_hooks_has_a_say(folder: Path, where: str) -> None:
    path = folder / where
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: x\n---\nplain")
    assert last_word(folder)()
    path.write_text("---\nname: x\nhooks:\n  Stop: []\n---\nplain")
    assert not last_word(folder)()
    assert last_word(folder, "--setting-sources=")()


def test_agent_reads_it_from_a_command_line(folder: Path) -> None:
    env, cwd = {"HOME": str(folder / "home")}, folder / "project"
    agent = find_agent("claude")
    assert agent.last_word(["claude", "--settings", json.dumps(HARMLESS)], env, cwd)()
    assert not agent.last_word(["claude", "--settings", json.dumps(STOP)], env, cwd)()
    assert not find_agent("simple").last_word(["cat"], env, cwd)()
