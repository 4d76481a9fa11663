"""What Claude Code's hooks are answered for a session that nobody sits at. Pure.

A permission that a human would have to give is denied, and the agent goes on with that; a limit on turns
stops it before its next request. With `first_only` both hold for the first prompt: whoever goes on with the
session is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASK_NOTICE = "<task-notification>"
DENIED = (
    "This needs an approval, and no one can give it: the call runs without a human. "
    "Go on without it, or say what you would need."
)


class Answers:
    def __init__(
        self, *, deny_permissions: bool = False, max_turns: int = 0, first_only: bool = True
    ) -> None:
        self._deny = deny_permissions
        self._first_only = first_only
        self._max_turns = max_turns
        self._turns = 0
        self._first: str | None = None

    @property
    def events(self) -> tuple[str, ...]:
        """Hooks that are needed for this beside those that tell the state."""
        return ("PostToolBatch",) if self._max_turns else ()

    def answer(self, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        event = payload.get("hook_event_name")
        if event == "UserPromptSubmit":
            self._note_prompt(payload)
        if event == "PermissionRequest" and self._deny:
            return permission_decision({"behavior": "deny", "message": DENIED})
        if event == "PostToolBatch" and self._max_turns and not payload.get("agent_id"):
            self._turns += 1
            if self._turns >= self._max_turns:
                return {"continue": False, "stopReason": max_turns_reason(self._max_turns)}
        return None

    def _note_prompt(self, payload: Mapping[str, Any]) -> None:
        """What the agent tells itself of its background work belongs to the prompt before."""
        number = str(payload.get("prompt_id"))
        self._first = self._first or number
        is_notice = str(payload.get("prompt", "")).startswith(TASK_NOTICE)
        if self._first_only and number != self._first and not is_notice:
            self._deny, self._max_turns = False, 0


def permission_decision(decision: dict[str, Any]) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def max_turns_reason(limit: int) -> str:
    return f"Reached maximum number of turns ({limit})"
