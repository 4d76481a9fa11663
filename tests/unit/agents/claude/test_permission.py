"""How Claude Code asks for permission by its hooks: which call is meant, when it is over, and the answers."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.claude.hooks import answer_permission, read_hook
from remuda.agents.claude.registry import read_registry
from remuda.agents.claude.transcript import read_record
from remuda.agents.permission import (
    PermissionDecision,
    PermissionRequest,
    PermissionTracker,
    RequestsEnded,
)
from remuda.agents.unattended import Unattended


class Tracker:
    def __init__(self) -> None:
        self._tracker = PermissionTracker()

    def hook(self, payload: dict[str, Any]) -> PermissionRequest | RequestsEnded | None:
        return self._tracker.take(read_hook(payload))

    def record(self, record: dict[str, Any]) -> PermissionRequest | RequestsEnded | None:
        return self._tracker.take(read_record(record))

    def registry(self, document: dict[str, Any]) -> bool | None:
        return self._tracker.is_waiting(read_registry(document))


ASK = PermissionRequest("Bash", {"command": "touch x"}, [], "t1")


def pre(call: str, command: str, tool: str = "Bash") -> dict[str, Any]:
    given = {"command": command}
    return {
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": given,
        "tool_use_id": call,
    }


def request(command: str, tool: str = "Bash", **more: Any) -> dict[str, Any]:
    given = {"command": command} if command else {}
    return {"hook_event_name": "PermissionRequest", "tool_name": tool, "tool_input": given, **more}


def over(*ids: str) -> RequestsEnded:
    return RequestsEnded(frozenset(ids))


# ── which call ──


def test_question_has_the_id_of_the_call_with_the_same_input() -> None:
    asking = Tracker()
    for call, command in (("t1", "one"), ("t2", "two")):
        assert asking.hook(pre(call, command)) is None
    found = asking.hook(request("two", permission_suggestions=[{"type": "setMode"}, "nonsense"]))
    assert found == PermissionRequest("Bash", {"command": "two"}, [{"type": "setMode"}], "t2")


def test_question_of_two_equal_calls_is_of_the_first_and_then_of_the_second() -> None:
    asking = Tracker()
    asking.hook(pre("t1", "same"))
    asking.hook(pre("t2", "same"))
    found = [asking.hook(request("same")) for _ in range(3)]
    assert [one.tool_use_id for one in found if isinstance(one, PermissionRequest)] == ["t1", "t2", None]


def test_question_whose_input_no_hook_saw_is_of_the_call_of_its_name() -> None:
    asking = Tracker()
    asking.hook(pre("t1", "a plan", "ExitPlanMode"))
    found = asking.hook(request("", "ExitPlanMode"))
    assert found == PermissionRequest("ExitPlanMode", {}, [], "t1", "plan")


def test_question_to_the_user_says_that_it_is_one() -> None:
    found = Tracker().hook(request("", "AskUserQuestion"))
    assert isinstance(found, PermissionRequest)
    assert (found.reason, found.tool_use_id) == ("question", None)


# ── the end ──


@pytest.mark.parametrize("event", ["PostToolUse", "PostToolUseFailure"])
def test_call_that_ended_is_over(event: str) -> None:
    asking = Tracker()
    asking.hook(pre("t1", "one"))
    assert asking.hook({"hook_event_name": event, "tool_use_id": "t1"}) == over("t1")
    found = asking.hook(request("one"))
    assert isinstance(found, PermissionRequest)
    assert found.tool_use_id is None


def test_calls_of_a_batch_are_over() -> None:
    batch = {"hook_event_name": "PostToolBatch", "tool_calls": [{"tool_use_id": "t1"}, {"tool_use_id": "t2"}]}
    assert Tracker().hook(batch) == over("t1", "t2")


@pytest.mark.parametrize("event", ["Stop", "StopFailure", "SessionEnd"])
def test_stop_ends_all_questions(event: str) -> None:
    assert Tracker().hook({"hook_event_name": event}) == RequestsEnded(all=True)


def test_stop_with_work_in_the_background_ends_none() -> None:
    stop = {"hook_event_name": "Stop", "background_tasks": [{"id": "a"}]}
    assert Tracker().hook(stop) is None


@pytest.mark.parametrize(
    "text", ["[Request interrupted by user]", "[Request interrupted by user for tool use]"]
)
def test_interruption_in_the_transcript_ends_all_questions(text: str) -> None:
    record = {"type": "user", "message": {"content": [{"type": "text", "text": text}]}}
    assert Tracker().record(record) == RequestsEnded(all=True)
    assert Tracker().record({**record, "isSidechain": True}) is None


def test_result_in_the_transcript_ends_its_question_also_of_a_subagent() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no"}
    record = {"type": "user", "isSidechain": True, "message": {"content": [result]}}
    assert Tracker().record(record) == over("t1")
    assert Tracker().record({"type": "assistant"}) is None


@pytest.mark.parametrize(
    ("status", "open_now"), [("waiting", True), ("busy", False), ("idle", False), (None, None)]
)
def test_registry_reports_whether_a_dialog_is_open(status: str | None, open_now: bool | None) -> None:
    assert Tracker().registry({"status": status}) is open_now


# ── the answers ──


def decision(question: PermissionRequest, ruling: PermissionDecision) -> dict[str, Any]:
    answer = answer_permission(question, ruling)
    output = answer["hookSpecificOutput"]
    assert (list(answer), output["hookEventName"]) == (["hookSpecificOutput"], "PermissionRequest")
    found: dict[str, Any] = output["decision"]
    return found


def test_answer_allow_leaves_the_input_alone() -> None:
    assert decision(ASK, PermissionDecision(allow=True)) == {"behavior": "allow"}


def test_answer_allow_with_another_input() -> None:
    ruling = PermissionDecision(allow=True, input={"command": "true"})
    assert decision(ASK, ruling) == {"behavior": "allow", "updatedInput": {"command": "true"}}


def test_answer_allow_for_a_plan_has_an_input_or_it_would_be_passed_over() -> None:
    plan = PermissionRequest("ExitPlanMode", {}, [], "t1", "plan")
    assert decision(plan, PermissionDecision(allow=True)) == {"behavior": "allow", "updatedInput": {}}


@pytest.mark.parametrize("suggested", [True, False])
def test_answer_always_holds_for_the_session_alone(suggested: bool) -> None:
    rule = {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}],
        "behavior": "allow",
    }
    offered: list[dict[str, Any]] = [
        {"type": "setMode", "mode": "auto"},
        {**rule, "destination": "localSettings"},
    ]
    question = PermissionRequest("Bash", {"command": "touch x"}, offered if suggested else [])
    [given] = decision(question, PermissionDecision(allow=True, always=True))["updatedPermissions"]
    assert given["destination"] == "session"
    this_one = {"toolName": "Bash", "ruleContent": "touch x"}
    assert given["rules"] == (rule["rules"] if suggested else [this_one])


def test_answer_deny_says_why_and_may_end_the_turn() -> None:
    assert decision(ASK, PermissionDecision(allow=False, message="not here")) == {
        "behavior": "deny",
        "message": "not here",
    }
    stopped = decision(ASK, PermissionDecision(allow=False, interrupt=True))
    assert (stopped["behavior"], stopped["interrupt"], bool(stopped["message"])) == ("deny", True, True)


# ── no one there ──


def prompt(number: str) -> dict[str, Any]:
    return {"hook_event_name": "UserPromptSubmit", "prompt_id": number, "prompt": "x"}


@pytest.mark.parametrize("first_only", [True, False])
def test_denial_holds_for_the_first_prompt_or_for_all(first_only: bool) -> None:
    unattended = Unattended(deny_permissions=True, first_only=first_only)
    unattended.take(read_hook(prompt("p1")))
    assert unattended.take(read_hook(request("one"))) is not None
    unattended.take(read_hook(prompt("p2")))
    assert (unattended.take(read_hook(request("two"))) is None) is first_only
