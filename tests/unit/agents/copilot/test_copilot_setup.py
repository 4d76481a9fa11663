"""The boss's hooks in copilot's folder: only ours, and gone without a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.agents import setup_of, used_setups
from remuda.agents.copilot.setup import EVENTS, CopilotSetup
from remuda.errors import InvalidOptions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path / "copilot"))
    return tmp_path / "copilot"


def test_hooks_added_found_and_removed(folder: Path, tmp_path: Path) -> None:
    setup = CopilotSetup()
    assert not setup.is_used()
    folder.mkdir()
    path = setup.settings_path("user")
    assert path in [one.settings_path("user") for one in used_setups()]
    assert isinstance(setup_of(path), CopilotSetup)
    boss = tmp_path / "the boss"
    file = setup.open_settings(path)
    assert file.add_boss_hooks(boss) == len(EVENTS)
    assert file.save()
    assert not file.save()
    [group] = setup.boss_hooks(boss)
    assert (group.events, group.folder, group.problems) == (list(EVENTS), str(boss), [])
    [other] = setup.boss_hooks(tmp_path)
    assert other.problems == [f"it reports to another boss, in {boss}"]
    again = setup.open_settings(path)
    assert again.had_hooks
    assert again.remove_boss_hooks() == len(EVENTS)
    again.save()
    assert not path.exists()
    assert setup.boss_hooks(boss) == []


@pytest.mark.parametrize(
    "text", ["not json", json.dumps({"hooks": {"Stop": [{"type": "command", "bash": "touch mine"}]}})]
)
def test_file_of_another_stays_as_it_is(folder: Path, text: str) -> None:
    setup = CopilotSetup()
    path = setup.settings_path("user")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InvalidOptions, match=r"nothing was changed|not ours"):
        setup.open_settings(path)
    assert setup.broken_settings() == [path]
    assert setup.boss_hooks(folder) == []
    assert path.read_text() == text
