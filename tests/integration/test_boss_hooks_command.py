"""`remuda hooks install --boss` and back, as a user runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.setup.boss_hooks import EVENTS, find_hooks
from support.commands import Commands

# Odd spacing, escapes, big numbers, hooks of others, and places that are empty.
THEIRS = """{
    "model": "opus",
    "weird é \\ud83d\\ude00": [1, 2.5, 12345678901234567890, null, {"deep": {}}],
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}],
        "Notification": [],
        "Stop": [{"hooks": [{"type": "command", "command": "heartbeat-stop --inbox x"}]}]
    },
    "zlast": true
}
"""


@pytest.fixture
def settings(remuda: Commands) -> Path:
    path = remuda.home / ".claude" / "settings.json"
    path.parent.mkdir()
    return path


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def shown(remuda: Commands) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(remuda("hooks", "show", "--boss", "--json").out)
    return found


def test_install_keeps_all_else_and_is_undone_to_the_byte(remuda: Commands, settings: Path) -> None:
    settings.write_text(THEIRS)
    assert "+" in remuda("hooks", "install", "--boss", "--dry-run").out
    assert settings.read_text() == THEIRS
    assert "nothing was changed" in remuda("hooks", "install", "--boss", code=2).err
    assert settings.read_text() == THEIRS
    remuda("hooks", "install", "--boss", "--yes")
    found = read(settings)
    assert sorted(one.event for one in find_hooks(found)) == sorted(EVENTS)
    theirs = json.loads(THEIRS)
    assert {**found, "hooks": theirs["hooks"]} == theirs
    assert found["hooks"]["PreToolUse"] == theirs["hooks"]["PreToolUse"]
    assert found["hooks"]["Stop"][0] == theirs["hooks"]["Stop"][0]
    installed = settings.read_text()
    assert "nothing to change" in remuda("hooks", "install", "--boss", "--yes").out
    assert settings.read_text() == installed
    assert shown(remuda)[0]["state"] == "ok"
    remuda("hooks", "uninstall", "--boss", "--yes")
    assert settings.read_text() == THEIRS
    assert "nothing to change" in remuda("hooks", "uninstall", "--boss", "--yes").out


def test_file_that_was_changed_meanwhile_loses_ours_alone(remuda: Commands, settings: Path) -> None:
    settings.write_text(THEIRS)
    remuda("hooks", "install", "--boss", "--yes")
    found = read(settings)
    found["model"] = "other"
    found["hooks"]["Stop"][-1]["hooks"].append({"type": "command", "command": "mine"})
    settings.write_text(json.dumps(found, indent=2))
    remuda("hooks", "uninstall", "--boss", "--yes")
    after, theirs = read(settings), json.loads(THEIRS)
    assert after["hooks"]["Stop"] == [
        *theirs["hooks"]["Stop"],
        {"hooks": [{"type": "command", "command": "mine"}]},
    ]
    assert after["model"] == "other"
    assert after["hooks"]["PreToolUse"] == theirs["hooks"]["PreToolUse"]
    assert find_hooks(after) == []


def test_file_that_was_not_there_is_gone_again(remuda: Commands, settings: Path) -> None:
    remuda("hooks", "install", "--boss", "--yes")
    assert len(find_hooks(read(settings))) == len(EVENTS)
    remuda("hooks", "uninstall", "--boss", "--yes")
    assert not settings.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"a": 1, "a": 2}'])
def test_file_that_is_not_as_it_should_be_is_left_alone(remuda: Commands, settings: Path, text: str) -> None:
    settings.write_text(text)
    remuda.refused("hooks", "install", "--boss", "--yes", code=2)
    assert settings.read_text() == text


def test_hooks_of_another_installation_are_reported_and_replaced(remuda: Commands, settings: Path) -> None:
    remuda("hooks", "install", "--boss", "--yes")
    changed = settings.read_text().replace("/remuda/boss/hook.", "/gone/remuda/boss/hook.")
    settings.write_text(changed)
    assert "is gone" in remuda("hooks", "show", "--boss", code=1).out
    assert "the boss's hooks" in remuda("doctor", code=0).out
    remuda("hooks", "install", "--boss", "--yes")
    assert len(find_hooks(read(settings))) == len(EVENTS)
    assert shown(remuda)[0]["problems"] == []


def test_command_of_a_hook_is_silent_when_remuda_is_gone(remuda: Commands, settings: Path) -> None:
    remuda("hooks", "install", "--boss", "--yes")
    command = read(settings)["hooks"]["Stop"][0]["hooks"][0]["command"].replace("hook.sh", "gone.sh")
    done = subprocess.run(command, shell=True, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
