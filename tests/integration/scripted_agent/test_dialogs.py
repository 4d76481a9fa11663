"""The scripted agent's dialogs: permissions, questions, plans, and the hooks that answer them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.scripted_agent.probe import Probe
from support.agents import Start, command, saying, texts

QUESTION = {"question": "Which color?", "header": "Color", "multiSelect": False}
OPTIONS = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
ASK = "TOOL " + json.dumps(
    {"name": "AskUserQuestion", "input": {"questions": [{**QUESTION, "options": OPTIONS}]}}
)
PLAN = 'TOOL {"name":"ExitPlanMode","input":{"plan":"# My plan"}}'


def specific(event: str, **fields: object) -> dict[str, object]:
    return saying({"hookSpecificOutput": {"hookEventName": event, **fields}})


def ruling(**decision: object) -> dict[str, list[dict[str, object]]]:
    return {"PermissionRequest": [specific("PermissionRequest", decision=decision)]}


def results(agent: Probe) -> list[dict[str, Any]]:
    """The lines with a tool's result."""
    return [line for line in agent.transcript() if "toolUseResult" in line]


# --- permission


def ask_for_touch(agent: Probe, name: str = "made") -> None:
    agent.paste(f"RUNBASH touch {name}")
    agent.wait_for_status("waiting")
    agent.wait_for_hook("PermissionRequest")
    agent.until(lambda: "Tab to amend" in agent.screen(), "the dialog, to its last line")


def test_permission_dialog_is_reported_by_hook_registry_title_and_screen(ready: Start) -> None:
    agent = ready()
    ask_for_touch(agent)
    assert agent.entry["waitingFor"] == "permission prompt"
    assert agent.titles[-1] == "✳ Claude Code"
    asked = agent.wait_for_hook("PermissionRequest")
    assert asked["tool_input"] == {"command": "touch made", "description": "Run a command"}
    assert [found["type"] for found in asked["permission_suggestions"]] == ["addDirectories", "setMode"]
    shown = agent.screen()
    assert " ❯ 1. Yes" in shown
    assert "   4. No" in shown
    assert " Bash command" in shown


@pytest.mark.parametrize("keys", ["1", "2", "3", "\r"])
def test_key_that_accepts_runs_the_tool(ready: Start, project: Path, keys: str) -> None:
    agent = ready()
    ask_for_touch(agent)
    agent.answer(keys)
    stop = agent.wait_for_hook("Stop")
    assert stop["last_assistant_message"] == "REPLY#2 to: tool_result (Bash completed with no output)"
    assert (project / "made").exists()
    assert stop["permission_mode"] == ("auto" if keys == "3" else "default")
    loose = ("MessageDisplay", "SessionStart", "Notification")
    order = [event for event in agent.events if event not in loose]
    assert order == [
        "UserPromptSubmit",
        "PreToolUse",
        "PermissionRequest",
        "PostToolUse",
        "PostToolBatch",
        "Stop",
    ]


def test_second_row_is_not_asked_about_again(ready: Start) -> None:
    agent = ready()
    ask_for_touch(agent)
    agent.answer("2")
    agent.wait_for_hook("Stop")
    agent.settle()
    agent.turn("RUNBASH touch other")
    assert agent.count("PermissionRequest") == 1


@pytest.mark.parametrize("keys", ["4", "\x1b", "\x1b[A\r"])
def test_key_that_rejects_ends_the_turn_without_stop(ready: Start, project: Path, keys: str) -> None:
    agent = ready()
    ask_for_touch(agent)
    agent.answer(keys)
    agent.settle()
    assert not (project / "made").exists()
    assert "Stop" not in agent.events
    assert texts(agent, "user")[-1] == "[Request interrupted by user for tool use]"
    (line,) = results(agent)
    assert (line["toolUseResult"], line["toolDenialKind"]) == ("User rejected tool use", "user-rejected")
    assert agent.turn("hello")["last_assistant_message"] == "REPLY#2 to: hello"


def test_keys_in_the_first_moment_of_a_dialog_are_dropped(ready: Start, project: Path) -> None:
    agent = ready(env={"MOCK_DIALOG_GUARD": "60000"})
    ask_for_touch(agent)
    agent.type("1\r\x1b")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.status != "waiting", "an answer", timeout=0.5)
    assert not (project / "made").exists()


def test_letters_do_nothing_in_a_dialog(ready: Start) -> None:
    agent = ready()
    ask_for_touch(agent)
    agent.type("yn9")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.status != "waiting", "an answer", timeout=0.5)


