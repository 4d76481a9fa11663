"""The state of a running copilot, by the hooks and records of 1.0.102."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.copilot.hooks import read_hook
from remuda.agents.copilot.observer import CopilotObserver
from remuda.agents.state import Evidence, State

_BASH = {"tool_name": "bash", "tool_input": {"command": "touch m1"}}
_NOTICE = {"hook_event_name": "Notification", "notification_type": "permission_prompt", "message": "Run"}
_REQUEST = {"hookName": "permissionRequest", "toolName": "bash", "toolInput": {"command": "touch m1"}}
_QUESTION = {"hook_event_name": "Notification", "notification_type": "elicitation_dialog", "message": "?"}
_PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "go"}
_STOP = {"hook_event_name": "Stop", "last_assistant_message": "done"}
_ABORT = {"type": "abort", "data": {}, "id": "e1", "timestamp": "2026-11-18T12:00:00.000Z"}
_WALL = 1795003200.0


def state_after(*reports: dict[str, Any]) -> State:
    """Return the state after hooks and records, one second after the other."""
    one = CopilotObserver(42, {"HOME": "/home/dev"}, has_screen=True)
    evidence = Evidence.starting(0.0)
    for at, given in enumerate(reports, 1):
        report = one.read_record(given) if "type" in given else read_hook({**given, "sessionId": "s1"})
        for vote in one.take(report, at, _WALL):
            evidence.record(vote)
    return evidence.verdict.state


@pytest.mark.parametrize("late", [_NOTICE, _REQUEST, _QUESTION], ids=["notice", "request", "question"])
@pytest.mark.parametrize(("end", "rests"), [(_STOP, State.IDLE), (_ABORT, State.INTERRUPTED)])
def test_dialog_that_is_reported_after_its_turn_changes_nothing(
    late: dict[str, Any], end: dict[str, Any], rests: State
) -> None:
    assert state_after(_PROMPT, late) in (State.WAITING_PERMISSION, State.WAITING_ANSWER)
    assert state_after(_PROMPT, late, end, late) is rests


@pytest.mark.parametrize("late", [0.000_001, 0.02], ids=["microsecond", "busy machine"])
def test_interrupt_in_the_millisecond_of_the_record_before_it_counts(late: float) -> None:
    one, evidence = CopilotObserver(42, {"HOME": "/home/dev"}, has_screen=True), Evidence.starting(0.0)
    began = {"type": "tool.execution_start", "data": {"toolCallId": "t1", "toolName": "bash"}}
    date = _ABORT["timestamp"]
    for record, skew in (({**began, "id": "e0", "timestamp": date}, 0.0), (_ABORT, late)):
        # The clocks are not read at once.
        for vote in one.take(one.read_record(record), 10.0, _WALL + 0.001 + skew):
            evidence.record(vote)
    assert evidence.verdict.state is State.INTERRUPTED


def test_dialog_of_a_turn_that_a_hook_let_go_on_is_open() -> None:
    began = {"hook_event_name": "PreToolUse", **_BASH}
    assert state_after(_PROMPT, _STOP, began, _REQUEST) is State.WAITING_PERMISSION
