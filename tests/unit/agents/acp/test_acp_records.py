"""What our record of a conversation proves of a message, and how it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.acp.records import DOUBT, AcpConversations, file_name, find_past
from remuda.agents.conversation import EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.prompting import Past

_USAGE = {"input_tokens": 3, "output_tokens": 5}


def _prompt(turn: str, message: str | None, text: str, at: float) -> dict[str, Any]:
    return {"type": "prompt", "turn": turn, "message": message, "text": text, "at": at}


def _end(turn: str, how: str, text: str = "") -> dict[str, Any]:
    return {"type": "end", "turn": turn, "how": how, "text": text, "usage": _USAGE}


@pytest.mark.parametrize(
    ("ends", "past"),
    [
        ([], Past(submitted=True, prompt_id="t2")),
        ([_end("t1", "answered", "no")], Past(submitted=True, prompt_id="t2")),
        ([_end("t2", "answered", "yes")], Past(True, True, "yes", "t2", usages=(_USAGE,))),
        (
            [_end("t2", "answered", "Error: 400")],
            Past(True, True, "Error: 400", "t2", usages=(_USAGE,), doubt=DOUBT),
        ),
        ([_end("t2", "interrupted")], Past(True, False, "", "t2", interrupted=True, usages=(_USAGE,))),
        ([_end("t2", "failed", "why")], Past(True, False, "why", "t2", usages=(_USAGE,))),
    ],
)
def test_past_of_a_message_is_its_last_record(ends: list[dict[str, Any]], past: Past) -> None:
    records = [_prompt("t1", "m1", "hello", 5.0), _prompt("t2", "m2", "hello", 7.0), *ends]
    assert find_past(records, 6.0, message="m2") == past
    assert find_past(records, 6.0, prompt="hello") == past


def test_past_of_a_message_that_was_not_sent_is_nothing() -> None:
    records = [_prompt("t1", "m1", "hello", 5.0), _end("t1", "answered", "x")]
    assert find_past(records, 0.0, message="m2") == Past()
    assert find_past(records, 6.0, message="m1") == Past()  # an earlier attempt
    assert find_past([{"type": "prompt"}, {"type": "end", "turn": None}], 0.0, message="m1") == Past()


def test_entries_are_those_of_the_conversation() -> None:
    reader, records = AcpConversations(), _whole()
    entries = [one for record in records for one in reader.entries(record, "c")]
    assert [one.kind for one in entries] == [
        EntryKind.PROMPT,
        EntryKind.ANSWER,
        EntryKind.TOOL_CALL,
        EntryKind.TOOL_RESULT,
        EntryKind.USAGE,
        EntryKind.ERROR,
    ]
    assert (entries[2].tool, entries[2].call, entries[3].ok) == ("execute", "k", True)
    assert [one for record in records for one in reader.entries(record, "other")] == []


def test_usage_is_that_of_the_turn() -> None:
    reader = AcpConversations()
    found = [used for record in _whole() if (used := reader.usage(record, "c")) is not None]
    assert found == [TurnBegun("1", 2.0), MessageUsage("5:usage", "", Tokens(1, 2, 3, 4), 2.0)]


def _whole() -> list[dict[str, Any]]:
    used = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 4,
    }
    made: list[dict[str, Any]] = [
        {"type": "prompt", "text": "go"},
        {"type": "text", "text": "going"},
        {"type": "tool", "tool": "execute", "call": "k", "input": {"command": "ls"}},
        {"type": "tool_result", "tool": "execute", "call": "k", "ok": True, "text": "x"},
        {"type": "end", "how": "answered", "usage": used},
        {"type": "end", "how": "failed", "text": "why"},
        {"type": "something else"},
    ]
    return [{"conversation": "c", "id": str(n), "at": 2.0, **one} for n, one in enumerate(made, 1)]


def test_file_name_is_safe_for_any_id() -> None:
    assert "/" not in file_name("../../etc/passwd")
    assert file_name("a") != file_name("b")