def test_prompt_pasted_into_the_dialog_approves_it_and_is_lost(ready: Start, project: Path) -> None:
    agent = ready()
    ask_for_touch(agent)
    agent.answer("\x1b[200~a prompt from somewhere\x1b[201~\r")
    agent.wait_for_hook("Stop")
    agent.settle()
    assert (project / "made").exists()
    assert agent.count("UserPromptSubmit") == 1
    assert "a prompt from somewhere" not in agent.screen()


def test_notification_follows_when_no_one_answers(ready: Start) -> None:
    agent = ready(env={"MOCK_TIME_SCALE": "0.01"})
    ask_for_touch(agent)
    told = agent.wait_for_hook("Notification")
    assert (told["notification_type"], told["message"]) == (
        "permission_prompt",
        "Claude needs your permission",
    )


def test_idle_notification_follows_a_turn(ready: Start) -> None:
    agent = ready(env={"MOCK_TIME_SCALE": "0.01"})
    agent.turn("hello")
    told = agent.wait_for_hook("Notification")
    assert (told["notification_type"], told["message"]) == ("idle_prompt", "Claude is waiting for your input")


def test_permission_hook_allows_with_changed_input(ready: Start, project: Path) -> None:
    agent = ready(hooks=ruling(behavior="allow", updatedInput={"command": "touch changed"}))
    agent.turn("RUNBASH touch made")
    assert [path.name for path in project.glob("*") if path.is_file()] == ["changed"]
    (line,) = results(agent)
    assert line["permissionDecision"]["source"] == "hook"


def test_permission_hook_denies_with_exactly_its_message(ready: Start) -> None:
    agent = ready(hooks=ruling(behavior="deny", message="not now"))
    assert agent.turn("RUNBASH touch made")["last_assistant_message"] == "REPLY#2 to: tool_result not now"
    (line,) = results(agent)
    assert line["message"]["content"][0]["is_error"] is True


def test_permission_hook_that_interrupts_ends_the_turn(ready: Start, project: Path) -> None:
    agent = ready(hooks=ruling(behavior="deny", message="halt", interrupt=True))
    agent.paste("RUNBASH touch made")
    agent.wait_for_hook("PermissionRequest")
    agent.settle()
    assert not (project / "made").exists()
    assert "Stop" not in agent.events
    assert texts(agent, "user")[-1] == "[Request interrupted by user for tool use]"


def test_permission_hook_can_add_a_rule(ready: Start) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "touch:*"}]
    added = [{"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}]
    agent = ready(hooks=ruling(behavior="allow", updatedPermissions=added))
    agent.turn("RUNBASH touch one")
    agent.turn("RUNBASH touch two")
    assert agent.count("PermissionRequest") == 1


def test_answer_by_hand_comes_before_a_slow_hook(ready: Start, project: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    deny = json.dumps(
        {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "deny"}}}
    )
    agent = ready(hooks={"PermissionRequest": [command(f"cat '{gate}'; printf '%s' '{deny}'")]})
    ask_for_touch(agent)
    agent.answer("1")
    agent.wait_for_hook("Stop")
    assert (project / "made").exists()
    gate.write_bytes(b"")


@pytest.mark.parametrize("decision", ["deny", "allow"])
def test_pre_tool_use_hook_decides_without_a_dialog(ready: Start, project: Path, decision: str) -> None:
    hook = specific("PreToolUse", permissionDecision=decision, permissionDecisionReason="nope")
    agent = ready(hooks={"PreToolUse": [hook]})
    stop = agent.turn("RUNBASH touch made")
    assert (project / "made").exists() is (decision == "allow")
    assert agent.count("PermissionRequest") == 0
    if decision == "deny":
        assert stop["last_assistant_message"] == "REPLY#2 to: tool_result PreToolUse:Bash hook error: nope"


def test_failing_tool_is_reported_as_failure(ready: Start) -> None:
    agent = ready()
    stop = agent.turn("RUNBASH ls nowhere")
    failed = agent.wait_for_hook("PostToolUseFailure")
    assert failed["error"].startswith("Exit code 2")
    assert failed["is_interrupt"] is False
    assert agent.count("PostToolUse") == 0
    assert stop["last_assistant_message"].startswith("REPLY#2 to: tool_result Exit code 2")


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        (["--permission-mode", "auto"], False),
        (["--permission-mode", "acceptEdits"], False),
        (["--permission-mode", "plan"], True),
        (["--allowedTools", "Write"], False),
        (["--allowedTools", "Write(/elsewhere/*)"], True),
    ],
)
def test_mode_and_rules_decide_whether_a_write_is_asked_about(
    ready: Start, project: Path, flags: list[str], asks: bool
) -> None:
    agent = ready(*flags)
    agent.paste("TOOL " + json.dumps({"name": "Write", "input": {"file_path": "w.txt", "content": "hey"}}))
    if asks:
        agent.wait_for_hook("PermissionRequest")
        agent.wait_for_status("waiting")
    else:
        agent.wait_for_hook("Stop")
        assert (project / "w.txt").read_text() == "hey"
        assert agent.count("PermissionRequest") == 0


