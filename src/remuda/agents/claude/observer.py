"""Reading a running Claude Code: hooks, registry file, transcript, title, screen, each as votes.

Facts this rests on (2.1.325): no hook tells of an interrupt, the transcript and the registry do; a title
cannot tell idle from waiting; `MessageDisplay` may come after the `Stop` of its own turn; the registry
says `waiting` with a reason while any dialog is open, also those that no hook tells of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from remuda.agents.state import RESTING, WAITING, WORKING, Source, State, Vote
from remuda.agents.tools import ToolBegan, ToolEnded
from remuda.proctree import start_ticks
from remuda.untrusted import finite

from .asking import needs_input
from .files import find_transcript, registry_file
from .order import InOrder
from .screen import has_composer, is_suspended, open_dialog, spinner_tokens
from .shown import Shown
from .tools import ToolNews, call_id

_IDLE_MARK = "✳"
_BUSY_MARKS = ("◐", "◑", "◒", "◓")
_INTERRUPTED = "[Request interrupted by user"
_QUESTION_TOOL = "AskUserQuestion"
_STARTING = frozenset({State.STARTING})
_TOOL = frozenset({State.TOOL_USE})
_NOT_WAITING = frozenset(State) - WAITING
# Title and registry show work for a moment after a Stop.
_AFTERGLOW = 0.5

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
        self._shown = Shown()
        self._stopped_at = 0.0
        self.conversation: dict[str, Any] = {}
        self.permission_mode: str | None = None
        self._news = ToolNews()
        self._pid = pid
        self._env = env
        self._registry_waiting = False
        self._registry_rests_at = 0.0  # since when; 0 while it tells of anything else
        self._prompted_at = 0.0
        self._asked: State | None = None  # what hook or registry last said of a dialog
        self._stopped = True
        self._tools: set[str] = set()  # those that began and have not ended
        self._tokens: int | None = None
        self._dialog: str | None = None
        self._hooks: dict[str, Callable[[Mapping[str, Any], float], list[Vote]]] = {
            "SessionStart": self._session_start,
            "UserPromptSubmit": self._prompt_submit,
            "PreToolUse": self._tool_begins,
            "PermissionRequest": self._permission_request,
            "PostToolUse": self._tool_ends,
            "PostToolUseFailure": self._tool_ends,
            "MessageDisplay": self._message_display,
            "Notification": self._notification,
            "Stop": self._stop,
            "StopFailure": self._stop_failure,
        }

    # ── where to look ──

    def registry_path(self) -> Path | None:
        return registry_file(self._env, self._pid)

    def transcript_path(self) -> Path | None:
        path = self.conversation.get("transcript_path")
        return Path(path) if path else find_transcript(self._env, self.conversation)

    # ── hooks ──

    def hook(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._hooked = True
        self._note_conversation(payload)
        handler = self._hooks.get(str(payload.get("hook_event_name")))
        return handler(payload, at) if handler else []

    def shown(self, payload: Mapping[str, Any]) -> str:
        return self._shown.take(payload)

    @property
    def last_shown(self) -> str | None:
        return self._shown.whole

    def tools(self, payload: Mapping[str, Any]) -> list[ToolBegan | ToolEnded]:
        return self._news.hook(payload)

    @property
    def residue(self) -> list[str]:
        return self._news.residue

    def _note_conversation(self, payload: Mapping[str, Any]) -> None:
        if isinstance(mode := payload.get("permission_mode"), str):
            self.permission_mode = mode
        for key in ("session_id", "transcript_path", "cwd", "model"):
            if isinstance(value := payload.get(key), str):
                self.conversation[key] = value
        # The process that runs the hooks may be another than the one we started (a wrapper script).
        if isinstance(pid := payload.get("claude_pid"), int) and pid > 0:
            self._pid = pid

    def _session_start(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        source = str(payload.get("source"))
        if source == "compact":  # in the middle of a turn
            return []
        # At start-up its composer is not there yet: text typed now stays, but its Enter may be lost.
        waits = self._has_screen and source in ("startup", "resume")
        return [_hook(State.IDLE, at, f"SessionStart {source}", _STARTING if waits else frozenset())]

    def _prompt_submit(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._stopped, self._prompted_at = False, at
        # Fires also for a prompt that only waits in the queue of a running turn.
        return [_hook(State.THINKING, at, "UserPromptSubmit", WORKING)]

    def _tool_begins(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._stopped = False
        self._tools.add(call_id(payload))
        if self._registry_waiting:  # another of several tools; the dialog is still open
            return []
        return [_hook(State.TOOL_USE, at, f"PreToolUse {payload.get('tool_name')}")]

    def _permission_request(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        tool = payload.get("tool_name")
        self._asked = state = State.WAITING_ANSWER if tool == _QUESTION_TOOL else State.WAITING_PERMISSION
        return [_hook(state, at, f"PermissionRequest {tool}")]

    def _tool_ends(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._tools.discard(call_id(payload))
        if self._registry_waiting:
            return []
        self._asked = None
        state = State.TOOL_USE if self._tools else State.THINKING
        return [_hook(state, at, f"{payload.get('hook_event_name')} {payload.get('tool_name')}")]

    def _message_display(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        # It may come after the tool that it announces, and after the end of its own turn: after its Stop or,
        # where no Stop comes, after the registry's word (seen in some of ten turns, 2.1.325).
        if self._stopped or self._tools or self._registry_waiting:
            return []
        if self._registry_rests_at > self._prompted_at:
            return []
        return [_hook(State.STREAMING, at, "MessageDisplay")]

    def _notification(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        kind = payload.get("notification_type")
        if kind == "permission_prompt":
            return [_hook(State.WAITING_PERMISSION, at, "Notification permission_prompt", WAITING)]
        if needs_input(payload):
            return [_hook(State.WAITING_ANSWER, at, "Notification agent_needs_input", WAITING)]
        if kind == "idle_prompt":
            return [_hook(State.IDLE, at, "Notification idle_prompt", RESTING)]
        return []

    def _stop(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._turn_over(at)
        running = payload.get("background_tasks")
        count = len(running) if isinstance(running, list) else 0
        detail = f"Stop, {count} background tasks run on" if count else "Stop"
        return [_hook(State.IDLE, at, detail)]

    def _stop_failure(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._turn_over(at)
        error = str(payload.get("error", "unknown"))
        state = State.LIMITED if "rate_limit" in error else State.ERROR
        message = str(payload.get("last_assistant_message") or error)
        return [_hook(state, at, f"StopFailure {message}"[:200])]

    def _turn_over(self, at: float) -> None:
        self._stopped, self._stopped_at = True, at
        self._asked = None
        self._tools.clear()

    def _at_work(self, source: Source, at: float, detail: str) -> Vote:
        """A source that sees work but not which: a tool that has begun is what it sees."""
        if at > self._stopped_at + _AFTERGLOW:  # somebody's hook did not let it stop
            self._stopped = False
        state = State.TOOL_USE if self._tools else State.THINKING
        return Vote(source, state, at, detail, WORKING)

    # ── registry ──

    def registry(self, document: Mapping[str, Any], at: float, wall: float) -> list[Vote]:
        status = document.get("status")
        if not self._is_ours(document):
            return []
        self._registry_waiting = status == "waiting"
        session_id = document.get("sessionId")
        if not self._hooked and session_id and session_id != self.conversation.get("session_id"):
            self.conversation = {"session_id": str(session_id)}
        # Its own date: it is written some time after what it tells, and the next turn may have begun.
        at = _dated(document.get("statusUpdatedAt"), at, wall)
        self._registry_rests_at = at if status in ("idle", "shell") else 0.0
        if status == "waiting":
            reason = str(document.get("waitingFor", ""))
            self._asked = state = _WAITING_FOR.get(reason, State.WAITING_ANSWER)
            return [Vote(Source.REGISTRY, state, at, f"waiting: {reason}", WAITING)]
        if status in ("idle", "shell"):  # at rest, perhaps with a shell in the background
            return [Vote(Source.REGISTRY, State.IDLE, at, str(status), RESTING | _STARTING)]
        return [self._at_work(Source.REGISTRY, at, "busy")] if status == "busy" else []

    def _is_ours(self, document: Mapping[str, Any]) -> bool:
        """Not one that a dead process of the same number left behind."""
        began = document.get("procStart")
        return document.get("pid", self._pid) == self._pid and (
            began is None or (now := self._start_of(self._pid)) is None or str(began) == now
        )

    # ── transcript ──

    def order(self) -> InOrder:
        return InOrder()

    def transcript(self, record: Mapping[str, Any], at: float, wall: float) -> list[Vote]:
        """Only what no hook tells: an interrupt, and an API error where hooks are off."""
        if record.get("isSidechain"):
            return []
        at = _dated(_epoch_ms(record.get("timestamp")), at, wall)
        if record.get("type") == "user" and any(text.startswith(_INTERRUPTED) for text in _texts(record)):
            self._turn_over(at)
            return [Vote(Source.TRANSCRIPT, State.INTERRUPTED, at, "interrupted by user")]
        if record.get("type") == "user" and (ended := _tool_results(record) & self._tools):
            # A tool that a rule denied has no hook for its end.
            self._tools -= ended
            if not self._tools:
                return [Vote(Source.TRANSCRIPT, State.THINKING, at, "tool result", frozenset(State) - _TOOL)]
        if record.get("type") == "assistant" and record.get("isApiErrorMessage"):
            state = State.LIMITED if record.get("apiErrorStatus") == 429 else State.ERROR
            detail = next(iter(_texts(record)), "API error")
            return [Vote(Source.TRANSCRIPT, state, at, detail[:200], frozenset({State.ERROR, State.LIMITED}))]
        return []

    # ── title and screen ──

    def title(self, title: str, at: float) -> list[Vote]:
        if title.startswith(_IDLE_MARK):
            # It shows the same for a dialog; a tool that has begun and shows rest is waiting for leave.
            pending = _TOOL if self._tools else frozenset()
            return [Vote(Source.TITLE, State.IDLE, at, title, RESTING | WAITING | _STARTING | pending)]
        if title.startswith(_BUSY_MARKS) or _is_braille(title[:1]):
            return [self._at_work(Source.TITLE, at, title)]
        return []

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]:
        """Dialogs that no hook tells of, and text that arrives before its paragraph is complete."""
        before, self._dialog = self._dialog, open_dialog(lines)
        if self._dialog is not None and self._dialog != before:
            return [Vote(Source.SCREEN, self._asked or State.WAITING_ANSWER, at, self._dialog, WAITING)]
        if (
            self._registry_waiting
        ):  # it knows better whether the dialog is still open: we may read a half-drawn one
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
        if not growing or self._stopped or self._tools:
            return []
        return [Vote(Source.SCREEN, State.STREAMING, at, f"{tokens} tokens", WORKING - {State.THINKING})]


def _hook(state: State, at: float, detail: str, alike: frozenset[State] = frozenset()) -> Vote:
    return Vote(Source.HOOK, state, at, detail, alike)


def _dated(epoch_ms: object, at: float, wall: float) -> float:
    """When something dated happened, on the clock of the votes; now if it has no date or one to come."""
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, (int, float)):
        return at
    return at - max(0.0, wall - finite(epoch_ms, wall * 1000) / 1000)


def _epoch_ms(timestamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def _is_braille(character: str) -> bool:
    return "⠀" <= character <= "⣿"


def _tool_results(record: Mapping[str, Any]) -> set[str]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return {call_id(block) for block in blocks if block.get("type") == "tool_result"}


def _texts(record: Mapping[str, Any]) -> list[str]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [str(block["text"]) for block in content if isinstance(block, dict) and "text" in block]
