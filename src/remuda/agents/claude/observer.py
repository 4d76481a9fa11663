"""Reading a running Claude Code: hooks, registry file, transcript, title, screen, each as votes.

Facts this rests on (2.1.325): no hook tells of an interrupt, the transcript and the registry do; a title
cannot tell idle from waiting; `MessageDisplay` may come after the `Stop` of its own turn; the registry
says `waiting` with a reason while any dialog is open, also those that no hook tells of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.state import RESTING, WAITING, WORKING, Source, State, Vote

from .files import registry_file
from .screen import open_dialog

_IDLE_MARK = "✳"
_BUSY_MARKS = ("◐", "◑", "◒", "◓")
_INTERRUPTED = "[Request interrupted by user"
_QUESTION_TOOL = "AskUserQuestion"
_NOT_WAITING = frozenset(State) - WAITING

_REGISTRY = {
    "idle": (State.IDLE, RESTING),
    "busy": (State.THINKING, WORKING),
}
_WAITING_FOR = {
    "permission prompt": State.WAITING_PERMISSION,
    "input needed": State.WAITING_ANSWER,
    "dialog open": State.WAITING_ANSWER,
}


class ClaudeObserver:
    def __init__(self, pid: int, env: Mapping[str, str]) -> None:
        self.conversation: dict[str, Any] = {}
        self._pid = pid
        self._env = env
        self._registry_waiting = False
        self._stopped_prompt: object = None
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
        return Path(path) if path else None

    # ── hooks ──

    def hook(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._note_conversation(payload)
        handler = self._hooks.get(str(payload.get("hook_event_name")))
        return handler(payload, at) if handler else []

    def _note_conversation(self, payload: Mapping[str, Any]) -> None:
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
        return [_hook(State.IDLE, at, f"SessionStart {source}")]

    def _prompt_submit(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._stopped_prompt = None
        # Fires also for a prompt that only waits in the queue of a running turn.
        return [_hook(State.THINKING, at, "UserPromptSubmit", WORKING)]

    def _tool_begins(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        if self._registry_waiting:  # another of several tools; the dialog is still open
            return []
        return [_hook(State.TOOL_USE, at, f"PreToolUse {payload.get('tool_name')}")]

    def _permission_request(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        tool = payload.get("tool_name")
        state = State.WAITING_ANSWER if tool == _QUESTION_TOOL else State.WAITING_PERMISSION
        return [_hook(state, at, f"PermissionRequest {tool}")]

    def _tool_ends(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        if self._registry_waiting:
            return []
        return [_hook(State.THINKING, at, f"{payload.get('hook_event_name')} {payload.get('tool_name')}")]

    def _message_display(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        if payload.get("prompt_id") == self._stopped_prompt or self._registry_waiting:
            return []
        return [_hook(State.STREAMING, at, "MessageDisplay")]

    def _notification(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        kind = payload.get("notification_type")
        if kind == "permission_prompt":
            return [_hook(State.WAITING_PERMISSION, at, "Notification permission_prompt", WAITING)]
        if kind == "idle_prompt":
            return [_hook(State.IDLE, at, "Notification idle_prompt", RESTING)]
        return []

    def _stop(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._stopped_prompt = payload.get("prompt_id")
        running = payload.get("background_tasks") or []
        detail = f"Stop, {len(running)} background tasks run on" if running else "Stop"
        return [_hook(State.IDLE, at, detail)]

    def _stop_failure(self, payload: Mapping[str, Any], at: float) -> list[Vote]:
        self._stopped_prompt = payload.get("prompt_id")
        error = str(payload.get("error", "unknown"))
        state = State.LIMITED if "rate_limit" in error else State.ERROR
        message = str(payload.get("last_assistant_message") or error)
        return [_hook(state, at, f"StopFailure {message}"[:200])]

    # ── registry ──

    def registry(self, document: Mapping[str, Any], at: float) -> list[Vote]:
        status = document.get("status")
        self._registry_waiting = status == "waiting"
        if isinstance(session_id := document.get("sessionId"), str):
            self.conversation.setdefault("session_id", session_id)
        if status == "waiting":
            reason = str(document.get("waitingFor", ""))
            state = _WAITING_FOR.get(reason, State.WAITING_ANSWER)
            return [Vote(Source.REGISTRY, state, at, f"waiting: {reason}", WAITING)]
        if status in _REGISTRY:
            state, alike = _REGISTRY[status]
            return [Vote(Source.REGISTRY, state, at, str(status), alike)]
        return []

    # ── transcript ──

    def transcript(self, record: Mapping[str, Any], at: float) -> list[Vote]:
        if record.get("isSidechain"):
            return []
        kind = record.get("type")
        if kind == "user":
            return self._user_record(record, at)
        if kind == "assistant":
            return self._assistant_record(record, at)
        return []

    def _user_record(self, record: Mapping[str, Any], at: float) -> list[Vote]:
        if any(text.startswith(_INTERRUPTED) for text in _texts(record)):
            return [Vote(Source.TRANSCRIPT, State.INTERRUPTED, at, "interrupted by user")]
        return []

    def _assistant_record(self, record: Mapping[str, Any], at: float) -> list[Vote]:
        if record.get("isApiErrorMessage"):
            limited = record.get("apiErrorStatus") == 429
            state = State.LIMITED if limited else State.ERROR
            detail = next(iter(_texts(record)), "API error")
            return [Vote(Source.TRANSCRIPT, state, at, detail[:200], frozenset({State.ERROR, State.LIMITED}))]
        return []

    # ── title and screen ──

    def title(self, title: str, at: float) -> list[Vote]:
        if title.startswith(_IDLE_MARK):
            quiet = RESTING | WAITING | {State.STARTING}
            return [Vote(Source.TITLE, State.IDLE, at, title, quiet)]
        if title.startswith(_BUSY_MARKS) or _is_braille(title[:1]):
            return [Vote(Source.TITLE, State.THINKING, at, title, WORKING)]
        return []

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]:
        """Only dialogs: everything else has a better source."""
        before, self._dialog = self._dialog, open_dialog(lines)
        if self._dialog is not None and self._dialog != before:
            return [Vote(Source.SCREEN, State.WAITING_ANSWER, at, self._dialog, WAITING)]
        if self._dialog is None and before is not None:
            return [Vote(Source.SCREEN, State.IDLE, at, f"{before} closed", _NOT_WAITING)]
        return []


def _hook(state: State, at: float, detail: str, alike: frozenset[State] = frozenset()) -> Vote:
    return Vote(Source.HOOK, state, at, detail, alike)


def _is_braille(character: str) -> bool:
    return "⠀" <= character <= "⣿"


def _texts(record: Mapping[str, Any]) -> list[str]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [str(block["text"]) for block in content if isinstance(block, dict) and "text" in block]