def test_denied_tool_is_refused(ready: Start, project: Path) -> None:
    agent = ready("--disallowedTools", "Bash", "--permission-mode", "bypassPermissions")
    stop = agent.turn("RUNBASH touch made")
    assert "Permission to use Bash has been denied" in stop["last_assistant_message"]
    assert not (project / "made").exists()


def test_edit_and_read_work_on_files(ready: Start, project: Path) -> None:
    (project / "f.txt").write_text("one two\n")
    agent = ready("--permission-mode", "acceptEdits")
    change = {"file_path": str(project / "f.txt"), "old_string": "two", "new_string": "three"}
    agent.turn("TOOL " + json.dumps({"name": "Edit", "input": change}))
    stop = agent.turn("TOOL " + json.dumps({"name": "Read", "input": {"file_path": str(project / "f.txt")}}))
    assert "one three" in stop["last_assistant_message"]
    assert agent.wait_for_hook("PostToolUse", 2)["tool_response"]["file"]["numLines"] == 2


def test_auto_mode_dialog_blocks_without_a_hook(ready: Start) -> None:
    agent = ready("--permission-mode", "auto", env={"MOCK_AUTO_MODE_DIALOG": "1"})
    agent.paste("RUNBASH touch made")
    agent.wait_for_status("waiting")
    assert agent.entry["waitingFor"] == "dialog open"
    assert agent.count("PermissionRequest") == 0
    agent.answer("\r")
    agent.wait_for_hook("Stop")


# --- questions and plans


def test_question_is_answered_by_a_digit(ready: Start) -> None:
    agent = ready()
    agent.paste(ASK)
    agent.wait_for_status("waiting")
    assert agent.entry["waitingFor"] == "input needed"
    assert "permission_suggestions" not in agent.wait_for_hook("PermissionRequest")
    agent.answer("2")
    answer = agent.wait_for_hook("Stop")["last_assistant_message"]
    assert answer == 'REPLY#2 to: tool_result Your questions have been answered: "Which color?"="Blue". Yo'
    assert agent.wait_for_hook("PostToolUse")["tool_response"]["answers"] == {"Which color?": "Blue"}


def test_prompt_pasted_into_a_question_becomes_its_answer(ready: Start) -> None:
    agent = ready()
    agent.paste(ASK)
    agent.wait_for_status("waiting")
    agent.answer("\x1b[200~my own words\x1b[201~\r")
    agent.wait_for_hook("Stop")
    assert agent.wait_for_hook("PostToolUse")["tool_input"]["answers"] == {"Which color?": "my own words"}


def test_question_escaped_ends_the_turn(ready: Start) -> None:
    agent = ready()
    agent.paste(ASK)
    agent.wait_for_status("waiting")
    agent.answer("\x1b")
    agent.settle()
    assert "Stop" not in agent.events


def test_question_is_answered_by_a_hook_with_answers_only(ready: Start) -> None:
    answered = {"questions": [QUESTION], "answers": {"Which color?": "Green"}}
    agent = ready(hooks=ruling(behavior="allow", updatedInput=answered))
    assert "Green" in agent.turn(ASK)["last_assistant_message"]


def test_plan_stays_open_for_a_bare_allow(ready: Start) -> None:
    agent = ready("--permission-mode", "plan", hooks=ruling(behavior="allow"))
    agent.paste(PLAN)
    agent.wait_for_hook("PermissionRequest")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.status != "waiting", "an answer", timeout=0.7)
    assert agent.wait_for_hook("PermissionRequest")["tool_input"] == {}
    agent.answer("1")
    stop = agent.wait_for_hook("Stop")
    assert stop["permission_mode"] == "default"
    assert "User has approved exiting plan mode" in stop["last_assistant_message"]


def test_plan_is_left_by_a_hook_with_input(ready: Start) -> None:
    mode = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    agent = ready(
        "--permission-mode", "plan", hooks=ruling(behavior="allow", updatedInput={}, updatedPermissions=mode)
    )
    assert agent.turn(PLAN)["permission_mode"] == "acceptEdits"
