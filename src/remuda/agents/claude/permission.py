"""How Claude Code asks leave by its hooks, and is answered (2.1.325). Pure.

A request for permission carries no id of its call; the PreToolUse before it does, with the same input. A
plan is in its input when the agent has written its plan file; else that is empty. No hook tells of a dialog
that was answered at the terminal with a no, and of a yes only the tool's end does: the transcript and the
registry say it sooner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.agents.permission import Over, Question, Ruling

from .answers import permission_decision
from .stream.protocol import for_conversation

_REASONS = {"AskUserQuestion": "question", "ExitPlanMode": "plan"}
_INTERRUPTED = "[Request interrupted by user"
_DENIED = "The user does not want this. Go on without it, or say what you would need."


class ClaudeAsking:
    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, object]] = {}  # begun and not over: name and input by id
        self._asked: set[str] = set()

    # ── being told ──

    def hook(self, payload: Mapping[str, Any]) -> Question | Over | None:
        event, call = payload.get("hook_event_name"), payload.get("tool_use_id")
        if event == "PreToolUse" and isinstance(call, str):
            self._calls[call] = str(payload.get("tool_name")), payload.get("tool_input")
        elif event == "PermissionRequest":
            return self._question(payload)
        elif event in ("PostToolUse", "PostToolUseFailure") and isinstance(call, str):
            return self._over({call})
        elif event == "PostToolBatch":
            return self._over(_ids(payload.get("tool_calls")))
        elif event in ("Stop", "StopFailure", "SessionEnd") and not payload.get("background_tasks"):
            return self._all_over()  # what runs on in the background may ask, too
        return None

    def record(self, record: Mapping[str, Any]) -> Over | None:
        if record.get("type") != "user":
            return None
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if not record.get("isSidechain") and any(_is_interruption(block) for block in blocks):
            return self._all_over()
        results = [block for block in blocks if _is_result(block)]
        return self._over(_ids(results)) if results else None

    def registry(self, document: Mapping[str, Any]) -> bool | None:
        status = document.get("status")
        return None if status is None else status == "waiting"

    def _question(self, payload: Mapping[str, Any]) -> Question:
        tool, given = str(payload.get("tool_name")), payload.get("tool_input")
        found = payload.get("permission_suggestions")
        suggestions = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        call = self._call_of(tool, given)
        if call is not None:
            self._asked.add(call)
        inputs = given if isinstance(given, dict) else {}
        where = payload.get("cwd")
        reason = _REASONS.get(tool, "permission")
        return Question(tool, inputs, suggestions, call, reason, where if isinstance(where, str) else None)

    def _call_of(self, tool: str, given: object) -> str | None:
        named = [one for one, (name, _) in self._calls.items() if name == tool and one not in self._asked]
        exact = [one for one in named if self._calls[one][1] == given]
        return next(iter(exact or named), None)

    def _over(self, ids: set[str]) -> Over:
        for one in ids:
            self._calls.pop(one, None)
        self._asked -= ids
        return Over(frozenset(ids))

    def _all_over(self) -> Over:
        self._calls.clear()
        self._asked.clear()
        return Over(all=True)

    # ── answering ──

    def answer(self, question: Question, ruling: Ruling) -> dict[str, Any]:
        if not ruling.allow:
            deny: dict[str, Any] = {"behavior": "deny", "message": ruling.message or _DENIED}
            return permission_decision(deny | ({"interrupt": True} if ruling.interrupt else {}))
        allow: dict[str, Any] = {"behavior": "allow"}
        if ruling.input is not None:
            allow["updatedInput"] = dict(ruling.input)
        elif question.tool == "ExitPlanMode":
            allow["updatedInput"] = {}  # without one the answer is passed over
        if ruling.always:
            edited = ruling.input is not None
            given = question.input if ruling.input is None else ruling.input
            lasting = for_conversation(question.tool, given, question.suggestions, edited=edited)
            allow |= {"updatedPermissions": lasting} if lasting else {}
        return permission_decision(allow)


def _ids(calls: object) -> set[str]:
    found = calls if isinstance(calls, Sequence) else ()
    return {str(call["tool_use_id"]) for call in found if isinstance(call, dict) and "tool_use_id" in call}


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _is_interruption(block: object) -> bool:
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(_INTERRUPTED)
