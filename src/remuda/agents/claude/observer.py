"""Read a running Claude Code: hooks, registry file, transcript, title and screen vote for a state.

Facts (2.1.325): no hook reports an interrupt, but the transcript and the registry do. A title does not show
whether the agent is idle or waits. `MessageDisplay` may come after the `Stop` of its own turn. The registry
says `waiting` with a reason while any dialog is open, also one that no hook reports. A Notification comes
6 to 60 s after its cause. **What belongs to a turn or a conversation that is over changes nothing**: no later
report would correct it, and a session that seems to wait gets no message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    ConversationEnded,
    ConversationStarted,
    DialogReported,
    Failure,
    PermissionRequested,
    PromptSubmitted,
    Report,
    RestReported,
    StatusReported,
    TextShown,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.observer import RecordDates
from remuda.agents.state import RESTING, WAITING, WORKING, Source, State, Vote
from remuda.proctree import start_ticks
from remuda.untrusted import finite

from .files import find_transcript, registry_file
from .order import InOrder
from .registry import read_registry
from .screen import has_composer, is_suspended, open_dialog, spinner_tokens
from .transcript import read_record

_IDLE_MARK = "✳"
_BUSY_MARKS = ("◐", "◑", "◒", "◓")
_STARTING = frozenset({State.STARTING})
_TOOL = frozenset({State.TOOL_USE})
_NOT_WAITING = frozenset(State) - WAITING
# Title and registry show work for a moment after a Stop.
_AFTERGLOW = 0.5
_REMEMBERED = 16
# A prompt too: the report of the start may be lost, or come before that of the end. Claude Code waits for our
# answer to a prompt, so one of a conversation that has ended since is never late.
_IN_CONVERSATION = frozenset({ConversationStarted, PromptSubmitted})

_WAITING_FOR = {
    "permission prompt": State.WAITING_PERMISSION,
    "input needed": State.WAITING_ANSWER,
    "dialog open": State.WAITING_ANSWER,
}


class ClaudeObserver:
    def __init__(
        self,
        pid: int,
        env: Mapping[str, str],
        *,
        has_screen: bool,
        start_of: Callable[[int], str | None] = start_ticks,
    ) -> None:
        self._has_screen = has_screen
        self._composer_seen = False
        self._start_of = start_of
        self._hooked = False
        self._stopped_at = 0.0
        self.conversation: dict[str, Any] = {}
        self.permission_mode: str | None = None
        self._pid = pid
        self._env = env
        self._registry_dates, self._record_dates = RecordDates(), RecordDates()
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)  # conversations that this process left
        self._registry_status = ""
        self._registry_rests_at = 0.0  # since when; 0 while it shows another state
        self._prompted_at = 0.0
        self._text_at = 0.0
        self._asked: State | None = None  # the last report of a dialog by hook or registry
        self._stopped = True
        self._tools: set[str] = set()  # those that began and have not ended
        self._tokens: int | None = None
        self._dialog: str | None = None

    # ── where to look ──

    def registry_path(self) -> Path | None:
        return registry_file(self._env, self._pid)

    def transcript_path(self) -> Path | None:
        path = self.conversation.get("transcript_path")
        return Path(path) if path else find_transcript(self._env, self.conversation)

    # ── reports ──

    def read_record(self, record: Mapping[str, Any]) -> Report:
        return read_record(record)

    def read_registry(self, document: Mapping[str, Any]) -> Report:
        return read_registry(document)

    def take(self, report: Report, at: float, wall: float) -> list[Vote]:
        if report.source is Source.HOOK:
            return self._take_hook(report, at)
        if report.source is Source.REGISTRY:
            return self._take_status(report, at, wall)
        return self._take_record(report, at, wall)

    def _take_hook(self, report: Report, at: float) -> list[Vote]:
        self._hooked = True
        if self._is_of_ended(report):
            return []
        if report.permission_mode is not None:
            self.permission_mode = report.permission_mode
        self.conversation.update(report.conversation)
        # The process that runs the hooks may be another than the one we started (a wrapper script).
        if report.pid is not None:
            self._pid = report.pid
        return [vote for event in report.events for vote in self._hook_votes(event, report, at)]

    def _is_of_ended(self, report: Report) -> bool:
        """Return whether a report is of a past conversation. Its end may come after the next start."""
        session_id, kinds = report.session_id, {type(event) for event in report.events}
        if session_id is None:
            return False
        if kinds & _IN_CONVERSATION and session_id in self._ended:  # the user went back to it
            self._ended.remove(session_id)
        if ConversationEnded in kinds and session_id not in self._ended:
            self._ended.append(session_id)
        return session_id in self._ended

    @property
    def _registry_waiting(self) -> bool:
        return self._registry_status == "waiting"

    @property
    def _registry_rests(self) -> bool:
        """Return whether the registry has reported rest since the last prompt that a hook reported."""
        return self._registry_rests_at > self._prompted_at

    def _hook_votes(self, event: AgentEvent, report: Report, at: float) -> list[Vote]:  # noqa: C901
        """Return the votes of an event of a hook."""
        match event:
            case ConversationStarted(how) if how != "compact":  # that is in the middle of a turn
                # At start-up no composer is drawn yet: text typed now is kept, but its Enter may be lost.
                waits = self._has_screen and how in ("startup", "resume")
                return [_hook(State.IDLE, at, f"{report.name} {how}", _STARTING if waits else frozenset())]
            case PromptSubmitted():
                self._stopped, self._prompted_at = False, at
                # Reported also for a prompt that only waits in the queue of a running turn.
                return [_hook(State.THINKING, at, report.name, WORKING)]
            case ToolStarted():
                return self._tool_started(event, report, at)
            case PermissionRequested() if report.subagent or not self._stopped:
                is_question = event.reason == "question"
                self._asked = State.WAITING_ANSWER if is_question else State.WAITING_PERMISSION
                return [_hook(self._asked, at, f"{report.name} {event.tool}")]
            case ToolFinished(denied=False):
                return self._tool_finished(event, report, at)
            case TextShown():
                return self._text_shown(report, at)
            case DialogReported() if self._may_be_open():
                return _dialog_votes(event, report, at)
            case RestReported() if not self._registry_status or self._registry_rests_at:
                return [_hook(State.IDLE, at, f"{report.name} idle_prompt", RESTING)]
            case TurnStopped():
                self._turn_over(at)
                count = len(event.background)
                more = f", {count} background tasks run on" if count else ""
                return [_hook(State.IDLE, at, f"{report.name}{more}")]
            case TurnFailed():
                self._turn_over(at)
                return [_hook(_failed_state(event), at, f"{report.name} {event.text or 'unknown'}")]
        return []

    def _may_be_open(self) -> bool:
        """Return whether a dialog may be open. A registry that reports at all reports each, and its end."""
        return self._registry_waiting or not (self._registry_status or self._stopped)

    def _tool_started(self, event: ToolStarted, report: Report, at: float) -> list[Vote]:
        self._stopped = False
        self._tools.add(event.id)
        if self._registry_waiting:  # another of several tools; the dialog is still open
            return []
        return [_hook(State.TOOL_USE, at, f"{report.name} {event.tool}")]

    def _tool_finished(self, event: ToolFinished, report: Report, at: float) -> list[Vote]:
        self._tools.discard(event.id)
        if self._registry_waiting:
            return []
        self._asked = None
        state = State.TOOL_USE if self._tools else State.THINKING
        return [_hook(state, at, f"{report.name} {event.tool}")]

    def _text_shown(self, report: Report, at: float) -> list[Vote]:
        # It may come after the tool that it announces, and after the end of its own turn: after its Stop or,
        # without a Stop, after the registry's report (seen in some of ten turns, 2.1.325).
        if self._stopped or self._tools or self._registry_waiting or self._registry_rests:
            return []
        self._text_at = at
        return [_hook(State.STREAMING, at, report.name)]

    def _turn_over(self, at: float) -> None:
        self._stopped, self._stopped_at = True, at
        self._asked = None
        self._tools.clear()

    def _at_work(self, source: Source, at: float, detail: str) -> Vote:
        """Return the vote of a source that sees only work: a tool, if one has started."""
        if at > self._stopped_at + _AFTERGLOW:  # a hook of the user made it continue
            self._stopped = False
        state = State.TOOL_USE if self._tools else State.THINKING
        return Vote(source, state, at, detail, WORKING)

    # ── registry ──

    def _take_status(self, report: Report, at: float, wall: float) -> list[Vote]:
        (event,) = report.events
        assert isinstance(event, StatusReported)
        if not self._is_ours(report, event):
            return []
        status = event.status
        self._registry_status = status
        session_id = report.session_id
        if not self._hooked and session_id and session_id != self.conversation.get("session_id"):
            self.conversation = {"session_id": session_id}
        # Use its own date: it is written later, and the next turn may have started.
        heard_at, at = at, self._registry_dates.date(_seconds(event.changed_ms), at, wall)
        self._registry_rests_at = at if status in ("idle", "shell") else 0.0
        if status == "waiting":
            reason = event.waiting_for
            self._asked = state = _WAITING_FOR.get(reason, State.WAITING_ANSWER)
            return [Vote(Source.REGISTRY, state, at, reason or status, WAITING)]
        if status in ("idle", "shell"):  # at rest, perhaps with a shell in the background
            if self._prompted_at < at <= self._text_at:  # that text was shown before, and reported late
                at = heard_at
            return [Vote(Source.REGISTRY, State.IDLE, at, status, RESTING | _STARTING)]
        return [self._at_work(Source.REGISTRY, at, "busy")] if status == "busy" else []

    def _is_ours(self, report: Report, event: StatusReported) -> bool:
        """Return whether the file is of this process, and not of a dead one with the same pid."""
        began = event.process_started
        return (report.pid is None or report.pid == self._pid) and (
            began is None or (now := self._start_of(self._pid)) is None or str(began) == now
        )

    # ── transcript ──

    def order(self) -> InOrder:
        return InOrder()

    def _take_record(self, report: Report, at: float, wall: float) -> list[Vote]:
        """Return votes for what no hook reports: an interrupt, and an API error if hooks are off."""
        if report.subagent:
            return []
        at = self._record_dates.date(report.at, at, wall)
        votes: list[Vote] = []
        for event in report.events:
            match event:
                case TurnInterrupted():
                    self._turn_over(at)
                    votes.append(Vote(Source.TRANSCRIPT, State.INTERRUPTED, at, "interrupted by user"))
                case ToolFinished(id=call) if call in self._tools:
                    # A tool that a rule denied has no hook for its end.
                    self._tools.discard(call)
                    if not self._tools:
                        alike = frozenset(State) - _TOOL
                        votes.append(Vote(Source.TRANSCRIPT, State.THINKING, at, "tool result", alike))
                case TurnFailed():
                    detail, alike = event.text or "API error", frozenset({State.ERROR, State.LIMITED})
                    votes.append(Vote(Source.TRANSCRIPT, _failed_state(event), at, detail, alike))
        return votes

    # ── title and screen ──

    def title(self, title: str, at: float) -> list[Vote]:
        if title.startswith(_IDLE_MARK):
            # The title is the same for a dialog: a tool that has started waits for a permission then.
            pending = _TOOL if self._tools else frozenset()
            return [Vote(Source.TITLE, State.IDLE, at, title, RESTING | WAITING | _STARTING | pending)]
        if title.startswith(_BUSY_MARKS) or _is_braille(title[:1]):
            return [self._at_work(Source.TITLE, at, title)]
        return []

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]:
        """Return votes for dialogs that no hook reports, and for text before its paragraph is complete."""
        before, self._dialog = self._dialog, open_dialog(lines)
        if self._dialog is not None and self._dialog != before:
            return [Vote(Source.SCREEN, self._asked or State.WAITING_ANSWER, at, self._dialog, WAITING)]
        if self._registry_waiting:  # the registry knows better: the screen may be half drawn
            self._dialog = before
            return []
        if self._dialog is not None:  # the spinner may go a moment after the dialog was drawn
            return []
        if before is not None:
            return [Vote(Source.SCREEN, State.IDLE, at, f"{before} closed", _NOT_WAITING)]
        if not self._composer_seen and has_composer(lines):
            self._composer_seen = True
            return [Vote(Source.SCREEN, State.IDLE, at, "composer", _NOT_WAITING - _STARTING)]
        return self._tokens_arrive(spinner_tokens(lines), at)

    def suspended(self, lines: Sequence[str]) -> bool:
        return is_suspended(lines)

    def _tokens_arrive(self, tokens: int | None, at: float) -> list[Vote]:
        before, self._tokens = self._tokens, tokens
        if tokens is None and before is not None:
            return [Vote(Source.SCREEN, State.IDLE, at, "no spinner", _NOT_WAITING)]
        growing = tokens is not None and before is not None and tokens > before
        # The screen may still show the spinner after the registry has reported the end.
        if not growing or self._stopped or self._tools or self._registry_rests:
            return []
        return [Vote(Source.SCREEN, State.STREAMING, at, f"{tokens} tokens", WORKING - {State.THINKING})]


def _seconds(epoch_ms: object) -> float | None:
    is_date = isinstance(epoch_ms, (int, float)) and not isinstance(epoch_ms, bool)
    seconds = finite(epoch_ms, -1.0) / 1000
    return seconds if is_date and seconds >= 0 else None


def _hook(state: State, at: float, detail: str, alike: frozenset[State] = frozenset()) -> Vote:
    return Vote(Source.HOOK, state, at, detail, alike)


def _is_braille(character: str) -> bool:
    return "⠀" <= character <= "⣿"


def _failed_state(event: TurnFailed) -> State:
    return State.LIMITED if event.kind is Failure.RATE_LIMITED else State.ERROR


def _dialog_votes(event: DialogReported, report: Report, at: float) -> list[Vote]:
    if event.kind.endswith("_dialog"):  # the registry reports it, and its end
        return []
    state = State.WAITING_PERMISSION if event.reason == "permission" else State.WAITING_ANSWER
    return [_hook(state, at, f"{report.name} {event.kind}", WAITING)]
