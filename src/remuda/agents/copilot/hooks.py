"""Copilot's hooks: each payload as a report of typed events, and how a hook is answered. Pure.

Facts of 1.0.102: SessionStart comes with the first prompt. A request for permission has other names of fields
than the rest, and neither it nor PreToolUse has an id of the call. While its hook runs, copilot shows no
dialog. No hook reports an interrupt. `Stop` has the answer only because `post_hook` adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remuda.agents.attention import agent_pid, pane_facts
from remuda.agents.events import (
    AgentEvent,
    ConversationEnded,
    ConversationStarted,
    DialogReported,
    PermissionRequested,
    PromptSubmitted,
    Report,
    ToolFinished,
    ToolStarted,
    TurnStopped,
)
from remuda.agents.permission import PermissionDecision, PermissionRequest, check_refusals
from remuda.agents.state import Source
from remuda.untrusted import LONGEST_NAME, name_at

from .asking import QUESTION, CopilotPermissions, question_dialog, tool_name

Payload = Mapping[str, Any]
_STARTS = {"new": "startup", "resume": "resume"}
_DENIED = "The user does not want this. Go on without it, or say what you would need."


def read_hook(payload: Payload, env: Mapping[str, str] | None = None) -> Report:
    """Report what a hook's payload says. `env` is the hook's environment, as far as it was passed on."""
    name = str(payload.get("hook_event_name") or payload.get("hookName"))[:LONGEST_NAME]
    read = _READERS.get(name)
    session_id = name_at(payload, "session_id") or name_at(payload, "sessionId")
    transcript = name_at(payload, "transcript_path")
    known = {"session_id": session_id, "cwd": name_at(payload, "cwd"), "transcript_path": transcript}
    conversation = {key: value for key, value in known.items() if value and "\0" not in value}
    return Report(
        source=Source.HOOK,
        name="PermissionRequest" if name == "permissionRequest" else name,
        events=tuple(read(payload)) if read is not None else (),
        session_id=session_id,
        conversation=conversation,
        pid=agent_pid(env or {}),
        facts=pane_facts(env or {}),
    )


def _session_start(payload: Payload) -> Iterator[AgentEvent]:
    how = str(payload.get("source", "new"))
    yield ConversationStarted(_STARTS.get(how, how))


def _session_end(payload: Payload) -> Iterator[AgentEvent]:
    yield ConversationEnded(str(payload.get("reason", "other")))


def _prompt_submit(payload: Payload) -> Iterator[AgentEvent]:
    yield PromptSubmitted(str(payload.get("prompt", "")))


def _pre_tool_use(payload: Payload) -> Iterator[AgentEvent]:
    tool, given = _tool(payload, "tool_name"), payload.get("tool_input")
    if tool == QUESTION:
        yield question_dialog(given)
    yield ToolStarted(tool, given)


def _post_tool_use(payload: Payload) -> Iterator[AgentEvent]:
    ok = payload.get("hook_event_name") == "PostToolUse"
    yield ToolFinished("", ok=ok, tool=_tool(payload, "tool_name"), input=payload.get("tool_input"))


def _permission_request(payload: Payload) -> Iterator[AgentEvent]:
    yield PermissionRequested(_tool(payload, "toolName"), payload.get("toolInput"))


def _notification(payload: Payload) -> Iterator[AgentEvent]:
    kind, message = str(payload.get("notification_type")), str(payload.get("message", ""))
    if kind == "permission_prompt":
        yield DialogReported("permission", message, kind)
    elif kind == "elicitation_dialog":
        yield DialogReported("question", message, kind)


def _stop(payload: Payload) -> Iterator[AgentEvent]:
    text = str(payload.get("last_assistant_message") or "")
    yield TurnStopped(text, name_at(payload, "prompt_id"), conversation=name_at(payload, "session_id"))


_READERS: dict[str, Callable[[Payload], Iterator[AgentEvent]]] = {
    "SessionStart": _session_start,
    "SessionEnd": _session_end,
    "UserPromptSubmit": _prompt_submit,
    "PreToolUse": _pre_tool_use,
    "PostToolUse": _post_tool_use,
    "PostToolUseFailure": _post_tool_use,
    "permissionRequest": _permission_request,
    "Notification": _notification,
    "Stop": _stop,
}


def _tool(payload: Payload, key: str) -> str:
    return tool_name(payload.get(key))


# ── answers ──


def answer_permission(request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
    """Return the answer to the hook that requests a permission.

    Raises `InvalidOptions` for a decision that copilot cannot take. The request then stays open.
    """
    check_refusals(CopilotPermissions().refusals, request, decision)
    if decision.allow:
        return {"behavior": "allow"}
    deny: dict[str, Any] = {"behavior": "deny", "message": decision.message or _DENIED}
    return deny | ({"interrupt": True} if decision.interrupt else {})


class CopilotHooks:
    def read(self, payload: Payload, at: float) -> Report:
        return read_hook(payload)

    def read_emitted(self, arguments: Payload) -> Report | None:
        return None

    def decide(self, request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
        return answer_permission(request, decision)

    def refuse_prompt(self, reason: str) -> dict[str, Any]:
        return {"decision": "block", "reason": reason}

    def halt(self, reason: str) -> dict[str, Any]:
        """Return nothing: no hook of copilot can stop the turn."""
        return {}
