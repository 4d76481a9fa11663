"""Reading a running Claude Code: payloads, records and screens as 2.1.325 makes them, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.hooks import read_hook
from remuda.agents.claude.observer import ClaudeObserver
from remuda.agents.progress import Progress
from remuda.agents.state import RESTING, Evidence, Source, State, Vote

SESSION = "e7ee3548-66c3-49fb-a181-168dfb40ab78"
BASE = {
    "session_id": SESSION,
    "transcript_path": f"/home/dev/.claude/projects/-srv-demo/{SESSION}.jsonl",
    "cwd": "/srv/demo",
}
RULE = "─" * 40
COMPOSER = [RULE, "❯", RULE, "  ⏸ manual mode on"]
TRUST = ["do you trust this folder?", " ❯ 1. Yes", "   2. No, exit", " Enter to confirm"]
DIALOG = [" Do you want to proceed?", " ❯ 1. Yes", "   2. No", " Esc to cancel"]
WALL = 1_794_722_289.0


class Watched:
    """An observer whose votes are counted, on a clock that goes on by a second with each."""

    def __init__(self, *, has_screen: bool = True) -> None:
        self.observer = ClaudeObserver(42, {"HOME": "/home/dev"}, has_screen=has_screen)
        self.evidence = Evidence.starting(0.0)
        self.now = 0.0

    def _take(self, votes: list[Vote]) -> list[Vote]:
        for vote in votes:
            self.evidence.record(vote)
        return votes

    def _tick(self) -> float:
        self.now += 1.0
        return self.now

    def hook(self, event: str, **more: Any) -> list[Vote]:
        report = read_hook({**BASE, "hook_event_name": event, **more})
        return self._take(self.observer.take(report, self._tick(), WALL))

    def title(self, title: str) -> list[Vote]:
        return self._take(self.observer.title(title, self._tick()))

    def screen(self, lines: list[str]) -> list[Vote]:
        return self._take(self.observer.screen(lines, self._tick()))

    def registry(self, status: str, ago: float = 0.0, **more: Any) -> list[Vote]:
        now = self._tick()
        document = {"status": status, "statusUpdatedAt": (WALL + now - ago) * 1000, **more}
        report = self.observer.read_registry(document)
        return self._take(self.observer.take(report, now, WALL + now))

    def transcript(self, record: Mapping[str, Any]) -> list[Vote]:
        now = self._tick()
        report = self.observer.read_record(record)
        return self._take(self.observer.take(report, now, WALL + now))

    def state(self) -> State:
        return self.evidence.verdict.state

    def source(self) -> Source:
        return self.evidence.verdict.source


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def at_work(watched: Watched) -> Watched:
    """In the middle of a turn."""
    watched.hook("SessionStart", source="startup", model="claude-sonnet-5-5")
    watched.screen(COMPOSER)
    watched.hook("UserPromptSubmit", prompt="plain hello")
    assert watched.state() is State.THINKING
    return watched


# ── start ──


def test_start_is_idle_when_its_composer_is_drawn_and_not_before(watched: Watched) -> None:
    watched.hook("SessionStart", source="startup", model="claude-sonnet-5-5")
    watched.registry("idle")
    watched.title("✳ Claude Code")
    assert watched.state() is State.STARTING
    watched.screen(COMPOSER)
    assert (watched.state(), watched.source()) == (State.IDLE, Source.SCREEN)


def test_start_without_a_screen_model_is_idle_by_its_hook() -> None:
    watched = Watched(has_screen=False)
    watched.hook("SessionStart", source="startup")
    assert (watched.state(), watched.source()) == (State.IDLE, Source.HOOK)


def test_start_after_the_trust_dialog_waits_for_an_answer(watched: Watched) -> None:
    watched.screen(TRUST)
    assert (watched.state(), watched.evidence.verdict.detail) == (State.WAITING_ANSWER, "trust dialog")
    watched.screen(COMPOSER)
    assert watched.state() is not State.WAITING_ANSWER


def test_session_start_of_a_compaction_does_not_end_the_turn(at_work: Watched) -> None:
    assert at_work.hook("SessionStart", source="compact") == []
    assert at_work.state() is State.THINKING


def test_session_start_of_a_clear_is_idle_at_once(at_work: Watched) -> None:
    at_work.hook("SessionStart", source="clear")
    assert at_work.state() is State.IDLE


# ── a turn ──


def test_turn_with_a_tool_goes_through_its_states(at_work: Watched) -> None:
    seen = []
    steps: list[tuple[str, dict[str, Any]]] = [
        ("MessageDisplay", {"delta": "I will", "final": True}),
        ("PreToolUse", {"tool_name": "Bash", "tool_use_id": "t1"}),
        ("PermissionRequest", {"tool_name": "Bash"}),
        ("PostToolUse", {"tool_name": "Bash", "tool_use_id": "t1"}),
        ("MessageDisplay", {"delta": "Done", "final": True}),
        ("Stop", {"stop_hook_active": False, "background_tasks": []}),
    ]
    for event, more in steps:
        at_work.hook(event, **more)
        seen.append(at_work.state().value)
    assert seen == ["streaming", "tool_use", "waiting_permission", "thinking", "streaming", "idle"]
    assert at_work.evidence.verdict.detail == "Stop"


def test_tools_in_parallel_are_in_use_until_the_last_ends(at_work: Watched) -> None:
    for number in ("t1", "t2"):
        at_work.hook("PreToolUse", tool_name="Bash", tool_use_id=number)
    at_work.hook("PostToolUseFailure", tool_name="Bash", tool_use_id="t1")
    assert at_work.state() is State.TOOL_USE
    at_work.hook("PostToolUse", tool_name="Bash", tool_use_id="t2")
    assert at_work.state() is State.THINKING


def test_message_after_the_stop_of_its_turn_changes_nothing(at_work: Watched) -> None:
    at_work.hook("Stop")
    assert at_work.hook("MessageDisplay", delta="late") == []
    assert at_work.state() is State.IDLE


def test_message_after_the_registry_reported_rest_changes_nothing_until_the_next_prompt(
    at_work: Watched,
) -> None:
    """Where no Stop comes, nothing would ever end what it says."""
    at_work.registry("idle")
    at_work.hook("MessageDisplay", delta="late")
    assert at_work.state() is State.IDLE
    at_work.hook("UserPromptSubmit")
    at_work.hook("MessageDisplay", delta="next")
    assert at_work.state() is State.STREAMING


def test_message_heard_between_the_rest_and_the_registry_s_word_of_it_does_not_last(at_work: Watched) -> None:
    at_work.hook("MessageDisplay", delta="late")
    at_work.registry("idle", ago=1.5)
    assert (at_work.state(), at_work.evidence.dissent()) == (State.IDLE, [])


def test_message_of_a_turn_outlasts_the_rest_before_its_prompt(at_work: Watched) -> None:
    at_work.hook("MessageDisplay", delta="new")
    at_work.registry("idle", ago=2.5)
    assert at_work.state() is State.STREAMING


def test_message_after_the_tool_that_it_announces_changes_nothing(at_work: Watched) -> None:
    at_work.hook("PreToolUse", tool_name="Bash", tool_use_id="t1")
    at_work.hook("MessageDisplay", delta="late")
    assert at_work.state() is State.TOOL_USE


def test_question_of_the_agent_waits_for_an_answer(at_work: Watched) -> None:
    at_work.hook("PermissionRequest", tool_name="AskUserQuestion")
    assert at_work.state() is State.WAITING_ANSWER


def test_open_dialog_of_the_registry_outlasts_other_tools(at_work: Watched) -> None:
    at_work.hook("PreToolUse", tool_name="Bash", tool_use_id="t1")
    at_work.hook("PermissionRequest", tool_name="Bash")
    at_work.registry("waiting", waitingFor="permission prompt")
    at_work.hook("PreToolUse", tool_name="Read", tool_use_id="t2")
    at_work.hook("PostToolUse", tool_name="Read", tool_use_id="t2")
    assert at_work.state() is State.WAITING_PERMISSION
    at_work.registry("busy")
    assert at_work.state() is State.TOOL_USE


@pytest.mark.parametrize(
    ("error", "wanted"),
    [("rate_limit", State.LIMITED), ("invalid_request", State.ERROR), ("unknown", State.ERROR)],
)
def test_stop_failure_is_an_error_or_a_limit(at_work: Watched, error: str, wanted: State) -> None:
    at_work.hook("StopFailure", error=error, last_assistant_message="API Error: 4xx " + "x" * 500)
    assert at_work.state() is wanted
    assert at_work.evidence.verdict.detail.startswith("StopFailure API Error")
    assert len(at_work.evidence.verdict.detail) == 200
    at_work.registry("idle")
    at_work.title("✳ Claude Code")
    assert at_work.state() is wanted, "rest confirms it"


def test_stop_with_background_tasks_says_so(at_work: Watched) -> None:
    at_work.hook("Stop", background_tasks=[{"id": 1}, {"id": 2}])
    assert (at_work.state(), at_work.evidence.verdict.detail) == (
        State.IDLE,
        "Stop, 2 background tasks run on",
    )


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("permission_prompt", State.WAITING_PERMISSION),
        ("agent_needs_input", State.WAITING_ANSWER),
        ("idle_prompt", State.IDLE),
        ("auth_success", State.THINKING),
    ],
)
def test_notification_is_read_by_its_type(at_work: Watched, kind: str, wanted: State) -> None:
    at_work.hook("Notification", notification_type=kind)
    assert at_work.state() is wanted


def test_notification_that_another_session_needs_input_changes_nothing(at_work: Watched) -> None:
    at_work.hook("Notification", notification_type="agent_needs_input", message="other needs your input")
    assert at_work.state() is State.THINKING


_NOTICE = {"notification_type": "permission_prompt", "message": "Claude needs your permission"}
_BASH = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t1"}


@pytest.mark.parametrize("kind", ["permission_prompt", "agent_needs_input", "elicitation_dialog"])
@pytest.mark.parametrize("over", ["Stop", "StopFailure", "interrupt"])
def test_dialog_notice_after_the_end_of_its_turn_changes_nothing(
    at_work: Watched, over: str, kind: str
) -> None:
    at_work.hook("PreToolUse", **_BASH)
    at_work.hook("PermissionRequest", **_BASH)
    at_work.transcript(interrupted()) if over == "interrupt" else at_work.hook(over)
    rests = at_work.state()
    assert rests in RESTING
    at_work.hook("Notification", notification_type=kind)
    assert at_work.state() is rests


def test_dialog_notice_after_its_dialog_was_closed_changes_nothing(at_work: Watched) -> None:
    at_work.hook("PreToolUse", **_BASH)
    at_work.hook("PermissionRequest", **_BASH)
    at_work.registry("waiting", waitingFor="permission prompt")
    at_work.hook("Notification", **_NOTICE)
    assert at_work.state() is State.WAITING_PERMISSION
    at_work.registry("busy")
    at_work.hook("Notification", **_NOTICE)
    assert at_work.state() is State.TOOL_USE
    at_work.registry("idle")  # interrupted before anything was recorded
    at_work.hook("Notification", **_NOTICE)
    assert at_work.state() is State.IDLE


def test_permission_request_after_the_end_of_its_turn_changes_nothing(at_work: Watched) -> None:
    at_work.hook("PreToolUse", **_BASH)
    at_work.transcript(interrupted())
    at_work.hook("PermissionRequest", **_BASH)
    assert at_work.state() is State.INTERRUPTED


def test_dialog_of_a_subagent_after_the_stop_is_open(at_work: Watched) -> None:
    at_work.hook("Stop", background_tasks=[{"id": 1}])
    at_work.hook("PermissionRequest", agent_id="s1", **_BASH)
    assert at_work.state() is State.WAITING_PERMISSION
    at_work.registry("waiting", waitingFor="permission prompt")
    at_work.hook("Notification", **_NOTICE)
    assert at_work.state() is State.WAITING_PERMISSION


def test_rest_notice_of_the_turn_before_does_not_end_this_one(at_work: Watched) -> None:
    at_work.registry("idle")
    at_work.hook("UserPromptSubmit", prompt="next")
    at_work.registry("busy")
    at_work.hook("Notification", notification_type="idle_prompt")
    assert at_work.state() is State.THINKING


@pytest.mark.parametrize("end_is_late", [False, True])
def test_hook_of_the_conversation_before_a_clear_changes_nothing(at_work: Watched, end_is_late: bool) -> None:
    new = {"session_id": "new", "transcript_path": "/new.jsonl"}
    for event in ("SessionStart", "SessionEnd") if end_is_late else ("SessionEnd", "SessionStart"):
        at_work.hook(event, source="clear", reason="clear", **(new if event == "SessionStart" else {}))
    at_work.hook("UserPromptSubmit", prompt="hello", **new)
    for late in ("Stop", "PermissionRequest", "MessageDisplay"):
        at_work.hook(late, **_BASH)
    assert at_work.state() is State.THINKING
    assert at_work.observer.conversation["transcript_path"] == "/new.jsonl"
    at_work.hook("SessionEnd", reason="resume", **new)
    at_work.hook("SessionStart", source="resume")
    assert at_work.observer.conversation["session_id"] == SESSION, "the user went back to it"


@pytest.mark.parametrize("start_is_lost", [False, True])
def test_prompt_shows_that_an_ended_conversation_goes_on(at_work: Watched, start_is_lost: bool) -> None:
    at_work.hook("Stop")
    for event in ("SessionEnd",) if start_is_lost else ("SessionStart", "SessionEnd"):
        at_work.hook(event, source="resume", reason="resume")
    at_work.hook("UserPromptSubmit", prompt="next")
    at_work.hook("PreToolUse", **_BASH)
    at_work.hook("PermissionRequest", **_BASH)
    assert at_work.state() is State.WAITING_PERMISSION
    at_work.hook("Stop")
    assert at_work.state() is State.IDLE


@pytest.mark.parametrize("payload", [{}, {"hook_event_name": "Odd"}, {"hook_event_name": None}])
def test_hook_that_is_unknown_says_nothing(watched: Watched, payload: dict[str, Any]) -> None:
    assert watched.observer.take(read_hook(payload), 1.0, WALL) == []


# ── what no hook reports ──


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"hook_event_name": "MessageDisplay", "delta": "a line\n", "final": False}, "a line\n"),
        ({"hook_event_name": "MessageDisplay", "delta": None}, ""),
        ({"hook_event_name": "MessageDisplay"}, ""),
        ({"hook_event_name": "Stop", "delta": "x"}, ""),
    ],
)
def test_text_that_appears_is_reported_by_its_hook_alone(payload: dict[str, Any], text: str) -> None:
    assert Progress().take(read_hook(payload))[0] == text


def interrupted(text: str = "[Request interrupted by user]") -> dict[str, Any]:
    return {
        "type": "user",
        "isSidechain": False,
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
    }


def test_interrupt_is_read_from_the_transcript(at_work: Watched) -> None:
    at_work.transcript(interrupted("[Request interrupted by user for tool use]"))
    assert (at_work.state(), at_work.source()) == (State.INTERRUPTED, Source.TRANSCRIPT)
    assert at_work.hook("MessageDisplay", delta="late") == []


def test_interrupt_that_is_written_after_rest_was_seen_refines_it(at_work: Watched) -> None:
    at_work.registry("idle")
    assert at_work.state() is State.IDLE
    now = at_work.now + 1
    stamp = datetime.fromtimestamp(WALL + now - 1.5, UTC).isoformat()  # before the registry's idle
    report = at_work.observer.read_record({**interrupted(), "timestamp": stamp})
    votes = at_work.observer.take(report, now, WALL + now)
    assert votes[0].at < at_work.evidence.verdict.since
    at_work.evidence.record(votes[0])
    assert at_work.state() is State.INTERRUPTED


def test_interrupt_in_the_millisecond_of_the_result_before_it_counts(at_work: Watched) -> None:
    at_work.hook("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="t1")
    content = [{"type": "tool_result", "tool_use_id": "t1", "is_error": True}]
    stamp = datetime.fromtimestamp(WALL + at_work.now + 1, UTC).isoformat()
    now = at_work.now + 1.001
    rejected = {**interrupted(), "message": {"role": "user", "content": content}}
    for record, late in ((rejected, 0.0), (interrupted(), 0.000_001)):  # the clocks are not read at once
        report = at_work.observer.read_record({**record, "timestamp": stamp})
        for vote in at_work.observer.take(report, now, WALL + now + late):
            at_work.evidence.record(vote)
    assert at_work.state() is State.INTERRUPTED


def test_interrupt_of_a_subagent_is_not_ours(at_work: Watched) -> None:
    assert at_work.transcript({**interrupted(), "isSidechain": True}) == []


def test_prompt_that_quotes_an_interrupt_is_none(at_work: Watched) -> None:
    assert at_work.transcript(interrupted("what does [Request interrupted by user] mean?")) == []


@pytest.mark.parametrize(
    ("status", "wanted"), [(400, State.ERROR), (429, State.LIMITED), (None, State.ERROR)]
)
def test_api_error_of_the_transcript_reports_where_hooks_are_off(
    watched: Watched, status: int | None, wanted: State
) -> None:
    record = {"type": "assistant", "isApiErrorMessage": True, "apiErrorStatus": status}
    watched.transcript({**record, "message": {"content": [{"type": "text", "text": "API Error: no"}]}})
    assert (watched.state(), watched.evidence.verdict.detail) == (wanted, "API Error: no")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"type": "user"},
        {"type": "user", "message": None},
        {"type": "user", "message": {"content": 3}},
        {"type": "user", "message": {"content": ["x", {"no": "text"}]}},
        {"type": "user", "message": {"content": "hello"}, "timestamp": "not a date"},
        {"type": "mode", "mode": "normal"},
    ],
)
def test_transcript_of_any_other_record_says_nothing(watched: Watched, record: dict[str, Any]) -> None:
    assert watched.transcript(record) == []


# ── registry ──


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("permission prompt", State.WAITING_PERMISSION),
        ("input needed", State.WAITING_ANSWER),
        ("dialog open", State.WAITING_ANSWER),
        ("something new", State.WAITING_ANSWER),
    ],
)
def test_registry_waiting_reports_for_what(at_work: Watched, reason: str, wanted: State) -> None:
    at_work.registry("waiting", waitingFor=reason)
    assert (at_work.state(), at_work.source()) == (wanted, Source.REGISTRY)


def test_registry_with_a_shell_in_the_background_is_rest(at_work: Watched) -> None:
    at_work.registry("shell")
    assert at_work.state() is State.IDLE


def test_registry_that_reports_the_turn_before_changes_nothing(at_work: Watched) -> None:
    at_work.registry("idle", ago=5.0)
    assert at_work.state() is State.THINKING


def test_registry_dated_in_the_future_counts_as_now(at_work: Watched) -> None:
    (vote,) = at_work.registry("idle", ago=-100.0)
    assert vote.at == at_work.now


@pytest.mark.parametrize("late", [0.000_001, 0.02], ids=["microsecond", "busy-machine"])
def test_registry_at_rest_in_the_millisecond_in_which_it_was_busy_is_at_rest(
    at_work: Watched, late: float
) -> None:
    at_work.registry("busy")
    now = at_work.now + 0.0005
    document = {"status": "idle", "statusUpdatedAt": (WALL + at_work.now) * 1000}
    report = at_work.observer.read_registry(document)
    for vote in at_work.observer.take(report, now, WALL + now + late):  # the clocks are not read at once
        at_work.evidence.record(vote)
    assert at_work.state() is State.IDLE
    assert not at_work.evidence.dissent()


def test_registry_with_an_older_date_than_before_is_ignored(at_work: Watched) -> None:
    at_work.registry("idle")
    at_work.registry("busy", ago=1.5)
    assert at_work.state() is State.IDLE
    assert not at_work.evidence.dissent()


def test_registry_after_the_clock_was_set_back_counts(at_work: Watched) -> None:
    at_work.registry("busy")
    now = at_work.now + 1
    report = at_work.observer.read_registry({"status": "idle", "statusUpdatedAt": (WALL - 3600) * 1000})
    for vote in at_work.observer.take(report, now, WALL - 3600 + 0.001):
        at_work.evidence.record(vote)
    assert at_work.state() is State.IDLE
    assert not at_work.evidence.dissent()


@pytest.mark.parametrize("document", [{}, {"status": "odd"}, {"status": None, "statusUpdatedAt": "x"}])
def test_registry_of_unknown_status_says_nothing(watched: Watched, document: dict[str, Any]) -> None:
    assert watched.observer.take(watched.observer.read_registry(document), 1.0, WALL) == []


# ── title and screen ──


@pytest.mark.parametrize("mark", ["◐", "◓", "⠂", "⠐"])
def test_title_with_a_busy_mark_is_work(watched: Watched, mark: str) -> None:
    watched.screen(COMPOSER)
    watched.title(f"{mark} Claude Code")
    assert (watched.state(), watched.source()) == (State.THINKING, Source.TITLE)


def test_title_at_rest_cannot_distinguish_idle_from_waiting(at_work: Watched) -> None:
    at_work.hook("PreToolUse", tool_name="Bash", tool_use_id="t1")
    at_work.title("✳ Claude Code")
    assert at_work.state() is State.TOOL_USE, "a tool that waits for leave shows rest as well"
    at_work.hook("PermissionRequest", tool_name="Bash")
    at_work.title("✳ Claude Code")
    assert at_work.state() is State.WAITING_PERMISSION


@pytest.mark.parametrize("title", ["", "vim", "user@host"])
def test_title_of_another_program_says_nothing(watched: Watched, title: str) -> None:
    assert watched.title(title) == []


def test_tokens_that_grow_are_streaming(at_work: Watched) -> None:
    at_work.screen(["✻ Thinking… (1s · ↓ 5 tokens)"])
    assert at_work.state() is State.THINKING
    at_work.screen(["✻ Thinking… (2s · ↓ 36 tokens)"])
    assert (at_work.state(), at_work.source()) == (State.STREAMING, Source.SCREEN)
    at_work.screen(["● done"])
    assert at_work.evidence.votes[Source.SCREEN].detail == "no spinner"


def test_spinner_that_goes_after_the_dialog_was_drawn_does_not_close_the_dialog(at_work: Watched) -> None:
    """Seen on a busy machine, before the registry was read: the screen then said idle for good."""
    spinner = "✻ Thinking… (1s · ↓ 5 tokens)"
    at_work.screen([spinner])
    at_work.screen([spinner, *DIALOG])
    at_work.screen(DIALOG)
    assert at_work.evidence.votes[Source.SCREEN].state is State.WAITING_ANSWER
    assert at_work.evidence.dissent() == []


def test_tokens_after_the_stop_change_nothing(at_work: Watched) -> None:
    at_work.screen(["✻ Thinking… (1s · ↓ 5 tokens)"])
    at_work.hook("Stop")
    at_work.screen(["✻ Thinking… (2s · ↓ 36 tokens)"])
    assert at_work.state() is State.IDLE


def test_tokens_on_the_screen_after_the_registry_reported_rest_change_nothing(watched: Watched) -> None:
    """Without hooks no later report would correct that: no message was delivered any more."""
    watched.screen(COMPOSER)
    for tokens in (5, 41):
        watched.registry("busy")
        watched.screen([f"✻ Thinking… (1s · ↓ {tokens} tokens)"])
        watched.screen([f"✻ Thinking… (2s · ↓ {tokens + 1} tokens)"])
        assert watched.state() is State.STREAMING
        watched.registry("idle")
        watched.title("✳ Claude Code")
        watched.screen([f"✻ Thinking… (2s · ↓ {tokens + 9} tokens)"])
        watched.screen(COMPOSER)
        assert (watched.state(), watched.evidence.dissent()) == (State.IDLE, [])


def test_dialog_on_the_screen_is_reported_once_and_when_closed(at_work: Watched) -> None:
    assert [vote.detail for vote in at_work.screen(DIALOG)] == ["dialog"]
    assert at_work.state() is State.WAITING_ANSWER
    assert at_work.screen(DIALOG) == []
    assert [vote.detail for vote in at_work.screen(COMPOSER)] == ["dialog closed"]


def test_dialog_drawn_after_the_title_moved_once_more_is_still_for_permission(at_work: Watched) -> None:
    """Hooks are slow on a busy machine: what registry and title tell may be older, and come later."""
    at_work.hook("PreToolUse", tool_name="Bash", tool_use_id="t")
    at_work.hook("PermissionRequest", tool_name="Bash")
    at_work.title("◐ Claude Code")
    at_work.title("✳ Claude Code")
    at_work.registry("waiting", ago=6.0, waitingFor="permission prompt")
    at_work.screen(DIALOG)
    assert at_work.state() is State.WAITING_PERMISSION


def test_dialog_after_the_turn_that_asked_for_permission_is_another(at_work: Watched) -> None:
    at_work.hook("PreToolUse", tool_name="Bash", tool_use_id="t")
    at_work.hook("PermissionRequest", tool_name="Bash")
    at_work.hook("PostToolUse", tool_name="Bash", tool_use_id="t")
    at_work.hook("Stop")
    at_work.screen(DIALOG)
    assert at_work.state() is State.WAITING_ANSWER


def test_dialog_that_a_hook_reported_stays_what_the_hook_said(at_work: Watched) -> None:
    at_work.hook("PermissionRequest", tool_name="Bash")
    at_work.screen(DIALOG)
    assert (at_work.state(), at_work.source()) == (State.WAITING_PERMISSION, Source.HOOK)


# ── the conversation, and where to look ──


def test_conversation_is_what_the_hooks_name(watched: Watched) -> None:
    assert watched.observer.transcript_path() is None
    watched.hook("SessionStart", source="startup", model="claude-sonnet-5-5", cwd=3)
    wanted = {key: BASE[key] for key in ("session_id", "transcript_path")}
    assert watched.observer.conversation == {**wanted, "model": "claude-sonnet-5-5"}
    assert watched.observer.transcript_path() == Path(BASE["transcript_path"])


def test_conversation_of_the_registry_counts_only_where_no_hook_spoke(watched: Watched) -> None:
    watched.registry("idle", sessionId="from-registry")
    assert watched.observer.conversation == {"session_id": "from-registry"}
    watched.hook("Stop")
    watched.registry("idle", sessionId="from-registry")
    assert watched.observer.conversation["session_id"] == SESSION


def test_registry_path_follows_the_process_that_runs_the_hooks(watched: Watched) -> None:
    assert watched.observer.registry_path() == Path("/home/dev/.claude/sessions/42.json")
    watched.hook("SessionStart", source="startup", claude_pid=77)
    assert watched.observer.registry_path() == Path("/home/dev/.claude/sessions/77.json")
    watched.hook("Stop", claude_pid=0)
    assert watched.observer.registry_path() == Path("/home/dev/.claude/sessions/77.json")


def test_registry_path_follows_the_config_folder() -> None:
    observer = ClaudeObserver(42, {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/moved"}, has_screen=True)
    assert observer.registry_path() == Path("/moved/sessions/42.json")
