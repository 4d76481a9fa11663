"""`remuda setup` killed at every write, with files of others in its way, and after an earlier version."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import Commands

_DYING = """
import os, sys
left = int(sys.argv.pop(1))
def dying(path, *args, real=os.rename, **more):
    global left
    left -= 1
    if left == 0: os._exit(9)
    real(path, *args, **more)
os.rename = dying
from remuda.cli.app import cli
cli()
"""
"""Runs a command that dies before the Nth file is put in its place."""
OWN = ".local/share/bash-completion/completions/remuda"


@pytest.fixture
def env() -> dict[str, str]:
    return {"SHELL": "/bin/bash", "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "TMUX_TMPDIR": "/nonexistent"}


def files_of(home: Path) -> dict[str, bytes]:
    """What every file below `home` holds, but for our memory and what a killed write leaves."""
    return {
        str(path): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.name != "hooks.json" and path.suffix != ".tmp"
    }


def dies_at(count: int, remuda: Commands, env: dict[str, str], *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DYING, str(count), *words],
        env={**remuda.env, **env},
        cwd=remuda.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 9), done.stderr


@pytest.mark.parametrize("count", range(1, 7))
def test_setup_that_is_killed_at_any_write_is_removed_to_the_byte(
    remuda: Commands, env: dict[str, str], count: int
) -> None:
    (remuda.home / ".claude").mkdir(exist_ok=True)
    (remuda.home / ".claude" / "settings.json").write_text('{ "model":"x" ,\n"hooks": {} }')
    (remuda.home / OWN).parent.mkdir(parents=True)
    (remuda.home / OWN).write_text('# mine\neval "$(_REMUDA_COMPLETE=bash_source remuda)"\n')
    before = files_of(remuda.home)
    inbox = ["setup", "inbox", "--inbox", str(remuda.home / "run" / "inbox.jsonl"), "--user", "--yes"]
    for words in (inbox, ["setup", "--yes"]):
        dies_at(count, remuda, env, *words)
    remuda("setup", "--remove", "--yes", env=env)
    assert files_of(remuda.home) == before


def test_removal_of_one_part_that_is_killed_does_not_spoil_that_of_the_other(
    remuda: Commands, env: dict[str, str]
) -> None:
    settings = remuda.home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('{ "model":"x" ,\n"hooks": {} }')
    remuda("setup", "inbox", "--inbox", str(remuda.home / "run" / "inbox.jsonl"), "--user", "--yes", env=env)
    remuda("setup", "boss", "--yes", env=env)
    for count in (1, 2, 3):
        dies_at(count, remuda, env, "setup", "boss", "--remove", "--yes")
    remuda("setup", "--remove", "--yes", env=env)
    assert settings.read_text() == '{ "model":"x" ,\n"hooks": {} }'


def test_remove_finds_boss_hooks_in_a_settings_file_that_was_named(
    remuda: Commands, env: dict[str, str]
) -> None:
    other = remuda.home / "other.json"
    remuda("setup", "boss", "--settings", str(other), "--yes", env=env)
    assert "boss        installed: 10 hooks in ~/other.json" in remuda("setup", "--show", env=env).out
    remuda("setup", "--remove", "--yes", env=env)
    assert not other.exists()


def test_hooks_that_a_clone_brings_are_not_taken_for_the_users_own(
    remuda: Commands, env: dict[str, str]
) -> None:
    theirs = remuda.cwd / ".claude" / "settings.json"
    theirs.parent.mkdir()
    remuda("setup", "boss", "--settings", str(theirs), "--yes", env=env)
    (remuda.home / "hooks.json").unlink()
    assert "boss        not installed" in remuda("setup", "--show", env=env).out
    remuda("setup", "--yes", env=env)
    assert "boss        installed" in remuda("setup", "--show", env=env).out
    remuda("setup", "--remove", "--yes", env=env)
    assert theirs.exists()


def test_setup_replaces_hooks_of_an_installation_that_is_gone(remuda: Commands, env: dict[str, str]) -> None:
    settings = remuda.home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    remuda("setup", "boss", "--yes", env=env)
    settings.write_text(settings.read_text().replace(sys.executable, "/gone/python"))
    assert "its interpreter /gone/python is gone" in remuda("setup", "--show", env=env).out
    remuda("setup", "--yes", env=env)
    assert "/gone/python" not in settings.read_text()


def test_completion_is_written_through_a_link_and_the_link_stays(
    remuda: Commands, env: dict[str, str]
) -> None:
    path, kept = remuda.home / OWN, remuda.home / "dotfiles"
    path.parent.mkdir(parents=True)
    kept.write_text("# old _REMUDA_COMPLETE\n")
    path.symlink_to(kept)
    remuda("setup", "completion", "--yes", env=env)
    assert path.is_symlink()
    assert "complete" in kept.read_text()
    remuda("setup", "completion", "--remove", "--yes", env=env)
    assert path.is_symlink()
    assert kept.read_text() == "# old _REMUDA_COMPLETE\n"


def test_a_pipe_in_place_of_the_completion_does_not_hold_setup_up(
    remuda: Commands, env: dict[str, str]
) -> None:
    path = remuda.home / OWN
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert "completion  not installed" in remuda("setup", "--show", env=env, prefix=["timeout", "20"]).out


def test_what_another_setup_remembered_during_the_question_stays(
    remuda: Commands, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from remuda.agents import default_setup
    from remuda.cli import file_changes

    monkeypatch.setenv("REMUDA_HOME", str(remuda.home))
    mine, other = remuda.home / "mine.json", remuda.home / "other.json"
    remuda("setup", "boss", "--settings", str(mine), "--yes", env=env)

    def asked(*_: object) -> bool:
        remuda("setup", "boss", "--settings", str(other), "--yes", env=env)
        return True

    monkeypatch.setattr(file_changes, "agreed", asked)
    settings = default_setup().open_settings(mine)
    settings.remove_boss_hooks()
    file_changes.save_uninstalled(settings, "", file_changes.Agreement(yes=True, dry_run=False, diff=False))
    assert list(json.loads((remuda.home / "hooks.json").read_text())["files"]) == [str(other)]


@pytest.mark.parametrize("words", [["send", "\udcff", "hi"], ["show", "\udcff"], ["later", "\udcff"]])
def test_a_name_that_is_not_utf8_is_refused(remuda: Commands, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "remuda", *words], env=remuda.env, capture_output=True, check=False
    )
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"remuda: ")


def test_a_page_is_shown_with_a_broken_pager_and_in_a_locale_of_letters(remuda: Commands) -> None:
    for pager in ('less "', "cat"):
        done = subprocess.run(
            ["script", "-qec", f"{sys.executable} -m remuda help --page policy", os.devnull],
            env={**remuda.env, "PAGER": pager, "TERM": "xterm", "LC_ALL": "POSIX", "PYTHONUTF8": "0"}
            | {"PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in done.stdout, (pager, done.stdout[-500:])
        assert len(done.stdout) > 1000


def test_a_settings_file_that_broke_elsewhere_does_not_stop_show_and_remove(
    remuda: Commands, env: dict[str, str]
) -> None:
    elsewhere = remuda.home / "elsewhere.json"
    inbox = str(remuda.home / "run" / "inbox.jsonl")
    remuda("setup", "inbox", "--inbox", inbox, "--settings", str(elsewhere), "--yes", env=env)
    remuda("setup", "--yes", env=env)
    elsewhere.write_text("<<<<<<< mine")
    shown = remuda("setup", "--show", code=1, env=env)
    assert "boss        installed" in shown.out
    assert "inbox       unknown: cannot read ~/elsewhere.json" in shown.out
    removed = remuda("setup", "--remove", "--yes", code=1, env=env)
    assert f"{elsewhere} is not valid JSON" in removed.err
    assert "completion  not installed" in remuda("setup", "--show", code=1, env=env).out
    assert elsewhere.read_text() == "<<<<<<< mine"


def test_settings_that_broke_after_the_install_are_reported_and_not_called_uninstalled(
    remuda: Commands, env: dict[str, str]
) -> None:
    remuda("setup", "boss", "--yes", env=env)
    settings = remuda.home / ".claude" / "settings.json"
    settings.write_text(settings.read_text() + "}")
    shown = remuda("setup", "--show", code=1, env=env)
    assert "boss        unknown: cannot read ~/.claude/settings.json" in shown.out
    assert f"{settings} is not valid JSON" in remuda("setup", "--remove", "--yes", code=1, env=env).err


def test_damaged_marks_in_tmux_conf_do_not_stop_the_removal_of_the_rest(
    remuda: Commands, env: dict[str, str]
) -> None:
    conf = remuda.home / ".tmux.conf"
    remuda("setup", "--yes", env=env)
    conf.write_text(conf.read_text() + "# >>> remuda >>>\n")
    shown = remuda("setup", "--show", code=1, env=env)
    assert "tmux        damaged\ncompletion  installed" in shown.out
    removed = remuda("setup", "--remove", "--yes", code=1, env=env)
    assert removed.err == (
        f"remuda: {conf}: the marks around Remuda's lines are damaged; "
        "keep one line '# >>> remuda >>>' and one line '# <<< remuda <<<' after it\n"
    )
    shown = remuda("setup", "--show", code=1, env=env)
    assert shown.out.count("not installed") == 3
    assert conf.exists()


def test_removal_finds_every_tmux_conf_and_the_folder_made_for_it(
    remuda: Commands, env: dict[str, str]
) -> None:
    first, second = remuda.home / ".tmux.conf", remuda.home / ".config" / "tmux" / "tmux.conf"
    own = remuda.home / "own" / "deep" / "t.conf"
    for path in (own, second, first):
        remuda("setup", "tmux", "--conf", str(path), "--yes", env=env)
    assert remuda("setup", "--show", env=env).out.count(".conf,") == 2
    remuda("setup", "--remove", "--yes", env=env)
    assert [one for one in (first, second.parent, own.parent.parent) if one.exists()] == []
    assert remuda("setup", "--remove", "--yes", env=env).out == "nothing is installed\n"


def test_removal_of_a_unit_takes_the_folders_that_were_made_for_it(
    remuda: Commands, env: dict[str, str]
) -> None:
    remuda("setup", "boss", "--service", "--yes", env=env)
    assert (remuda.home / ".config" / "systemd" / "user").exists()
    remuda("setup", "--remove", "--yes", env=env)
    assert not (remuda.home / ".config").exists()


@pytest.mark.parametrize("count", range(1, 7))
def test_removal_after_a_killed_setup_leaves_no_temporary_file_and_no_folder(
    remuda: Commands, env: dict[str, str], count: int
) -> None:
    def everything() -> set[Path]:
        return {path for path in remuda.home.rglob("*") if "__pycache__" not in str(path)}

    before = everything()
    dies_at(count, remuda, env, "setup", "--yes")
    remuda("setup", "--remove", "--yes", env=env)
    assert everything() == before


def test_answer_no_leaves_the_unit_as_it_is(remuda: Commands, env: dict[str, str]) -> None:
    unit = remuda.home / ".config" / "systemd" / "user" / "remuda-boss.service"
    shown = answered(remuda, env, "nn", "setup", "boss", "--service")
    assert "ExecStart=" in shown
    assert not unit.exists()
    remuda("setup", "boss", "--service", "--yes", env=env)
    for words in (["setup", "boss", "--remove"], ["setup", "--remove"]):
        assert "-ExecStart=" in answered(remuda, env, "nn", *words)
        assert unit.exists()


def answered(remuda: Commands, env: dict[str, str], letters: str, *words: str) -> str:
    """Run a command on a terminal and answer each of its questions with a letter."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "remuda", *words],
        env={**remuda.env, **env},
        cwd=remuda.cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown, seen = b"", 0
    with contextlib.suppress(OSError):  # Linux reports the end of the terminal as an error
        while piece := os.read(master, 4096):
            shown += piece
            if shown.count(b"[y/") > seen and letters and shown.endswith(b": "):
                seen, letter, letters = shown.count(b"[y/"), letters[0], letters[1:]
                os.write(master, f"{letter}\n".encode())
    os.close(master)
    assert process.wait() == 0, shown
    assert not letters, shown
    return shown.decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--next", "Foo"], "--next: tmux has no key 'Foo'"),
        (["--popup", "-x"], "--popup: tmux has no key '-x'"),
        (["--next", "S"], "--next and --skip are both the key 'S'; give each its own key"),
        (["--next", "C-g", "--return", "^g"], "--next and --return are both the key '^g'"),
    ],
)
def test_setup_tmux_refuses_a_key_that_tmux_cannot_bind(
    remuda: Commands, env: dict[str, str], words: list[str], message: str
) -> None:
    assert message in remuda.refused("setup", "tmux", *words, "--yes", code=2, env=env)
    assert not (remuda.home / ".tmux.conf").exists()
    remuda("setup", "tmux", "--next", ";", "--skip", "", "--popup", "~", "--return", "-", "--yes", env=env)
