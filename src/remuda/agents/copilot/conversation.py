"""Copilot's transcript for people: entries, and what each request to the model used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.base import RecordOrder
from remuda.agents.conversation import Entry, EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.observer import AsWritten
from remuda.untrusted import as_object, epoch_at

from .asking import tool_name
from .records import read_usage

Record = Mapping[str, Any]


class CopilotConversations:
    usage_marks: tuple[bytes, ...] = (b'"session.usage_record"', b'"user.message"')

    def entries(self, record: Record, session_id: str) -> list[Entry]:
        used = self.usage(record, session_id)
        if isinstance(used, MessageUsage):
            return [
                Entry(
                    used.id,
                    EntryKind.USAGE,
                    used.at,
                    model=used.model or None,
                    tokens=used.tokens,
                    subagent=used.subagent,
                )
            ]
        return [*_entries(record)]

    def usage(self, record: Record, session_id: str) -> MessageUsage | TurnBegun | None:
        kind, data = record.get("type"), as_object(record.get("data"))
        if kind == "user.message":
            turn = TurnBegun(str(data.get("messageId") or record.get("id")), epoch_at(record, "timestamp"))
            return None if record.get("agentId") else turn
        usage = as_object(data.get("usage"))
        if kind != "session.usage_record" or not (counts := read_usage(usage)):
            return None
        tokens = Tokens(
            counts["input_tokens"],
            counts["output_tokens"],
            counts["cache_read_input_tokens"],
            counts["cache_creation_input_tokens"],
        )
        call = str(usage.get("apiCallId") or data.get("apiCallId") or record.get("id"))
        model = str(usage.get("model") or data.get("model") or "")
        return MessageUsage(
            call, model, tokens, epoch_at(record, "timestamp"), subagent=bool(record.get("agentId"))
        )

    def usage_files(self, transcript: Path) -> Iterable[Path]:
        return []

    def order(self, among: Iterable[Record]) -> RecordOrder:
        return AsWritten()


def _entries(record: Record) -> Iterator[Entry]:
    data, at, one = as_object(record.get("data")), epoch_at(record, "timestamp"), str(record.get("id"))
    below, call = bool(record.get("agentId")), str(data.get("toolCallId"))
    match record.get("type"):
        case "user.message":
            yield Entry(one, EntryKind.PROMPT, at, str(data.get("content", "")), subagent=below)
        case "assistant.message":
            if thinking := data.get("reasoningText"):
                yield Entry(f"{one}:thinking", EntryKind.THINKING, at, str(thinking), subagent=below)
            if text := data.get("content"):
                yield Entry(one, EntryKind.ANSWER, at, str(text), subagent=below)
        case "tool.execution_start":
            tool, given = tool_name(data.get("toolName")), as_object(data.get("arguments"))
            yield Entry(one, EntryKind.TOOL_CALL, at, tool=tool, call=call, input=given, subagent=below)
        case "tool.execution_complete":
            yield _result(one, at, data, below)
        case "abort":
            yield Entry(one, EntryKind.NOTICE, at, "interrupted")
        case "session.error":
            yield Entry(one, EntryKind.ERROR, at, str(data.get("message", "")))
        case "session.compaction_complete":
            yield Entry(one, EntryKind.NOTICE, at, "the conversation was compacted")


def _result(one: str, at: float | None, data: Record, below: bool) -> Entry:
    error = as_object(data.get("error"))
    text = as_object(data.get("result")).get("content") or error.get("message") or ""
    return Entry(
        one,
        EntryKind.TOOL_RESULT,
        at,
        str(text),
        call=str(data.get("toolCallId")),
        ok=data.get("success") is True,
        denied=error.get("code") == "rejected",
        subagent=below,
    )
