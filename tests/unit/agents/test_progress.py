"""What Claude Code shows of its work: its answer, its tools, and what outlives a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.claude.hooks import read_hook
from remuda.agents.progress import Progress


class Shown:
    def __init__(self) -> None:
        self._progress = Progress()

    def take(self, payload: dict[str, Any]) -> str:
        return self._progress.take(read_hook(payload))[0]

    @property
    def whole(self) -> str | None:
        return self._progress.last_shown


def piece(delta: object, index: object = 0, *, final: bool = False, message: str = "m1") -> dict[str, Any]:
    fields = {"message_id": message, "index": index, "final": final, "delta": delta}
    return {"hook_event_name": "MessageDisplay", **fields}


@given(st.lists(st.text(), min_size=1), st.randoms())
def test_a_text_is_whole_when_every_piece_has_come_in_whatever_order(texts: list[str], random: Any) -> None:
    pieces = [piece(text, n, final=n == len(texts) - 1) for n, text in enumerate(texts)]
    random.shuffle(pieces)
    shown = Shown()
    for one in pieces:
        assert shown.whole is None
        assert shown.take(one) == one["delta"]
    assert shown.whole == "".join(texts)


def test_the_next_message_begins_anew() -> None:
    shown = Shown()
    shown.take(piece("using tool", final=True))
    shown.take(piece("the ", message="m2"))
    assert shown.whole is None
    shown.take(piece("answer", 1, final=True, message="m2"))
    assert shown.whole == "the answer"


def test_what_is_no_piece_changes_nothing() -> None:
    shown = Shown()
    shown.take(piece("x", final=True))
    for other in ({"hook_event_name": "Stop", "delta": "y"}, piece(None), {}):
        assert shown.take(other) == ""
    assert shown.whole == "x"
    assert Shown().whole is None


# ── tools ──


class Tools:
    def __init__(self) -> None:
        self._progress = Progress()

    def hook(self, payload: dict[str, Any]) -> list[dict[str, Any]]:
        return self._progress.take(read_hook(payload))[1]

    @property
    def carry_over(self) -> list[str]:
        return self._progress.carry_over


def hook(event: str, **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": event, **fields}


def call(number: str, text: str) -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_input": {}, "tool_use_id": number, "tool_response": text}


def test_call_is_reported_when_it_begins_and_with_what_the_model_learns() -> None:
    news = Tools()
    began = news.hook(hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t1"))
    assert began == [{"what": "began", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]
    assert news.hook(hook("PostToolUse", tool_use_id="t1", tool_response={"stdout": "a"})) == []
    ended = news.hook(hook("PostToolBatch", tool_calls=[call("t1", "a"), call("t2", "Exit code 1")]))
    assert ended == [
        {"what": "ended", "id": "t1", "name": "Bash", "content": "a", "is_error": False},
        {"what": "ended", "id": "t2", "name": "Bash", "content": "Exit code 1", "is_error": True},
    ]


def test_calls_of_a_subagent_are_not_reported() -> None:
    news = Tools()
    for event in ("PreToolUse", "PostToolUse", "PostToolBatch"):
        assert news.hook(hook(event, agent_id="a1", tool_use_id="t1", tool_calls=[call("t1", "x")])) == []


@pytest.mark.parametrize(
    "payload", [hook("PostToolBatch"), hook("PostToolBatch", tool_calls=["x"]), hook("Other")]
)
def test_what_is_malformed_reports_nothing(payload: dict[str, Any]) -> None:
    assert Tools().hook(payload) == []


@pytest.mark.parametrize(
    "payload",
    [
        hook("PreToolUse", tool_name="CronCreate", tool_input={}),
        hook("PreToolUse", tool_name="EnterWorktree", tool_input={}, agent_id="a1"),
        hook("PreToolUse", tool_name="Bash", tool_input={"command": "x", "run_in_background": True}),
        hook("PostToolUse", tool_name="Agent", tool_response={"isAsync": True}),
        hook("PostToolUse", tool_name="Bash", tool_response={"backgroundTaskId": "b1"}),
        hook("Stop", background_tasks=[{"id": "a"}]),
        hook("Stop", session_crons=[{"id": "c"}]),
    ],
)
def test_what_outlives_a_conversation_is_carried_over_for_good(payload: dict[str, Any]) -> None:
    news = Tools()
    news.hook(payload)
    news.hook(payload)
    news.hook(hook("Stop", background_tasks=[], session_crons=[]))
    assert len(news.carry_over) == 1


def test_an_ordinary_turn_carries_nothing_over() -> None:
    news = Tools()
    news.hook(hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}))
    news.hook(hook("PostToolUse", tool_name="Bash", tool_response={"stdout": "x"}))
    news.hook(hook("Stop", background_tasks=[], session_crons=[]))
    assert news.carry_over == []
