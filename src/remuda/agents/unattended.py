"""Answers to an agent that runs without a human. Pure.

A permission that a human would have to give is denied, and the agent continues without it. A limit on turns
stops the agent before its next request. With `first_only` both apply to the first prompt only: later prompts
come from a user who is there.
"""

from __future__ import annotations

from remuda.frozen import frozen

from .events import PermissionRequested, PromptSubmitted, Report, ToolsFinished

DENIED = (
    "This needs a permission, and no one can give it, because no human watches this call. "
    "Go on without it, or say what you would need."
)


def max_turns_reason(limit: int) -> str:
    return f"Reached maximum number of turns ({limit})"


@frozen
class DenyPermission:
    """Deny the permission that was requested."""

    message: str


@frozen
class Halt:
    """Stop the agent before its next request."""

    reason: str


class Unattended:
    def __init__(
        self, *, deny_permissions: bool = False, max_turns: int = 0, first_only: bool = True
    ) -> None:
        self._deny = deny_permissions
        self._first_only = first_only
        self._max_turns = max_turns
        self._turns = 0
        self._first_prompt: str | None = None

    def take(self, report: Report) -> DenyPermission | Halt | None:
        for event in report.events:
            match event:
                case PromptSubmitted():
                    self._note_prompt(event)
                case PermissionRequested() if self._deny:
                    return DenyPermission(DENIED)
                case ToolsFinished() if self._max_turns and not report.subagent:
                    self._turns += 1
                    if self._turns >= self._max_turns:
                        return Halt(max_turns_reason(self._max_turns))
        return None

    def _note_prompt(self, event: PromptSubmitted) -> None:
        """Count a notice about background work as part of the prompt before."""
        prompt_id = str(event.prompt_id)
        self._first_prompt = self._first_prompt or prompt_id
        if self._first_only and prompt_id != self._first_prompt and not event.notice:
            self._deny, self._max_turns = False, 0
