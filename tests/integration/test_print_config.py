"""The defaults of `remuda print`: its file, what is stronger, and every key at work."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.print_calls import Calls, write_program


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def default_file(calls: Calls, text: str) -> Path:
    return write(calls.home / ".config" / "claude-print" / "config.toml", text)


def words_given(calls: Calls, *words: str, **env: str) -> list[str]:
    """The agent's own command line."""
    record = calls.home / "arguments"
    calls("hello", *words, env={"MOCK_RECORD_ARGS": str(record), **env})
    return record.read_bytes().decode().split("\0")


def test_the_file_of_the_flag_is_stronger_than_xdg_and_that_than_home(calls: Calls) -> None:
    default_file(calls, '[defaults]\nmodel = "from-home"\n')
    assert "from-home" in words_given(calls)
    xdg = write(calls.home / "xdg" / "claude-print" / "config.toml", '[defaults]\nmodel = "from-xdg"\n')
    env = {"XDG_CONFIG_HOME": str(xdg.parent.parent)}
    given = words_given(calls, **env)
    assert "from-xdg" in given
    assert "from-home" not in given
    named = write(calls.home / "named.toml", '[defaults]\nmodel = "from-flag"\n')
    given = words_given(calls, "--config", str(named), **env)
    assert "from-flag" in given
    assert "from-xdg" not in given


def test_a_flag_is_stronger_than_the_file(calls: Calls) -> None:
    default_file(calls, '[defaults]\nmodel = "from-file"\nmax_turns = 1\ntimeout_secs = 1\n')
    given = words_given(calls, "--model", "from-flag", "--timeout", "60")
    assert "from-flag" in given
    assert "from-file" not in given
    found = calls.json("RUNBASH true", "--allowedTools", "Bash", "--max-turns", "5", "--timeout", "60")
    assert found["subtype"] == "success"


def test_every_key_of_the_file_works(calls: Calls) -> None:
    fired = calls.home / "fired"
    hook = {"type": "command", "command": f"touch {fired}"}
    write(
        calls.home / ".claude" / "settings.json",
        json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}),
    )
    default_file(calls, '[defaults]\nmodel = "m"\ninherit_hooks = false\nmax_turns = 1\ntimeout_secs = 60\n')
    assert "m" in words_given(calls)
    assert not fired.exists()
    stopped = calls.json("RUNBASH true", "--allowedTools", "Bash", code=1)
    assert stopped["subtype"] == "error_max_turns"
    default_file(calls, "[defaults]\ninherit_hooks = true\ntimeout_secs = 1\n")
    assert "--timeout: not finished after 1 s" in calls("THINK 600 x", code=124).err


def test_the_keys_reach_the_agent_of_a_stream_call_too(calls: Calls) -> None:
    default_file(calls, '[defaults]\nmodel = "m"\ninherit_hooks = false\nmax_turns = 7\n')
    given = calls.home / "given"
    write_program(
        calls.binary,
        f'#!/bin/sh\necho "$*" > {given}\necho \'{{"type":"result","subtype":"success","result":"ok"}}\'\n',
    )
    calls("hello", "--backend", "stream")
    words = given.read_text()
    assert "--model m" in words
    assert "--max-turns 7" in words
    assert "--setting-sources=" in words


