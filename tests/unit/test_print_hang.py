"""The oracle: why a call has not ended yet, each cause told apart from the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.oneshot.hang import StreamState, diagnose, unanswerable

COMPOSER = ["─" * 80, "❯\u00a0", "─" * 80, "  ? for shortcuts"]
RETRY = ["✻ 529 Overloaded · Retrying in 2s · attempt 3/10", *COMPOSER]
PERMISSION = ["Bash command", "  touch x", "Do you want to proceed?", "❯ 1. Yes", "  2. No", "Esc to cancel"]
UNKNOWN = ["Shall the moon be painted?", "❯ Blue", "  Green"]


@pytest.mark.parametrize(
    ("document", "lines", "dialog", "stage", "wanted"),
    [
        (None, [], None, "recorded", "the agent is gone"),
        ({"alive": False, "state": "dead"}, [], None, "recorded", "the agent is gone"),
        ({"state": "thinking"}, PERMISSION, "permission", "recorded", "a dialog is open: Bash command"),
        ({"state": "waiting_permission"}, PERMISSION, None, "recorded", "a dialog is open: Bash command"),
        ({"state": "waiting_answer"}, [], None, "recorded", "a dialog is open: waiting_answer"),
        ({"state": "thinking"}, RETRY, None, "recorded", "tried again, attempt 3 of 10"),
        ({"state": "starting", "silent_since_start": True}, [], None, "written", "printed nothing at all"),
        ({"state": "tool_use", "detail": "Bash"}, COMPOSER, None, "recorded", "a tool is running: Bash"),
        ({"state": "starting"}, COMPOSER, None, "written", "not taken yet; the session is starting"),
        ({"state": "starting"}, UNKNOWN, None, "written", "asks something: Shall the moon be painted?"),
        ({"state": "idle"}, COMPOSER, None, "recorded", "the turn is over, and no Stop hook came"),
        ({"state": "streaming"}, COMPOSER, None, "recorded", "the agent is streaming"),
    ],
)
def test_diagnose_names_the_cause(
    document: dict[str, Any] | None, lines: list[str], dialog: str | None, stage: str, wanted: str
) -> None:
    assert wanted in diagnose(document, lines, dialog, stage)


def test_unanswerable_is_a_question_that_nobody_knows_and_never_the_one_for_trust() -> None:
    trust = ["Do you trust the files in this folder?", "❯ No, exit", "  Yes, I trust this folder"]
    assert unanswerable(trust, "trust", begun=False) is None
    assert "moon" in str(unanswerable(UNKNOWN, None, begun=False))
    assert unanswerable(UNKNOWN, None, begun=True) is None
    assert "touch x" in str(unanswerable(PERMISSION, "permission", begun=True))
    assert unanswerable(COMPOSER, None, begun=False) is None


def tool(kind: str, **more: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": kind, **more}]}}


def test_stream_tells_silence_retries_and_tools_apart() -> None:
    state = StreamState()
    assert "nothing at all" in state.why()
    state.take({"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10})
    assert "attempt 2 of 10" in state.why()
    state.take(tool("tool_use", id="t1", name="Bash"))
    assert state.why() == "a tool is running: Bash"
    state.take({**tool("tool_result", tool_use_id="t1"), "type": "user"})
    assert state.why() == "the agent is at work"


@given(st.lists(st.text(max_size=40), max_size=6), st.sampled_from(["written", "recorded", "?"]))
def test_diagnose_is_one_line_of_bounded_length_whatever_the_screen_shows(
    lines: list[str], stage: str
) -> None:
    rows = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    for state in ("idle", "tool_use", "waiting_permission", "unheard of", None):
        told = diagnose({"state": state}, rows, None, stage)
        assert told
        assert len(told) < 700
        assert "\n" not in told
