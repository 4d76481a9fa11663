"""Our transcript of an opencode conversation for people: entries, and what each message used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.base import RecordOrder
from remuda.agents.conversation import Entry, EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.observer import AsWritten
from remuda.untrusted import as_object, finite

from .messages import failure, info_of, is_prompt, parts_of, usage_of
from .reader import REJECTED

Record = Mapping[str, Any]


class OpencodeConversations:
    usage_marks: tuple[bytes, ...] = (b'"tokens"', b'"user"')

    def entries(self, record: Record, session_id: str) -> list[Entry]:
        made = [*_entries(record)]
        used = self.usage(record, session_id)
        if isinstance(used, MessageUsage):
            made.append(Entry(used.id, EntryKind.USAGE, used.at, model=used.model, tokens=used.tokens))
        return made

    def usage(self, record: Record, session_id: str) -> MessageUsage | TurnBegun | None:
        info = info_of(record)
        message_id = str(info.get("id") or "")
        if info.get("sessionID") != session_id or not message_id:
            return None
        if info.get("role") == "user":
            return TurnBegun(message_id, _time(info)) if is_prompt(record) else None
        used = usage_of(record)
        tokens = Tokens(
            used["input_tokens"],
            used["output_tokens"],
            used["cache_read_input_tokens"],
            used["cache_creation_input_tokens"],
        )
        # Its own prices, which are 0 where it knows none.
        cost = max(0.0, finite(info.get("cost"))) or None
        return MessageUsage(message_id, str(info.get("modelID") or ""), tokens, _time(info), cost)

    def usage_files(self, transcript: Path) -> Iterable[Path]:
        return []

    def order(self, among: Iterable[Record]) -> RecordOrder:
        return AsWritten()


def _time(info: Record) -> float | None:
    return finite(as_object(info.get("time")).get("created")) / 1000 or None


def _entries(record: Record) -> Iterator[Entry]:
    info = info_of(record)
    at, is_user = _time(info), info.get("role") == "user"
    for part in parts_of(record):
        part_id, kind, text = str(part.get("id") or ""), part.get("type"), part.get("text")
        if kind == "text" and isinstance(text, str):
            said = EntryKind.PROMPT if is_user else EntryKind.ANSWER
            yield Entry(part_id, EntryKind.NOTICE if part.get("synthetic") else said, at, text)
        elif kind == "reasoning" and isinstance(text, str) and text:
            yield Entry(part_id, EntryKind.THINKING, at, text)
        elif kind == "tool":
            yield from _tool(part_id, at, part)
        elif kind == "compaction":
            yield Entry(part_id, EntryKind.NOTICE, at, "the conversation was compacted")
    error = as_object(info.get("error"))
    if error.get("name") == "MessageAbortedError":
        yield Entry(f"{info.get('id')}:error", EntryKind.NOTICE, at, "interrupted")
    elif error:
        yield Entry(f"{info.get('id')}:error", EntryKind.ERROR, at, failure(error, None).text)


def _tool(part_id: str, at: float | None, part: Record) -> Iterator[Entry]:
    state, tool, call = as_object(part.get("state")), str(part.get("tool")), str(part.get("callID"))
    given = as_object(state.get("input"))
    yield Entry(part_id, EntryKind.TOOL_CALL, at, tool=tool, call=call, input=given)
    status = state.get("status")
    if status in ("completed", "error"):
        text = str(state.get("output" if status == "completed" else "error") or "")
        diff = as_object(state.get("metadata")).get("diff")
        yield Entry(
            f"{part_id}:result",
            EntryKind.TOOL_RESULT,
            at,
            text,
            tool=tool,
            call=call,
            ok=status == "completed",
            denied=text.startswith(REJECTED),
            diff=diff if isinstance(diff, str) else None,
        )
