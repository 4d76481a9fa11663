"""What a pool knows as types comes through its protocol as it was."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.errors import (
    AgentError,
    PoolExhausted,
    RemoteProtocolError,
    RemudaError,
    SessionCrashed,
    WaitTimeout,
)
from remuda.pool.codec import (
    decision_message,
    error_message,
    event_message,
    read_decision,
    read_error,
    read_event,
    read_result,
    read_usage,
    result_document,
)
from remuda.pool.protocol import Message, PoolProtocol, encode, hello
from remuda.pool.types import (
    Allow,
    Decision,
    Deny,
    PermissionRequest,
    RunResult,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)

RESULT = RunResult(
    "r_1",
    "grüße",
    "s_2",
    "terminal",
    duration=0.25,
    warm=True,
    usage=Usage(1, 2, 3, 4),
    conversation_id="c",
    entrypoint="cli",
    model="m",
    num_turns=3,
    permission_denials=[{"tool_name": "Bash"}],
    total_cost_usd=0.5,
)


def through(message: Message, *, to_server: bool = False) -> Message:
    """As the other end has it."""
    conversation = PoolProtocol(server=to_server)
    first: list[Message] = [hello(), *([{"type": "run", "prompt": ""}] if to_server else [])]
    *_, last = [got for one in (*first, message) for got in conversation.receive(encode(one))]
    return last


@pytest.mark.parametrize("result", [RESULT, RunResult("r", "", "s", "stream")])
def test_result_comes_out_as_it_went_in(result: RunResult) -> None:
    got = through({"type": "done", "result": result_document(result)})
    assert read_result(got["result"]) == result


def test_read_result_ignores_unknown_fields() -> None:
    assert read_result({**result_document(RESULT), "mood": "good"}) == RESULT


@pytest.mark.parametrize(
    "wrong",
    [{"text": None}, {"request_id": 5}, {"duration": "long"}, {"usage": 3}, {"usage": {"input_tokens": "x"}}],
)
def test_read_result_of_other_kinds_is_the_servers_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        read_result({**result_document(RESULT), **wrong})


def test_read_usage_ignores_unknown_fields() -> None:
    assert read_usage({"input_tokens": 5, "stars": "many"}) == Usage(5)


@pytest.mark.parametrize(
    "event",
    [
        Token("ä\n"),
        ToolUse("t", "Bash", {"command": "ls"}),
        ToolResult("t", [{"type": "text", "text": "x"}], is_error=True),
        PermissionRequest("p", "Bash", {"command": "ls"}, "r", ({"type": "addRules"},)),
    ],
)
def test_event_comes_out_as_it_went_in(event: Token | ToolUse | ToolResult | PermissionRequest) -> None:
    assert read_event(through(event_message(event))) == event


def test_read_event_of_what_is_none_is_none() -> None:
    assert read_event({"type": "alive"}) is None


@pytest.mark.parametrize(
    "decision", [Allow(), Allow({"command": "pwd"}), Allow(always=True), Deny(), Deny("no", interrupt=True)]
)
def test_decision_comes_out_as_it_went_in(decision: Decision) -> None:
    got = through(decision_message("p", decision), to_server=True)
    assert got["id"] == "p"
    assert read_decision(got) == decision


def test_read_decision_neither_allow_nor_deny_is_the_peers_error() -> None:
    with pytest.raises(RemoteProtocolError):
        read_decision({"type": "decision", "id": "p", "behavior": "perhaps"})


@pytest.mark.parametrize(
    "error",
    [
        WaitTimeout("late", hint="wait"),
        AgentError("API Error: 400"),
        SessionCrashed("gone", detail="exit:1"),
        PoolExhausted("full", waited=3.5, size=4),
    ],
)
def test_error_comes_out_as_it_went_in(error: RemudaError) -> None:
    got = read_error(through(error_message(error)))
    assert type(got) is type(error)
    assert str(got) == str(error)
    assert vars(got) == vars(error)


def test_read_error_of_an_unknown_code_is_an_error_all_the_same() -> None:
    got = read_error({"type": "error", "code": "NEW", "message": "what"})
    assert type(got) is RemudaError
    assert str(got) == "what"
