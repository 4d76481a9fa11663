"""The files of codex, opencode and copilot: what is added is found, and gone without a trace."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from remuda.agents import find_agent, setup_of, used_setups
from remuda.agents.hook_setup import BossCommand, HookSetup, read_command
from remuda.errors import InvalidOptions

AGENTS = ("codex", "opencode", "copilot")


@pytest.fixture(params=AGENTS)
def setup(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookSetup:
    for variable in ("HOME", "CODEX_HOME", "COPILOT_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_agent(request.param).setup()
    assert isinstance(found, HookSetup)
    return found


def test_agent_that_is_not_there_is_not_installed(setup: HookSetup, tmp_path: Path) -> None:
    assert not setup.is_used()
    assert not setup.is_installed()
    program = tmp_path / setup.agent
    program.write_text("")
    program.chmod(0o755)
    assert setup.is_installed()
    setup.home().mkdir(parents=True)
    assert type(setup) in [type(one) for one in used_setups()]


def test_hooks_are_added_found_checked_and_removed(setup: HookSetup, tmp_path: Path) -> None:
    path, boss = setup.settings_path("user"), tmp_path / "the boss"
    assert type(setup_of(path)) is type(setup)
    file = setup.open_settings(path)
    assert file.add_boss_hooks(boss) == len(setup.events)
    assert not file.had_hooks
    assert file.has_hooks
    assert file.save()
    assert not setup.open_settings(path).save()
    [group] = setup.boss_hooks(boss)
    assert (group.events, group.folder, group.problems) == (list(setup.events), str(boss), [])
    [other] = setup.boss_hooks(tmp_path)
    assert other.problems == [f"it reports to another boss, in {boss}"]
    assert [one.level for one in setup.check_hooks(boss)] == ["ok"]
    again = setup.open_settings(path)
    assert again.had_hooks
    assert again.add_boss_hooks(boss)
    assert again.texts()[0] == again.texts()[1]
    assert again.remove_boss_hooks() == len(setup.events)
    assert not again.has_hooks
    again.write(None if setup.agent != "codex" else again.texts()[1])
    assert setup.boss_hooks(boss) == []


def test_command_of_a_hook_does_nothing_without_our_program() -> None:
    own = BossCommand("/py thon", "/a/remuda/boss/hook.py", "/b's")
    for agent in AGENTS:
        assert read_command(own.shell(agent), agent) == own
        assert read_command(own.shell(agent), "other") is None
    for text in (
        None,
        1,
        "",
        "echo 'x",
        "touch mine",
        own.shell("codex").replace("boss/hook.py", "boss/mine.py"),
    ):
        assert read_command(text, "codex") is None


def test_hooks_of_another_program_in_codex_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    setup = find_agent("codex").setup()
    assert setup is not None
    path = setup.settings_path("user")
    mine = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch mine"}]}]}, "x": 1}
    path.write_text(json.dumps(mine))
    file = setup.open_settings(path)
    file.add_boss_hooks(tmp_path)
    file.save()
    assert json.loads(path.read_text())["hooks"]["Stop"][0] == mine["hooks"]["Stop"][0]  # type: ignore[index]
    assert len(json.loads(path.read_text())["hooks"]["Stop"]) == 2
    file = setup.open_settings(path)
    file.remove_boss_hooks()
    file.save()
    assert json.loads(path.read_text()) == mine


@pytest.mark.parametrize("text", ["not ours", "// mine\nexport const A = 1\n"])
def test_plugin_of_another_is_not_replaced(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    setup = find_agent("opencode").setup()
    assert setup is not None
    path = setup.settings_path("user")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InvalidOptions, match="not a plugin of ours"):
        setup.open_settings(path)
    assert setup.broken_settings() == [path]
    assert path.read_text() == text


# ── MCP ──

EXISTING = {
    "codex": (
        '# mine\nmodel = "m" # this one\n\n[mcp_servers.other]\ncommand = "x"\n\n'
        '[projects."/p"]\ntrust_level = "trusted"\n'
    ),
    "opencode": (
        '{\n  // mine\n  "model": "m",\n  "mcp": {\n'
        '    "other": {"type": "local", "command": ["x"]},\n  },\n}\n'
    ),
    "copilot": '{"mcpServers":{"other":{"type":"local","command":"x","args":[],"tools":["*"]}}}',
}
EDIT = {
    "codex": ('model = "m"', 'model = "another"'),
    "opencode": ('"model": "m"', '"model": "another"'),
    "copilot": ('"command":"x"', '"command":"another"'),
}


def _mcp(setup: HookSetup) -> Path:
    path = setup.mcp_path()
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize("how", ["existing", "empty", "none"])
def test_mcp_server_is_added_and_removed_to_the_byte(setup: HookSetup, how: str) -> None:
    path = _mcp(setup)
    assert type(setup_of(path)) is type(setup)
    before = {"existing": EXISTING[setup.agent], "empty": "", "none": None}[how]
    if before is not None:
        path.write_text(before)
    file = setup.open_settings(path)
    assert not file.has_mcp_server
    assert not file.remove_mcp_server()
    file.add_mcp_server()
    assert file.save()
    again = setup.open_settings(path)
    assert again.has_mcp_server
    assert again.had_hooks
    again.add_mcp_server()
    assert again.texts()[0] == again.texts()[1]
    assert again.remove_mcp_server()
    after = again.texts()[1]
    assert after == before if how == "existing" else (after or "").strip() in ("", "{}")


def test_mcp_server_is_removed_after_the_user_edited_the_file(setup: HookSetup) -> None:
    path, (old, new) = _mcp(setup), EDIT[setup.agent]
    path.write_text(EXISTING[setup.agent])
    file = setup.open_settings(path)
    file.add_mcp_server()
    file.save()
    path.write_text(path.read_text().replace(old, new))
    file = setup.open_settings(path)
    assert file.remove_mcp_server()
    file.save()
    assert path.read_text() == EXISTING[setup.agent].replace(old, new)


def test_server_of_an_older_installation_is_replaced(setup: HookSetup) -> None:
    path = _mcp(setup)
    file = setup.open_settings(path)
    file.add_mcp_server()
    own = file.texts()[1] or ""
    import sys

    path.write_text(own.replace(sys.executable, "/gone/python"))
    file = setup.open_settings(path)
    assert file.has_mcp_server
    file.add_mcp_server()
    assert file.texts()[1] == own


ANOTHER = {
    "codex": '[mcp_servers.remuda]\ncommand = "x"\n',
    "opencode": '{"mcp": {"remuda": {"type": "remote", "url": "http://x"}}}',
    "copilot": '{"mcpServers": {"remuda": {"command": "x"}}}',
}
BROKEN = {"codex": "x = [", "opencode": '{"mcp": ', "copilot": "[]"}
WRONG = {
    "codex": 'mcp_servers = { a = { command = "x" } }',
    "opencode": '{"mcp": []}',
    "copilot": '{"mcpServers": 1}',
}


def test_another_server_of_that_name_and_broken_files_are_refused(setup: HookSetup) -> None:
    path = _mcp(setup)
    path.write_text(ANOTHER[setup.agent])
    file = setup.open_settings(path)
    assert not file.has_mcp_server
    with pytest.raises(InvalidOptions, match="another server"):
        file.add_mcp_server()
    path.write_text(BROKEN[setup.agent])
    with pytest.raises(InvalidOptions, match="is not valid"):
        setup.open_settings(path)
    path.write_text(WRONG[setup.agent])
    file = setup.open_settings(path)
    with pytest.raises(InvalidOptions, match=r"must be an object|no table can be added"):
        file.add_mcp_server()


def _codex() -> tuple[HookSetup, Path]:
    setup = find_agent("codex").setup()
    assert isinstance(setup, HookSetup)
    return setup, _mcp(setup)


def test_tables_that_codex_adds_below_ours_are_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    setup, path = _codex()
    file = setup.open_settings(path)
    file.add_mcp_server()
    file.save()
    more = '\n[mcp_servers.remuda.tools.start]\napproval_mode = "approve"\n\n# of mine\n[tui]\nx = 1\n'
    path.write_text(path.read_text() + more)
    file = setup.open_settings(path)
    file.remove_mcp_server()
    assert tomllib.loads(file.texts()[1] or "") == {"tui": {"x": 1}}
    assert "# of mine" in (file.texts()[1] or "")


def test_server_that_a_user_wrote_in_another_form_is_left_to_codex(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    setup, path = _codex()
    path.write_text('[mcp_servers]\nremuda = { command = "remuda", args = ["mcp"] }\n')
    file = setup.open_settings(path)
    assert file.has_mcp_server
    with pytest.raises(InvalidOptions, match="written by hand"):
        file.remove_mcp_server()
