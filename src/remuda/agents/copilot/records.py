"""Copilot's transcript, `events.jsonl`: each record as a report of typed events. Pure.

It is written in the order of events, up to 0.15 s late (1.0.102). It alone reports an interrupt, an API error
and the decision of a permission request, and has the text of an answer and what it used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    DialogReported,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PromptRecorded,
    Report,
    ToolFinished,
    ToolOutput,
    ToolsFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
)
from remuda.agents.prompting import Past, past_of_reports
from remuda.agents.state import Source
from remuda.untrusted import LONGEST_NAME, as_object, epoch_at, name_at

from .asking import QUESTION, question_dialog, request_input, tool_name

Record = Mapping[str, Any]


def read_record(record: Record, session_id: str | None = None) -> Report:
    """Report what a line of a transcript says."""
    kind, data = str(record.get("type"))[:LONGEST_NAME], as_object(record.get("data"))
    read = _READERS.get(kind)
    own_id = session_id or (name_at(data, "sessionId") if kind == "session.start" else None)
    return Report(
        source=Source.TRANSCRIPT,
        name=kind,
        events=tuple(read(data, own_id)) if read is not None else (),
        at=epoch_at(record, "timestamp"),
        id=f"record:{record.get('id')}",
        session_id=own_id,
        subagent=name_at(record, "agentId") or "",
    )


def _prompt(data: Record, session_id: str | None) -> Iterator[AgentEvent]:
    yield PromptRecorded(str(data.get("content", "")), name_at(data, "messageId"), session_id)


def _message(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    text, final = str(data.get("content") or ""), not data.get("toolRequests")
    yield MessageRecorded(str(data.get("messageId")), {}, text, final)


def _usage(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    """Return what one request to the model used. Its input includes what was cached."""
    usage = as_object(data.get("usage"))
    if counts := read_usage(usage):
        yield MessageRecorded(f"usage:{usage.get('apiCallId') or data.get('apiCallId')}", counts)


def read_usage(usage: Record) -> dict[str, int]:
    """Return tokens by the names that every agent's usage has here."""
    whole, read, written, said = (
        _count(usage.get(key))
        for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    )
    if whole is None and said is None:
        return {}
    return {
        "input_tokens": max(0, (whole or 0) - (read or 0) - (written or 0)),
        "output_tokens": said or 0,
        "cache_read_input_tokens": read or 0,
        "cache_creation_input_tokens": written or 0,
    }


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _tool_start(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    tool, given = tool_name(data.get("toolName")), data.get("arguments")
    yield ToolStarted(tool, given, _call(data))
    if tool == QUESTION:
        yield question_dialog(given)


def _tool_end(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    ok, denied = data.get("success") is True, as_object(data.get("error")).get("code") == "rejected"
    text = as_object(data.get("result")).get("content") or as_object(data.get("error")).get("message")
    yield ToolFinished(_call(data), ok=ok, denied=denied)
    yield ToolsFinished((ToolOutput(_call(data), "", text),))


def _requested(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    """Return that a dialog is open. A request that clients may decide comes by its hook, before this."""
    asked = as_object(data.get("permissionRequest"))
    if not data.get("resolvedByHook"):
        about = request_input(asked)
        words = about.get("command") or about.get("intention") or ""
        yield DialogReported("permission", f"{tool_name(asked.get('kind'))}: {words}", "permission_prompt")


def _decided(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    yield PermissionDecided(_call(data))


def _call(data: Record) -> str:
    return name_at(data, "toolCallId") or ""


def _abort(_data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    yield TurnInterrupted()


def _error(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    yield TurnFailed(
        failure_kind(data.get("statusCode"), data.get("errorType")),
        str(data.get("message", "")),
        name_at(data, "originatingMessageId"),
    )


_KINDS = {400: Failure.INVALID, 401: Failure.AUTHENTICATION, 403: Failure.AUTHENTICATION}
_KINDS |= {413: Failure.INVALID, 429: Failure.RATE_LIMITED, 529: Failure.OVERLOADED}


def failure_kind(status: object, error_type: object = None) -> Failure:
    words = str(error_type)
    if "rate_limit" in words or "quota" in words:
        return Failure.RATE_LIMITED
    if "auth" in words:
        return Failure.AUTHENTICATION
    return _KINDS.get(status, Failure.OTHER) if isinstance(status, int) else Failure.OTHER


def _hook_end(data: Record, _session_id: str | None) -> Iterator[AgentEvent]:
    if data.get("hookType") == "agentStop":
        yield TurnRecorded()


_READERS: dict[str, Callable[[Record, str | None], Iterator[AgentEvent]]] = {
    "user.message": _prompt,
    "assistant.message": _message,
    "session.usage_record": _usage,
    "tool.execution_start": _tool_start,
    "tool.execution_complete": _tool_end,
    "permission.requested": _requested,
    "permission.completed": _decided,
    "abort": _abort,
    "session.error": _error,
    "hook.end": _hook_end,
}


# ── a turn that was not followed ──


def read_past(records: Iterable[Record], prompt: str, since: float, same: Callable[[str, str], bool]) -> Past:
    """Return what happened to `prompt`, handed over at `since` or later."""
    return past_of_reports(map(read_record, records), prompt, since, same)
