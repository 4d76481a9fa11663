"""The state of an agent that reports each step."""

from __future__ import annotations

import pytest

from remuda.agents.events import (
    AgentEvent,
    CommandRun,
    ConversationStarted,
    DialogReported,
    Failure,
    PermissionDecided,
    PermissionRequested,
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
from remuda.agents.state import Source
from support.mustang.agent import MustangPrompts, StableTransport

_START = [ConversationStarted("startup"), PromptSubmitted("go", "t")]
_TOOL = [*_START, ToolStarted("hoof", {}, "k")]
_ASKED = [*_TOOL, PermissionRequested("hoof", {}, id="k")]
_STOP, _NEXT = TurnStopped("done", "t"), PromptSubmitted("next", "u")


def observer() -> EventObserver:
    return EventObserver(MustangPrompts(StableTransport()))


def last_state(*events: AgentEvent) -> str | None:
    """Return what the last of these events votes for."""
    one = observer()
    votes = [one.take(Report(Source.HOOK, "note", (event,)), 1.0, 1.0) for event in events]
    return str(votes[-1][0].state) if votes[-1] else None


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (_START[:1], "idle"),
        (_START, "thinking"),
        ([*_START, ConversationStarted("compact")], None),
        ([*_START, TextShown("m", 0, "hi")], "streaming"),
        ([TextShown("m", 0, "late")], None),
        (_TOOL, "tool_use"),
        ([*_TOOL, TextShown("m", 0, "hi")], None),
        (_ASKED, "waiting_permission"),
        ([*_TOOL, PermissionRequested("q", {}, "question", id="q")], "waiting_answer"),
        ([*_ASKED, PermissionDecided("k")], "tool_use"),
        ([*_ASKED, PermissionDecided("k"), ToolFinished("k", ok=True)], "thinking"),
        ([*_ASKED, PermissionRequested("hoof", {}, id="l"), PermissionDecided("l")], "waiting_permission"),
        ([*_ASKED, TurnStopped("done", "t")], "idle"),
        ([*_ASKED, TurnInterrupted("t")], "interrupted"),
        ([*_START, TurnFailed(Failure.RATE_LIMITED, "later")], "limited"),
        ([*_START, TurnFailed(Failure.OTHER, "no")], "error"),
        ([CommandRun("graze")], "idle"),
        ([DialogReported("permission", "may I", "box")], "waiting_permission"),
        ([TurnStopped("done", "t"), ToolFinished("late", ok=True)], None),
        ([*_START, _STOP, PermissionRequested("hoof", {}, id="late")], None),
        ([*_START, _STOP, PermissionRequested("hoof", {}, id="late"), _NEXT], "thinking"),
        ([*_START, _STOP, ToolStarted("hoof", {}, "late"), _NEXT], "thinking"),
        ([*_ASKED, PromptSubmitted("meanwhile", "u")], "waiting_permission"),
        ([_STOP, DialogReported("question", "which", "box"), PermissionDecided("")], "idle"),
        ([*_TOOL, DialogReported("question", "which", "box"), PermissionDecided("")], "tool_use"),
        ([_STOP, PermissionDecided("k")], None),
    ],
)
def test_state_follows_the_events(events: list[AgentEvent], state: str | None) -> None:
    assert last_state(*events) == state


def test_dialog_that_only_the_screen_shows_counts_until_it_is_closed() -> None:
    one = observer()
    assert one.screen(["saddle> "], 1.0) == []
    assert [str(vote.state) for vote in one.screen(["?? may I kick: it ??"], 2.0)] == ["waiting_answer"]
    assert one.screen(["?? may I kick: it ??"], 3.0) == []
    assert [str(vote.state) for vote in one.screen(["saddle> "], 4.0)] == ["idle"]


def test_report_of_a_subagent_changes_nothing_and_names_no_conversation() -> None:
    one = observer()
    report = Report(
        Source.HOOK, "note", (PromptSubmitted("go"),), subagent="foal", conversation={"session_id": "x"}
    )
    assert one.take(report, 1.0, 1.0) == []
    assert one.conversation == {}
