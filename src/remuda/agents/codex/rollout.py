"""The file of a conversation (`rollout-*.jsonl`): as events, for people, and for accounts. Pure.

A turn begins with `task_started` and ends with `task_complete` or `turn_aborted`. A failed turn ends with an
`error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.base import RecordOrder
from remuda.agents.conversation import Entry, EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.events import (
    AgentEvent,
    Failure,
    MessageRecorded,
    PromptRecorded,
    Report,
    ToolFinished,
    TurnFailed,
    TurnInterrupted,
)
from remuda.agents.observer import AsWritten
from remuda.agents.prompting import Past
from remuda.agents.state import Source
from remuda.untrusted import as_object, as_objects, epoch_at, text_at

from .notices import PATCH, SHELL

Record = Mapping[str, Any]
# The clock of the file and ours are one, but the date of a record is cut to milliseconds.
_UNCLEAR_SECONDS = 0.01
_USAGE_RECORD = "token_usage_record"
_TOOLS = {"CommandExecution": SHELL, "FileChange": PATCH, "McpToolCall": "mcp", "WebSearch": "web_search"}


def payload_of(record: Record) -> dict[str, Any]:
    return as_object(record.get("payload"))


def _item(payload: Record) -> dict[str, Any]:
    return as_object(payload.get("item")) if payload.get("type") == "item_completed" else {}


def _text(item: Record) -> str:
    return "".join(str(one.get("text", "")) for one in as_objects(item.get("content")))


def prompt_of(payload: Record) -> str | None:
    """Return the prompt that a record has; None for any other record."""
    item = _item(payload)
    return _text(item) if item.get("type") == "UserMessage" else None


def read_past(records: Iterable[Record], prompt: str, since: float) -> Past:
    """Return what became of `prompt`, handed over at `since` or later."""
    turn: object = None
    usages: list[dict[str, Any]] = []
    for record in records:
        payload, at = payload_of(record), epoch_at(record, "timestamp")
        kind = payload.get("type")
        if (
            turn is None
            and prompt_of(payload) == prompt
            and at is not None
            and at >= since - _UNCLEAR_SECONDS
        ):
            turn = payload.get("turn_id")
        elif turn is not None and payload.get("turn_id") == turn:
            if record.get("type") == _USAGE_RECORD:
                usages.append(_usage(payload))
            if kind == "task_complete" and not payload.get("error"):
                text = str(payload.get("last_agent_message") or "")
                return Past(True, True, text, str(turn), usages=tuple(usages))
            if kind == "turn_aborted":
                return Past(True, prompt_id=str(turn), interrupted=True)
    return Past() if turn is None else Past(True, prompt_id=str(turn))


def read_record(record: Record, session_id: str) -> Report:
    """Report what a record says."""
    payload = payload_of(record)
    turn = text_at(payload, "turn_id")
    events: list[AgentEvent] = []
    if (prompt := prompt_of(payload)) is not None:
        events = [PromptRecorded(prompt, turn, session_id)]
    elif payload.get("type") == "task_complete":
        error = as_object(payload.get("error"))
        text = str(error.get("message") or payload.get("last_agent_message") or "")
        limited = error.get("codex_error_info") in ("usage_limit_exceeded", "rate_limit_exceeded")
        kind = Failure.RATE_LIMITED if limited else Failure.OTHER
        done = MessageRecorded(turn or "", {}, text, final=True)
        events = [TurnFailed(kind, text, turn) if error else done]
    elif payload.get("type") == "turn_aborted":
        events = [TurnInterrupted(turn)]
    elif (item := _item(payload)).get("type") in _TOOLS:
        events = [_finished(item)]
    kind_name = str(payload.get("type"))
    return Report(
        Source.TRANSCRIPT,
        kind_name,
        tuple(events),
        at=epoch_at(record, "timestamp"),
        id=f"{turn}:{_item(payload).get('id') or kind_name}",
        session_id=session_id,
    )


def _finished(item: Record) -> ToolFinished:
    """Return the end of a call. No hook reports one that was denied."""
    command = item.get("command")
    given = {"command": str(command[-1])} if isinstance(command, list) and command else None
    ok, denied = item.get("status") == "completed", item.get("status") == "declined"
    return ToolFinished(str(item.get("id")), ok, denied, _TOOLS[str(item.get("type"))], given)


# ── for people and accounts ──


class CodexConversations:
    usage_marks: tuple[bytes, ...] = (b'"token_usage_record"', b'"task_started"')

    def entries(self, record: Record, session_id: str) -> list[Entry]:
        payload, at = payload_of(record), epoch_at(record, "timestamp")
        item, kind = _item(payload), payload.get("type")
        one = str(item.get("id") or f"{payload.get('turn_id')}:{kind}")
        if record.get("type") == _USAGE_RECORD:
            used = self.usage(record, session_id)
            if isinstance(used, MessageUsage):
                return [Entry(used.id, EntryKind.USAGE, at, model=used.model or None, tokens=used.tokens)]
        if kind == "turn_aborted":
            return [Entry(one, EntryKind.NOTICE, at, "interrupted")]
        if kind == "task_complete" and (error := as_object(payload.get("error"))):
            return [Entry(one, EntryKind.ERROR, at, str(error.get("message", "")))]
        match item.get("type"):
            case "UserMessage":
                return [Entry(one, EntryKind.PROMPT, at, _text(item))]
            case "AgentMessage":
                return [Entry(one, EntryKind.ANSWER, at, _text(item))]
            case "Reasoning":
                text = "\n".join(str(part) for part in item.get("summary_text") or [])
                return [Entry(one, EntryKind.THINKING, at, text)] if text else []
            case str(name) if name in _TOOLS:
                return _tool_entries(one, at, name, item)
        return []

    def usage(self, record: Record, session_id: str) -> MessageUsage | TurnBegun | None:
        payload = payload_of(record)
        if payload.get("type") == "task_started":
            return TurnBegun(str(payload.get("turn_id")), epoch_at(record, "timestamp"))
        if record.get("type") != _USAGE_RECORD or payload.get("thread_id") not in (None, session_id):
            return None
        tokens = Tokens(*_usage(payload).values())
        response = str(payload.get("response_id") or payload.get("turn_id"))
        return MessageUsage(response, str(payload.get("model") or ""), tokens, epoch_at(record, "timestamp"))

    def usage_files(self, transcript: Path) -> Iterable[Path]:
        return []

    def order(self, among: Iterable[Record]) -> RecordOrder:
        return AsWritten()


def _usage(payload: Record) -> dict[str, int | None]:
    """Return the tokens of one answer of the model, as all agents count them."""
    count = {key: _count(value) for key, value in as_object(payload.get("usage")).items()}
    cached, written = count.get("cached_input_tokens") or 0, count.get("cache_write_input_tokens") or 0
    given = count.get("input_tokens")
    return {
        "input_tokens": None if given is None else max(0, given - cached - written),
        "output_tokens": count.get("output_tokens"),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
    }


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        return None
    return value


def _tool_entries(one: str, at: float | None, name: str, item: Record) -> list[Entry]:
    tool, given = _TOOLS[name], {key: item[key] for key in ("changes", "query", "arguments") if key in item}
    command = item.get("command")
    if isinstance(command, list) and command:
        given = {"command": str(command[-1])}
    output = item.get("aggregated_output") or item.get("stdout") or ""
    ok = item.get("status") == "completed"
    denied = item.get("status") == "declined"
    return [
        Entry(f"{one}:call", EntryKind.TOOL_CALL, at, tool=tool, call=one, input=given),
        Entry(one, EntryKind.TOOL_RESULT, at, str(output), tool=tool, call=one, ok=ok, denied=denied),
    ]
