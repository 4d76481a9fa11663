"""`remuda hooks` and its three targets: asked alike, shown alike, and undone to the byte."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from remuda.agents.claude.setup.boss_hooks import EVENTS
from remuda.testing.real_cli import PlainTerminal
from support.commands import COMMAND, Commands
from support.keeper import until

# By hand: no one's formatter writes it so.
THEIRS = """{ "model": "opus",
  "permissions": {"allow": ["Bash(git *)"],
                  "deny": []},
  "env": {"A": "1"}, "hooks": {"Stop": [], "PreToolUse": [
      {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]},

  "last": 1.50 }"""
VERBS = ["install", "uninstall", "show"]


@pytest.fixture
def local(remuda: Commands) -> Path:
    return remuda.cwd / ".claude" / "settings.local.json"


@pytest.fixture
def project(remuda: Commands) -> Path:
    return remuda.cwd / ".claude" / "settings.json"


@pytest.fixture
def user(remuda: Commands) -> Path:
    path = remuda.home / ".claude" / "settings.json"
    path.parent.mkdir()
    return path


def terminal(remuda: Commands, *words: str) -> PlainTerminal:
    return PlainTerminal([*COMMAND, *words], cwd=remuda.cwd, env={**remuda.env, "TERM": "xterm"}, columns=200)


def answer(shown: PlainTerminal, keys: bytes) -> None:
    """Type it once it is read: what comes before that is discarded."""
    call = Path(f"/proc/{shown.process.pid}/syscall")
    until(lambda: call.read_text().split()[:2] in (["0", "0x0"], ["63", "0x0"]), "a read of the terminal")
    shown.write(keys)


def text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


# ── help ──


@pytest.mark.parametrize("verb", VERBS)
def test_hooks_help_and_completion_name_all_targets(remuda: Commands, verb: str) -> None:
    shown = remuda("hooks", verb, "--help").out
    assert all(
        re.search(rf"^ *{target}\b", shown, re.MULTILINE) for target in ("--inbox", "--boss", "--tmux")
    )
    env = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": f"remuda hooks {verb} --", "COMP_CWORD": "3"}
    offered = {line.partition(",")[2] for line in remuda(env=env).out.splitlines()}
    assert offered >= {"--inbox", "--boss", "--tmux"}


@pytest.mark.parametrize("target", [["--inbox", "run"], ["--boss"], ["--tmux"]])
def test_hooks_install_takes_yes_and_dry_run_for_every_target(
    remuda: Commands, project: Path, target: list[str]
) -> None:
    env = {"TMUX_TMPDIR": str(remuda.home)}
    before = sorted(remuda.home.rglob("*"))
    assert "\n+" in remuda("hooks", "install", *target, "--dry-run", env=env).out
    assert sorted(remuda.home.rglob("*")) == before
    remuda("hooks", "install", *target, "--yes", env=env)
    shown = remuda("hooks", "show", env=env).out
    assert shown
    assert not shown.startswith("nothing installed")
    remuda("hooks", "uninstall", *target, "--yes", env=env)
    assert remuda("hooks", "show", env=env).out.startswith("nothing installed")
    left = {one.name for one in remuda.home.rglob("*")} - {one.name for one in before}
    assert left <= {"hooks.json", "boss"}


def test_hooks_show_without_a_target_shows_all(remuda: Commands) -> None:
    env = {"TMUX_TMPDIR": str(remuda.home)}
    for target in (["--inbox", "run"], ["--boss"], ["--tmux"]):
        remuda("hooks", "install", *target, "--yes", env=env)
    shown = remuda("hooks", "show", env=env).out
    assert f"{remuda.cwd}/run/inbox.jsonl  drain  in ~/cwd/.claude/settings.local.json\n" in shown
    assert f"{len(EVENTS)} hooks for " in shown
    assert "in ~/.tmux.conf\n" in shown
    assert "hooks for" not in remuda("hooks", "show", "--inbox", env=env).out


# ── back to the byte ──


@pytest.mark.parametrize("before", [None, "", "{}", THEIRS])
def test_hooks_uninstall_of_an_inbox_leaves_the_file_to_the_byte(
    remuda: Commands, local: Path, before: str | None
) -> None:
    if before is not None:
        local.parent.mkdir()
        local.write_text(before)
        local.chmod(0o640)
    remuda("hooks", "install", "--inbox", "run", "--yes")
    remuda("hooks", "install", "--inbox", "run", "--mode", "persist", "--yes")
    assert (remuda.cwd / "run").is_dir()
    said = remuda("hooks", "uninstall", "--yes").out
    assert ("+{}" in said) == (before == "{}")
    assert text(local) == before
    assert local.parent.exists() == (before is not None)
    if before is not None:
        assert local.stat().st_mode & 0o777 == 0o640
    assert not (remuda.cwd / "run").exists()


def test_hooks_uninstall_keeps_a_folder_with_messages(remuda: Commands, local: Path) -> None:
    remuda("hooks", "install", "--inbox", "run", "--yes")
    remuda("inbox", "put", "--inbox", "run", "keep me")
    remuda("hooks", "uninstall", "--yes")
    assert "keep me" in (remuda.cwd / "run" / "inbox.jsonl").read_text()
    assert not local.parent.exists()


@pytest.mark.parametrize("first", ["--boss", "--inbox"])
def test_hooks_of_two_targets_in_one_file_are_undone_to_the_byte(
    remuda: Commands, user: Path, first: str
) -> None:
    user.write_text(THEIRS)
    targets = {"--boss": ["--boss"], "--inbox": ["--inbox", "run", "--user"]}
    for words in targets.values():
        remuda("hooks", "install", *words, "--yes")
    for name in sorted(targets, key=lambda name: name != first):
        assert user.read_text() != THEIRS
        remuda("hooks", "uninstall", *targets[name], "--yes")
    assert user.read_text() == THEIRS


def test_hooks_uninstall_of_a_file_that_others_changed_takes_ours_alone(
    remuda: Commands, local: Path
) -> None:
    local.parent.mkdir()
    local.write_text(THEIRS)
    remuda("hooks", "install", "--inbox", "run", "--yes")
    local.write_text(local.read_text().replace('"opus"', '"other"'))
    remuda("hooks", "uninstall", "--yes")
    wanted = json.loads(THEIRS.replace('"opus"', '"other"'))
    assert json.loads(local.read_text()) == {**wanted, "hooks": {"PreToolUse": wanted["hooks"]["PreToolUse"]}}


def test_hooks_uninstall_after_an_install_of_version_0_1_is_undone_to_the_byte(
    remuda: Commands, user: Path
) -> None:
    user.write_text(THEIRS)
    remuda("hooks", "install", "--boss", "--yes")
    # As that version laid it down: in a file of the boss's.
    memory = remuda.home / "hooks.json"
    known = json.loads(memory.read_text())["files"]
    old = remuda.home / "boss" / "settings.json"
    old.write_text(
        json.dumps({path: {key: one[key] for key in ("before", "after")} for path, one in known.items()})
    )
    memory.unlink()
    remuda("hooks", "uninstall", "--boss", "--yes")
    assert user.read_text() == THEIRS
    assert not old.exists()


def test_hooks_that_stand_in_the_committed_file_stay_there_and_are_removed_there(
    remuda: Commands, project: Path, local: Path
) -> None:
    remuda("hooks", "install", "--inbox", "run", "--project", "--yes")
    assert "updated" in remuda("hooks", "install", "--inbox", "run", "--mode", "persist", "--yes").out
    assert "--mode persist" in project.read_text()
    assert not local.exists()
    remuda("hooks", "install", "--inbox", "other", "--yes")
    assert "other" in local.read_text()
    assert "other" not in project.read_text()
    said = remuda("hooks", "uninstall", "--yes").out
    assert said.count("removed from") == 2
    assert not project.exists()
    assert not local.exists()


# ── the change as it is shown ──


def test_hooks_diff_has_context_and_the_right_lines(remuda: Commands) -> None:
    conf = remuda.home / ".tmux.conf"
    conf.write_text("".join(f"# line {number}\n" for number in range(1, 11)))
    shown = remuda("hooks", "install", "--tmux", "--dry-run", env={"TMUX_TMPDIR": str(remuda.home)}).out
    assert re.search(
        r"^@@ -8,3 \+8,\d+ @@\n # line 8\n # line 9\n # line 10\n\+# >>> remuda", shown, re.MULTILINE
    )


def test_hooks_diff_of_a_file_that_comes_or_goes_names_the_null_device(remuda: Commands, local: Path) -> None:
    place = "~/cwd/.claude/settings.local.json"
    assert remuda("hooks", "install", "--inbox", "run", "--yes").out.startswith(
        f"--- /dev/null\n+++ {place}\n"
    )
    assert remuda("hooks", "uninstall", "--yes").out.startswith(f"--- {place}\n+++ /dev/null\n")


def test_hooks_long_change_is_summed_up_unless_the_diff_is_asked_for(remuda: Commands, user: Path) -> None:
    user.write_text(THEIRS)
    done = remuda("hooks", "install", "--boss", code=2)
    assert done.out == f"add {len(EVENTS)} hooks to ~/.claude/settings.json; --diff shows the change\n"
    assert "nothing was changed; pass --yes" in done.err
    assert "\n+" in remuda("hooks", "install", "--boss", "--diff", code=2).out
    assert user.read_text() == THEIRS


@pytest.mark.parametrize("target", [["--inbox", "run"], ["--boss"], ["--tmux"]])
def test_hooks_ask_on_a_terminal_whatever_the_target(remuda: Commands, target: list[str]) -> None:
    before = sorted(os.listdir(remuda.home))
    remuda.env["TMUX_TMPDIR"] = str(remuda.home)
    with terminal(remuda, "hooks", "install", *target) as shown:
        question = shown.wait_for(b"change it? [y/")
        if b"--diff shows" in question:
            answer(shown, b"d\r")
            shown.wait_for(b"change it? [y/N]:")
            assert b"+++ " in shown.output
        answer(shown, b"\r")
        assert shown.process.wait(timeout=30) == 0
    assert sorted(os.listdir(remuda.home)) == before
    with terminal(remuda, "hooks", "install", *target) as shown:
        shown.wait_for(b"change it? [y/")
        answer(shown, b"y\r")
        assert shown.process.wait(timeout=30) == 0
    env = {"TMUX_TMPDIR": str(remuda.home)}
    assert not remuda("hooks", "show", env=env).out.startswith("nothing installed")


# ── where an inbox is made ──


def test_inbox_put_and_hooks_install_make_one_folder_and_refuse_two(remuda: Commands) -> None:
    for words in (["inbox", "put", "hi"], ["inbox", "serve"], ["hooks", "install"]):
        for path in ("typo/deep", "typo/deep/inbox.jsonl"):
            said = remuda.refused(*words, "--inbox", path, code=2)
            assert said == f"the folder {remuda.cwd}/typo does not exist; mkdir -p {remuda.cwd}/typo"
    assert not (remuda.cwd / "typo").exists()
    remuda("inbox", "put", "--inbox", "one/inbox.jsonl", "hi")
    remuda("hooks", "install", "--inbox", "two/inbox.jsonl", "--signal-file", "two/.done")
    assert (remuda.cwd / "two").stat().st_mode & 0o777 == 0o700
