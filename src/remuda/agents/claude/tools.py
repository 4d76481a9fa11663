"""What Claude Code's tools are given and what the model is told of them, from its hooks (2.1.325). Pure.

`PostToolBatch` has the text that the model gets for each call of a message, also for those that failed or
were denied, but not which those are: only a call that ran well has a `PostToolUse`. Calls of its subagents
are not told; what they leave behind counts all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.tools import ToolBegan, ToolEnded


def call_id(document: Mapping[str, Any]) -> str:
    """The id of the call that a payload or a block is about; empty where that is not a text."""
    found = document.get("tool_use_id")
    return found if isinstance(found, str) else ""


class ToolNews:
    def __init__(self) -> None:
        self._well: set[str] = set()
        self.residue: list[str] = []
        """What will outlive the conversation. It only grows: what survives one clear survives the next."""

    def hook(self, payload: Mapping[str, Any]) -> list[ToolBegan | ToolEnded]:
        event = payload.get("hook_event_name")
        if event in ("PreToolUse", "PostToolUse", "Stop"):
            self._note_residue(payload)
        if payload.get("agent_id"):
            return []
        if event == "PreToolUse":
            given = payload.get("tool_input")
            name, number = str(payload.get("tool_name")), str(payload.get("tool_use_id"))
            return [ToolBegan(number, name, given if isinstance(given, dict) else {})]
        if event == "PostToolUse":
            self._well.add(call_id(payload))
        if event == "PostToolBatch":
            return self._batch(payload.get("tool_calls"))
        if event in ("UserPromptSubmit", "Stop", "StopFailure"):
            self._well.clear()
        return []

    def _batch(self, calls: object) -> list[ToolBegan | ToolEnded]:
        found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        return [
            ToolEnded(
                str(call.get("tool_use_id")),
                str(call.get("tool_name")),
                call.get("tool_response"),
                is_error=call_id(call) not in self._well,
            )
            for call in found
        ]

    def _note_residue(self, payload: Mapping[str, Any]) -> None:
        from .stream.progress import LASTING_TOOLS  # not for a program that only starts

        name = str(payload.get("tool_name"))
        given, told = _mapping(payload.get("tool_input")), _mapping(payload.get("tool_response"))
        if name in LASTING_TOOLS:
            self._add(f"{LASTING_TOOLS[name]} ({name})")
        # Also when it has ended since: the news of it may still be on their way.
        if payload.get("background_tasks") or told.get("isAsync") or told.get("backgroundTaskId"):
            self._add("something in the background")
        elif name == "Bash" and given.get("run_in_background"):
            self._add("a shell in the background")
        if payload.get("session_crons"):
            self._add("a scheduled prompt")

    def _add(self, reason: str) -> None:
        if reason not in self.residue:
            self.residue.append(reason)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
