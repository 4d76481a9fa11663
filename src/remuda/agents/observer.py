"""The state of an agent that reports each step itself, over a call channel or by hooks.

A reducer over `agents/events`, for agents whose reports can be taken as they come. An agent that reports
less, late or twice has an observer of its own (`agents/claude/observer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .events import (
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
from .prompting import PromptProtocol
from .state import WAITING, Source, State, Vote

_NOT_WAITING = frozenset(State) - WAITING


class AsWritten:
    """The order of records that are written as they follow from each other."""

    hold_seconds = 0.0
    holds = False

    def take(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        return [record]

    def flush(self) -> list[dict[str, Any]]:
        return []


class RecordDates:
    """Turns the dates in a file into times on the clock of the votes.

    Dates have milliseconds, and two clocks are read, one after the other, to convert one. So a record could
    come out older than the one before it, of the same millisecond. Claude Code's `idle` after `busy` was
    dropped then, and the session was never ready again: after 6 of 53 denials that ended a turn (scripted
    agent). What is read later and is not dated earlier is never older here.
    """

    def __init__(self) -> None:
        self._last = self._last_at = float("-inf")

    def date(self, epoch: float | None, at: float, wall: float) -> float:
        """Return when it happened, from its date in seconds: `at` without one, or with one after `wall`."""
        if epoch is None:
            return at
        at -= max(0.0, wall - epoch)
        if epoch >= self._last:
            at = max(at, self._last_at)
        if at >= self._last_at:
            self._last, self._last_at = epoch, at
        return at


class EventObserver:
    """Votes by reports, and by dialogs on the screen that no report mentioned."""

    def __init__(self, prompts: PromptProtocol) -> None:
        self._prompts = prompts
        self.conversation: dict[str, Any] = {}
        self.permission_mode: str | None = None
        self._tools: set[str] = set()  # those that began and have not ended
        self._asked: dict[str, State] = {}  # open requests, by the id of their call
        self._working = False
        self._dialog: str | None = None

    # ── reports ──

    def read_record(self, record: Mapping[str, Any]) -> Report:
        """Return an empty report: everything in a transcript was reported before."""
        return Report(Source.TRANSCRIPT, "")

    def read_registry(self, document: Mapping[str, Any]) -> Report:
        return Report(Source.REGISTRY, "")

    def take(self, report: Report, at: float, wall: float) -> list[Vote]:
        if report.source is not Source.HOOK or report.subagent:
            return []
        self.conversation.update(report.conversation)
        if report.permission_mode is not None:
            self.permission_mode = report.permission_mode
        states = [(self._state_after(event), event) for event in report.events]
        return [
            Vote(Source.HOOK, state, at, f"{report.name} {_detail(event)}".strip()[:200])
            for state, event in states
            if state is not None
        ]

    def _state_after(self, event: AgentEvent) -> State | None:  # noqa: C901
        """Return the state that an event leads to; None for one that changes nothing."""
        match event:
            case ConversationStarted() | CommandRun(finished=True):
                return None if self._working else State.IDLE
            case DialogReported():
                return State.WAITING_PERMISSION if event.reason == "permission" else State.WAITING_ANSWER
            case TextShown():
                return State.STREAMING if self._working and not self._tools else None
            case TurnStopped() | TurnInterrupted() | TurnFailed():
                return self._turn_over(event)
            case PromptSubmitted():
                self._begin()
            case ToolStarted():
                self._tools.add(event.id)
            case ToolFinished():
                self._tools.discard(event.id)
                self._asked.pop(event.id, None)
            case PermissionRequested():
                is_question = event.reason == "question"
                self._asked[event.id] = State.WAITING_ANSWER if is_question else State.WAITING_PERMISSION
            case PermissionDecided("") if not self._working:  # a dialog that was open at rest
                return State.IDLE
            case PermissionDecided():
                self._asked.pop(event.id, None)
            case _:
                return None
        return self._at_work() if self._working else None

    def _begin(self) -> None:
        if not self._working:  # what was reported after the end of the turn before is not of this one
            self._tools.clear()
            self._asked.clear()
        self._working = True

    def _at_work(self) -> State:
        if self._asked:
            return next(reversed(self._asked.values()))
        return State.TOOL_USE if self._tools else State.THINKING

    def _turn_over(self, event: TurnStopped | TurnInterrupted | TurnFailed) -> State:
        self._working = False
        self._tools.clear()
        self._asked.clear()
        if isinstance(event, TurnFailed):
            return State.LIMITED if event.kind is Failure.RATE_LIMITED else State.ERROR
        return State.IDLE if isinstance(event, TurnStopped) else State.INTERRUPTED

    # ── the terminal ──

    def title(self, title: str, at: float) -> list[Vote]:
        return []

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]:
        before, self._dialog = self._dialog, self._prompts.dialog(lines)
        if self._dialog is not None and self._dialog != before:
            return [Vote(Source.SCREEN, State.WAITING_ANSWER, at, self._dialog, WAITING)]
        if self._dialog is None and before is not None:
            state = self._at_work() if self._working else State.IDLE
            return [Vote(Source.SCREEN, state, at, f"{before} closed", _NOT_WAITING)]
        return []

    def suspended(self, lines: Sequence[str]) -> bool:
        return False

    # ── files ──

    def order(self) -> AsWritten:
        return AsWritten()

    def registry_path(self) -> Path | None:
        return None

    def transcript_path(self) -> Path | None:
        return None


def _detail(event: AgentEvent) -> str:
    match event:
        case ToolStarted() | PermissionRequested():
            return event.tool
        case TurnFailed():
            return event.text
    return ""
