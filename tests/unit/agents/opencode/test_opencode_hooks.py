"""What our plugin reports of an opencode that a user started (1.18.33)."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.attention import EventKind
from remuda.agents.opencode.sources import OpencodeSources

ENV = {"TMUX": "/tmp/tmux/default,1,0", "TMUX_PANE": "%3", "AGENT_PID": "77"}
ASKED = {
    "id": "per_1",
    "sessionID": "ses_1",
    "permission": "bash",
    "patterns": ["touch a"],
    "metadata": {"command": "touch a"},
    "always": ["touch *"],
    "tool": {"messageID": "msg_1", "callID": "call_1"},
}
QUESTION = {"id": "que_1", "sessionID": "ses_1", "questions": [{"question": "Which color?", "options": []}]}
BAD = {"name": "APIError", "data": {"message": "bad", "statusCode": 400}}
ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}


def _event(name: object, **properties: Any) -> Any:
    payload = {"hook_event_name": name, "session_id": "ses_1", "cwd": "/p", "properties": properties}
    [event] = OpencodeSources().hook_events(payload, 50.0, id="h1", env=ENV)
    return event


@pytest.mark.parametrize(
    ("name", "properties", "kind", "facts"),
    [
        ("chat.message", {"prompt": "hi", "id": "msg_1"}, "prompted", {"prompt": "hi"}),
        ("session.status", {"status": {"type": "busy"}}, "working", {}),
        (
            "session.status",
            {"status": {"type": "retry", "attempt": 1, "message": "rate limit", "next": 60_000}},
            "limited",
            {"message": "rate limit", "until": 60.0},
        ),
        ("session.status", {"status": {"type": "retry", "attempt": 1, "message": "500"}}, "seen", {}),
        ("session.status", {"status": {"type": "retry", "attempt": 4, "message": "500"}}, "failed", {}),
        ("session.idle", {"text": "done", "finish": "stop"}, "stopped", {"message": "done"}),
        ("session.idle", {"text": "do", "finish": None}, "interrupted", {}),
        ("session.idle", {"text": "do", "error": ABORTED}, "interrupted", {}),
        ("session.idle", {"text": "", "error": BAD}, "failed", {"message": "bad"}),
        ("session.error", {"error": BAD}, "failed", {"message": "bad"}),
        ("session.error", {"error": ABORTED}, "interrupted", {}),
        (
            "permission.asked",
            ASKED,
            "asked",
            {"reason": "permission", "tool": "bash", "message": "bash: touch a", "at_terminal": True},
        ),
        ("permission.replied", {"requestID": "per_1"}, "ask_ended", {"tool_use_id": "per_1"}),
        (
            "question.asked",
            QUESTION,
            "asked",
            {"reason": "question", "message": "Which color?", "at_terminal": True, "tool_use_id": "que_1"},
        ),
        ("question.rejected", {"requestID": "que_1"}, "ask_ended", {"tool_use_id": "que_1"}),
        ("session.deleted", {}, "ended", {}),
        ("unknown", {}, "seen", {}),
        (["x"], {}, "seen", {}),
    ],
)
def test_event_of_the_plugin_read(
    name: object, properties: dict[str, Any], kind: str, facts: dict[str, Any]
) -> None:
    event = _event(name, **properties)
    assert event.kind is EventKind(kind)
    place = {"agent": "opencode", "cwd": "/p", "pid": 77, "pane": "%3", "tmux": "/tmp/tmux/default"}
    assert event.facts.items() >= {**facts, **place}.items()


@pytest.mark.parametrize(
    "payload", [{}, {"hook_event_name": "session.idle"}, {"session_id": 1, "properties": []}]
)
def test_payload_without_a_session_means_nothing(payload: dict[str, Any]) -> None:
    assert OpencodeSources().hook_events(payload, 1.0) == []
