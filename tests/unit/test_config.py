"""The configuration file: which one counts, what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from remuda.config import FOLDER_KEYS, Config, candidates, load_config, load_own_config, parse_config
from remuda.errors import InvalidOptions


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_load_without_any_file_gives_heimdalls_defaults(tmp_path: Path) -> None:
    config = load_config(None, tmp_path, {"HOME": str(tmp_path)})
    assert config == Config()
    assert (config.scrollback_bytes, config.detach_key) == (65536, 28)
    assert (config.session_env_var, config.kill_process_group) == ("HEIMDALL_SESSION_ID", True)


def test_load_with_every_candidate_takes_the_first_whole(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    files = candidates(tmp_path, environ)
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        "remuda.toml",
        "heimdall.toml",
        "home/.config/remuda/remuda.toml",
        "home/.config/heimdall/heimdall.toml",
    ]
    for number, path in enumerate(files):
        write(path, f"scrollback_bytes = {number}\n" + ("status_bar = false" if number else ""))
    for number, path in enumerate(files):
        config = load_config(None, tmp_path, environ)
        assert (config.source, config.scrollback_bytes) == (path, number)
        assert config.status_bar == (not number), "files are not merged"
        path.unlink()


REFUSED = {
    "prices": '[prices."m"]\ninput = 1.0',
    # what a hostile repository could do with it
    "socket_dir": 'socket_dir = "sessions"',  # other sessions, or files where it likes
    "session_env_var": 'session_env_var = "BASH_ENV"',  # runs a file that has the session's name
    "kill_process_group": "kill_process_group = false",  # what it started outlives 'kill'
    "log_file": 'log_file = "x"',  # writes a file
    "log_filter": 'log_filter = "a=debug"',  # only for finding faults
    "detach_key": "detach_key = 0",  # the user cannot leave, or loses a key
    "env": '[[env]]\nname = "PATH"\nvalue = "."',  # runs anything
    "kill_grace": "kill_grace = 1e9",  # 'kill' does not end
    "history_bytes": "history_bytes = 0",  # fills the disk, or hides what happened
    "log_max_bytes": "log_max_bytes = 0",  # fills the disk, or hides what happened
    "restart_tries": "restart_tries = 1000",  # starts something again and again
    "restart_pause": "restart_pause = 0.0",
    "sleep_after": "sleep_after = 1.0",  # ends the user's agents
    "worktree_folder": 'worktree_folder = "/etc"',  # writes files where it likes
    "worktree_setup": 'worktree_setup = "rm -rf ~"',  # runs anything
    "worktree_disposable": 'worktree_disposable = "*"',  # 'kill' removes what the user needs
    "boss": "[boss]\nport = 1",  # a port on which another user listens
}
WITHIN_OTHERS = {"currency", "idle_threshold_ms", "debounce_ms"}  # set by [classifier.NAME]


def test_folder_file_every_key_of_config_is_either_allowed_or_refused() -> None:
    keys = {one.name for one in fields(Config)} - {"source"} - WITHIN_OTHERS
    assert keys == FOLDER_KEYS | REFUSED.keys()
    assert not FOLDER_KEYS & REFUSED.keys()


@pytest.mark.parametrize("name", ["remuda.toml", "heimdall.toml"])
@pytest.mark.parametrize("key", sorted(REFUSED))
def test_folder_file_with_a_key_not_on_the_list_is_refused_by_name(
    key: str, name: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, REFUSED[key])
    with pytest.raises(InvalidOptions) as caught:
        load_config(None, tmp_path, {"HOME": str(tmp_path / "home")})
    assert str(path) in caught.value.message
    assert repr(key) in caught.value.message
    assert "--config" in str(caught.value)
    assert load_config(path, tmp_path, {}).source == path, "the user named it"


def test_folder_file_with_harmless_keys_is_used(tmp_path: Path) -> None:
    text = 'scrollback_bytes = 16777216\nsize = "fixed"\nstatus_bar = false\nlog_level = "warn"\n'
    write(tmp_path / "remuda.toml", text + "[classifier.simple]\nidle_threshold_ms = 5")
    config = load_config(None, tmp_path, {})
    assert (config.size, config.status_bar, config.idle_threshold_ms) == ("fixed", False, 5)


@pytest.mark.parametrize(
    "text",
    [
        "scrollback_bytes = 16777217",
        "scrollback_bytes = 0x" + "f" * 9000,
        "scrollback_bytes = " + "9" * 5000,
        "size = " + "[" * 100_000,
        "# " + "x" * (1 << 20),
        'size = "\xff"',
    ],
    ids=["memory", "hex", "digits", "deep", "long", "latin"],
)
def test_folder_file_beyond_bounds_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "remuda.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidOptions, match=r"remuda\.toml"):
        load_config(None, tmp_path, {})


def test_users_own_file_is_trusted_also_in_its_own_folder(tmp_path: Path) -> None:
    own = write(tmp_path / "remuda" / "remuda.toml", "detach_key = 1")
    assert load_config(None, own.parent, {"XDG_CONFIG_HOME": str(tmp_path)}).detach_key == 1


def test_candidates_with_a_relative_xdg_config_home_ignore_it(tmp_path: Path) -> None:
    # Below a working folder anything may lie.
    found = candidates(tmp_path, {"HOME": "/home/x", "XDG_CONFIG_HOME": ".config"})
    assert found[2] == Path("/home/x/.config/remuda/remuda.toml")


def test_candidates_with_xdg_config_home_look_there(tmp_path: Path) -> None:
    found = candidates(tmp_path, {"HOME": "/home/x", "XDG_CONFIG_HOME": "/elsewhere"})
    assert found[2:] == [Path("/elsewhere/remuda/remuda.toml"), Path("/elsewhere/heimdall/heimdall.toml")]


def test_load_explicit_file_wins_over_all(tmp_path: Path) -> None:
    write(tmp_path / "remuda.toml", "status_bar = false")
    named = write(tmp_path / "named.toml", "detach_key = 2")
    assert load_config(named, tmp_path, {}).detach_key == 2


def test_load_explicit_file_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions) as caught:
        load_config(tmp_path / "nope.toml", tmp_path, {})
    assert "nope.toml" in caught.value.message


def test_load_file_that_is_not_toml_is_an_error_with_file_and_place(tmp_path: Path) -> None:
    path = write(tmp_path / "remuda.toml", "a = = 1")
    with pytest.raises(InvalidOptions) as caught:
        load_config(None, tmp_path, {})
    assert str(path) in caught.value.message
    assert "line 1" in caught.value.message


def test_parse_every_key_of_heimdall_is_taken() -> None:
    config = parse_config(
        {
            "socket_dir": "/s",
            "scrollback_bytes": 1,
            "session_env_var": "SID",
            "kill_process_group": False,
            "log_file": "/l",
            "log_level": "debug",
            "log_filter": "a=debug",
            "detach_key": 0,
            "classifier": {"claude": {"idle_threshold_ms": 10, "debounce_ms": 20}},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
        }
    )
    assert config == Config(
        socket_dir="/s",
        scrollback_bytes=1,
        session_env_var="SID",
        kill_process_group=False,
        log_file="/l",
        log_level="debug",
        log_filter="a=debug",
        detach_key=0,
        classifier="claude",
        idle_threshold_ms=10,
        debounce_ms=20,
        env={"A": "1", "B": ""},
    )


def test_parse_classifier_as_a_word_and_as_an_empty_table_mean_the_same() -> None:
    assert parse_config({"classifier": "none"}) == parse_config({"classifier": {"none": {}}})


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ({"colour": 1}, "colour"),
        ({"source": "x"}, "source"),
        ({"idle_threshold_ms": 1}, "idle_threshold_ms"),
        ({"scrollback_bytes": -1}, "scrollback_bytes"),
        ({"scrollback_bytes": "64k"}, "scrollback_bytes"),
        ({"scrollback_bytes": True}, "scrollback_bytes"),
        ({"kill_process_group": 1}, "kill_process_group"),
        ({"status_bar": "yes"}, "status_bar"),
        ({"kill_grace": float("nan")}, "kill_grace"),
        ({"worktree_setup": "a\0b"}, "worktree_setup"),
        ({"kill_grace": float("inf")}, "kill_grace"),
        ({"kill_grace": -0.5}, "kill_grace"),
        ({"detach_key": 256}, "detach_key"),
        ({"scrollback_bytes": 1 << 40}, "scrollback_bytes"),
        ({"scrollback_bytes": 16**5000}, "scrollback_bytes"),
        ({"log_max_bytes": 10**400}, "log_max_bytes"),
        ({"kill_grace": 1e300}, "kill_grace"),
        ({"kill_grace": 16**5000}, "kill_grace"),
        ({"classifier": {"simple": {"idle_threshold_ms": 16**5000}}}, "idle_threshold_ms"),
        ({"boss": {"port": 16**5000}}, "port"),
        ({"session_env_var": ""}, "session_env_var"),
        ({"session_env_var": "A=B"}, "session_env_var"),
        ({"classifier": "clever"}, "clever"),
        ({"classifier": 3}, "classifier"),
        ({"classifier": {}}, "classifier"),
        ({"classifier": {"simple": {}, "claude": {}}}, "classifier"),
        ({"classifier": {"simple": 3}}, "simple"),
        ({"classifier": {"simple": {"speed": 3}}}, "speed"),
        ({"classifier": {"simple": {"idle_threshold_ms": -1}}}, "idle_threshold_ms"),
        ({"classifier": {"simple": {"idle_threshold_ms": True}}}, "idle_threshold_ms"),
        ({"env": {"A": "1"}}, "[[env]]"),
        ({"env": [{"name": "A"}]}, "[[env]]"),
        ({"env": [{"name": "A", "value": 1}]}, "[[env]]"),
        ({"env": [{"name": "", "value": "1"}]}, "[[env]]"),
        ({"env": [{"name": "A=B", "value": "1"}]}, "[[env]]"),
        ({"env": [{"name": "A", "value": "\0"}]}, "[[env]]"),
    ],
)
def test_parse_what_cannot_be_is_an_error_that_names_file_and_key(found: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        parse_config(found, Path("/x/remuda.toml"))
    assert caught.value.message.startswith("/x/remuda.toml: ")
    assert named in caught.value.message


def test_a_key_with_a_typo_is_an_error_with_the_right_word() -> None:
    with pytest.raises(InvalidOptions) as caught:
        parse_config({"sleep_afer": 30}, Path("/x/remuda.toml"))
    assert caught.value.hint == "did you mean 'sleep_after'?"


# ── a planted file ──

as_root = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can give a file away")


@as_root
@pytest.mark.parametrize("strict", [True, False])
def test_folder_file_of_another_user_is_ignored_with_a_warning(tmp_path: Path, strict: bool) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    planted, own = write(tmp_path / "remuda.toml", 'size = "fixed"'), candidates(tmp_path, environ)[2]
    write(own, "scrollback_bytes = 7")
    os.chown(planted, 65534, 65534)
    warned: list[str] = []
    config = load_config(None, tmp_path, environ, strict=strict, warn=warned.append)
    assert (config.source, config.scrollback_bytes, config.size) == (own, 7, "latest")
    assert warned == [f"ignored: {planted} belongs to another user"]
    assert load_config(planted, tmp_path, environ).size == "fixed", "the user named it"


@as_root
def test_own_file_of_another_user_is_refused(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    own = write(candidates(tmp_path, environ)[2], "")
    os.chown(own, 65534, 65534)
    with pytest.raises(InvalidOptions, match="belongs to another user"):
        load_config(None, tmp_path, environ)


@pytest.mark.parametrize("text", [REFUSED["env"], "not toml", "unknown = 1"])
def test_invalid_folder_file_not_strict_is_a_warning(tmp_path: Path, text: str) -> None:
    planted, warned = write(tmp_path / "remuda.toml", text), list[str]()
    assert load_config(None, tmp_path, {}, strict=False, warn=warned.append) == Config()
    assert len(warned) == 1
    assert str(planted) in warned[0]


def test_sessions_folder_comes_from_the_own_file(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    write(candidates(tmp_path, environ)[2], 'socket_dir = "/mine"\nsize = "fixed"')
    write(tmp_path / "remuda.toml", "mouse = false")
    config = load_config(None, tmp_path, environ)
    assert (config.socket_dir, config.mouse, config.size) == ("/mine", False, "latest")
    assert load_own_config(environ).socket_dir == "/mine"


def test_null_device_means_no_configuration(tmp_path: Path) -> None:
    write(tmp_path / "remuda.toml", "mouse = false")
    assert load_config(Path(os.devnull), tmp_path, {}) == Config(source=Path(os.devnull))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prices = 5", "[prices] must be a table"),
        ('[prices]\ncurrency = "dollars"', "currency cannot be 'dollars'"),
        ("[prices]\nm = 5", '[prices."m"] must be a table'),
        ("[prices.m]\ninput = -1", "cannot have input = -1"),
        ("[prices.m]\ninput = inf", "cannot have input = inf"),
        ("[prices.m]\nreasoning = 1", "cannot have reasoning = 1"),
    ],
)
def test_prices_that_cannot_be_are_refused_by_name(text: str, told: str, tmp_path: Path) -> None:
    path = write(tmp_path / "own.toml", text)
    with pytest.raises(InvalidOptions, match=re.escape(told)):
        load_config(path, tmp_path, {})


def test_prices_of_the_users_own_file(tmp_path: Path) -> None:
    path = write(tmp_path / "own.toml", '[prices]\ncurrency = "EUR"\n[prices."m-*"]\ninput = 1\noutput = 2.5')
    config = load_config(path, tmp_path, {})
    assert (config.currency, config.prices) == ("EUR", {"m-*": {"input": 1.0, "output": 2.5}})
