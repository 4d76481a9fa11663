"""Copilot's transcript for people and for accounts (1.0.102)."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.conversation import Entry, EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.copilot.conversation import CopilotConversations

AT = 1795003200.0
READER = CopilotConversations()


def _record(kind: str, agent: str | None = None, **data: Any) -> dict[str, Any]:
    own = {"type": kind, "data": data, "id": "e1", "timestamp": "2026-11-18T12:00:00.000Z"}
    return own | ({"agentId": agent} if agent else {})


@pytest.mark.parametrize(
    ("record", "entries"),
    [
        (
            _record("user.message", content="hi", messageId="m1"),
            [Entry("e1", EntryKind.PROMPT, AT, "hi")],
        ),
        (
            _record("assistant.message", content="done", toolRequests=[]),
            [Entry("e1", EntryKind.ANSWER, AT, "done")],
        ),
        (
            _record("assistant.message", agent="a1", content="", reasoningText="hm"),
            [Entry("e1:thinking", EntryKind.THINKING, AT, "hm", subagent=True)],
        ),
        (
            _record("tool.execution_start", toolName="bash", toolCallId="c1", arguments={"command": "ls"}),
            [Entry("e1", EntryKind.TOOL_CALL, AT, tool="bash", call="c1", input={"command": "ls"})],
        ),
        (
            _record("tool.execution_complete", toolCallId="c1", success=True, result={"content": "a"}),
            [Entry("e1", EntryKind.TOOL_RESULT, AT, "a", call="c1", ok=True, denied=False)],
        ),
        (
            _record(
                "tool.execution_complete",
                toolCallId="c1",
                success=False,
                error={"code": "rejected", "message": "no"},
            ),
            [Entry("e1", EntryKind.TOOL_RESULT, AT, "no", call="c1", ok=False, denied=True)],
        ),
        (_record("abort"), [Entry("e1", EntryKind.NOTICE, AT, "interrupted")]),
        (_record("session.error", message="400"), [Entry("e1", EntryKind.ERROR, AT, "400")]),
        (_record("assistant.turn_start"), []),
        ({}, []),
        ({"type": ["x"], "data": 3, "timestamp": 7}, []),
    ],
)
def test_record_as_entries(record: dict[str, Any], entries: list[Entry]) -> None:
    assert READER.entries(record, "s") == entries


def test_usage_and_turns_are_counted() -> None:
    usage = {
        "inputTokens": 100,
        "cacheReadTokens": 30,
        "cacheWriteTokens": 20,
        "outputTokens": 7,
        "apiCallId": "a1",
    }
    record = _record("session.usage_record", usage=usage, model="m")
    used = READER.usage(record, "s")
    assert used == MessageUsage("a1", "m", Tokens(50, 7, 30, 20), AT)
    [entry] = READER.entries(record, "s")
    assert (entry.kind, entry.id, entry.tokens) == (EntryKind.USAGE, "a1", used.tokens)
    assert READER.usage(_record("user.message", messageId="m1"), "s") == TurnBegun("m1", AT)
    assert READER.usage(_record("user.message", agent="a", messageId="m1"), "s") is None
    assert READER.usage(_record("session.usage_record", usage={}), "s") is None
