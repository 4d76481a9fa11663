"""What Claude Code's hooks and transcript say of a turn."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from remuda.agents.claude.hooks import read_hook
from remuda.agents.claude.prompting import ClaudePrompts
from remuda.agents.claude.transcript import read_record
from remuda.agents.events import (
    AgentEvent,
    BackgroundStarted,
    CommandRun,
    CommandUnknown,
    ConversationEnded,
    ConversationStarted,
    Failure,
    MessageRecorded,
    PromptRecorded,
    PromptRefused,
    PromptSubmitted,
    Report,
    RestReported,
    Task,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.prompting import Past
from remuda.duration import LONGEST

PROMPTS = ClaudePrompts()
BEGAN = 1_800_000_000.0
USAGE = {"input_tokens": 12, "output_tokens": 7}


def last(report: Report) -> AgentEvent | None:
    """What it says of a turn, which comes last; None if it says nothing of one."""
    event = report.events[-1] if report.events else None
    others = ToolStarted | ToolFinished | ConversationStarted | ConversationEnded | RestReported
    return None if isinstance(event, others) else event


def recorded(record: dict[str, Any]) -> AgentEvent | None:
    report = read_record(record)
    return None if report.subagent else last(report)


def hook(event: str, **fields: Any) -> AgentEvent | None:
    common = {"session_id": "s-1", "transcript_path": "/t.jsonl", "cwd": "/srv", "prompt_id": "p-1"}
    return last(read_hook({**common, "hook_event_name": event, **fields}))


def stamp(after: float = 0.0) -> str:
    return (
        datetime.fromtimestamp(BEGAN + after, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def user(content: Any, after: float = 0.0, **fields: Any) -> dict[str, Any]:
    told = {"type": "user", "promptId": "p-1", "sessionId": "s-1", "timestamp": stamp(after)}
    return {**told, "message": {"role": "user", "content": content}, "isSidechain": False, **fields}


def assistant(text: str, reason: str | None = "end_turn", **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    message = {"id": "m-1", "role": "assistant", "content": content, "stop_reason": reason, "usage": USAGE}
    return {"type": "assistant", "timestamp": stamp(1), "message": message, **fields}


def tool_result() -> dict[str, Any]:
    return user([{"type": "tool_result", "tool_use_id": "t-1", "content": "hi"}], 1)


# ── hooks ──


def test_hook_prompt_submit_is_the_prompt_and_its_id() -> None:
    assert hook("UserPromptSubmit", prompt="do it") == PromptSubmitted("do it", "p-1")
    notice = "<task-notification>\n<task-id>a</task-id>"
    told = PromptSubmitted(notice, "p-1", notice=True, ends=frozenset({"a"}))
    assert hook("UserPromptSubmit", prompt=notice) == told


def test_hook_stop_is_the_answer() -> None:
    stop = hook("Stop", last_assistant_message="done", background_tasks=[], stop_hook_active=False)
    assert stop == TurnStopped("done", "p-1", (), "s-1")


def test_hook_stop_without_an_answer_has_an_empty_one() -> None:
    assert hook("Stop", prompt_id=None, session_id=None) == TurnStopped("", None, (), None)
    assert hook("Stop", last_assistant_message=None) == TurnStopped("", "p-1", (), "s-1")


def test_hook_stop_with_background_tasks_names_their_kinds() -> None:
    running = [{"id": "a", "type": "subagent", "status": "running"}, {"id": "b"}, "nonsense"]
    stop = hook("Stop", last_assistant_message="so far", background_tasks=running)
    assert stop == TurnStopped("so far", "p-1", (Task("a", "subagent"), Task("b", "task")), "s-1")
    shell = hook("Stop", background_tasks=[{"id": "c", "type": "shell"}])
    assert shell == TurnStopped("", "p-1", (Task("c", "shell", is_shell=True),), "s-1")
    assert hook("Stop", background_tasks="nonsense") == TurnStopped("", "p-1", (), "s-1")


@pytest.mark.parametrize(
    ("error", "text", "kind"),
    [
        ("rate_limit", "API Error: Request rejected (429) · fake", Failure.RATE_LIMITED),
        ("overloaded", "", Failure.OVERLOADED),
        ("server_error", "API Error: Repeated 529 Overloaded errors.", Failure.OVERLOADED),
        ("authentication_failed", "Please run /login · API Error: 401", Failure.AUTHENTICATION),
        ("billing_error", "Credit balance is too low", Failure.AUTHENTICATION),
        ("invalid_request", "prompt is too long", Failure.INVALID),
        ("model_not_found", "no such model", Failure.INVALID),
        ("unknown", "API Error: 400 fake invalid_request_error", Failure.INVALID),
        ("unknown", "API Error: 413 too large", Failure.INVALID),
        ("unknown", "API Error: 401 no", Failure.AUTHENTICATION),
        ("unknown", "API Error: 429 slow down", Failure.RATE_LIMITED),
        ("unknown", "API Error: 503 gone", Failure.OVERLOADED),
        ("unknown", "API Error: 408 slow", Failure.OTHER),
        ("unknown", "the network is down", Failure.OTHER),
        (None, "", Failure.OTHER),
    ],
)
def test_hook_stop_failure_is_of_its_kind(error: str | None, text: str, kind: Failure) -> None:
    failed = hook("StopFailure", error=error, last_assistant_message=text)
    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind
    assert failed.text == (text or error or "")
    assert failed.prompt_id == "p-1"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Try again in 30 seconds", 30),
        ("please wait 2s", 2),
        ("retry after 5 min", 300),
        ("Your limit resets in 3 hours.", 10_800),
        ("reset in 1h", 3600),
        ("try again in 2 minutes", 120),
        ("retry after 500ms", None),
        ("wait 2 more times", None),
        ("resets 12 March", None),
        ("Try again in a moment", None),
        ("resets 3pm", None),
        ("try again at 10:30", None),
        ("", None),
    ],
)
def test_hook_stop_failure_delay_is_what_the_text_says(text: str, seconds: float | None) -> None:
    failed = hook("StopFailure", error="rate_limit", last_assistant_message=text)
    assert isinstance(failed, TurnFailed)
    assert failed.retry_after == seconds


def test_hook_of_an_agent_that_was_launched_and_of_its_notice() -> None:
    response = {"isAsync": True, "status": "async_launched", "agentId": "a1"}
    assert hook("PostToolUse", tool_name="Agent", tool_response=response) == BackgroundStarted("a1")
    assert hook("PostToolUse", tool_response=response, agent_id="a0") is None  # a subagent's own
    assert hook("PostToolUse", tool_name="Bash", tool_response={"stdout": "x"}) is None
    notice = "<task-notification>\n<task-id>a1</task-id>\n<status>completed</status>"
    found = hook("UserPromptSubmit", prompt=notice)
    assert isinstance(found, PromptSubmitted)
    assert (found.notice, found.ends) == (True, frozenset({"a1"}))
    quoted = hook("UserPromptSubmit", prompt="what is <task-id>a1</task-id>?")
    assert isinstance(quoted, PromptSubmitted)
    assert (quoted.notice, quoted.ends) == (False, frozenset())


def test_hook_session_start_of_a_clear_reports_that_the_command_ran() -> None:
    cleared = CommandRun("clear", confirmed=True, conversation="s-new")
    assert hook("SessionStart", source="clear", session_id="s-new") == cleared


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("SessionStart", {"source": "startup"}),
        ("SessionStart", {"source": "compact"}),
        ("PreToolUse", {"tool_name": "Bash"}),
        ("SessionEnd", {"reason": "clear"}),
        ("Notification", {"notification_type": "idle_prompt"}),
        ("Nonsense", {}),
    ],
)
def test_hook_of_no_concern_says_nothing(event: str, fields: dict[str, Any]) -> None:
    assert hook(event, **fields) is None


# ── transcript ──


@pytest.mark.parametrize("content", ["do it", [{"type": "text", "text": "do it"}]], ids=["text", "blocks"])
def test_record_of_a_prompt_reports_that_it_is_written_down(content: Any) -> None:
    assert recorded(user(content)) == PromptRecorded("do it", "p-1", "s-1")


def test_record_of_an_interrupt_reports_it() -> None:
    for text in ("[Request interrupted by user]", "[Request interrupted by user for tool use]"):
        assert recorded(user([{"type": "text", "text": text}])) == TurnInterrupted("p-1")


def test_record_of_a_command_reports_its_name() -> None:
    name = "<command-name>/clear</command-name>\n  <command-message>clear</command-message>"
    assert recorded(user(name)) == CommandRun("clear", finished=False)
    custom = "<command-message>review is running</command-message>\n<command-name>/review</command-name>"
    assert recorded(user(custom)) == CommandRun("review", finished=False)
    ran = {"type": "system", "subtype": "local_command", "content": "<local-command-stdout>…"}
    assert recorded(ran) == CommandRun("")


def test_record_of_a_prompt_that_quotes_a_command_is_a_prompt() -> None:
    text = "what does <command-name>/clear</command-name> mean?"
    assert recorded(user(text)) == PromptRecorded(text, "p-1", "s-1")


def test_record_of_a_turns_end_reports_that_all_is_written() -> None:
    assert recorded({"type": "system", "subtype": "turn_duration"}) == TurnRecorded()


def test_record_of_a_prompt_that_a_hook_blocked_reports_why() -> None:
    ending = {"ending": {"kind": "blocked_by_hook", "reason": "not here"}, "promptKept": False}
    record = {"type": "system", "subtype": "informational", "promptSubmitEnding": ending}
    assert recorded(record) == PromptRefused("not here")
    assert recorded({**record, "promptSubmitEnding": {"ending": {"kind": "sent"}}}) is None


def test_record_of_an_answer_reports_it_and_its_cost() -> None:
    assert recorded(assistant("done")) == MessageRecorded("m-1", USAGE, "done", final=True)
    assert recorded(assistant("running", "tool_use")) == MessageRecorded("m-1", USAGE, "running")
    partial = {"type": "assistant", "message": {"id": "m", "usage": None}}
    assert recorded(partial) == MessageRecorded("m", {})


def test_record_of_an_api_error_is_a_failure() -> None:
    failed = assistant("API Error: 400 no", "stop_sequence", isApiErrorMessage=True, error="unknown")
    assert recorded(failed) == TurnFailed(Failure.INVALID, "API Error: 400 no")


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"resetsAt": BEGAN + 7201}, 7200.0),
        ({"resetsAt": BEGAN - 60}, None),  # it is over, and says so again: no one knows for how long
        ({"resetsAt": None}, None),
        ({"resetsAt": True}, None),
        ([], None),
    ],
)
def test_record_of_a_usage_limit_says_how_long_it_lasts(limits: Any, seconds: float | None) -> None:
    text = "You've hit your limit · resets 9pm (UTC)"
    told = {"isApiErrorMessage": True, "error": "rate_limit", "quotaLimits": limits}
    failed = recorded(assistant(text, "stop_sequence", **told))
    assert isinstance(failed, TurnFailed)
    assert (failed.kind, failed.text, failed.retry_after) == (Failure.RATE_LIMITED, text, seconds)


@pytest.mark.parametrize(
    "record",
    [
        tool_result(),
        user("<local-command-caveat>…", isMeta=True),
        user("of a subagent", isSidechain=True),
        {"type": "system", "subtype": "stop_hook_summary"},
        {"type": "assistant"},
        {"type": "assistant", "message": {"usage": USAGE}},
        {"type": "attachment"},
        {},
    ],
)
def test_record_of_no_concern_says_nothing(record: dict[str, Any]) -> None:
    assert recorded(record) is None


def test_output_of_a_command_ends_it_also_as_a_prompt_of_the_user() -> None:
    """As `/compact` is recorded by 2.1.280 to 2.1.315."""
    text = "\x1b[2mCompacted (ctrl+o to see full summary)\x1b[22m"
    told = f"<local-command-stdout>{text}</local-command-stdout>"
    assert recorded(user(told)) == CommandRun("", output=text)
    assert isinstance(recorded(user(f"{told} what does this mean?")), PromptRecorded)


# ── what a transcript proves ──


def past(*records: dict[str, Any], prompt: str = "do it", since: float = BEGAN) -> Past:
    return PROMPTS.past(records, prompt, since)


def answered(text: str) -> Past:
    return Past(True, True, text, "p-1", usages=(USAGE,))


def test_past_nothing_of_it_was_never_submitted() -> None:
    assert past() == Past()
    assert past(user("something else"), assistant("yes")) == Past()


def test_past_prompt_without_an_answer_was_submitted() -> None:
    assert past(user("do it")) == Past(submitted=True, prompt_id="p-1")
    unanswered = past(user("do it"), assistant("running", "tool_use"), tool_result())
    assert unanswered == Past(submitted=True, prompt_id="p-1", usages=(USAGE,))


def test_past_answer_is_the_last_that_ended_its_turn() -> None:
    records = [user("do it"), assistant("running", "tool_use"), tool_result(), assistant("done")]
    assert past(*records) == answered("done")
    more = [user("Stop hook feedback:\ngo on", isMeta=True), assistant("and more")]
    assert past(*records, *more) == answered("and more")


def test_past_answer_that_was_written_before_its_prompt_counts() -> None:
    """As 2.1.280 and 2.1.300 write half of them."""
    prompt = user("do it", uuid="u-2", parentUuid="a-1")
    answer = assistant("done", uuid="a-2", parentUuid="u-2")
    before = [user("earlier", uuid="u-1", parentUuid=None), assistant("then", uuid="a-1", parentUuid="u-1")]
    assert past(*before, answer, prompt) == answered("done")


def test_past_answer_to_the_next_prompt_is_not_its_own() -> None:
    assert past(user("do it"), user("a human's"), assistant("to the human")) == Past(
        submitted=True, prompt_id="p-1"
    )
    assert past(user("do it"), assistant("done"), user("do it"), assistant("again")).text == "done"


def test_past_usage_is_that_of_its_own_messages_each_counted_once() -> None:
    def used(message_id: str, tokens: int, stop: str) -> dict[str, Any]:
        record = assistant("done", stop)
        record["message"] |= {"id": message_id, "usage": {"output_tokens": tokens}}
        return record

    tools = [used("m-1", 1, "tool_use"), used("m-1", 5, "tool_use"), tool_result()]
    found = past(user("do it"), *tools, used("m-2", 7, "end_turn"), user("next"), used("m-3", 9, "end_turn"))
    assert found.usages == ({"output_tokens": 5}, {"output_tokens": 7})


def test_past_notice_to_itself_is_no_next_prompt() -> None:
    records = [user("do it"), assistant("so far"), user("<task-notification>x"), assistant("done")]
    assert past(*records).text == "done"


def test_past_summary_of_a_conversation_that_was_compacted_is_no_next_prompt() -> None:
    summary = user("This session is being continued from before: …", 1, isCompactSummary=True, promptId="p-2")
    assert recorded(summary) is None
    records = [user("do it"), assistant("running", "tool_use"), tool_result(), summary, assistant("done")]
    assert past(*records) == answered("done")


def test_past_words_of_a_subagent_do_not_count() -> None:
    records = [user("do it"), user("do it", isSidechain=True), assistant("sub", isSidechain=True)]
    assert past(*records) == Past(submitted=True, prompt_id="p-1")


def test_past_api_error_is_no_answer() -> None:
    failed = assistant("API Error: 529", "stop_sequence", isApiErrorMessage=True)
    assert past(user("do it"), failed) == Past(submitted=True, prompt_id="p-1")


def test_past_what_the_cli_itself_writes_on_resuming_is_no_answer() -> None:
    written = assistant("No response requested.", "stop_sequence")
    written["message"]["model"] = "<synthetic>"
    found = past(user("do it"), written)
    assert (found.submitted, found.answered) == (True, False)


def test_past_interrupt_is_reported_unless_it_was_answered_before() -> None:
    interrupt = user("[Request interrupted by user]")
    assert past(user("do it"), interrupt) == Past(True, False, "", "p-1", True)
    assert past(user("do it"), assistant("done"), interrupt) == answered("done")


def test_past_same_words_of_an_earlier_time_are_another_prompt() -> None:
    assert past(user("do it", -60), assistant("long ago")) == Past()
    assert past(user("do it", -60), assistant("long ago"), user("do it", 1), assistant("now")).text == "now"


def test_past_undated_record_is_an_earlier_one() -> None:
    assert past(user("do it", timestamp="nonsense")) == Past()


def test_past_prompt_is_known_again_as_it_was_taken() -> None:
    assert past(user("  do    it"), prompt="do\tit\u200b\r\n").submitted


# ── the account ──


def test_account_is_the_same_for_the_same_home_service_and_credential() -> None:
    env = {"HOME": "/h", "ANTHROPIC_API_KEY": "sk-secret", "PATH": "/bin"}
    name = PROMPTS.account(env)
    assert name == PROMPTS.account({**env, "PATH": "/usr/bin"})
    assert "secret" not in name
    others = [
        {**env, "HOME": "/other"},
        {**env, "CLAUDE_CONFIG_DIR": "/c"},
        {**env, "ANTHROPIC_BASE_URL": "http://gateway"},
        {**env, "ANTHROPIC_API_KEY": "sk-other"},
        {"HOME": "/h"},
    ]
    assert len({name, *(PROMPTS.account(other) for other in others)}) == 1 + len(others)


def test_record_of_an_unknown_command_names_it() -> None:
    record = {"type": "system", "subtype": "informational", "content": "Unknown command: /x1-y:z"}
    assert recorded(record) == CommandUnknown("x1-y:z")
    assert recorded({**record, "content": "Args from unknown skill: k"}) is None


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000, "99999999999999999999"])
def test_failure_that_names_an_endless_delay_has_a_finite_one(digits: str) -> None:
    text = f"API Error: 429 retry after {digits} seconds"
    record = {"type": "assistant", "isApiErrorMessage": True, "message": {"content": text}}
    signal = recorded(record)
    assert isinstance(signal, TurnFailed)
    assert signal.retry_after == LONGEST


@pytest.mark.parametrize("reset", [math.inf, math.nan, 10**400, -1, "soon"], ids=range(5))
def test_failure_with_a_reset_that_is_no_time_is_read(reset: object) -> None:
    record = {
        "type": "assistant",
        "isApiErrorMessage": True,
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"content": "API Error: 429"},
        "quotaLimits": {"resetsAt": reset},
    }
    signal = recorded(record)
    assert isinstance(signal, TurnFailed)
    assert signal.retry_after is None
