"""Claude Code's settings files as an `AgentSetup`: what is added, recognised and removed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.agents import agent_setups, default_setup, find_agent
from remuda.agents.claude.setup.claude_setup import ClaudeSetup
from remuda.agents.setup import AgentSettings
from remuda.errors import InvalidOptions

OTHERS = {
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "Notification": [{"matcher": "", "hooks": []}, "not a group"],
    },
    "model": "opus",
}


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(OTHERS, indent=2) + "\n")
    return default_setup().open_settings(path)


def add_inbox_hook(settings: AgentSettings, inbox: str, *, keep_cap: bool = False) -> str:
    return settings.add_inbox_hook(["--inbox", inbox], timeout=60, keep_cap=keep_cap).lifted_cap


def saved(settings: AgentSettings) -> dict[str, object]:
    settings.save()
    document: dict[str, object] = json.loads(settings.path.read_text())
    return document


def test_only_agents_with_settings_files_are_set_up() -> None:
    assert any(isinstance(one, ClaudeSetup) for one in agent_setups())
    assert find_agent("simple").setup() is None
    assert find_agent("demo").setup() is None


def test_added_and_removed_hooks_leave_the_text_as_it_was(settings: AgentSettings, tmp_path: Path) -> None:
    before = settings.path.read_text()
    settings.add_boss_hooks(tmp_path / "boss")
    add_inbox_hook(settings, "/run/inbox.jsonl")
    settings.save()
    settings.remove_boss_hooks()
    assert settings.remove_inbox_hooks(None, restore_cap=True).is_last
    assert settings.had_hooks
    assert not settings.has_hooks
    settings.save()
    assert settings.path.read_text() == before


def test_hooks_are_found_with_their_problems(settings: AgentSettings, tmp_path: Path) -> None:
    settings.add_boss_hooks(tmp_path / "boss")
    add_inbox_hook(settings, str(tmp_path / "missing" / "inbox.jsonl"))
    settings.save()
    setup = default_setup()
    [group] = setup.boss_hooks(tmp_path / "boss", settings.path)
    assert group.problems == []
    [elsewhere] = setup.boss_hooks(tmp_path / "other", settings.path)
    assert elsewhere.problems == [f"it reports to another boss, in {tmp_path / 'boss'}"]
    [hook] = setup.inbox_hooks(settings.path)
    assert hook.problems == [f"the folder of its inbox {hook.inbox} is missing"]
    assert str(settings.path) in hook.fix


def test_a_second_hook_for_an_inbox_replaces_the_first(settings: AgentSettings) -> None:
    add_inbox_hook(settings, "/run/inbox.jsonl")
    first = saved(settings)
    add_inbox_hook(settings, "/run/./inbox.jsonl")
    assert len(json.dumps(first)) < len(json.dumps(saved(settings)))
    assert len(default_setup().inbox_hooks(settings.path)) == 1


def test_the_hook_of_another_inbox_stays(settings: AgentSettings) -> None:
    add_inbox_hook(settings, "/run/inbox.jsonl")
    add_inbox_hook(settings, "/run/other.jsonl")
    removed = settings.remove_inbox_hooks("/run/inbox.jsonl", restore_cap=True)
    assert removed.hooks == ["/run/inbox.jsonl"]
    assert not removed.is_last
    assert not removed.restored_cap
    assert settings.has_hooks


def test_the_cap_is_lifted_unless_it_is_kept_or_set(settings: AgentSettings) -> None:
    assert not add_inbox_hook(settings, "/run/inbox.jsonl", keep_cap=True)
    variable = add_inbox_hook(settings, "/run/inbox.jsonl")
    assert variable
    assert saved(settings)["env"] == {variable: "0"}
    assert not add_inbox_hook(settings, "/run/inbox.jsonl")


def test_a_file_that_another_program_changed_is_not_overwritten(
    settings: AgentSettings, tmp_path: Path
) -> None:
    settings.add_boss_hooks(tmp_path / "boss")
    settings.path.write_text("{}")
    with pytest.raises(InvalidOptions):
        settings.save()
    assert settings.path.read_text() == "{}"


def test_a_path_that_is_not_utf8_is_refused(settings: AgentSettings) -> None:
    with pytest.raises(InvalidOptions):
        settings.add_boss_hooks(Path("/run/\udcff"))
    with pytest.raises(InvalidOptions):
        add_inbox_hook(settings, "/run/\udcff")


def test_hooks_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"hooks": []}')
    with pytest.raises(InvalidOptions):
        default_setup().open_settings(path).add_boss_hooks(tmp_path)


def test_files_that_are_not_json_objects_are_broken(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for text, is_broken in (("", False), ("{}", False), ("[]", True), ("{", True)):
        path.write_text(text)
        assert bool(default_setup().broken_settings(path)) is is_broken
