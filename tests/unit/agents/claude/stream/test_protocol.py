"""The stream-json protocol: whatever comes in whatever pieces, and the lines that are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.claude.stream import stream_protocol
from remuda.agents.claude.stream.prompt_progress import CarryOver
from remuda.agents.claude.stream.stream_events import (
    ApiRetry,
    BackgroundTask,
    ControlReply,
    ConversationReset,
    Event,
    MessagePart,
    MessageUsed,
    PermissionAsked,
    PermissionWithdrawn,
    PromptMoved,
    StateChanged,
    StreamTurnBegun,
    Surroundings,
    TasksChanged,
    TextPiece,
    ToolCalled,
    ToolReturned,
    TurnResult,
    UnsupportedRequest,
)
from remuda.agents.claude.stream.stream_protocol import events_of
from remuda.agents.json_lines import MAX_LINE_BYTES, JsonLineReader

INIT = {
    "type": "system",
    "subtype": "init",
    "session_id": "c1",
    "cwd": "/p",
    "model": "opus",
    "permissionMode": "default",
    "output_style": "default",
    "additional_directories": ["/q"],
}
HERE = Surroundings("/p", "opus", "default", "default", ("/q",))
RESULT = {
    # The real one's keys do not begin with its type either.
    "session_id": "c1",
    "subtype": "success",
    "type": "result",
    "result": "the answer",
    "is_error": False,
    "terminal_reason": "completed",
    "usage": {"input_tokens": 12, "output_tokens": 7},
    "num_turns": 1,
    "permission_denials": [{"tool_name": "Bash"}],
    "total_cost_usd": 0.5,
    "user_message_uuid": "u1",
}
TALK: list[dict[str, Any]] = [
    {"type": "command_lifecycle", "command_uuid": "u1", "state": "started"},
    INIT,
    {"type": "system", "subtype": "status", "status": "requesting"},
    {
        "type": "stream_event",
        "parent_tool_use_id": None,
        "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Grüß \u2028 dich"}},
    },
    {"type": "something of tomorrow", "deep": [{}]},
    RESULT,
]
WIRE = b"".join(json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in TALK)


def read(*pieces: bytes, limit: int = MAX_LINE_BYTES) -> tuple[list[dict[str, Any]], JsonLineReader]:
    reader = JsonLineReader(limit)
    found = [message for piece in pieces for message in reader.feed(piece)]
    return found + list(reader.close()), reader


# ── bytes ──


def test_reader_split_at_every_index_reads_the_same() -> None:
    for index in range(len(WIRE) + 1):
        assert read(WIRE[:index], WIRE[index:])[0] == TALK


def test_reader_byte_by_byte_reads_the_same() -> None:
    assert read(*(WIRE[index : index + 1] for index in range(len(WIRE))))[0] == TALK


def test_reader_last_line_without_its_end_is_read_when_whole() -> None:
    found, _ = read(WIRE.rstrip(b"\n"))
    assert found == TALK


@pytest.mark.parametrize(
    "junk", [b"debug: hello", b'{"type": "result"', b"[1, 2]", b"17", b"\xff\xfe", b"[" * 9000]
)
def test_reader_junk_between_messages_is_left_out(junk: bytes) -> None:
    found, _ = read(junk + b"\n" + WIRE + junk)
    assert found == TALK


def test_reader_blank_lines_are_nothing() -> None:
    found, _ = read(b"\n\r\n  \n" + WIRE)
    assert found == TALK


def test_reader_a_line_beyond_the_bound_is_dropped_and_what_follows_is_read() -> None:
    long = json.dumps({"type": "user", "filler": "x" * 500}).encode() + b"\n"
    lines = b'{"type": "a"}\n' + long + b'{"type": "b"}\n'
    for size in (1, 7, 100, 5000):
        pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
        found, reader = read(*pieces, limit=100)
        assert [message["type"] for message in found] == ["a", "b"]
        assert reader.dropped == 1


def test_reader_a_line_beyond_the_bound_is_not_kept() -> None:
    reader = JsonLineReader(1000)
    for _ in range(100):
        assert list(reader.feed(b"x" * 1000)) == []
    assert sum(map(len, reader._pieces)) <= 1000


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_reader_any_bytes_are_read_alike_in_any_pieces(pieces: list[bytes]) -> None:
    assert read(*pieces)[0] == read(b"".join(pieces))[0]


# ── messages ──


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TYPES = sorted(stream_protocol._READERS)
KEYS = [
    "subtype",
    "request",
    "response",
    "request_id",
    "message",
    "event",
    "content",
    "tasks",
    "input",
    "errors",
]
KEYS += [
    "usage",
    "session_id",
    "permission_suggestions",
    "delta",
    "text",
    "model",
    "total_cost_usd",
    "result",
]
SUBTYPES = [
    "init",
    "api_retry",
    "background_tasks_changed",
    "session_state_changed",
    "can_use_tool",
    "success",
]


@given(
    kind=st.sampled_from(TYPES) | JSON,
    subtype=st.sampled_from(SUBTYPES) | JSON,
    fields=st.dictionaries(st.sampled_from(KEYS), JSON | st.dictionaries(st.sampled_from(KEYS), JSON)),
)
def test_events_no_message_whatever_it_holds_is_an_error(
    kind: Any, subtype: Any, fields: dict[str, Any]
) -> None:
    carry_over = CarryOver()
    for event in events_of({**fields, "type": kind, "subtype": subtype}):
        carry_over.take(event)


def test_events_of_a_turn() -> None:
    assert [event for message in TALK for event in events_of(message)] == [
        PromptMoved("u1", "started"),
        StreamTurnBegun("c1", HERE),
        TextPiece("Grüß \u2028 dich"),
        TurnResult(
            conversation_id="c1",
            command_id="u1",
            text="the answer",
            is_error=False,
            subtype="success",
            reason="completed",
            usage={"input_tokens": 12, "output_tokens": 7},
            num_turns=1,
            denials=({"tool_name": "Bash"},),
            cost_usd=0.5,
        ),
    ]


def test_events_of_tools_name_those_of_subagents() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    called = {"type": "assistant", "message": {"model": "opus", "content": [block]}}
    assert events_of(called) == [MessagePart("opus"), ToolCalled("t1", "Bash", {"command": "ls"})]
    assert events_of({**called, "parent_tool_use_id": "t0"}) == [
        ToolCalled("t1", "Bash", {"command": "ls"}, nested=True)
    ]
    ended = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    assert events_of({"type": "user", "message": {"content": [ended]}}) == [
        ToolReturned("t1", "no", is_error=True)
    ]


def test_events_of_a_subagents_words_are_none() -> None:
    words = {**TALK[3], "parent_tool_use_id": "t0"}
    assert events_of(words) == []


def test_events_of_a_message_that_is_complete_have_what_it_used() -> None:
    def ended(reason: str | None, **more: str) -> list[Event]:
        delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}
        return events_of({"type": "stream_event", "event": delta, "parent_tool_use_id": None, **more})

    assert ended("tool_use") == [MessageUsed({"output_tokens": 7})]
    assert ended(None) == []  # its count goes on
    assert ended("end_turn", parent_tool_use_id="t0") == []


def test_events_of_control_messages() -> None:
    asked: dict[str, Any] = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "rm"}}
    asked["permission_suggestions"] = [{"type": "setMode"}]
    assert events_of({"type": "control_request", "request_id": "r", "request": asked}) == [
        PermissionAsked("r", "Bash", {"command": "rm"}, ({"type": "setMode"},))
    ]
    assert events_of({"type": "control_request", "request_id": "r", "request": {"subtype": "odd"}}) == [
        UnsupportedRequest("r", "odd")
    ]
    assert events_of({"type": "control_cancel_request", "request_id": "r"}) == [PermissionWithdrawn("r")]
    success = {"subtype": "success", "request_id": "r", "response": {"pid": 7}}
    assert events_of({"type": "control_response", "response": success}) == [ControlReply("r", {"pid": 7})]
    error = {"subtype": "error", "request_id": "r", "error": "Unsupported"}
    assert events_of({"type": "control_response", "response": error}) == [
        ControlReply("r", {}, "Unsupported")
    ]


def test_events_of_the_process() -> None:
    assert events_of({"type": "conversation_reset", "user_message_uuid": "u2"}) == [ConversationReset("u2")]
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 2,
        "error_status": 529,
        "error": "overloaded",
    }
    assert events_of(retry) == [ApiRetry(2, 529, "overloaded")]
    tasks = [{"task_id": "b1", "task_type": "local_bash"}]
    changed = {"type": "system", "subtype": "background_tasks_changed", "tasks": tasks}
    assert events_of(changed) == [TasksChanged((BackgroundTask("b1", "local_bash"),))]
    state = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
    assert events_of(state) == [StateChanged("idle")]


def test_ended_by_an_interrupt_is_distinguished_from_an_error_of_the_api() -> None:
    stopped = {**RESULT, "is_error": True, "subtype": "error_during_execution", "result": None}
    failed = {**RESULT, "is_error": True, "terminal_reason": "api_error"}
    for message, interrupted in (
        ({**stopped, "terminal_reason": "aborted_streaming"}, True),
        ({**stopped, "terminal_reason": None}, True),
        (failed, False),
        (RESULT, False),
    ):
        [ended] = events_of(message)
        assert isinstance(ended, TurnResult)
        assert ended.was_interrupted is interrupted


# ── lines ──


@given(st.text())
def test_prompt_is_one_line_and_says_the_text_exactly(text: str) -> None:
    line = stream_protocol.prompt(text, "u1")
    assert line.count(b"\n") == 1
    sent = json.loads(line)
    assert sent == {"type": "user", "uuid": "u1", "message": {"role": "user", "content": text}}


def test_lines_that_answer_a_permission() -> None:
    def answer(line: bytes) -> Any:
        sent = json.loads(line)
        assert sent["type"] == "control_response"
        assert sent["response"]["request_id"] == "r"
        return sent["response"].get("response") or sent["response"]["error"]

    assert answer(stream_protocol.allow("r", {"a": 1})) == {"behavior": "allow", "updatedInput": {"a": 1}}
    assert answer(stream_protocol.allow("r", {}, [{"type": "x"}]))["updatedPermissions"] == [{"type": "x"}]
    assert answer(stream_protocol.deny("r", "")) == {"behavior": "deny", "message": "denied"}
    assert answer(stream_protocol.deny("r", "no", interrupt=True)) == {
        "behavior": "deny",
        "message": "no",
        "interrupt": True,
    }
    assert answer(stream_protocol.refuse("r", "cannot")) == "cannot"


def test_line_of_an_interrupt_cancels_what_is_queued() -> None:
    assert json.loads(stream_protocol.interrupt("r")) == {
        "type": "control_request",
        "request_id": "r",
        "request": {"subtype": "interrupt", "cancel_queued": True},
    }


def test_always_stays_in_the_conversation() -> None:
    suggested: list[dict[str, Any]] = [
        {"type": "addRules", "rules": [{"toolName": "Bash"}], "destination": "localSettings"},
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    ]
    shell = {"command": "ls"}
    assert stream_protocol.for_conversation("Bash", shell, suggested) == [
        {**suggested[0], "destination": "session"}
    ]
    [made] = stream_protocol.for_conversation("Write", {}, [])
    assert made["rules"] == [{"toolName": "Write"}]
    assert made["destination"] == "session"


def test_always_without_a_rule_is_what_the_dialog_would_do() -> None:
    suggested: list[dict[str, Any]] = [
        {"type": "addDirectories", "directories": ["/srv"], "destination": "localSettings"},
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    ]
    made = stream_protocol.for_conversation("Bash", {"command": "touch /srv/x"}, suggested)
    assert made == [{**one, "destination": "session"} for one in suggested]


def test_always_is_never_every_command_and_never_more_than_what_was_edited() -> None:
    mode: list[dict[str, Any]] = [{"type": "setMode", "mode": "bypassPermissions"}]
    rule: list[dict[str, Any]] = [
        {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "rm x"}]}
    ]
    this_one = [{"toolName": "Bash", "ruleContent": "ls"}]
    for suggested, edited in ((mode, False), ([], False), (rule, True)):
        [made] = stream_protocol.for_conversation("Bash", {"command": "ls"}, suggested, edited=edited)
        assert made["rules"] == this_one


@pytest.mark.parametrize("command", ["chmod 600 a*", "chmod 600 x:*", "ls '*'", "echo \\*", "a && b *"])
@pytest.mark.parametrize("edited", [False, True])
def test_always_of_a_command_with_a_star_makes_no_rule(command: str, edited: bool) -> None:
    rules = [{"toolName": "Bash", "ruleContent": part} for part in command.split(" && ")]
    suggested = [{"type": "addRules", "rules": rules, "destination": "localSettings"}]
    assert stream_protocol.for_conversation("Bash", {"command": command}, suggested, edited=edited) == []
    assert stream_protocol.for_conversation("Bash", {"command": command}, []) == []


def test_always_of_a_plain_command_keeps_the_prefix_that_the_agent_suggests() -> None:
    rule = {"toolName": "Bash", "ruleContent": "npm test:*"}
    [made] = stream_protocol.for_conversation(
        "Bash", {"command": "npm test x"}, [{"type": "addRules", "rules": [rule]}]
    )
    assert made["rules"] == [rule]


# ── what outlives a conversation ──


@pytest.mark.parametrize("name", ["CronCreate", "ScheduleWakeup", "Monitor", "EnterWorktree"])
def test_carry_over_of_tools_that_outlive_a_clear_also_in_a_subagent(name: str) -> None:
    for nested in (False, True):
        carry_over = CarryOver()
        carry_over.take(ToolCalled("t", name, {}, nested))
        assert carry_over.reasons


def test_carry_over_of_a_task_in_the_background_stays_when_it_has_ended() -> None:
    carry_over = CarryOver()
    carry_over.take(TasksChanged(()))
    assert not carry_over.reasons
    carry_over.take(TasksChanged((BackgroundTask("a", "local_agent"),)))
    carry_over.take(TasksChanged(()))
    assert carry_over.reasons == ["local_agent in the background"]


def carry_over_of(*messages: dict[str, Any]) -> list[str]:
    carry_over = CarryOver()
    for message in messages:
        for event in events_of(message):
            carry_over.take(event)
    return carry_over.reasons


@pytest.mark.parametrize("changed", ["cwd", "permissionMode", "output_style", "additional_directories"])
def test_carry_over_of_other_surroundings_than_at_first(changed: str) -> None:
    other = {**INIT, changed: ["/z"] if changed == "additional_directories" else "other"}
    assert carry_over_of(INIT, INIT, {**INIT, "session_id": "c2"}) == []
    assert len(carry_over_of(INIT, INIT, other)) == 1


def test_carry_over_of_another_model_is_what_changed_from_a_prompt_to_its_clear() -> None:
    other, reset = {**INIT, "model": "sonnet"}, {"type": "conversation_reset"}
    assert carry_over_of(reset, INIT, INIT, reset, other) == ["another model: sonnet"]
    assert carry_over_of(reset, INIT, other, reset, other, other) == []
