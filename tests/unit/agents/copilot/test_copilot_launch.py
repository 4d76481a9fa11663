"""How copilot is started, and which options a pool of it takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remuda.agents import find_agent, guess_agent
from remuda.agents.base import LaunchContext
from remuda.agents.copilot.files import conversation_of, events_file
from remuda.agents.copilot.launch import allow_rules, hook_command, prepare, takes_prompt
from remuda.agents.copilot.warm import CopilotWarm
from remuda.agents.unattended import DENIED
from remuda.agents.warm import WorkerOptions


def _context(tmp_path: Path, *argv: str, **more: Any) -> LaunchContext:
    given: dict[str, Any] = {
        "argv": ["copilot", *argv],
        "env": {"HOME": str(tmp_path)},
        "cwd": tmp_path,
        "scratch": tmp_path / "scratch",
        "hook_url": "http://127.0.0.1:4321/hook",
        "hook_token": "tok",
        "emit_command": "",
        **more,
    }
    return LaunchContext(**given)


def test_launch_hooks_in_a_plugin_of_the_session_and_token_in_no_argument(tmp_path: Path) -> None:
    launch = prepare(_context(tmp_path, "--model", "x", asks=True, prompt="-p is text"))
    scratch = tmp_path / "scratch"
    assert launch.argv == [
        "copilot",
        "--plugin-dir",
        str(scratch),
        "--interactive=-p is text",
        "--model",
        "x",
    ]
    assert launch.files[scratch / "hook.address"] == b"4321 tok"
    hooks = json.loads(launch.files[scratch / "hooks.json"])["hooks"]
    assert hooks["PermissionRequest"][0]["timeoutSec"] == 60
    assert hooks["Stop"][0]["timeoutSec"] == 10
    assert "tok" not in str(launch.argv) + str(hooks["Stop"][0]["bash"]).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("given", "seconds"), [("7", 7), ("0", 1), ("x", 60), ("", 60), ("999999999", 86_400)]
)
def test_launch_time_to_decide_from_the_environment(tmp_path: Path, given: str, seconds: int) -> None:
    env = {"HOME": str(tmp_path), "REMUDA_COPILOT_ASK_SECONDS": given}
    launch = prepare(_context(tmp_path, asks=True, env=env))
    hooks = json.loads(launch.files[tmp_path / "scratch" / "hooks.json"])["hooks"]
    assert hooks["PermissionRequest"][0]["timeoutSec"] == seconds


def test_launch_resumes_only_a_conversation_with_a_prompt(tmp_path: Path) -> None:
    known = {"session_id": "abc-1"}
    words = ["-i", "first", "--session-id=zzz", "--resume", "--allow-tool=x", "--continue", "-n", "name"]
    assert prepare(_context(tmp_path, *words, conversation=known)).argv[3:] == words
    path = events_file({"HOME": str(tmp_path)}, "abc-1")
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text('{"type":"session.start"}\n{"type":"user.message","data":{}}\n')
    assert prepare(_context(tmp_path, *words, conversation=known)).argv[3:] == [
        "--resume=abc-1",
        "--allow-tool=x",
    ]


@pytest.mark.parametrize(
    ("words", "takes"),
    [([], True), (["--model", "x"], True), (["-i", "x"], False), (["--prompt=x"], False), (["login"], False)],
)
def test_prompt_added_to_a_command_without_one(words: list[str], takes: bool) -> None:
    assert takes_prompt(["copilot", *words]) is takes


def test_agent_known_by_its_command() -> None:
    assert guess_agent(["/usr/bin/copilot", "--model=x"]) == "copilot"
    assert find_agent("copilot").name == "copilot"


def test_conversation_by_the_newest_lock_of_the_process(tmp_path: Path) -> None:
    env = {"COPILOT_HOME": str(tmp_path)}
    assert conversation_of(env, 7) is None
    for name, pid in (("one", 7), ("two", 8)):
        folder = tmp_path / "session-state" / name
        folder.mkdir(parents=True)
        (folder / f"inuse.{pid}.lock").touch()
    assert conversation_of(env, 7) == "one"
    assert conversation_of(env, 9) is None
    assert events_file(env, "../etc") is None


# ── the pool ──


def _options(**given: Any) -> WorkerOptions:
    plain: dict[str, Any] = dict.fromkeys(
        ["model", "permission_mode", "settings", "setting_sources", "system_prompt", "append_system_prompt"]
    )
    plain |= dict.fromkeys(["allowed_tools", "disallowed_tools", "mcp_config", "add_dirs", "extra_args"], ())
    return cast(WorkerOptions, SimpleNamespace(**{**plain, **given}))


def test_warm_options_become_arguments() -> None:
    options = _options(model="m", allowed_tools=("shell(git:*)",), add_dirs=("/a",), extra_args=("--plan",))
    assert CopilotWarm().arguments(options) == [
        "--model=m",
        "--allow-tool=shell(git:*)",
        "--add-dir=/a",
        "--plan",
    ]
    assert CopilotWarm().refusals(options) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"system_prompt": "x"}, "no option system_prompt"),
        ({"extra_args": ("--resume=x",)}, "--resume"),
        ({"extra_args": ("-i",)}, "long form"),
        ({"model": "m", "extra_args": ("--model=x",)}, "--model"),
    ],
)
def test_warm_what_copilot_cannot_is_refused(given: dict[str, Any], why: str) -> None:
    assert why in " ".join(CopilotWarm().refusals(_options(**given)))


def test_warm_terminal_refused_with_the_way_out() -> None:
    assert "stream" in CopilotWarm().refusals(_options(), terminal=True)[0]


@pytest.mark.parametrize(
    ("words", "rules"),
    [
        (["--allow-tool=shell(git:*)", "--plan"], ["shell(git:*)"]),
        (["--allow-tool", "shell(ls)", "write", "--deny-tool", "shell(rm)"], ["shell(ls)", "write"]),
        (["--allow-url=github.com", "fix it"], ["url(github.com)"]),
        (["--deny-tool=write", "--model", "m"], []),
    ],
)
def test_allow_rules_of_every_form_are_read(words: list[str], rules: list[str]) -> None:
    assert allow_rules(words) == rules


_GIT, _WRITE, _URL, _SERVER = "shell(git:*)", "write(.env)", "url(https://*.github.com)", "mine(look)"


@pytest.mark.parametrize(
    ("rules", "tool", "given", "left"),
    [
        (["shell"], "bash", {"command": "rm -rf x"}, True),
        ([_GIT], "bash", {"command": "git push && git log | git x"}, True),
        ([_GIT], "bash", {"command": "git push; rm -rf x"}, False),
        ([_GIT], "bash", {"command": "gitea"}, False),
        ([_WRITE], "bash", {"command": "echo x > .env"}, False),
        ([_WRITE], "create", {"path": "/a/.env"}, True),
        ([_WRITE], "create", {"path": "/a/b"}, False),
        ([_URL], "web_fetch", {"url": "https://api.github.com/x"}, True),
        ([_URL], "web_fetch", {"url": "https://example.com"}, False),
        ([_SERVER], "mine-look", {}, True),
        ([_SERVER], "mine-write", {}, False),
        ([], "bash", {"command": "ls"}, False),
    ],
)
def test_request_that_a_rule_may_allow_is_left_to_copilot_and_others_are_denied(
    rules: list[str], tool: str, given: dict[str, str], left: bool
) -> None:
    payload = json.dumps({"hookName": "permissionRequest", "toolName": tool, "toolInput": given})
    command = hook_command("--deny", DENIED, *rules)
    done = subprocess.run(["sh", "-c", command], input=payload, capture_output=True, text=True, check=True)
    assert done.stdout == ("" if left else json.dumps({"behavior": "deny", "message": DENIED}))


def test_session_with_all_tools_allowed_has_no_hook_for_permissions(tmp_path: Path) -> None:
    def events(*argv: str, **variables: str) -> list[str]:
        launch = prepare(_context(tmp_path, *argv, env={"HOME": str(tmp_path), **variables}))
        return list(json.loads(launch.files[tmp_path / "scratch" / "hooks.json"])["hooks"])

    assert "PermissionRequest" in events()
    assert "PermissionRequest" not in events("--yolo")
    assert "PermissionRequest" not in events(COPILOT_ALLOW_ALL=" True")
