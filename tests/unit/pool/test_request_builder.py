"""What is asked of a served pool: the caller's own folder and environment, whole, and no shell's."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.errors import InputError
from remuda.pool.protocol import MAX_PROMPT_BYTES, encode
from remuda.pool.request_builder import environment, prewarm_message, run_message, whole_options

SHELL = {"_": "/usr/bin/remuda", "SHLVL": "3", "OLDPWD": "/a", "PWD": "/b"}
TERMINAL = {"TMUX": "/tmp/x,1,2", "TMUX_PANE": "%5", "COLUMNS": "80", "KITTY_PID": "7"}


def test_environment_two_shells_and_two_terminals_have_the_same() -> None:
    mine = {"PATH": "/bin", "TOKEN": "secret"}
    assert environment({**mine, **SHELL, **TERMINAL}, "/work") == environment(mine, "/work")
    assert environment(mine, "/work") == {**mine, "PWD": "/work"}


def test_whole_options_folder_is_real_and_the_callers(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert whole_options({"cwd": "link"}, cwd=str(tmp_path), environ={})["cwd"] == str(tmp_path / "real")
    assert whole_options({"cwd": Path("link")}, cwd=str(tmp_path), environ={})["env"] == {
        "PWD": str(tmp_path / "real")
    }
    assert whole_options({}, cwd=str(tmp_path), environ={})["cwd"] == str(tmp_path)


def test_whole_options_env_is_laid_over_the_callers_and_takes_away() -> None:
    whole = whole_options({"env": {"A": "2", "B": None}}, cwd="/", environ={"A": "1", "B": "1", "C": "1"})
    assert whole["env"] == {"A": "2", "C": "1", "PWD": "/"}


def test_run_message_can_be_sent_whatever_a_client_takes(tmp_path: Path) -> None:
    options = {"add_dirs": (tmp_path,), "allowed_tools": ["Bash"], "settings": {"a": 1}, "model": None}
    message = run_message("x", options, cwd="/", environ={}, raw=True)
    encode(message)
    assert message["options"]["add_dirs"] == [str(tmp_path)]
    assert "model" not in message["options"]
    assert message["raw"]


def test_run_message_a_prompt_as_long_as_can_be_is_taken_and_a_longer_one_refused() -> None:
    longest = "é" * (MAX_PROMPT_BYTES // 2)
    assert run_message(longest, {}, cwd="/", environ={})["prompt"] == longest
    with pytest.raises(InputError):
        run_message(longest + "x", {}, cwd="/", environ={})


def test_prewarm_message_has_the_same_profile_as_a_run() -> None:
    options = {"model": "opus"}
    asked = run_message("x", options, cwd="/tmp", environ=SHELL)
    assert prewarm_message(3, options, cwd="/tmp", environ=SHELL)["options"] == asked["options"]