WRONG = {
    "unknown key": ("[defaults]\ncolour = 1\n", "unknown key 'colour'"),
    "unknown table": ("[other]\n", "unknown key 'other'"),
    "wrong type": ('[defaults]\nmax_turns = "many"\n', "'max_turns' must be an integer"),
    "true is no number": ("[defaults]\ntimeout_secs = true\n", "'timeout_secs' must be an integer"),
    "out of range": ("[defaults]\nmax_turns = 0\n", "'max_turns' must be an integer from 1 to 1000"),
    "too long": ("[defaults]\ntimeout_secs = 86401\n", "from 1 to 86400"),
    "no model": ('[defaults]\nmodel = "--help"\n', "'model' must be the name of a model"),
    "no table": ("defaults = 1\n", "'defaults' must be a table"),
    "no TOML": ("[defaults\n", "is not TOML"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_an_error_that_names_file_and_key(calls: Calls, text: str, said: str) -> None:
    path = default_file(calls, text)
    done = calls("hello", "--output-format", "json", code=2)
    assert done.out == ""
    assert said in done.err
    assert str(path) in done.err


def test_a_missing_file_says_nothing_also_when_it_was_named(calls: Calls) -> None:
    assert calls("hello", "--config", str(calls.home / "none.toml")).out == "REPLY#1 to: hello\n"
    assert not (calls.home / ".config").exists(), "nothing is made"


# ── timeouts ──


def test_a_timeout_of_zero_is_none(calls: Calls) -> None:
    zero = ["--timeout", "0", "--first-output-timeout", "0", "--stop-hook-timeout", "0"]
    assert calls("hello", *zero, env={"MOCK_DELAY_STOP": "1500"}).out == "REPLY#1 to: hello\n"


@pytest.mark.parametrize("value", ["-1", "soon", "nan"])
def test_what_is_no_time_is_refused(calls: Calls, value: str) -> None:
    assert "is not a time" in calls("hello", f"--timeout={value}", code=2).err


# ── --pretrust-cwd ──


def config(calls: Calls) -> Path:
    return calls.home / ".claude.json"


def trusted(calls: Calls) -> object:
    cwd = os.path.realpath(calls.remuda.cwd)
    return json.loads(config(calls).read_text())["projects"][cwd]["hasTrustDialogAccepted"]


def test_pretrust_adds_to_what_is_there_and_keeps_its_mode(calls: Calls) -> None:
    calls("hello", "--pretrust-cwd", env={"MOCK_TRUST_FROM_CLAUDE_JSON": "1"})
    assert trusted(calls) is True
    assert stat.S_IMODE(config(calls).stat().st_mode) == 0o600

    cwd = os.path.realpath(calls.remuda.cwd)
    known = {"theme": "dark", "projects": {"/other": {"a": 1}, cwd: {"b": "ü"}}}
    config(calls).write_text(json.dumps(known))
    config(calls).chmod(0o640)
    calls("hello", "--pretrust-cwd")
    found = json.loads(config(calls).read_text())
    known["projects"][cwd]["hasTrustDialogAccepted"] = True  # type: ignore[index]
    assert found == known
    assert stat.S_IMODE(config(calls).stat().st_mode) == 0o640


def test_pretrust_follows_a_link(calls: Calls) -> None:
    real = write(calls.home / "dotfiles" / "claude.json", "{}")
    config(calls).symlink_to(real)
    calls("hello", "--pretrust-cwd")
    assert config(calls).is_symlink()
    assert trusted(calls) is True


@pytest.mark.parametrize("text", ["{broken", "[1]"])
def test_pretrust_leaves_a_file_alone_that_is_not_as_it_should_be(calls: Calls, text: str) -> None:
    config(calls).write_text(text)
    done = calls("hello", "--pretrust-cwd", env={"MOCK_TRUST_DIALOG": "0"})
    assert done.out == "REPLY#1 to: hello\n"
    assert "was left unchanged" in done.err
    assert config(calls).read_text() == text


@pytest.mark.parametrize("projects", [[], {"CWD": 3}])
def test_pretrust_is_an_error_where_the_entry_has_no_place(calls: Calls, projects: object) -> None:
    text = json.dumps({"projects": projects}).replace("CWD", os.path.realpath(calls.remuda.cwd))
    config(calls).write_text(text)
    done = calls("hello", "--pretrust-cwd", code=2)
    assert "is not an object" in done.err
    assert config(calls).read_text() == text


SEVERAL = """
import os, sys
from remuda.agents.claude.trust import pretrust
for number in range(12):
    assert pretrust(os.environ, f"/folder/{sys.argv[1]}/{number}", sys.exit)
"""


def test_pretrust_by_several_calls_at_once_loses_none(calls: Calls) -> None:
    config(calls).write_text(json.dumps({"theme": "dark", "filling": "x" * 20_000}))
    words = [sys.executable, "-c", SEVERAL]
    env = {**os.environ, "HOME": str(calls.home)}
    env.pop("CLAUDE_CONFIG_DIR", None)
    running = [subprocess.Popen([*words, str(number)], env=env) for number in range(6)]
    assert [one.wait(60) for one in running] == [0] * 6
    found = json.loads(config(calls).read_text())
    assert (found["theme"], len(found["projects"])) == ("dark", 6 * 12)


# ── --check ──


def test_check_says_what_works(calls: Calls) -> None:
    lines = calls("--check").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["OK"] * 4
    assert str(calls.binary) in lines[0]
    assert "test run: the demo agent answers" in lines[3]
    assert not (calls.home / ".claude").exists(), "the user's home is not touched"


def test_check_fails_without_the_agent(calls: Calls) -> None:
    calls.binary.unlink()
    done = calls("--check", code=2)
    assert done.out.startswith("FAIL: agent: cannot find")


def test_check_fails_where_sessions_have_no_place(calls: Calls) -> None:
    calls.sessions.write_text("in the way")
    done = calls("--check", code=2)
    assert "FAIL: session folder: " in done.out
    calls.sessions.unlink()


def test_clean_is_for_check(calls: Calls) -> None:
    assert "--clean needs --check" in calls("--clean", "hello", code=2).err
