"""How Claude Code is started as a kept session: what is added, what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.agents import find_agent, guess_agent
from remuda.agents.base import Launch, LaunchContext
from remuda.agents.claude.launch import HTTP_EVENTS, IDENTITY_VARIABLES, TOKEN_HEADER, prepare
from remuda.errors import InvalidOptions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds a project and a home, both without settings."""
    (tmp_path / "project" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    return tmp_path


def launch(
    folder: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    conversation: dict[str, Any] | None = None,
    program: tuple[str, ...] = ("claude",),
) -> Launch:
    context = LaunchContext(
        argv=[*program, *arguments],
        env={"HOME": str(folder / "home"), **(env or {})},
        cwd=folder / "project",
        scratch=folder / "scratch",
        hook_url="http://127.0.0.1:1/hook",
        hook_token="secret",
        emit_command="emit it",
        conversation=conversation or {},
    )
    return prepare(context, len(program))


def overlay(made: Launch) -> dict[str, Any]:
    ((path, content),) = made.files.items()
    assert made.argv[1:3] == ["--settings", str(path)]
    found = json.loads(content)
    assert isinstance(found, dict)
    return found


def modes(made: Launch) -> list[str]:
    pairs = zip(made.argv, [*made.argv[1:], ""], strict=True)
    return [value for flag, value in pairs if flag == "--permission-mode"]


# ── arguments ──


def test_plain_start_adds_settings_and_manual_mode_before_the_users_arguments(folder: Path) -> None:
    made = launch(folder, "--model", "sonnet", "fix it")
    settings = str(folder / "scratch" / "settings.json")
    wanted = ["claude", "--settings", settings, "--permission-mode", "default", "--model", "sonnet", "fix it"]
    assert made.argv == wanted
    assert made.degraded == []


def test_start_of_a_program_of_several_words_adds_after_them(folder: Path) -> None:
    made = launch(folder, "hello", program=("python", "-m", "agent"))
    assert made.argv[:4] == ["python", "-m", "agent", "--settings"]
    assert made.argv[-1] == "hello"


@pytest.mark.parametrize(
    "arguments",
    [["--permission-mode", "plan"], ["--permission-mode=plan"], ["--dangerously-skip-permissions"]],
)
def test_permission_mode_of_the_arguments_is_left_alone(folder: Path, arguments: list[str]) -> None:
    assert launch(folder, *arguments).argv[3:] == arguments


@pytest.mark.parametrize(
    "place",
    ["home/.claude/settings.json", "project/.claude/settings.json", "project/.claude/settings.local.json"],
)
def test_permission_mode_of_the_users_settings_is_left_alone(folder: Path, place: str) -> None:
    (folder / place).write_text('{"permissions": {"defaultMode": "acceptEdits"}}')
    assert modes(launch(folder)) == []


def test_permission_mode_of_given_settings_is_left_alone(folder: Path) -> None:
    made = launch(folder, "--settings", '{"permissions": {"defaultMode": "plan"}}')
    assert modes(made) == []
    assert overlay(made)["permissions"] == {"defaultMode": "plan"}


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"permissions": 3}', '{"permissions": {}}'])
def test_permission_mode_with_settings_that_say_nothing_is_manual(folder: Path, text: str) -> None:
    (folder / "home/.claude/settings.json").write_text(text)
    assert modes(launch(folder)) == ["default"]


def test_settings_are_looked_for_where_the_config_folder_was_moved(folder: Path) -> None:
    (folder / "moved").mkdir()
    (folder / "moved/settings.json").write_text('{"permissions": {"defaultMode": "plan"}}')
    assert modes(launch(folder, env={"CLAUDE_CONFIG_DIR": str(folder / "moved")})) == []


def test_resume_names_the_conversation_and_asks_nothing_again(folder: Path) -> None:
    given = ["--resume", "old", "--model", "opus", "-c", "--session-id", "9", "the first prompt"]
    transcript = folder / "e7ee3548.jsonl"
    transcript.write_text('{"type": "mode"}\n{"type": "user"}\n')
    conversation = {"session_id": "e7ee3548", "transcript_path": str(transcript)}
    made = launch(folder, *given, conversation=conversation)
    assert made.argv[5:] == ["--resume", "e7ee3548", "--model", "opus"]


@pytest.mark.parametrize(
    "text", [None, "", '{"type": "mode"}\n{"type": "file-history-snapshot"}\n{"type": "us']
)
def test_resume_of_a_conversation_without_messages_begins_it(folder: Path, text: str | None) -> None:
    transcript = folder / "e7ee3548.jsonl"
    if text is not None:
        transcript.write_text(text)
    conversation = {"session_id": "e7ee3548", "transcript_path": str(transcript)}
    made = launch(folder, "--model", "opus", "the first prompt", conversation=conversation)
    assert made.argv[5:] == ["--model", "opus", "the first prompt"]


