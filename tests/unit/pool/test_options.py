"""Options of a pool and of its requests: defaults, what is refused, and the profile that comes of them."""

from __future__ import annotations

import asyncio
import math
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from remuda import Client, CommandNotFound, InvalidOptions
from remuda.errors import CommandNotExecutable
from remuda.pool.options import ClientSettings, read_client, read_run
from remuda.pool.worker import Profile, Resolver
from remuda.testing.pool import FakeAgent
from support.pool import gated, soon, virtual


def profile_of(client: dict[str, Any], request: dict[str, Any], **environ: str) -> Profile:
    settings = read_client(client)
    options = read_run(request, settings)
    return Resolver(settings, environ).profile(options.profile, options.permissions, find_binary=False)


# ── defaults ──


def test_client_defaults_are_those_of_the_original() -> None:
    settings = read_client({})
    assert settings == ClientSettings()
    assert (settings.pool_size, settings.backend, settings.claude_binary) == (1, "terminal", "claude")
    assert (settings.max_requests_per_session, settings.max_session_age, settings.max_idle) == (50, 3600, 600)
    assert (settings.acquire_timeout, settings.spawn_timeout, settings.default_timeout) == (30, 30, 300)
    assert (settings.warmup_prompt, settings.runtime_dir, settings.permissions) == (None, None, "deny")


def test_run_not_given_or_none_is_as_the_client_says() -> None:
    settings = read_client({"model": "m", "default_timeout": 7, "permissions": "allow", "env": {"A": "1"}})
    for given in ({}, {"model": None, "timeout": None, "permissions": None, "env": None}):
        options = read_run(given, settings)
        assert (options.profile.model, options.timeout, options.permissions) == ("m", 7, "allow")
        assert options.profile.env == {"A": "1"}


def test_run_given_wins_over_the_client() -> None:
    settings = read_client({"model": "m", "allowed_tools": ["Read"], "default_timeout": 7})
    options = read_run({"model": "n", "allowed_tools": [], "timeout": 1, "permissions": "allow"}, settings)
    assert (options.profile.model, options.profile.allowed_tools) == ("n", ())
    assert (options.timeout, options.permissions) == (1, "allow")


# ── what is refused ──

