"""Claude Code's transcript for people: entries of a conversation, and what each message used. Pure.

`transcript.read_record` says what a record means; this adds what only people read. Facts of 2.1.325: each
content block of a message is a record of its own, with the usage of the complete message. Subagents have a
file each, in a folder next to the transcript.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.base import RecordOrder
from remuda.agents.conversation import Entry, EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.agents.events import (
    CommandRun,
    MessageRecorded,
    PromptRecorded,
    Report,
    TurnContinued,
    TurnInterrupted,
)
from remuda.untrusted import finite, text_at

from .order import InOrder
from .transcript import content_blocks, read_record

Record = Mapping[str, Any]
_SYNTHETIC = "<synthetic>"
_COUNTERS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}
_NOTES = {"compact_boundary": "the conversation was compacted"}
_SUBAGENT_FILES = 1000


class ClaudeConversations:
    usage_marks: tuple[bytes, ...] = (b'"usage"', b'"promptId"')

    def entries(self, record: Record, session_id: str) -> list[Entry]:
        """Return the entries, also of the conversation that a fork's transcript begins with."""
        report = read_record(record, session_id)
        made = [*_entries(record, report)]
        if (used := _usage(record, report)) is not None:
            made.append(
                Entry(
                    used.id, EntryKind.USAGE, used.at, model=used.model, tokens=used.tokens
                )  # once a message
            )
        return made

    def usage(self, record: Record, session_id: str) -> MessageUsage | TurnBegun | None:
        if record.get("sessionId") not in (None, session_id):
            return None
        report = read_record(record, session_id)
        prompt = next((one for one in report.events if isinstance(one, PromptRecorded)), None)
        if prompt is not None:
            turn = prompt.prompt_id or record.get("uuid")
            return TurnBegun(str(turn), report.at) if turn else None
        return _usage(record, report)

    def usage_files(self, transcript: Path) -> Iterable[Path]:
        """Return the files of subagents: for `<folder>/<id>.jsonl` in `<folder>/<id>/subagents`."""
        folder = transcript.with_suffix("") / "subagents"
        try:
            names = sorted(os.listdir(folder))[:_SUBAGENT_FILES]
        except OSError:
            return []
        return [folder / name for name in names if name.endswith(".jsonl")]

    def order(self, among: Iterable[Record]) -> RecordOrder:
        return InOrder(among)


# ── usage ──


def _usage(record: Record, report: Report) -> MessageUsage | None:
    """Return the usage of a record, also of a subagent, whose events do not count."""
    message = record.get("message")
    if record.get("type") != "assistant" or not isinstance(message, dict) or record.get("isApiErrorMessage"):
        return None
    usage, message_id, model = message.get("usage"), message.get("id"), message.get("model")
    if not isinstance(usage, dict) or not isinstance(message_id, str) or not isinstance(model, str):
        return None
    if not message_id or model == _SYNTHETIC:
        return None
    tokens = Tokens(**{name: _count(usage.get(key)) for name, key in _COUNTERS.items()})
    cost = record.get("costUSD")  # versions before 2 wrote it
    cost = max(0.0, finite(cost)) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
    return MessageUsage(message_id, model, tokens, report.at, cost, bool(report.subagent))


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        return None
    return value


# ── entries ──


def _entries(record: Record, report: Report) -> Iterator[Entry]:
    kind, uuid = record.get("type"), str(record.get("uuid") or "")
    common: dict[str, Any] = {"at": report.at, "subagent": bool(report.subagent)}
    if kind == "system":
        if (text := _system_text(record)) is not None:
            yield Entry(uuid, EntryKind.NOTICE, text=text, **common)
        return
    if kind not in ("user", "assistant"):
        return
    event = next((one for one in report.events if isinstance(one, _SPEAKING)), None)
    is_prompt = isinstance(event, PromptRecorded) and not event.notice
    hidden = bool(record.get("isMeta")) and not isinstance(event, TurnContinued)
    for number, block in enumerate(content_blocks(record)):
        one = f"{uuid}:{number}"
        shape = block.get("type")
        if shape == "tool_result":
            yield _result(one, record, block, common)
        elif shape == "thinking" and isinstance(block.get("thinking"), str) and block["thinking"]:
            yield Entry(one, EntryKind.THINKING, text=block["thinking"], **common)
        elif isinstance(block.get("name"), str) and isinstance(block.get("input"), dict):
            yield Entry(
                one, EntryKind.TOOL_CALL, tool=block["name"], call=text_at(block, "id"), input=block["input"],
                **common,
            )  # fmt: skip
        elif shape == "image":
            yield Entry(one, EntryKind.PROMPT if is_prompt else EntryKind.NOTICE, text="[image]", **common)
        elif isinstance(block.get("text"), str) and not hidden:
            yield Entry(one, _said(record, is_prompt), text=block["text"], **common)


_SPEAKING = (PromptRecorded, CommandRun, TurnContinued, TurnInterrupted, MessageRecorded)


def _said(record: Record, is_prompt: bool) -> EntryKind:
    if record.get("type") == "assistant":
        return EntryKind.ERROR if record.get("isApiErrorMessage") else EntryKind.ANSWER
    own = is_prompt or bool(record.get("isSidechain"))  # a subagent's prompt is its agent's
    return EntryKind.PROMPT if own else EntryKind.NOTICE


def _system_text(record: Record) -> str | None:
    subtype = str(record.get("subtype"))
    if subtype in _NOTES:
        return _NOTES[subtype]
    content = record.get("content")
    shown = subtype in ("informational", "local_command", "api_error") and isinstance(content, str)
    return content if shown and content else None


def _result(one: str, record: Record, block: Mapping[str, Any], common: dict[str, Any]) -> Entry:
    content = block.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        content = "\n".join(_part(part) for part in parts)
    return Entry(
        one,
        EntryKind.TOOL_RESULT,
        text=content if isinstance(content, str) else "",
        call=text_at(block, "tool_use_id"),
        ok=not block.get("is_error"),
        denied=bool(record.get("toolDenialKind")),
        diff=_diff(record.get("toolUseResult")),
        **common,
    )


def _part(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type') or 'data'}]"


def _diff(result: object) -> str | None:
    """Return the hunks that an edit reports. None for any other tool."""
    patch = result.get("structuredPatch") if isinstance(result, dict) else None
    if not isinstance(patch, list) or not patch:
        return None
    path = str(result.get("filePath") or "file") if isinstance(result, dict) else "file"
    lines = [f"--- {path}", f"+++ {path}"]
    for hunk in patch:
        if not isinstance(hunk, dict) or not isinstance(hunk.get("lines"), list):
            return None
        old, new = (f"{hunk.get(f'{side}Start')},{hunk.get(f'{side}Lines')}" for side in ("old", "new"))
        lines += [f"@@ -{old} +{new} @@", *(str(line) for line in hunk["lines"])]
    return "\n".join(lines)
