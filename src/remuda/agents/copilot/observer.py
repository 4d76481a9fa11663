"""The state of a running copilot, by hooks, transcript and screen.

Hooks report at once, the transcript up to 0.15 s later and with dates. The status line of the screen says
whether it works: the only sign of a prompt that was typed while hooks are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    DialogReported,
    Failure,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    Report,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.observer import AsWritten, RecordDates
from remuda.agents.state import RESTING, WAITING, WORKING, Source, State, Vote

from .files import conversation_of, events_file
from .records import read_record
from .screen import is_working, open_dialog

_NOT_WAITING = frozenset(State) - WAITING
_BUSY = WORKING | WAITING


class CopilotObserver:
    def __init__(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> None:
        self._pid = pid
        self._env = env
        self.conversation: dict[str, Any] = {}
        self.permission_mode: str | None = None
        self._dates = RecordDates()
        self._working = False
        self._tools = 0  # those that began and have not ended
        self._shown: tuple[str | None, bool | None] = (None, None)
        """The dialog, and whether work is shown, as the screen last had them."""

    # ── where to look ──

    def registry_path(self) -> Path | None:
        return None

    def transcript_path(self) -> Path | None:
        path = events_file(self._env, self.conversation.get("session_id"))
        return path if path is not None and path.exists() else None

    def order(self) -> AsWritten:
        return AsWritten()

    # ── reports ──

    def read_record(self, record: Mapping[str, Any]) -> Report:
        return read_record(record, self.conversation.get("session_id"))

    def read_registry(self, document: Mapping[str, Any]) -> Report:
        return Report(Source.REGISTRY, "")

    def take(self, report: Report, at: float, wall: float) -> list[Vote]:
        if report.subagent:
            return []
        self.conversation.update(report.conversation)
        if path := events_file(self._env, self.conversation.get("session_id")):
            self.conversation["transcript_path"] = str(path)
        at = self._dates.date(report.at, at, wall)  # a hook may have reported what came after it
        hooked = report.source is Source.HOOK
        states = [(self._state_after(event, hooked=hooked), event) for event in report.events]
        return [
            Vote(report.source, state, at, f"{report.name} {_detail(event)}".strip())
            for state, event in states
            if state is not None
        ]

    def _state_after(self, event: AgentEvent, *, hooked: bool) -> State | None:
        match event:
            case PromptSubmitted() | PromptRecorded():
                self._working, self._tools = True, 0
                return State.THINKING
            case ToolStarted():
                self._working = True
                self._tools += not hooked
                return None if hooked else State.TOOL_USE
            case ToolFinished() if not hooked:
                self._tools = max(0, self._tools - 1)
                return State.TOOL_USE if self._tools else State.THINKING
            case PermissionRequested() | DialogReported() if hooked and not self._working:
                return None  # of a turn that is over: nothing would report that it was closed
            case PermissionRequested():
                return State.WAITING_PERMISSION
            case DialogReported():
                return State.WAITING_PERMISSION if event.reason == "permission" else State.WAITING_ANSWER
            case PermissionDecided():
                return State.TOOL_USE
            case TurnStopped() | TurnInterrupted() | TurnFailed():
                self._working = False
                return _state_at_end(event)
        return None

    # ── the terminal ──

    def title(self, title: str, at: float) -> list[Vote]:
        return []

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]:
        if not self.conversation and (session_id := conversation_of(self._env, self._pid)) is not None:
            self.conversation = {"session_id": session_id}  # before its first hook, or without hooks
        before, self._shown = self._shown, (open_dialog(lines), is_working(lines))
        dialog, works = self._shown
        if self._shown == before:
            return []
        if dialog is not None:
            return [Vote(Source.SCREEN, State.WAITING_ANSWER, at, dialog, WAITING)]
        if works is None:  # half drawn, or a view of its own
            self._shown = before
            return []
        if works:
            return [Vote(Source.SCREEN, State.THINKING, at, "works", _BUSY)]
        alike = RESTING if before[0] is None else _NOT_WAITING - WORKING
        return [Vote(Source.SCREEN, State.IDLE, at, "composer", alike - {State.STARTING})]

    def suspended(self, lines: Sequence[str]) -> bool:
        return False


def _state_at_end(event: TurnStopped | TurnInterrupted | TurnFailed) -> State:
    match event:
        case TurnFailed():
            return State.LIMITED if event.kind is Failure.RATE_LIMITED else State.ERROR
        case TurnInterrupted():
            return State.INTERRUPTED
        case TurnStopped():
            return State.IDLE


def _detail(event: AgentEvent) -> str:
    match event:
        case ToolStarted() | PermissionRequested():
            return event.tool
        case TurnFailed():
            return event.text
    return ""