def test_flags_after_a_launcher_follow_the_program(folder: Path) -> None:
    made = launch(folder, "A=1", "claude", "--model", "opus", program=("env",))
    assert made.argv[:4] == ["env", "A=1", "claude", "--settings"]


# ── the settings overlay ──


def test_overlay_has_one_hook_of_ours_for_every_event(folder: Path) -> None:
    hooks = overlay(launch(folder))["hooks"]
    assert set(hooks) == {*HTTP_EVENTS, "SessionStart"}
    ((http,),) = ([group["hooks"] for group in hooks["Stop"]],)
    assert http[0]["url"] == "http://127.0.0.1:1/hook"
    assert http[0]["headers"] == {TOKEN_HEADER: "secret"}
    assert hooks["SessionStart"][0]["hooks"][0]["command"] == "emit it"


@pytest.mark.parametrize("form", ["inline", "equals", "file", "relative"])
def test_overlay_keeps_the_users_own_settings_and_hooks(folder: Path, form: str) -> None:
    own = {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}], "Odd": []},
        "env": {"A": "1"},
    }
    (folder / "project/own.json").write_text(json.dumps(own))
    given = {
        "inline": ["--settings", json.dumps(own)],
        "equals": [f"--settings={json.dumps(own)}"],
        "file": ["--settings", str(folder / "project/own.json")],
        "relative": ["--settings", "own.json"],
    }[form]
    made = launch(folder, *given, "hello")
    found = overlay(made)
    assert found["env"] == {"A": "1"}
    assert found["hooks"]["Odd"] == []
    assert [group["hooks"][0].get("command") for group in found["hooks"]["Stop"]] == ["mine", None]
    assert made.argv[3:] == ["--permission-mode", "default", "hello"]


@pytest.mark.parametrize("given", ["{nonsense", "/nope/settings.json"])
def test_settings_that_cannot_be_read_are_an_error(folder: Path, given: str) -> None:
    with pytest.raises(InvalidOptions):
        launch(folder, "--settings", given)


@pytest.mark.parametrize("flag", ["--bare", "--safe-mode"])
def test_flag_that_turns_hooks_off_is_reported_as_degraded(folder: Path, flag: str) -> None:
    assert launch(folder, flag).degraded == [f"no hooks: {flag} was given"]


def test_settings_that_disable_all_hooks_are_reported_as_degraded(folder: Path) -> None:
    (folder / "home/.claude/settings.json").write_text('{"disableAllHooks": true}')
    (reason,) = launch(folder).degraded
    assert "disableAllHooks" in reason


# ── environment ──


def test_environment_loses_the_identity_of_an_agent_around_us(folder: Path) -> None:
    made = launch(folder, env=dict.fromkeys(IDENTITY_VARIABLES, "x") | {"ANTHROPIC_API_KEY": "k"})
    assert not set(IDENTITY_VARIABLES) & set(made.env)
    assert made.env["ANTHROPIC_API_KEY"] == "k"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, "127.0.0.1,localhost"),
        ("", "127.0.0.1,localhost"),
        ("a.example, localhost", "a.example,localhost,127.0.0.1"),
        ("127.0.0.1,localhost", "127.0.0.1,localhost"),
        ("*", "*"),
    ],
)
def test_environment_excludes_loopback_from_proxies(folder: Path, given: str | None, wanted: str) -> None:
    made = launch(folder, env={} if given is None else {"NO_PROXY": given, "no_proxy": given})
    assert (made.env["NO_PROXY"], made.env["no_proxy"]) == (wanted, wanted)


def test_environment_lifts_the_cap_on_blocked_stops_unless_the_user_set_one(folder: Path) -> None:
    assert launch(folder).env["CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"] == "0"
    assert (
        launch(folder, env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "3"}).env["CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"]
        == "3"
    )


# ── which agent ──


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["claude"], "claude"),
        (["/opt/bin/claude", "-c"], "claude"),
        (["claude-print"], "simple"),
        (["bash"], "simple"),
        ([], "simple"),
    ],
)
def test_guess_agent_goes_by_the_programs_name(argv: list[str], wanted: str) -> None:
    assert guess_agent(argv) == wanted


def test_find_agent_unknown_is_an_error_that_lists_them() -> None:
    with pytest.raises(InvalidOptions, match=r"use one of: claude, .*, simple, none, demo"):
        find_agent("clever")
