"""What is told of Claude Code's tools, and what of them outlives a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.claude.tools import ToolNews
from remuda.agents.tools import ToolBegan, ToolEnded


def hook(event: str, **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": event, **fields}


def call(number: str, text: str) -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_input": {}, "tool_use_id": number, "tool_response": text}


def test_call_is_told_when_it_begins_and_with_what_the_model_is_told_of_it() -> None:
    news = ToolNews()
    began = news.hook(hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t1"))
    assert began == [ToolBegan("t1", "Bash", {"command": "ls"})]
    assert news.hook(hook("PostToolUse", tool_use_id="t1", tool_response={"stdout": "a"})) == []
    ended = news.hook(hook("PostToolBatch", tool_calls=[call("t1", "a"), call("t2", "Exit code 1")]))
    assert ended == [
        ToolEnded("t1", "Bash", "a", is_error=False),
        ToolEnded("t2", "Bash", "Exit code 1", is_error=True),
    ]


def test_calls_of_a_subagent_are_not_told() -> None:
    news = ToolNews()
    for event in ("PreToolUse", "PostToolUse", "PostToolBatch"):
        assert news.hook(hook(event, agent_id="a1", tool_use_id="t1", tool_calls=[call("t1", "x")])) == []


@pytest.mark.parametrize(
    "payload", [hook("PostToolBatch"), hook("PostToolBatch", tool_calls=["x"]), hook("Other")]
)
def test_what_is_malformed_tells_nothing(payload: dict[str, Any]) -> None:
    assert ToolNews().hook(payload) == []


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
def test_what_outlives_a_conversation_is_residue_for_good(payload: dict[str, Any]) -> None:
    news = ToolNews()
    news.hook(payload)
    news.hook(payload)
    news.hook(hook("Stop", background_tasks=[], session_crons=[]))
    assert len(news.residue) == 1


def test_an_ordinary_turn_leaves_no_residue() -> None:
    news = ToolNews()
    news.hook(hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}))
    news.hook(hook("PostToolUse", tool_name="Bash", tool_response={"stdout": "x"}))
    news.hook(hook("Stop", background_tasks=[], session_crons=[]))
    assert news.residue == []
