"""The commands that look after a place, as a user runs them: clean, doctor, demo, completion, help."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda._version import __version__
from remuda.cli.app import COMMANDS
from remuda.proctree import descendants
from support.commands import COMMAND, Commands, until_line
from support.heimdall_client import PATIENCE
from support.keeper import Process, end_processes, until

ALL_COMMANDS = list(COMMANDS)


# ── clean ──


def age(path: Path, seconds: float) -> None:
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then))


@pytest.fixture
def dead_and_alive(remuda: Commands) -> Commands:
    """A session that ended two days ago, one that ended now, one that lives and is older than both."""
    for name in ("old", "young", "alive"):
        remuda.start(name, "--", "cat")
    keepers = [remuda.keeper(name) for name in ("old", "young")]
    remuda("kill", "old", "young")
    for keeper in keepers:
        assert keeper.ended()  # it writes to its log no more
        keeper.close()
    for path in [*remuda.sessions.glob("old.*"), *remuda.sessions.glob("alive.*")]:
        age(path, 2 * 86400)
    return remuda


def names(remuda: Commands) -> list[str]:
    return sorted(
        path.name for path in remuda.sessions.iterdir() if path.suffix in (".log", ".json", ".history")
    )


def test_clean_shows_and_removes_nothing(dead_and_alive: Commands) -> None:
    remuda = dead_and_alive
    before = names(remuda)
    lines = remuda("clean").out.splitlines()
    assert lines == [
        f"would remove: {remuda.sessions}/old.history",
        f"would remove: {remuda.sessions}/old.json",
        f"would remove: {remuda.sessions}/old.log",
        "dry run: 3 files; --force removes them (kept: 1 live session, 3 files younger than 24h)",
    ]
    assert names(remuda) == before


def test_clean_force_removes_what_is_old_and_dead_alone(dead_and_alive: Commands) -> None:
    remuda = dead_and_alive
    assert remuda("clean", "--force").out.splitlines()[-1] == "cleaned 3 files"
    assert names(remuda) == [
        f"{name}.{kind}" for name in ("alive", "young") for kind in ("history", "json", "log")
    ]
    assert remuda("clean", "--older-than", "3d").out.startswith("nothing to clean (1 live session, 3 files")
    assert remuda.json("status", "alive")["state"] == "idle"


def test_clean_removes_what_a_killed_keeper_of_an_agent_left(remuda: Commands) -> None:
    pid = remuda.start("work", "--agent", "demo")
    remuda.kill_keeper("work")
    end_processes([pid])
    assert (remuda.sessions / "work.d").is_dir()
    for path in remuda.sessions.iterdir():
        age(path, 2 * 86400)
    remuda("clean", "--force")
    assert not (remuda.sessions / "work.d").exists()


def test_clean_in_a_folder_with_other_things_leaves_them(remuda: Commands) -> None:
    folder = remuda.home / "mine"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "package"}')
    (folder / "link.log").symlink_to("/etc/hostname")
    for name in ("access.log", "access.log.1"):
        (folder / name).touch(0o644)
        (folder / name).chmod(0o644)
    (folder / "no name of a session.log").touch(0o600)
    for path in folder.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    out = remuda("clean", "--force", "--socket-dir", str(folder)).out
    assert out.startswith("nothing to clean")
    assert len(list(folder.iterdir())) == 6


@pytest.mark.parametrize("duration", ["0s", "0", "5w", "-1h"])
def test_clean_with_a_bad_duration_is_refused(remuda: Commands, duration: str) -> None:
    remuda.refused("clean", "--older-than", duration, code=2)


def test_clean_takes_seconds_without_a_unit(remuda: Commands) -> None:
    assert remuda("clean", "--older-than", "90").out.startswith("nothing to clean")


# ── doctor ──


def findings(remuda: Commands, level: str, code: int = 0, **env: str) -> list[str]:
    found: list[dict[str, Any]] = json.loads(remuda("doctor", "--json", code=code, env=env).out)
    return [f"{one['what']}: {one['fix']}" for one in found if one["level"] == level]


def test_doctor_of_a_sound_place_finds_no_failure_and_changes_nothing(remuda: Commands) -> None:
    out = remuda("doctor").out
    assert f"ok    remuda {__version__} on Python " in out
    assert "FAIL" not in out
    assert not remuda.sessions.exists()


def test_doctor_of_a_place_that_cannot_work_fails_and_says_what_to_do(remuda: Commands) -> None:
    (said,) = findings(remuda, "fail", 1, REMUDA_HOME="/dev/null")
    assert (
        said
        == "cannot create /dev/null/sessions: /dev/null is not writable: set REMUDA_HOME to a folder of yours"
    )
    assert "FAIL  cannot create" in remuda("doctor", code=1, env={"REMUDA_HOME": "/dev/null"}).out


def test_ls_and_doctor_report_a_keeper_that_does_not_answer(remuda: Commands) -> None:
    for name in ("mute", "work"):
        remuda.start(name, "--", "cat")
    keeper = remuda.keeper("mute")
    keeper.signal(signal.SIGSTOP)
    try:
        asking = [remuda.begin(command, "--json") for command in ("ls", "doctor")]
        listed, found = (json.loads(process.communicate(timeout=PATIENCE)[0]) for process in asking)
    finally:
        keeper.signal(signal.SIGCONT)
        keeper.close()
    assert [process.returncode for process in asking] == [0, 1]
    assert {one["name"]: one["state"] for one in listed} == {"mute": "unreachable", "work": "idle"}
    (said,) = [one["what"] for one in found if one["level"] == "fail"]
    assert said.startswith("session 'mute': the keeper of 'mute' does not answer")


def test_doctor_finds_what_a_killed_keeper_left_running(remuda: Commands) -> None:
    pid = remuda.start("work", "--", "sh", "-c", "trap '' HUP; sleep 1000; true")
    (sleeping,) = until(lambda: descendants(pid), "the program's child")
    remuda.kill_keeper("work")
    left = [line for line in findings(remuda, "note") if "left over" in line]
    end_processes([pid, sleeping])
    assert left == [
        f"2 processes are left over from the dead session 'work' ({pid}, {sleeping}): remuda kill work"
    ]


def test_doctor_takes_no_live_session_of_another_folder_for_a_leftover(remuda: Commands) -> None:
    name = f"work-{os.getpid()}"  # what tests beside this one leave of theirs is found as well
    remuda.start(name, "--", "cat")
    remuda("kill", name)
    remuda.start(name, "--socket-dir", str(remuda.home / "elsewhere"), "--", "cat")
    assert [line for line in findings(remuda, "note") if name in line] == []


def test_doctor_finds_hooks_whose_program_is_gone(remuda: Commands) -> None:
    gone = {"type": "command", "command": "/gone/venv/bin/python -m hook"}
    there = {"type": "command", "command": "/bin/sh -c true"}
    odd: list[Any] = [3, {"hooks": None}, {"hooks": [None, {"command": 3}, {"command": "'"}]}]
    hooks = {"Stop": [{"hooks": [there, gone]}, *odd], "Odd": None}
    settings = remuda.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": hooks}))
    said = [line for line in findings(remuda, "note") if line.startswith("hook")]
    assert said == [f"hook for Stop runs /gone/venv/bin/python, which does not exist: edit {settings}"]


@pytest.mark.parametrize("text", ["[]", "nonsense", '{"hooks": 3}', '{"hooks": {"Stop": 3}}'])
def test_doctor_takes_any_settings_file(remuda: Commands, text: str) -> None:
    settings = remuda.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(text)
    remuda("doctor")


# ── demo, completion, version, help ──


def test_demo_runs_to_its_end_and_leaves_nothing(remuda: Commands) -> None:
    # Neither a configuration of the user's nor the session that it runs in is the demo's business.
    config = remuda.home / "config"
    (config / "remuda").mkdir(parents=True)
    (config / "remuda" / "remuda.toml").write_text('socket_dir = "/nowhere"\n')
    temporary = remuda.home / "tmp"
    temporary.mkdir()
    path = "/usr/bin:/bin"  # where there is no remuda
    env = {"XDG_CONFIG_HOME": str(config), "TMPDIR": str(temporary), "PATH": path, "COLUMNS": "72"}
    out = remuda("demo", env=env).out
    for shown in (
        "waiting_permission",
        "made-by-the-agent",
        "$ remuda messages m",
        "$ remuda show tour --explain",
        "tour ended",
        "End of the tour",
    ):
        assert shown in out
    assert f"\n{'─' * 72}\n" in out, "the session is as wide as the terminal"
    assert "This one is a\nscripted agent.\n" in out, "text is wrapped between words"
    said = re.search(r"Now try:\n  (\S+) start work", out)
    assert said
    assert shutil.which(said[1], path=path) == str(Path(sys.executable).with_name("remuda"))
    assert list(temporary.iterdir()) == []
    assert not remuda.sessions.exists()


def test_demo_that_is_asked_to_end_leaves_nothing(remuda: Commands) -> None:
    temporary = remuda.home / "tmp"
    temporary.mkdir()
    remuda.env["TMPDIR"] = str(temporary)
    tour = remuda.begin("demo")
    until_line(tour, b"started tour (pid ")
    (session,) = temporary.glob("*/home/sessions/tour.pid")
    keeper = Process(int(session.read_text().split()[0]))
    tour.terminate()
    _, err = tour.communicate(timeout=PATIENCE)
    assert (tour.returncode, err) == (143, b"")
    keeper.gone()
    assert list(temporary.iterdir()) == []


def complete(remuda: Commands, *words: str) -> list[str]:
    """What a real bash offers for that line, by the script that `completion bash` prints."""
    (remuda.cwd / "remuda").write_text(f'#!/bin/sh\nexec {COMMAND[0]} -m remuda "$@"\n')
    (remuda.cwd / "remuda").chmod(0o755)
    (remuda.cwd / "script").write_text(remuda("completion", "bash").out)
    last = len(words) - 1
    program = (
        f'. ./script || exit 9; COMP_WORDS=("$@"); COMP_CWORD={last}; '
        '_remuda_completion remuda; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", *words],
        env={**remuda.env, "PATH": f"{remuda.cwd}:{remuda.env['PATH']}"},
        cwd=remuda.cwd,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode().split()


def test_completion_in_bash_completes_commands_and_sessions(remuda: Commands) -> None:
    for name in ("work", "worse", "other"):
        remuda.start(name, "--", "cat")
    assert complete(remuda, "remuda", "sta") == ["start", "status"]
    assert complete(remuda, "remuda", "attach", "wo") == ["work", "worse"]
    assert complete(remuda, "remuda", "kill", "work", "o") == ["other"]


def test_completion_looks_where_the_line_says(remuda: Commands) -> None:
    folder = str(remuda.home / "elsewhere")
    remuda.start("there", "--socket-dir", folder, "--", "cat")
    assert complete(remuda, "remuda", "status", "--socket-dir", folder, "t") == ["there"]
    assert complete(remuda, "remuda", "status", "t") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_every_shell(remuda: Commands, shell: str) -> None:
    assert "_REMUDA_COMPLETE" in remuda("completion", shell).out


def test_version_names_all_that_matters(remuda: Commands) -> None:
    facts = remuda.json("version")
    assert facts["remuda"] == __version__
    said = remuda("version").out
    assert said == f"remuda {__version__} (Python {facts['python']}, protocol {facts['protocol']})\n"
    assert remuda("--version").out == f"remuda, version {__version__}\n"


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_help_of_every_command_has_an_example(remuda: Commands, name: str) -> None:
    out = remuda(name, "--help").out
    assert f"Usage: remuda {name}" in out
    assert re.search(rf"Examples?:\n +remuda (boss )?{name}", out)  # 'up' is also 'boss up'


def test_help_of_start_names_the_permission_mode_of_claude_code(remuda: Commands) -> None:
    assert "permission mode" in " ".join(remuda("start", "--help").out.split())


def test_help_lists_every_command_with_or_without_being_asked(remuda: Commands) -> None:
    assert remuda().out == remuda("--help").out
    out = remuda("help", "--all").out
    for name in ALL_COMMANDS:
        assert re.search(rf"^  {name} +\w", out, re.MULTILINE)
    assert "'remuda help --all' lists all commands" in remuda().out
    assert "help --all" not in out, "a page does not point to itself"