WRONG_FOR_BOTH: list[tuple[str, object]] = [
    ("nonsense", 1),
    ("cwd", 7),
    ("cwd", ""),
    ("cwd", "/no/such/folder"),
    ("cwd", "/etc/passwd"),
    ("cwd", "a\0b"),
    ("env", ["A=1"]),
    ("env", {"A": 1}),
    ("env", {1: "A"}),
    ("env", {"": "x"}),
    ("env", {"A=B": "x"}),
    ("env", {"A": "x\0"}),
    ("model", 3),
    ("model", ""),
    ("model", "a\0"),
    ("allowed_tools", "Read,Edit"),
    ("allowed_tools", {"Read": True}),
    ("allowed_tools", [3]),
    ("disallowed_tools", [""]),
    ("permission_mode", True),
    ("settings", 3),
    ("settings", {"a": object()}),
    ("setting_sources", 3),
    ("setting_sources", [""]),
    ("mcp_config", [3]),
    ("system_prompt", ["x"]),
    ("append_system_prompt", 3),
    ("add_dirs", "/tmp"),
    ("extra_args", "--debug"),
    ("extra_args", ["--resume=x"]),
    ("extra_args", ["--safe-mode"]),
    ("system_prompt", "x" * 200_000),
    ("permissions", "maybe"),
    ("permissions", True),
]
WRONG_FOR_A_CLIENT: list[tuple[str, object]] = [
    ("pool_size", 0),
    ("pool_size", -1),
    ("pool_size", 1.5),
    ("pool_size", True),
    ("pool_size", "4"),
    ("backend", "interactive"),
    ("backend", ["terminal"]),
    ("agent", "mule"),
    ("max_requests_per_session", 0),
    ("max_session_age", -1),
    ("max_idle", 0),
    ("acquire_timeout", -0.1),
    ("spawn_timeout", 0),
    ("default_timeout", math.inf),
    ("default_timeout", math.nan),
    ("default_timeout", "5"),
    ("clear_timeout", False),
    ("interrupt_timeout", -1),
    ("end_timeout", 0),
    ("close_timeout", -1),
    ("claude_binary", ""),
    ("runtime_dir", "a\0"),
    ("inherit_env", "no"),
    ("warmup_prompt", " "),
    ("permission_timeout", 0),
    ("request_id", "x"),
    ("timeout", 3),
]
WRONG_FOR_A_RUN: list[tuple[str, object]] = [
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", math.inf),
    ("timeout", "1"),
    ("request_id", ""),
    ("request_id", 7),
    ("request_id", "../../x"),
    ("request_id", ".hidden"),
    ("request_id", "a/b"),
    ("request_id", "a\0b"),
    ("request_id", "a\nb"),
    ("request_id", "ä"),
    ("request_id", "x" * 129),
    ("signal", True),
    ("signal", threading.Event()),
    ("pool_size", 2),
    ("backend", "stream"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_FOR_BOTH + WRONG_FOR_A_CLIENT)
def test_client_wrong_option_is_refused_when_it_is_made(name: str, value: object) -> None:
    with pytest.raises(InvalidOptions) as caught:
        Client(session_factory=FakeAgent(), **{name: value})  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_OPTIONS"


@virtual
@pytest.mark.parametrize(("name", "value"), WRONG_FOR_BOTH + WRONG_FOR_A_RUN)
async def test_run_wrong_option_is_refused_before_anything_runs(name: str, value: object) -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        with pytest.raises(InvalidOptions) as caught:
            await client.run("x", **{name: value})  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_OPTIONS"
    assert agent.sessions == []


@virtual
@pytest.mark.parametrize(("name", "value"), [*WRONG_FOR_BOTH, ("timeout", 3), ("request_id", "x")])
async def test_prewarm_wrong_option_is_refused_before_anything_runs(name: str, value: object) -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        with pytest.raises(InvalidOptions):
            await client.prewarm(**{name: value})  # type: ignore[arg-type]
    assert agent.sessions == []


@virtual
@pytest.mark.parametrize("prompt", ["", "  \n", None, b"x", "a\0b", "\udcff"])
async def test_run_invalid_prompt_is_refused(prompt: object) -> None:
    async with Client(session_factory=FakeAgent()) as client:
        with pytest.raises(InvalidOptions):
            await client.run(prompt)  # type: ignore[arg-type]


@virtual
async def test_run_id_in_use_is_refused_and_free_again_afterwards() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=2) as client:
        call = soon(client.run("one", request_id="same"))
        await gate.begun("one")
        with pytest.raises(InvalidOptions):
            await client.run("two", request_id="same")
        gate.open("one", "two")
        await call
        assert (await client.run("two", request_id="same")).request_id == "same"


def test_unknown_option_names_the_one_that_may_be_meant() -> None:
    with pytest.raises(InvalidOptions, match="pool_size"):
        Client(poolsize=3)  # type: ignore[call-arg]


def test_print_backend_cannot_be_warm() -> None:
    with pytest.raises(InvalidOptions):
        Client(backend="print", warmup_prompt="hum")


@virtual
async def test_print_backend_cannot_be_prewarmed() -> None:
    async with Client(session_factory=FakeAgent(), backend="print") as client:
        with pytest.raises(InvalidOptions):
            await client.prewarm()


@virtual
async def test_client_of_another_loop_is_refused() -> None:
    async with Client(session_factory=FakeAgent()) as client:

        async def elsewhere() -> None:
            with pytest.raises(InvalidOptions):
                await client.run("x")

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        thread.join()


# ── the profile ──


def test_profile_has_the_whole_environment_as_it_was_when_the_client_was_made(tmp_path: Path) -> None:
    profile = profile_of({"env": {"A": "1", "B": "1"}}, {"env": {"B": "2", "GONE": None}}, GONE="x", KEPT="y")
    assert profile.env == {"A": "1", "B": "2", "KEPT": "y"}


