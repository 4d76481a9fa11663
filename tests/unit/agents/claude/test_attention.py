"""What Claude Code's hooks, registry and transcript mean for the attention queue, as 2.1.325 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.attention import EventKind, digest
from remuda.agents.claude.asking import edit_diff
from remuda.agents.claude.sources import hook_events, record_events, registry_events
from remuda.agents.state import Source

ENV = {
    "TMUX": "/tmp/tmux-1000/default,2101,0",
    "TMUX_PANE": "%4",
    "CLAUDE_PID": "812",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
}
STAMP = "2026-11-15T06:16:14.894Z"
STAMPED = 1794723374.894


def payload(name: str, **more: Any) -> dict[str, Any]:
    common = {"session_id": "e7ee", "transcript_path": "/t/e7ee.jsonl", "cwd": "/srv/demo"}
    return {**common, "hook_event_name": name, **more}


def hook(name: str, **more: Any) -> tuple[EventKind, dict[str, Any]]:
    (event,) = hook_events(payload(name, **more), 5.0)
    return event.kind, dict(event.facts)


def test_hook_says_where_it_comes_from() -> None:
    (event,) = hook_events(payload("Stop"), 5.0, id="x", env=ENV)
    assert (event.session_id, event.at, event.id, event.source) == ("e7ee", 5.0, "x", Source.HOOK)
    assert {
        "pane": "%4",
        "tmux": "/tmp/tmux-1000/default",
        "pid": 812,
        "cwd": "/srv/demo",
        "transcript_path": "/t/e7ee.jsonl",
        "entrypoint": "cli",
    }.items() <= event.facts.items()


def test_stop_reports_the_last_message_and_what_goes_on() -> None:
    running = {"id": "a2", "type": "subagent", "status": "running", "description": "sub"}
    shell = {"id": "b1", "type": "shell", "status": "running"}
    kind, facts = hook("Stop", last_assistant_message="done", background_tasks=[running, shell])
    assert (kind, facts["message"]) == (EventKind.STOPPED, "done")
    assert facts["background"] == [{"id": "a2", "type": "subagent", "description": "sub"}]
    assert facts["shells"] == [{"id": "b1", "type": "shell"}]


def test_prompt_that_the_agent_gives_itself_is_no_prompt() -> None:
    assert hook("UserPromptSubmit", prompt="hello")[0] is EventKind.PROMPTED
    kind, facts = hook("UserPromptSubmit", prompt="<task-notification>\n<task-id>a</task-id>")
    assert (kind, facts["notice"]) == (EventKind.WORKING, True)


def test_permission_request_is_reported_whole_and_has_the_key_of_its_call() -> None:
    given = {"command": "touch zz1", "description": "x"}
    kind, facts = hook(
        "PermissionRequest", tool_name="Bash", tool_input=given, permission_suggestions=[{"type": "setMode"}]
    )
    assert (kind, facts["reason"], facts["input"]) == (EventKind.ASKED, "permission", given)
    assert facts["message"] == "Bash: touch zz1"
    assert facts["digest"] == digest("Bash", given)
    _, began = hook("PreToolUse", tool_name="Bash", tool_input=given, tool_use_id="toolu_1")
    assert (began["digest"], began["tool_use_id"]) == (facts["digest"], "toolu_1")


def test_question_and_plan_are_reported_as_such() -> None:
    questions = [{"question": "Which color?", "options": [{"label": "Blue"}, {"label": "Red"}]}]
    _, asked = hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": questions})
    assert (asked["reason"], asked["options"], asked["message"]) == ("question", questions, "Which color?")
    _, plan = hook("PermissionRequest", tool_name="ExitPlanMode", tool_input={"plan": "1. do it"})
    assert (plan["reason"], plan["message"]) == ("plan", "1. do it")


def test_the_end_of_a_call_says_whether_it_ran() -> None:
    for event, ok, denied in (
        ("PostToolUse", True, False),
        ("PostToolUseFailure", False, False),
        ("PermissionDenied", False, True),
    ):
        kind, facts = hook(event, tool_name="Bash", tool_input={}, tool_use_id="t")
        assert (kind, facts["tool_use_id"]) == (EventKind.TOOL_RAN, "t")
        assert (facts["ok"], facts["denied"]) == (ok, denied)


def test_failure_is_an_error_or_a_limit_with_its_end() -> None:
    kind, facts = hook("StopFailure", error="unknown", last_assistant_message="API Error: 400 bad")
    assert (kind, facts["message"], facts["error"]) == (
        EventKind.FAILED,
        "API Error: 400 bad",
        "invalid_request",
    )
    kind, facts = hook("StopFailure", error="rate_limit", last_assistant_message="Try again in 5 minutes")
    assert (kind, facts["until"]) == (EventKind.LIMITED, 305.0)
    _, facts = hook("StopFailure", error="rate_limit", last_assistant_message="limit reached|1794730000")
    assert facts["until"] == 1794730000.0
    _, facts = hook("StopFailure", error="rate_limit", last_assistant_message="limit · resets 12:30am (UTC)")
    assert facts["until"] == 1800.0


def test_begin_and_end_of_a_conversation() -> None:
    assert hook("SessionStart", source="startup")[0] is EventKind.REGISTERED
    assert hook("SessionStart", source="compact")[0] is EventKind.SEEN
    kind, facts = hook("SessionEnd", reason="clear")
    assert (kind, facts["why"]) == (EventKind.ENDED, "clear")


@pytest.mark.parametrize("name", ["SubagentStop", "MessageDisplay", "SomethingNew", "PreCompact"])
def test_hook_that_means_nothing_for_the_queue_is_only_seen(name: str) -> None:
    assert hook(name, background_tasks=[], last_assistant_message="x")[0] is EventKind.SEEN


def test_notification_counts_less_than_the_thing_itself() -> None:
    asked = ("permission_prompt", "agent_needs_input")
    for kind, meant in (*((one, EventKind.ASKED) for one in asked), ("idle_prompt", EventKind.STOPPED)):
        (event,) = hook_events(payload("Notification", notification_type=kind, message="m"), 5.0)
        assert (event.kind, event.source) == (meant, Source.TITLE)


def test_notification_that_another_session_needs_input_is_only_seen() -> None:
    words = "fix the build needs your input: which branch?"
    told = payload("Notification", notification_type="agent_needs_input", message=words)
    assert [event.kind for event in hook_events(told, 5.0)] == [EventKind.SEEN]


@pytest.mark.parametrize("bad", [{}, {"session_id": 5}, {"session_id": ""}, {"hook_event_name": "Stop"}])
def test_payload_of_no_session_reports_nothing(bad: dict[str, Any]) -> None:
    assert hook_events(bad, 5.0) == []


def test_payload_with_wrong_types_is_harmless() -> None:
    names = ["Stop", "StopFailure", "PermissionRequest", "PreToolUse", "UserPromptSubmit", "Notification"]
    for name in names:
        wrongs: list[Any] = [None, 5, "x", [1], {"a": {}}]
        for wrong in wrongs:
            fields = ("background_tasks", "tool_input", "tool_name", "prompt", "error", "notification_type")
            hook_events(payload(name, **dict.fromkeys(fields, wrong)), 5.0)


# ── registry ──


def registry(**more: Any) -> dict[str, Any]:
    common = {"pid": 812, "sessionId": "e7ee", "cwd": "/srv/demo", "kind": "interactive", "name": "demo-3f"}
    return {**common, "statusUpdatedAt": 5000, "startedAt": 1000, **more}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("busy", EventKind.WORKING),
        ("idle", EventKind.STOPPED),
        ("shell", EventKind.STOPPED),
        ("waiting", EventKind.ASKED),
        ("new", EventKind.SEEN),
    ],
)
def test_registry_status_is_an_event_dated_when_it_began(status: str, kind: EventKind) -> None:
    (event,) = registry_events(registry(status=status, waitingFor="permission prompt"))
    assert (event.kind, event.at, event.source, event.facts["pid"]) == (kind, 5.0, Source.REGISTRY, 812)


@pytest.mark.parametrize("kind", ["bg", "background"])
def test_registry_of_a_background_agent_says_so(kind: str) -> None:
    (event,) = registry_events(registry(kind=kind, status="busy"))
    assert event.facts["origin"] == "background"
    assert registry_events({"pid": 1}) == []


# ── transcript ──


def record(**more: Any) -> dict[str, Any]:
    return {"timestamp": STAMP, "sessionId": "e7ee", "uuid": "u1", "isSidechain": False, **more}


def assistant(stop_reason: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": "m1", "model": "claude", "role": "assistant", "content": list(content)}
    return record(type="assistant", message={**message, "stop_reason": stop_reason}, **more)


def test_transcript_reports_prompt_end_error_and_interrupt() -> None:
    prompt = record(type="user", message={"role": "user", "content": "hello"})
    ended = assistant("end_turn", {"type": "text", "text": "hi"})
    error = assistant("stop_sequence", {"type": "text", "text": "API Error: 400 x"}, isApiErrorMessage=True)
    stopped = record(
        type="user",
        message={"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user]"}]},
    )
    kinds = [record_events(one)[0].kind for one in (prompt, ended, error, stopped)]
    assert kinds == [EventKind.PROMPTED, EventKind.STOPPED, EventKind.FAILED, EventKind.INTERRUPTED]
    (event,) = record_events(ended)
    assert abs(event.at - STAMPED) < 1e-3
    assert (event.source, event.facts["message"]) == (Source.TRANSCRIPT, "hi")


def test_transcript_reports_calls_and_their_ends() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    (began,) = record_events(assistant("tool_use", use))
    assert (began.kind, began.facts["digest"]) == (EventKind.TOOL_BEGAN, digest("Bash", {"command": "ls"}))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "no"}
    (ran,) = record_events(record(type="user", message={"role": "user", "content": [result]}))
    assert (ran.kind, ran.facts["ok"]) == (EventKind.TOOL_RAN, False)


def test_transcript_reports_a_stop_that_a_hook_blocked() -> None:
    meta = record(type="user", isMeta=True, message={"role": "user", "content": "Stop hook feedback:\nnext"})
    (event,) = record_events(meta)
    assert (event.kind, event.facts["continued"]) == (EventKind.WORKING, True)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "mode"},
        {"type": "user", "message": {"content": "no date"}, "sessionId": "x"},
        record(type="assistant", message="text"),
        record(type="user", message={"content": "x"}, isSidechain=True),
        record(type="api-request", params={}),
    ],
)
def test_other_lines_report_nothing(line: dict[str, Any]) -> None:
    assert record_events(line) == []


# ── diffs ──


def test_edit_is_shown_as_what_it_changes() -> None:
    given = {"file_path": "/a.py", "old_string": "x = 1\ny = 2\n", "new_string": "x = 1\ny = 3\n"}
    diff = edit_diff("Edit", given)
    assert diff is not None
    assert "--- a/a.py" in diff
    assert "-y = 2\n+y = 3\n" in diff


def test_write_is_compared_with_the_file_that_is_there() -> None:
    given = {"file_path": "/a.py", "content": "one\ntwo\n"}
    assert "-zero\n" in (edit_diff("Write", given, lambda _: "zero\ntwo\n") or "")
    assert "+two\n" in (edit_diff("Write", given, lambda _: None) or "")


def test_edit_of_a_readable_file_has_its_line_numbers_and_the_lines_around() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 21))
    given = {"file_path": "/a.py", "old_string": "line 10\n", "new_string": "ten\n"}
    diff = edit_diff("Edit", given, lambda _: text) or ""
    assert "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+ten\n line 11\n" in diff


@pytest.mark.parametrize("text", [None, "other\n", "two\ntwo\n"], ids=["unreadable", "changed", "ambiguous"])
def test_edit_that_does_not_fit_the_file_is_shown_by_itself(text: str | None) -> None:
    given = {"file_path": "/a.py", "old_string": "two\n", "new_string": "2\n"}
    assert "@@ -1 +1 @@\n-two\n+2\n" in (edit_diff("Edit", given, lambda _: text) or "")


@pytest.mark.parametrize("separator", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_diff_shows_a_change_of_any_line_separator(separator: str) -> None:
    """`splitlines` took each for a line end, so that this diff was empty."""
    given = {"file_path": "/a.py", "old_string": "# note\nrun()", "new_string": f"# note{separator}run()"}
    assert edit_diff("Edit", given) is not None
    assert f"+# note<U+{ord(separator):04X}>run()\n" in (edit_diff("Edit", given) or "")


def test_diff_shows_a_line_feed_that_is_dropped_at_the_end() -> None:
    given = {"file_path": "/a", "content": "x"}
    assert "No newline at end of file" in (edit_diff("Write", given, lambda _: "x\n") or "")


def test_diff_of_a_file_in_which_every_other_line_changes_is_complete() -> None:
    """difflib took 3 s for 8,000 such lines, and 4 times as long for twice as many."""
    before = [f"line {number}\n" for number in range(40_000)]
    after = [f"{line[:-1]}!\n" if number % 2 else line for number, line in enumerate(before)]
    given = {"file_path": "/a", "content": "".join(["same\n", *after, "same\n"])}
    diff = edit_diff("Write", given, lambda _: "".join(["same\n", *before, "same\n"]))
    assert diff is not None
    head, *lines = diff.partition("@@ -1,40002 +1,40002 @@\n")[2].splitlines(keepends=True)
    assert head == " same\n"
    assert [line[1:] for line in lines if line[0] in " -"] == [*before, "same\n"]
    assert [line[1:] for line in lines if line[0] in " +"] == [*after, "same\n"]


def test_edit_of_many_places_is_not_carried_out_to_show_it() -> None:
    """It would take 500 GB."""
    given = {"file_path": "/a", "old_string": "a", "new_string": "b" * 1_000_000, "replace_all": True}
    assert "-a\n+bbb" in (edit_diff("Edit", given, lambda _: "a" * 500_000) or "")


def test_what_edits_nothing_or_too_much_has_no_diff() -> None:
    assert edit_diff("Bash", {"command": "ls"}) is None
    assert edit_diff("Write", {"file_path": "/a", "content": "x\n" * (1 << 20)}) is None
