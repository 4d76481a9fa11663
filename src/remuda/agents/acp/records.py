"""Our record of a conversation over ACP: what was sent, said and done, as JSON lines. Pure.

ACP has no ids of messages, and few agents keep a file that others may read. So the session writes one itself.
A prompt is in it before the agent gets it: one that is not there never reached the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.base import RecordOrder
from remuda.agents.conversation import Entry, EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.observer import AsWritten
from remuda.agents.prompting import Past
from remuda.digest import sha256
from remuda.untrusted import as_object, finite, text_at

Record = Mapping[str, Any]
CLOCK_SLACK = 0.01
"""Seconds: times are rounded. One attempt that is taken for an earlier one would run twice."""
_SUSPECT = "Error:"
DOUBT = (
    "the answer begins with 'Error:': over ACP an agent may report an error of its service so, "
    "as copilot does; it may not have done what the prompt says"
)
_KINDS = {
    "prompt": EntryKind.PROMPT,
    "text": EntryKind.ANSWER,
    "thought": EntryKind.THINKING,
    "notice": EntryKind.NOTICE,
}


def file_name(conversation: str) -> str:
    """Return the name of a conversation's file: its id is the agent's, and may hold anything."""
    return sha256(conversation.encode(errors="replace"))[:24] + ".jsonl"


def find_past(
    records: Iterable[Record], since: float, *, message: str | None = None, prompt: str | None = None
) -> Past:
    """Return what became of a message, or of a prompt with this text, handed over at `since` or later.

    One without an end was cut off with its process. It may have run, so it counts as submitted.
    """
    past = Past()
    for record in records:
        turn = text_at(record, "turn")
        if record.get("type") == "prompt":
            is_ours = (
                record.get("message") == message if message is not None else record.get("text") == prompt
            )
            if is_ours and finite(record.get("at")) >= since - CLOCK_SLACK:
                past = Past(submitted=True, prompt_id=turn)
        elif record.get("type") == "end" and past.prompt_id is not None and turn == past.prompt_id:
            how = record.get("how")
            text = text_at(record, "text") or ""
            usages = (as_object(record.get("usage")),)
            was = how == "answered", text, turn, how == "interrupted"
            past = Past(True, *was, usages=usages, doubt=doubt_of(text))
    return past


def doubt_of(answer: str) -> str:
    """Return why the text of an answer may be an error of the agent's service; empty if nothing says so.

    Copilot 1.0.102 ends such a turn with `end_turn` and the text `Error: 400 …`.
    """
    return DOUBT if answer.lstrip().startswith(_SUSPECT) else ""


class AcpConversations:
    """Reads these records for people and for accounts."""

    usage_marks: tuple[bytes, ...] = (b'"usage"', b'"prompt"')

    def entries(self, record: Record, session_id: str) -> list[Entry]:
        if record.get("conversation") != session_id:
            return []
        entry_id, at, kind = _id(record), finite(record.get("at")) or None, record.get("type")
        text, tool = text_at(record, "text") or "", text_at(record, "tool")
        if kind in _KINDS:
            return [Entry(entry_id, _KINDS[str(kind)], at, text)]
        if kind == "tool":
            given = as_object(record.get("input"))
            call = text_at(record, "call")
            return [Entry(entry_id, EntryKind.TOOL_CALL, at, text, tool=tool, call=call, input=given)]
        if kind == "tool_result":
            ok, call = bool(record.get("ok")), text_at(record, "call")
            return [Entry(entry_id, EntryKind.TOOL_RESULT, at, text, tool=tool, call=call, ok=ok)]
        return self._end(record, entry_id, at, text) if kind == "end" else []

    def _end(self, record: Record, entry_id: str, at: float | None, text: str) -> list[Entry]:
        made = []
        if record.get("how") == "failed":
            made.append(Entry(entry_id, EntryKind.ERROR, at, text))
        elif record.get("how") == "interrupted":
            made.append(Entry(entry_id, EntryKind.NOTICE, at, "interrupted"))
        if (tokens := _tokens(record)) is not None:
            made.append(Entry(f"{entry_id}:usage", EntryKind.USAGE, at, tokens=tokens))
        return made

    def usage(self, record: Record, session_id: str) -> MessageUsage | TurnBegun | None:
        if record.get("conversation") != session_id:
            return None
        at = finite(record.get("at")) or None
        if record.get("type") == "prompt":
            return TurnBegun(_id(record), at)
        tokens = _tokens(record)
        return None if tokens is None else MessageUsage(f"{_id(record)}:usage", "", tokens, at)

    def usage_files(self, transcript: Path) -> Iterable[Path]:
        return []

    def order(self, among: Iterable[Record]) -> RecordOrder:
        return AsWritten()


def _id(record: Record) -> str:
    return text_at(record, "id") or ""


def _tokens(record: Record) -> Tokens | None:
    used = as_object(record.get("usage"))
    if record.get("type") != "end" or not used:
        return None
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Tokens(*(int(finite(used.get(name))) for name in names))