@virtual
async def test_profile_environment_is_taken_when_the_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FakeAgent()
    monkeypatch.setenv("REMUDA_POOL_TEST", "then")
    async with Client(session_factory=agent) as client:
        monkeypatch.setenv("REMUDA_POOL_TEST", "now")
        await client.run("x")
    assert agent.sessions[0].profile.env["REMUDA_POOL_TEST"] == "then"


def test_profile_without_inheritance_has_only_what_was_given() -> None:
    profile = profile_of({"inherit_env": False, "env": {"A": "1"}}, {"env": {"B": "2"}}, KEPT="y")
    assert profile.env == {"A": "1", "B": "2"}


def test_profile_folder_is_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = os.path.realpath(tmp_path / "real")
    assert profile_of({}, {"cwd": tmp_path / "link"}).cwd == real
    assert profile_of({}, {"cwd": tmp_path / "real" / ".." / "link"}).cwd == real
    monkeypatch.chdir(tmp_path)
    assert profile_of({"cwd": "link"}, {}).cwd == real
    assert profile_of({}, {}).cwd == os.path.realpath(tmp_path)


def test_profile_key_is_the_same_for_the_same_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    base = profile_of({}, {"cwd": tmp_path}, A="1", B="2")
    assert profile_of({"cwd": tmp_path}, {}, B="2", A="1").key == base.key
    others: list[dict[str, Any]] = [
        {"cwd": tmp_path / "other"},
        {"env": {"A": "2"}},
        {"model": "m"},
        {"allowed_tools": ["Read"]},
        {"disallowed_tools": ["Read"]},
        {"permission_mode": "plan"},
        {"permissions": "allow"},
        {"settings": {"a": 1}},
        {"setting_sources": "user"},
        {"mcp_config": "m.json"},
        {"system_prompt": "s"},
        {"append_system_prompt": "s"},
        {"add_dirs": [tmp_path]},
        {"extra_args": ["--debug"]},
    ]
    keys = [profile_of({"cwd": tmp_path}, {"cwd": tmp_path, **other}, A="1", B="2").key for other in others]
    assert len({base.key, *keys}) == len(others) + 1


def test_profile_of_either_kind_of_decider_is_the_same() -> None:
    async def decide(request: object) -> Any: ...

    assert profile_of({}, {"permissions": decide}).key == profile_of({}, {"permissions": "allow"}).key


def test_profile_writes_configurations_as_the_agent_reads_them(tmp_path: Path) -> None:
    profile = profile_of(
        {},
        {
            "settings": {"b": 1, "a": [2]},
            "setting_sources": ["user", "project"],
            "mcp_config": [tmp_path / "a.json", {"mcpServers": {}}],
            "add_dirs": [tmp_path],
        },
    )
    assert profile.settings == '{"a": [2], "b": 1}'
    assert profile.setting_sources == "user,project"
    assert profile.mcp_config == (str(tmp_path / "a.json"), '{"mcpServers": {}}')
    assert profile.add_dirs == (str(tmp_path),)
    assert profile_of({}, {"setting_sources": ""}).setting_sources == ""


def test_profile_does_not_show_the_environment_when_it_is_printed() -> None:
    assert "sk-secret" not in repr(profile_of({}, {}, API_KEY="sk-secret"))


# ── the program ──


def program(path: Path, *, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def binary_of(binary: str, **environ: str) -> str:
    settings = read_client({"claude_binary": binary})
    options = read_run({}, settings)
    return Resolver(settings, environ).profile(options.profile, options.permissions).binary


def test_binary_is_found_on_the_path_of_the_request(tmp_path: Path) -> None:
    found = program(tmp_path / "claude")
    assert binary_of("claude", PATH=f"/nowhere:{tmp_path}") == str(found)
    assert binary_of(str(found)) == str(found)


def test_binary_that_cannot_run_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(CommandNotFound):
        binary_of("claude", PATH=str(tmp_path))
    with pytest.raises(CommandNotFound):
        binary_of(str(tmp_path / "gone"))
    plain = program(tmp_path / "plain", mode=stat.S_IRUSR)
    with pytest.raises(CommandNotExecutable):
        binary_of(str(plain))
