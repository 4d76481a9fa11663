"""`setup boss` and `setup mcp` for other agents: asked for by name, shown first, removed to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import Commands

FILES = {
    "codex": (".codex/hooks.json", ".codex/config.toml"),
    "opencode": (".config/opencode/plugins/remuda.js", ".config/opencode/opencode.json"),
    "copilot": (".copilot/hooks/remuda.json", ".copilot/mcp-config.json"),
}
CONFIG = {
    "codex": 'model = "x" # mine\n',
    "opencode": '{\n  // mine\n  "model": "x",\n}\n',
    "copilot": '{ "mcpServers": {"a": {"command": "b"}} }',
}


@pytest.fixture
def env(remuda: Commands) -> dict[str, str]:
    programs = remuda.home / "bin"
    programs.mkdir()
    names = ("XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME")
    return {
        "HOME": str(remuda.home),
        "TMUX_TMPDIR": "/nonexistent",
        "PATH": f"{programs}:/usr/bin:/bin",
    } | dict.fromkeys(names, "")


def _install(remuda: Commands, agent: str) -> tuple[Path, Path]:
    """Make a program and its configuration. Returns the file of its hooks, and that of its servers."""
    program = remuda.home / "bin" / agent
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    hooks, config = (remuda.home / one for one in FILES[agent])
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG[agent])
    return hooks, config


def _files(home: Path) -> dict[str, bytes]:
    folders = [home / ".codex", home / ".config", home / ".copilot", home / ".claude"]
    paths = [path for folder in folders for path in [folder, *folder.rglob("*")] if path.exists()]
    return {str(path.relative_to(home)): path.read_bytes() if path.is_file() else b"" for path in paths}


@pytest.mark.parametrize("agent", FILES)
@pytest.mark.parametrize("part", ["boss", "mcp"])
def test_agent_that_is_not_installed_is_refused(
    remuda: Commands, env: dict[str, str], agent: str, part: str
) -> None:
    said = remuda.refused("setup", part, "--agent", agent, "--yes", env=env, code=2)
    assert f"{agent} is not installed" in said
    assert _files(remuda.home) == {}


@pytest.mark.parametrize("agent", FILES)
def test_hooks_and_server_are_shown_installed_and_removed_to_the_byte(
    remuda: Commands, env: dict[str, str], agent: str
) -> None:
    hooks, config = _install(remuda, agent)
    before = _files(remuda.home)
    for part in ("boss", "mcp"):
        so_far = _files(remuda.home)
        shown = remuda("setup", part, "--agent", agent, "--dry-run", env=env).out
        assert "+" in shown
        assert _files(remuda.home) == so_far
        remuda("setup", part, "--agent", agent, "--yes", env=env)
    assert hooks.exists()
    assert config.read_text() != CONFIG[agent]
    assert "already installed" in remuda("setup", "boss", "--agent", agent, "--yes", env=env).out
    assert "already installed" in remuda("setup", "mcp", "--agent", agent, "--yes", env=env).out
    assert "installed in" in remuda("setup", "mcp", "--agent", agent, "--show", env=env).out
    every = remuda("setup", "--show", env=env).out
    assert str(FILES[agent][0]) in every
    assert str(FILES[agent][1]) in every
    assert not (remuda.home / ".claude").exists(), "an agent that no one named"
    remuda("setup", "--remove", "--yes", env=env)
    assert _files(remuda.home) == before


@pytest.mark.parametrize("agent", FILES)
def test_removal_of_one_agent_after_an_edit_keeps_the_edit(
    remuda: Commands, env: dict[str, str], agent: str
) -> None:
    hooks, config = _install(remuda, agent)
    remuda("setup", "mcp", "--agent", agent, "--yes", env=env)
    remuda("setup", "boss", "--agent", agent, "--yes", env=env)
    edited = config.read_text().replace('"x"', '"edited"').replace('"b"', '"edited"')
    assert edited != config.read_text()
    config.write_text(edited)
    remuda("setup", "mcp", "--agent", agent, "--remove", "--yes", env=env)
    assert config.read_text() == CONFIG[agent].replace('"x"', '"edited"').replace('"b"', '"edited"')
    remuda("setup", "boss", "--agent", agent, "--remove", "--yes", env=env)
    assert not hooks.exists()


def test_setup_without_a_name_is_for_claude_and_names_the_others(
    remuda: Commands, env: dict[str, str]
) -> None:
    (remuda.home / ".codex").mkdir()
    said = remuda("setup", "boss", "--yes", env=env).out
    assert "remuda setup boss --agent codex" in said
    assert "copilot" not in said
    assert [*(remuda.home / ".codex").iterdir()] == []
    assert (remuda.home / ".claude" / "settings.json").exists()
    refused = remuda.refused("setup", "boss", "--agent", "codex", "--settings", "x", "--yes", env=env, code=2)
    assert "exclude each other" in refused
    assert "no hooks for 'simple'" in remuda.refused(
        "setup", "boss", "--agent", "simple", "--yes", env=env, code=2
    )
