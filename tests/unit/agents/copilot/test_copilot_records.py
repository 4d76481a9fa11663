"""Copilot's hooks and transcript as events (1.0.102)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.copilot import post_hook
from remuda.agents.copilot.hooks import answer_permission, read_hook
from remuda.agents.copilot.messages import PrintReader
from remuda.agents.copilot.prompting import same
from remuda.agents.copilot.records import read_past, read_record, read_usage
from remuda.agents.events import (
    ConversationStarted,
    DialogReported,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.prompting import Past
from remuda.errors import InvalidOptions

_COMMAND = {"command": "touch m1"}


def _record(kind: str, at: str = "2026-11-18T12:00:00.000Z", **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": "e1", "timestamp": at, "parentId": None}


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        ({"hook_event_name": "SessionStart", "source": "new"}, ConversationStarted("startup")),
        ({"hook_event_name": "UserPromptSubmit", "prompt": "hello"}, PromptSubmitted("hello")),
        (
            {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": _COMMAND},
            ToolStarted("bash", _COMMAND),
        ),
        (
            {"hookName": "permissionRequest", "toolName": "bash", "toolInput": _COMMAND},
            PermissionRequested("bash", _COMMAND),
        ),
        (
            {"hook_event_name": "Notification", "notification_type": "permission_prompt", "message": "Run"},
            DialogReported("permission", "Run", "permission_prompt"),
        ),
        (
            {"hook_event_name": "Stop", "last_assistant_message": "done", "prompt_id": "m1"},
            TurnStopped("done", "m1"),
        ),
        ({"hook_event_name": "ErrorOccurred"}, None),
        ({"hook_event_name": ["x"]}, None),
        ({}, None),
    ],
)
def test_hook_read(payload: dict[str, Any], event: object) -> None:
    report = read_hook({**payload, "cwd": "/p", "sessionId": "s1"})
    assert report.events == (() if event is None else (event,))
    assert report.conversation == {"session_id": "s1", "cwd": "/p"}


@pytest.mark.parametrize(
    ("record", "event"),
    [
        (_record("user.message", content="hi", messageId="m1"), PromptRecorded("hi", "m1", "s")),
        (
            _record("assistant.message", content="yes", messageId="a1", toolRequests=[]),
            MessageRecorded("a1", {}, "yes", final=True),
        ),
        (
            _record("assistant.message", content="using", messageId="a1", toolRequests=[{}]),
            MessageRecorded("a1", {}, "using", final=False),
        ),
        (_record("permission.completed", toolCallId="t1"), PermissionDecided("t1")),
        (_record("abort", reason="user_abort"), TurnInterrupted()),
        (
            _record("session.error", errorType="query", message="400 x", statusCode=400),
            TurnFailed(Failure.INVALID, "400 x"),
        ),
        (
            _record("session.error", errorType="rate_limit", message="slow", statusCode=None),
            TurnFailed(Failure.RATE_LIMITED, "slow"),
        ),
        (_record("hook.end", hookType="agentStop"), TurnRecorded()),
        (_record("hook.end", hookType="preToolUse"), None),
        (_record("permission.requested", resolvedByHook=True, permissionRequest={}), None),
        (
            _record(
                "permission.requested", permissionRequest={"kind": "shell", "fullCommandText": "touch m1"}
            ),
            DialogReported("permission", "bash: touch m1", "permission_prompt"),
        ),
        ({"type": ["x"], "data": 5, "timestamp": "never"}, None),
    ],
)
def test_record_read(record: dict[str, Any], event: object) -> None:
    assert read_record(record, "s").events == (() if event is None else (event,))


def test_record_usage_without_what_was_cached_and_denied_tool() -> None:
    usage = {"inputTokens": 15, "outputTokens": 7, "cacheReadTokens": 3, "cacheWriteTokens": 2}
    [used] = read_record(_record("session.usage_record", usage=usage)).events
    assert isinstance(used, MessageRecorded)
    assert used.usage == {
        "input_tokens": 10,
        "output_tokens": 7,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2,
    }
    failed = _record("tool.execution_complete", toolCallId="t", success=False, error={"code": "rejected"})
    assert read_record(failed).events[0] == ToolFinished("t", ok=False, denied=True)
    assert read_record({**failed, "agentId": "sub"}).subagent == "sub"


_PROMPT = _record("user.message", content="hello", messageId="m1")
_ANSWER = _record("assistant.message", content="yes", messageId="a1", toolRequests=[])
_ABORT = _record("abort")
_USED = _record("session.usage_record", usage={"apiCallId": "c1", "inputTokens": 3, "outputTokens": 5})
_TOKENS = read_usage({"inputTokens": 3, "outputTokens": 5})
_NEXT = _record("user.message", content="next", messageId="m2")
_AT = 1795003200.0


@pytest.mark.parametrize(
    ("records", "past"),
    [
        ([], Past()),
        ([_NEXT], Past()),
        ([_PROMPT], Past(True, prompt_id="m1")),
        ([_PROMPT, _ANSWER], Past(True, True, "yes", "m1", usages=({},))),
        ([_PROMPT, _ANSWER, _USED, _NEXT, _USED], Past(True, True, "yes", "m1", usages=({}, _TOKENS))),
        ([_PROMPT, _ABORT], Past(True, False, "", "m1", True)),
        ([_PROMPT, _NEXT, _ANSWER], Past(True, prompt_id="m1")),
        ([_record("user.message", "2026-11-18T11:59:00.000Z", content="hello")], Past()),
    ],
)
def test_past_of_a_prompt(records: list[dict[str, Any]], past: Past) -> None:
    assert read_past(records, "hello\n", _AT, same) == past


def test_decisions_that_copilot_takes_and_those_it_cannot() -> None:
    request = PermissionRequest("bash", _COMMAND)
    assert answer_permission(request, PermissionDecision(True)) == {"behavior": "allow"}
    denied = answer_permission(request, PermissionDecision(False, message="no", interrupt=True))
    assert denied == {"behavior": "deny", "message": "no", "interrupt": True}
    with pytest.raises(InvalidOptions, match="edited input"):
        answer_permission(request, PermissionDecision(True, input={"command": "x"}))
    with pytest.raises(InvalidOptions, match="for good"):
        answer_permission(request, PermissionDecision(True, always=True))
    question = PermissionRequest("ask_user", {}, reason="question")
    with pytest.raises(InvalidOptions, match="only be answered in its terminal"):
        answer_permission(question, PermissionDecision(True))


# ── the program of the hooks ──


def test_stop_gets_the_answer_of_its_own_turn_and_not_of_the_one_before(tmp_path: Path) -> None:
    stop: dict[str, Any] = {"hookType": "agentStop", "input": {"timestamp": 1795003200123}}
    early: dict[str, Any] = {"hookType": "agentStop", "input": {"timestamp": 1795003100000}}
    records = [
        _PROMPT,
        _ANSWER,
        _record("hook.start", **early),
        _NEXT,
        _record("assistant.message", content="second", originatingMessageId="m2"),
        {**_record("assistant.message", content="of a subagent"), "agentId": "x"},
        _record("hook.start", **stop),
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records) + "not json\n")
    moment = post_hook._epoch_ms("2026-11-18T12:00:00.123Z")
    assert post_hook._answer(str(path), moment) == {"prompt_id": "m2", "last_assistant_message": "second"}


@pytest.mark.parametrize("payload", ["", "not json", '{"hook_event_name": "Stop"}'])
def test_hook_program_without_a_keeper_prints_nothing_and_exits_0(tmp_path: Path, payload: str) -> None:
    address = tmp_path / "address"
    address.write_text("1 token")
    done = subprocess.run(
        [sys.executable, "-I", "-S", post_hook.__file__, str(address)],
        input=payload,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ── print ──


def test_print_reader_messages_and_result_in_any_split() -> None:
    lines = [
        {"type": "session.tools_updated", "data": {}, "ephemeral": True},
        _PROMPT,
        {"type": "assistant.message_delta", "data": {"deltaContent": "ye"}},
        _ANSWER,
        {"type": "result", "sessionId": "s1", "exitCode": 0, "usage": {"sessionDurationMs": 9}},
    ]
    data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)[:-1]
    found: list[dict[str, Any]] = []
    for at in range(0, len(data), 7):
        reader = PrintReader()
        found = [*reader.feed(data[:at]), *reader.feed(data[at:]), *reader.close()]
        assert [one["type"] for one in found] == ["assistant", "result"]
    assert found[-1]["result"] == "yes"
    assert (found[-1]["session_id"], found[-1]["is_error"], found[-1]["usage"]) == ("s1", False, None)


def test_print_reader_error_is_an_error_whatever_the_exit_code() -> None:
    error = _record("session.error", message="400 boom", statusCode=400)
    reader = PrintReader()
    data = b"".join(json.dumps(one).encode() + b"\n" for one in (error, {"type": "result", "exitCode": 1}))
    [result] = reader.feed(data)
    assert (result["is_error"], result["result"]) == (True, "400 boom")
