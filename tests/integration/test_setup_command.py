"""`remuda setup`: every part installed, shown, and removed to the byte; `remuda help` with topics."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.commands import Commands

NO_TMUX = {"TMUX_TMPDIR": "/nonexistent"}


def files_of(home: Path) -> dict[str, bytes]:
    """Every file below `home` but our own state, and what is in it."""
    state = home / ".local" / "state"
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and state not in path.parents and ".claude/projects" not in str(path)
    }


@pytest.fixture
def env(remuda: Commands) -> dict[str, str]:
    return {
        "HOME": str(remuda.home),
        "SHELL": "/bin/bash",
        "XDG_DATA_HOME": "",
        "XDG_CONFIG_HOME": "",
        **NO_TMUX,
    }


def test_setup_of_everything_and_its_removal_leave_each_file_as_it_was(
    remuda: Commands, env: dict[str, str]
) -> None:
    (remuda.home / ".claude").mkdir(exist_ok=True)
    (remuda.home / ".claude" / "settings.json").write_text('{ "model":"x" ,\n"hooks": {} }')
    (remuda.home / ".tmux.conf").write_text("set -g mouse on")
    inbox = remuda.home / "run" / "inbox.jsonl"
    before = files_of(remuda.home)
    remuda("setup", "--yes", env=env)
    remuda("setup", "inbox", "--inbox", str(inbox), "--user", "--yes", env=env)
    shown = remuda("setup", "--show", env=env).out
    assert shown.count(" installed: ") == 4, shown
    assert files_of(remuda.home) != before
    remuda("setup", "--remove", "--yes", env=env)
    assert files_of(remuda.home) == before
    assert remuda("setup", "--show", env=env).out.count("not installed") == 4


def test_removal_takes_every_folder_away_that_setup_made(remuda: Commands, env: dict[str, str]) -> None:
    home = remuda.home / "new"
    home.mkdir()
    env |= {"HOME": str(home), "REMUDA_HOME": "", "XDG_STATE_HOME": "", "CLAUDE_CONFIG_DIR": ""}
    remuda("setup", "--yes", env=env)
    remuda("setup", "inbox", "--inbox", str(home / "run/inbox.jsonl"), "--user", "--yes", env=env)
    remuda("setup", "--remove", "--yes", env=env)
    assert [str(path.relative_to(home)) for path in home.rglob("*")] == []


def test_long_change_of_a_one_line_file_is_summarised(remuda: Commands, env: dict[str, str]) -> None:
    (remuda.home / ".claude").mkdir(exist_ok=True)
    (remuda.home / ".claude" / "settings.json").write_text('{"model": "x"}')
    said = remuda("setup", "boss", "--yes", env=env).out
    assert said.startswith("add 10 hooks to ~/.claude/settings.json; --diff shows the change\n")
    remuda("setup", "--remove", "--yes", env=env)


def test_setup_show_and_dry_run_change_nothing(remuda: Commands, env: dict[str, str]) -> None:
    before = files_of(remuda.home)
    remuda("setup", "--yes", "--dry-run", env=env)
    for part in ("boss", "tmux", "inbox", "completion"):
        remuda("setup", part, "--show", env=env)
    assert files_of(remuda.home) == before


def test_show_of_the_inbox_part_does_not_list_the_hooks_of_the_boss(
    remuda: Commands, env: dict[str, str]
) -> None:
    remuda("setup", "boss", "--yes", env=env)
    shown = remuda("setup", "inbox", "--show", env=env).out
    assert shown.startswith("no inbox hook in the settings that apply here; ")
    assert shown.endswith("install with: remuda setup inbox --inbox PATH\n")


def test_removal_of_nothing_says_so(remuda: Commands, env: dict[str, str]) -> None:
    assert remuda("setup", "--remove", env=env).out == "nothing is installed\n"


def test_setup_without_a_terminal_asks_for_yes(remuda: Commands, env: dict[str, str]) -> None:
    assert "pass --yes" in remuda.refused("setup", code=2, env=env)
    assert "pass --yes" in remuda("setup", "boss", code=2, env=env).err
    assert "pass --yes" in remuda("setup", "inbox", "--inbox", "run", code=2, env=env).err
    assert not (remuda.cwd / ".claude").exists()


@pytest.mark.parametrize("flag", ["--show", "--remove", "--dry-run"])
def test_flags_before_the_part_mean_the_same_as_after_it(
    remuda: Commands, env: dict[str, str], flag: str
) -> None:
    before = files_of(remuda.home)
    for part in ("boss", "tmux", "completion"):
        outputs = [remuda("setup", *words, env=env).out for words in ([flag, part], [part, flag])]
        assert outputs[0] == outputs[1]
    assert files_of(remuda.home) == before
    remuda("setup", "--yes", "boss", env=env)
    assert remuda("setup", "--show", env=env).out.startswith("boss        installed")
    remuda("setup", "--remove", "boss", "--yes", env=env)
    assert remuda("setup", "--show", env=env).out.startswith("boss        not installed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--show", "--remove"], "--show and --remove exclude each other"),
        (["boss", "--show", "--remove"], "--show and --remove exclude each other"),
        (["--show", "boss", "--remove"], "--show and --remove exclude each other"),
        (["--yes", "boss", "--show"], "--yes does not apply to 'show'"),
        (["inbox", "--inbox", "run", "--boss", "--yes"], "no such option '--boss'"),
        (["tmux", "--remove", "--next", "N"], "--next does not apply to 'uninstall'"),
        (["foo"], "setup has no part 'foo'; parts: boss, tmux, inbox, completion, mcp, hub, notify"),
        (["bos"], "setup has no part 'bos'; did you mean 'boss'?"),
    ],
)
def test_setup_of_a_bad_command_line_is_refused(
    remuda: Commands, env: dict[str, str], words: list[str], message: str
) -> None:
    assert message.lower() in remuda.refused("setup", *words, code=2, env=env).lower()


def test_setup_of_a_service_writes_the_unit_and_removal_takes_it_away(
    remuda: Commands, env: dict[str, str]
) -> None:
    remuda("setup", "boss", "--service", "--yes", env=env)
    unit = remuda.home / ".config" / "systemd" / "user" / "remuda-boss.service"
    assert unit.exists()
    assert "service" in remuda("setup", "--show", env=env).out
    remuda("setup", "boss", "--remove", "--yes", env=env)
    assert not unit.exists()


def test_setup_of_the_hub_shows_the_unit_first_and_removal_takes_it_away(
    remuda: Commands, env: dict[str, str]
) -> None:
    unit = remuda.home / ".config" / "systemd" / "user" / "remuda-hub.service"
    assert "not installed" in remuda("setup", "hub", "--show", env=env).out
    assert "hub" not in remuda("setup", "--show", env=env).out
    assert "nothing to change" in remuda("setup", "hub", "--remove", env=env).out
    shown = remuda("setup", "hub", "--dry-run", env=env).out
    assert '+ExecStart="' in shown
    assert not unit.exists()
    remuda.refused("setup", "hub", "--listen", "nowhere", "--yes", code=2, env=env)
    remuda.refused("setup", "hub", "--name", "Not a host", "--yes", code=4, env=env)
    remuda.refused("setup", "hub", "--listen", "a\nb:1", "--yes", code=2, env=env)
    # A removal takes both, and the folder that was made for the first of them.
    remuda("setup", "boss", "--service", "--yes", env=env)
    said = remuda("setup", "hub", "--listen", "127.0.0.1:4333", "--no-join", "--yes", env=env).out
    assert "systemctl --user enable --now remuda-hub.service" in said
    text = unit.read_text()
    command = '"-P" "-m" "remuda" "fleet" "serve" "--listen" "127.0.0.1:4333" "--no-join"'
    assert f'ExecStart="{sys.executable}" {command}\n' in text
    assert f'Environment="REMUDA_HOME={remuda.home}"\n' in text
    assert "CLAUDE" not in text
    assert text in remuda("setup", "hub", "--show", env=env).out
    assert "remuda-hub.service" in remuda("setup", "--show", env=env).out
    remuda("setup", "--remove", "--yes", env=env)
    assert not (remuda.home / ".config").exists()
    unit.parent.mkdir(parents=True)
    unit.write_text("somebody's own")
    for words in (["setup", "hub", "--yes"], ["setup", "hub", "--remove", "--yes"], ["setup", "--remove"]):
        remuda(*words, env=env, code=2 if words == ["setup", "hub", "--yes"] else 0)
        assert unit.read_text() == "somebody's own"


def test_completion_of_another_program_is_not_replaced(remuda: Commands, env: dict[str, str]) -> None:
    path = remuda.home / ".local/share/bash-completion/completions/remuda"
    path.parent.mkdir(parents=True)
    path.write_text("complete -F other remuda\n")
    assert "belongs to another program" in remuda.refused("setup", "completion", "--yes", code=2, env=env)
    remuda("setup", "completion", "--remove", "--yes", env=env)
    assert path.read_text() == "complete -F other remuda\n"


# ── help ──


def test_first_page_of_help_has_the_daily_commands_and_all_has_every_one(remuda: Commands) -> None:
    from remuda.cli.app import COMMANDS, DAILY

    daily = {name for section in DAILY.values() for name in section}

    def listed(text: str) -> set[str]:
        return {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.split()} & {
            *COMMANDS
        }

    assert listed(remuda("help").out) == daily
    assert listed(remuda("help", "--all").out) == {*COMMANDS}


def test_every_page_of_the_manual_is_printed(remuda: Commands) -> None:
    names = [line.split()[0] for line in remuda("help", "topics").out.splitlines()[1:]]
    assert {"policy", "delivery", "write-a-policy"} <= {*names}
    for name in names:
        text = remuda("help", "--page", name).out
        assert "](" not in text
        assert len(text) > 100
    assert "did you mean 'policy'?" in remuda.refused("help", "--page", "polcy", code=2)


@pytest.mark.parametrize("group", ["boss", "hooks", "inbox", "policy", "pool"])
def test_group_without_a_command_prints_its_help_in_colour(remuda: Commands, group: str) -> None:
    # 'policy' had this exit code in version 0.1.
    out = remuda(group, env={"FORCE_COLOR": "1"}, code=2 if group == "policy" else 0).out
    assert out.startswith(f"\x1b[1mUsage\x1b[0m: remuda {group} ")
    assert "�" not in out


def test_help_is_coloured_only_where_colours_are_wanted(remuda: Commands) -> None:
    plain, coloured = (remuda("help", env=env).out for env in ({}, {"FORCE_COLOR": "1"}))
    assert "\x1b" not in plain
    assert "\x1b[1mSessions\x1b[0m:" in coloured
    assert remuda("start", "--help", env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).out.find("\x1b") == -1
    assert os.path.exists(remuda.home)
