"""Messages of codex's app-server as events."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.codex.asking import CodexPermissions, answer_for, refusals
from remuda.agents.codex.notices import ThreadReader, find_turn, is_conversation, shell_command, turn_past
from remuda.agents.codex.prompting import CodexPrompts
from remuda.agents.events import (
    AgentEvent,
    DialogReported,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    Report,
    TextShown,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.observer import EventObserver
from remuda.agents.permission import PermissionDecision, PermissionRequest, check_refusals
from remuda.agents.prompting import Past
from remuda.agents.state import Evidence, Source, State
from remuda.errors import InvalidOptions

THREAD = {"id": "t1", "path": "/r.jsonl", "cwd": "/p", "model": "m", "preview": ""}


def note(method: str, thread: str = "t1", **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": thread, **params}}


def user(turn: str, text: str, client: str | None = None) -> dict[str, Any]:
    item = {"type": "userMessage", "id": "u", "clientId": client, "content": [{"type": "text", "text": text}]}
    return note("item/completed", turnId=turn, item=item)


def ended(turn: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    items = [{"type": "agentMessage", "text": "the answer"}]
    return note("turn/completed", turn={"id": turn, "status": status, "items": items, **more})


def usage(total: int, last: int) -> dict[str, Any]:
    counts = {"total": {"totalTokens": total}, "last": {"inputTokens": last, "cachedInputTokens": 3}}
    return note("thread/tokenUsage/updated", turnId="a", tokenUsage=counts)


def read(reader: ThreadReader, *messages: dict[str, Any]) -> list[AgentEvent]:
    reports = [reader.read(message) for message in messages]
    return [event for report in reports if report is not None for event in report.events]


@pytest.fixture
def reader() -> ThreadReader:
    made = ThreadReader()
    made.join(THREAD, "startup")
    return made


def test_a_turn_is_submitted_recorded_and_stopped_with_its_usage(reader: ThreadReader) -> None:
    events = read(
        reader,
        note("turn/started", turn={"id": "a"}),
        user("a", "hello", "m1"),
        note("item/agentMessage/delta", turnId="a", itemId="i", delta="the"),
        usage(20, 13),
        usage(20, 13),  # a new client gets it again
        usage(30, 8),
        ended("a"),
    )
    assert events[:3] == [
        PromptSubmitted("hello", "a"),
        PromptRecorded("hello", "a", "t1"),
        TextShown("i", 0, "the"),
    ]
    final = next(event for event in events if isinstance(event, MessageRecorded))
    assert (final.usage["input_tokens"], final.usage["cache_read_input_tokens"]) == (15, 6)
    assert TurnStopped("the answer", "a", conversation="t1") in events
    assert reader.first_messages == {"a": "m1"}
    assert read(reader, ended("a")) == []


def test_threads_of_titles_and_subagents_are_not_the_conversation(reader: ThreadReader) -> None:
    assert not is_conversation({**THREAD, "ephemeral": True})
    assert not is_conversation({**THREAD, "parentThreadId": "t0"})
    other = note("turn/completed", "t2", turn={"id": "b", "status": "completed"})
    request = {"id": 1, **note("item/commandExecution/requestApproval", "t2", itemId="x", turnId="b")}
    assert read(reader, other, request) == []
    assert not reader.open


def test_a_request_is_reported_once_and_ends_where_it_was_decided(reader: ThreadReader) -> None:
    asked = {
        "id": 7,
        **note(
            "item/commandExecution/requestApproval",
            turnId="a",
            itemId="c",
            command="/bin/bash -lc 'rm -r x'",
            reason="why",
        ),
    }
    first = read(reader, asked, {**asked, "id": 8})
    given = {"command": "rm -r x", "description": "why"}
    assert first == [PermissionRequested("Bash", given, prompt_id="a", id="c")]
    assert reader.open["c"][0] == 8
    assert read(reader, note("serverRequest/resolved", requestId=8)) == [PermissionDecided("c")]
    assert CodexPermissions().is_plain(given, "command")
    assert not CodexPermissions().is_plain({**given, "network": {"host": "x"}}, "command")


def test_a_request_of_a_turn_that_has_ended_is_not_reported(reader: ThreadReader) -> None:
    read(reader, user("u1", "hi"), ended("u1"))
    asked = note("item/commandExecution/requestApproval", itemId="c1", turnId="u1", command="ls")
    assert read(reader, {**asked, "id": 7}) == []
    assert reader.open == {}
    assert reader.running is None


def test_a_dialog_ends_where_it_was_answered(reader: ThreadReader) -> None:
    asked = note("mcpServer/elicitation/request", turnId=None, message="Which one?")
    [dialog] = read(reader, {**asked, "id": 7})
    assert dialog == DialogReported("question", "Which one?", "mcpServer/elicitation/request")
    assert read(reader, note("serverRequest/resolved", requestId=7)) == [PermissionDecided("")]
    assert read(reader, note("serverRequest/resolved", requestId=7)) == []


def test_a_tool_and_its_state(reader: ThreadReader) -> None:
    item = {"type": "commandExecution", "id": "c", "command": "/bin/sh -c ls", "status": "declined"}
    started = note("item/started", turnId="a", item={**item, "status": "inProgress"})
    events = read(reader, started, note("item/completed", turnId="a", item=item))
    assert events[0] == ToolStarted("Bash", {"command": "ls"}, "c")
    assert events[1] == ToolFinished("c", ok=False, denied=True, tool="Bash")


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        ("usageLimitExceeded", Failure.RATE_LIMITED),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, Failure.AUTHENTICATION),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, Failure.OTHER),
        ("serverOverloaded", Failure.OVERLOADED),
        ("contextWindowExceeded", Failure.INVALID),
    ],
)
def test_failures_by_what_codex_says(reader: ThreadReader, info: object, kind: Failure) -> None:
    limits = {"primary": {"usedPercent": 100, "resetsAt": 1060}, "secondary": {"usedPercent": 3}}
    error = {"message": "no", "codexErrorInfo": info}
    (event,) = read(
        reader,
        {"method": "account/rateLimits/updated", "params": {"rateLimits": limits}},
        ended("a", "failed", error=error, completedAt=1000),
    )
    assert isinstance(event, TurnFailed)
    assert event.kind is kind
    assert event.retry_after == (60 if kind is Failure.RATE_LIMITED else None)


def test_catch_up_reports_what_was_missed_and_nothing_older(reader: ThreadReader) -> None:
    item = {"type": "userMessage", "clientId": "m2", "content": [{"type": "text", "text": "two"}]}
    old = {"id": "old", "status": "completed", "items": []}
    cut: dict[str, Any] = {"id": "a", "status": "interrupted", "completedAt": None, "items": []}
    new = {"id": "b", "status": "inProgress", "items": [item]}
    read(reader, note("turn/started", turn={"id": "a"}))
    (report,) = reader.catch_up([old, cut, new], all_new=False)
    assert report.events[0] == TurnInterrupted("a", died=True)
    assert report.events[1] == PromptSubmitted("two", "b")
    assert reader.running == "b"
    assert reader.catch_up([old, cut], all_new=False) == []  # it has just begun
    # Its server died before it wrote the turn.
    (gone,) = reader.catch_up([old, cut], all_new=False, was_lost=True)
    assert gone.events == (TurnInterrupted("b", died=True),)
    assert ThreadReader().catch_up([old], all_new=False) == []


def test_a_turn_that_has_just_begun_is_not_cut_though_it_is_listed_so(reader: ThreadReader) -> None:
    """For a moment its server lists it as one that a server before it left behind."""
    begun: dict[str, Any] = {"id": "a", "status": "interrupted", "completedAt": None, "items": []}
    assert reader.catch_up([begun], all_new=True) == []
    assert (reader.running, reader.listed_end) == ("a", None)
    assert "had_turn" not in reader.conversation
    events = read(reader, user("a", "hello", "m1"), ended("a"))
    assert events[:2] == [PromptSubmitted("hello", "a"), PromptRecorded("hello", "a", "t1")]
    assert TurnStopped("the answer", "a", conversation="t1") in events
    assert reader.conversation["had_turn"] == "t1"


@pytest.mark.parametrize("noticed", [True, False])
def test_a_turn_that_is_listed_as_over_before_its_notices_is_recorded_and_ends_once(
    reader: ThreadReader, noticed: bool
) -> None:
    """The notices wait here, or were sent before we subscribed. Its usage comes again for a new client."""
    answer = {"type": "agentMessage", "text": "the answer"}
    prompt = user("a", "hello", "m1")
    turn = {"id": "a", "status": "completed", "items": [prompt["params"]["item"], answer]}
    read(reader, note("turn/started", turn={"id": "a"}))
    (report,) = reader.catch_up([turn], all_new=True)
    assert report.events == (PromptSubmitted("hello", "a"), PromptRecorded("hello", "a", "t1"))
    assert reader.first_messages == {"a": "m1"}
    assert reader.listed_end is turn
    found = read(reader, usage(20, 13), *([prompt, ended("a")] if noticed else []))
    last = reader.end_listed(turn)
    assert (last is None) is noticed
    found += last.events if last is not None else ()
    (final,) = [event for event in found if isinstance(event, MessageRecorded)]
    assert final.usage["input_tokens"] == 10
    assert [event for event in found if isinstance(event, TurnStopped)] == [
        TurnStopped("the answer", "a", conversation="t1")
    ]
    assert not [event for event in found if isinstance(event, PromptSubmitted)]


def test_the_end_of_a_turn_that_was_listed_leaves_the_next_one_running(reader: ThreadReader) -> None:
    turn = {"id": "a", "status": "completed", "items": []}
    reader.catch_up([turn], all_new=True)
    read(reader, note("turn/started", turn={"id": "b"}))
    last = reader.end_listed(turn)
    assert last is not None
    assert reader.running == "b"
    reader.join({**THREAD, "id": "t2"}, "clear")
    assert reader.end_listed(turn) is None


def test_a_search_finds_the_turn_of_a_message() -> None:
    item = {"type": "userMessage", "clientId": "m1", "content": []}
    answer = {"type": "agentMessage", "text": "yes"}
    turn: dict[str, Any] = {"id": "a", "status": "completed", "items": [item, answer]}
    assert find_turn([turn], "m2") is None
    assert find_turn([turn], "m1") == turn
    assert turn_past(turn) == Past(True, True, "yes", "a")
    stopped = {**turn, "status": "interrupted"}
    assert turn_past({**stopped, "completedAt": 5}).interrupted
    assert not turn_past({**stopped, "completedAt": None}).interrupted


def test_decisions_that_codex_can_take() -> None:
    request = PermissionRequest("Bash", {"command": "ls"})
    assert answer_for({}, PermissionDecision(True)) == {"decision": "accept"}
    assert answer_for({}, PermissionDecision(True, always=True)) == {"decision": "acceptForSession"}
    assert answer_for({}, PermissionDecision(False, interrupt=True)) == {"decision": "cancel"}
    check_refusals(refusals, request, PermissionDecision(True, {"command": "ls"}))
    with pytest.raises(InvalidOptions, match="cannot run an edited input"):
        check_refusals(refusals, request, PermissionDecision(True, {"command": "rm"}))
    assert refusals(PermissionRequest("request_user_input", {}, reason="question")).keys() == {"always"}


def test_answers_go_to_their_questions(reader: ThreadReader) -> None:
    questions = [{"id": "q1", "header": "Colour", "question": "Which?", "options": [{"label": "Red"}]}]
    asked = {"id": 3, **note("item/tool/requestUserInput", turnId="a", itemId="c", questions=questions)}
    (event,) = read(reader, asked)
    assert isinstance(event, PermissionRequested)
    assert event.reason == "question"
    permissions = CodexPermissions()
    assert permissions.facts(event.tool, event.input)["options"] == ["Red"]
    chosen = permissions.with_answers({"questions": questions}, {"Colour": ["Red", "Blue"]})
    answer = answer_for({"questions": questions}, PermissionDecision(True, chosen))
    assert answer == {"answers": {"q1": {"answers": ["Red", "Blue"]}}}
    with pytest.raises(InvalidOptions, match="no question 'Size'"):
        permissions.with_answers({"questions": questions}, {"Size": "L"})


@pytest.mark.parametrize(
    ("shown", "command"),
    [
        ("/bin/bash -lc 'echo \"a b\"'", 'echo "a b"'),
        ("/usr/bin/zsh -lc ls", "ls"),
        ("git status", "git status"),
        ("unbalanced 'quote", "unbalanced 'quote"),
        ("bash -lc 'a' b", "bash -lc 'a' b"),
    ],
)
def test_a_command_is_shown_without_its_shell(shown: str, command: str) -> None:
    assert shell_command(shown) == command


@pytest.mark.parametrize("params", [None, [], {"threadId": 3}, {"threadId": "t1", "item": 5, "turn": "x"}])
def test_messages_of_another_shape_report_nothing_wrong(reader: ThreadReader, params: object) -> None:
    for method in ("item/completed", "item/started", "thread/tokenUsage/updated", "serverRequest/resolved"):
        assert read(reader, {"method": method, "params": params}) == []


@pytest.mark.parametrize("lost", [True, False])
def test_notices_of_a_turn_that_was_listed_as_over_begin_nothing_after_its_end(
    reader: ThreadReader, lost: bool
) -> None:
    """They wait while the conversation is joined. The session would be `streaming` for good."""
    whole = {
        "id": "a",
        "status": "completed",
        "items": [user("a", "hello")["params"]["item"], {"type": "agentMessage", "text": "the answer"}],
    }
    observer, evidence = EventObserver(CodexPrompts()), Evidence.starting(0.0)

    def take(report: Report | None) -> None:
        for vote in observer.take(report, 1.0, 1.0) if report is not None else ():
            evidence.record(vote)

    for report in reader.catch_up([whole], all_new=True, was_lost=lost):
        take(report)
    if not lost:
        take(reader.end_listed(whole))
    assert evidence.verdict.state is State.IDLE
    delta = note("item/agentMessage/delta", turnId="a", itemId="i", delta="the")
    for message in (note("turn/started", turn={"id": "a"}), user("a", "hello"), delta, ended("a")):
        take(reader.read(message))
    assert evidence.verdict.state is State.IDLE
    assert reader.running is None
    take(reader.read(user("b", "next")))
    assert (
        observer.take(Report(Source.HOOK, "", (TextShown("i", 0, "x"),)), 2.0, 2.0)[0].state
        is State.STREAMING
    )
