"""What the agent of a call is doing, from the messages of its stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.agents.claude.stream.reader import PrintReader


def feed(reader: PrintReader, message: dict[str, Any]) -> None:
    assert list(reader.feed(json.dumps(message).encode() + b"\n")) == [message]


def test_a_stream_names_the_cause_too() -> None:
    reader = PrintReader()
    assert reader.why() == "the agent has printed nothing"
    feed(reader, {"type": "system", "subtype": "init"})
    assert reader.why() == "the agent is working"
    feed(reader, {"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10})
    assert reader.why() == "the agent is retrying the API, attempt 2 of 10"
    feed(
        reader,
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t", "name": "Bash"}]}},
    )
    feed(reader, {"type": "system", "subtype": "status"})
    assert reader.why() == "a tool is running: Bash"
    feed(reader, {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t"}]}})
    assert reader.why() == "the agent is working"


@pytest.mark.parametrize(
    "message", [{}, {"type": "assistant"}, {"type": "user", "message": {"content": "x"}}]
)
def test_a_stream_of_another_shape_is_tolerated(message: dict[str, Any]) -> None:
    reader = PrintReader()
    feed(reader, message)
    assert reader.why() == "the agent is working"
