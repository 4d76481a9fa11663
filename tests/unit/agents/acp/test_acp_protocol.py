"""JSON-RPC lines of ACP: bytes in, messages out."""

from __future__ import annotations

import json

import pytest

from remuda.agents.acp import protocol
from remuda.agents.acp.protocol import (
    Call,
    Notification,
    Response,
    RpcReader,
    TextPiece,
    ToolBegan,
    ToolEnded,
)

_ASKED = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "session/request_permission",
    "params": {
        "sessionId": "s",
        "toolCall": {"toolCallId": "t1", "kind": "execute", "title": "run", "rawInput": {"command": "ls"}},
        "options": [
            {"optionId": "a1", "kind": "allow_once"},
            {"optionId": "a2", "kind": "allow_always"},
            {"optionId": "r1", "kind": "reject_once"},
        ],
    },
}
_LINES = [
    {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}},
    {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": {}}},
    _ASKED,
    {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "no", "data": {"details": "é why"}}},
]
_BYTES = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in _LINES)


def test_reader_any_split_gives_the_same_messages() -> None:
    whole = list(RpcReader().feed(_BYTES))
    assert [type(one) for one in whole] == [Response, Notification, Call, Response]
    assert whole[3] == Response(2, {}, "no: é why", -32000)
    for at in range(len(_BYTES)):
        reader = RpcReader()
        assert [*reader.feed(_BYTES[:at]), *reader.feed(_BYTES[at:])] == whole


@pytest.mark.parametrize("line", [b"words", b"[1]", b'{"id": "x"}', b'{"id": true}', b"{", b'{"id": NaN}'])
def test_reader_a_line_that_is_no_message_is_counted(line: bytes) -> None:
    reader = RpcReader()
    assert list(reader.feed(line + b"\n\n")) == []
    assert reader.skipped == 1


def test_reader_a_line_without_end_is_bounded() -> None:
    reader = RpcReader(10)
    assert list(reader.feed(b"x" * 6)) == []
    assert not reader.too_long
    assert list(reader.feed(b"x" * 5)) == []
    assert reader.too_long


@pytest.mark.parametrize(
    ("allow", "outcome"),
    [
        (True, {"outcome": "selected", "optionId": "a1"}),
        (False, {"outcome": "selected", "optionId": "r1"}),
    ],
)
def test_permission_decided_once_by_the_agents_own_option(allow: bool, outcome: dict[str, str]) -> None:
    [asked] = RpcReader().feed(json.dumps(_ASKED).encode() + b"\n")
    assert isinstance(asked, Call)
    read = protocol.read_permission(asked)
    assert (read.tool_id, read.tool, read.input) == ("t1", "execute", {"command": "ls"})
    assert json.loads(protocol.decide(read, allow=allow))["result"] == {"outcome": outcome}


def test_permission_without_the_option_is_cancelled_and_never_given_for_good() -> None:
    only_always = {**_ASKED["params"], "options": [{"optionId": "a2", "kind": "allow_always"}]}  # type: ignore[dict-item]
    read = protocol.read_permission(Call(0, "session/request_permission", only_always))
    assert json.loads(protocol.decide(read, allow=True))["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("update", "read"),
    [
        (
            {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}},
            TextPiece("hi"),
        ),
        ({"sessionUpdate": "agent_message_chunk", "content": {"type": "image"}}, None),
        (
            {"sessionUpdate": "tool_call", "toolCallId": "t", "kind": "read", "rawInput": {"a": 1}},
            ToolBegan("t", "read", {"a": 1}),
        ),
        ({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"}, None),
        (
            {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "t",
                "status": "failed",
                "rawOutput": {"message": "no"},
            },
            ToolEnded("t", {"message": "no"}, ok=False),
        ),
        ({"sessionUpdate": "plan"}, None),
        ({}, None),
    ],
)
def test_update_read(update: dict[str, object], read: object) -> None:
    assert protocol.read_update({"update": update}) == read
