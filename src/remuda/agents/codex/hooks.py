"""codex's hooks, which a user's own codex runs: each payload as a report of typed events. Pure.

They have Claude Code's names and fields, and a `turn_id`. No hook reports an error, and none runs when the
terminal is killed (0.166.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    ConversationEnded,
    ConversationStarted,
    PermissionRequested,
    PromptSubmitted,
    Report,
    ToolFinished,
    ToolStarted,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.state import Source
from remuda.untrusted import LONGEST_NAME, name_at, text_at

from .notices import QUESTION

Payload = Mapping[str, Any]
_KNOWN = ("session_id", "transcript_path", "cwd", "model")


def read_hook(payload: Payload, pid: int | None = None, place: Mapping[str, Any] | None = None) -> Report:
    """Report what a payload says. `pid` and `place`: its terminal, where they are known."""
    name = str(payload.get("hook_event_name"))[:LONGEST_NAME]
    known = {key: value for key in _KNOWN if (value := name_at(payload, key))}
    return Report(
        Source.HOOK,
        name,
        tuple(_events(name, payload)),
        session_id=known.get("session_id"),
        pid=pid,
        conversation=known,
        permission_mode=name_at(payload, "permission_mode"),
        facts=place or {},
    )


def _events(name: str, payload: Payload) -> list[AgentEvent]:
    turn, call = text_at(payload, "turn_id"), text_at(payload, "tool_use_id") or ""
    tool, given = str(payload.get("tool_name", ""))[:LONGEST_NAME], payload.get("tool_input")
    match name:
        case "SessionStart":
            return [ConversationStarted(str(payload.get("source") or "startup")[:LONGEST_NAME])]
        case "SessionEnd":
            return [ConversationEnded(str(payload.get("reason") or "other")[:LONGEST_NAME])]
        case "UserPromptSubmit":
            return [PromptSubmitted(text_at(payload, "prompt") or "", turn)]
        case "PreToolUse":
            return [ToolStarted(tool, given, call)]
        case "PostToolUse":
            return [ToolFinished(call, ok=True, tool=tool, input=given)]
        case "PermissionRequest":
            reason = "question" if tool == QUESTION else "permission"
            if isinstance(given, dict):  # the hook of the finished call has no description
                given = {key: value for key, value in given.items() if key != "description"}
            return [PermissionRequested(tool, given, reason, prompt_id=turn, id=call)]
        case "Stop":
            return [TurnStopped(text_at(payload, "last_assistant_message") or "", turn)]
        case "Interrupt":
            return [TurnInterrupted(turn)]
    return []
