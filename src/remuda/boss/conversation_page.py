"""Pages of a conversation, from the agent's own file: the newest first, each bounded.

A cursor is the inode and the offset of a line. Lines are read backwards from there, so that a long file costs
no more than a short one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from remuda.agents import find_sources
from remuda.agents.conversation import Entry, EntryKind
from remuda.agents.sources import ConversationReader
from remuda.durable import open_regular
from remuda.jsonl_tail import MAX_LINE_BYTES
from remuda.untrusted import bounded, parse_json

from .attention.model import BossSession

TEXT_CHARACTERS = 20_000
"""Of one text of an entry."""
PAGE_CHARACTERS = 1 << 20
"""Of all texts of a page."""
_SCAN_BYTES = 32 << 20
_SCAN_LINES = 5000
"""Of one page: an agent can fill its file with lines that say nothing."""
_CHUNK_BYTES = 256 << 10
_INPUT_DEPTH = 8
_INPUT_ITEMS = 200


@dataclass(frozen=True, slots=True)
class Page:
    entries: list[dict[str, Any]]
    before: str | None
    after: str | None


def reader_of(session: BossSession) -> ConversationReader | None:
    """Return what reads the conversation of this agent; None if it records none."""
    sources = find_sources(session.agent)
    return sources.conversations if sources is not None else None


def transcript_of(session: BossSession) -> str | None:
    """Return where the conversation is recorded; None if that is not known. Blocks."""
    if session.transcript_path:
        return session.transcript_path
    sources = find_sources(session.agent)
    path = sources.find_transcript(os.environ, session.id) if sources is not None else None
    return None if path is None else str(path)


def read_page(
    reader: ConversationReader,
    path: str,
    session_id: str,
    limit: int,
    *,
    before: str | None,
    after: str | None,
) -> Page:
    """Return a page. Raises OSError if the file cannot be read. Blocks."""
    fd = open_regular(path, own=True)
    try:
        found = os.fstat(fd)
        inode, size = found.st_ino, found.st_size
        if after is not None and (start := _offset(after, inode, size)) is not None:
            return _read_after(reader, fd, session_id, limit, inode, start, size)
        end = _offset(before, inode, size) if before is not None else None
        return _read_before(reader, fd, session_id, limit, inode, size if end is None else end)
    finally:
        os.close(fd)


def _offset(cursor: str, inode: int, size: int) -> int | None:
    """Return the position of a cursor; None if it belongs to another file."""
    file, _, offset = cursor.partition("-")
    return int(offset) if int(file) == inode and int(offset) <= size else None


def _read_before(
    reader: ConversationReader, fd: int, session_id: str, limit: int, inode: int, end: int
) -> Page:
    records: list[tuple[int, dict[str, Any]]] = []
    count, room, first, last = 0, PAGE_CHARACTERS, end, None
    for start, line in islice(_lines_backwards(fd, end), _SCAN_LINES):
        if last is None:
            last = start + len(line) + 1
        record = _parse(line)
        entries = reader.entries(record, session_id) if record is not None else []
        size = sum(map(_size, entries))
        if count and (count + len(entries) > limit or size > room):
            break
        first = start
        count, room = count + len(entries), room - size
        if record is not None:
            records.append((start, record))
    if first == end:  # nothing but a line that is too long
        first = max(0, end - _SCAN_BYTES)
    shown = _shown(reader, [record for _, record in reversed(records)], session_id)
    return Page(shown, f"{inode}-{first}" if first > 0 else None, f"{inode}-{end if last is None else last}")


def _read_after(
    reader: ConversationReader, fd: int, session_id: str, limit: int, inode: int, start: int, size: int
) -> Page:
    data = os.pread(fd, min(size - start, _SCAN_BYTES), start)
    records, count, position = [], 0, start
    for line in islice(_lines(data), _SCAN_LINES):
        record = _parse(line)
        entries = reader.entries(record, session_id) if record is not None else []
        if count and count + len(entries) > limit:
            break
        position, count = position + len(line), count + len(entries)
        if record is not None:
            records.append(record)
    return Page(_shown(reader, records, session_id), f"{inode}-{start}", f"{inode}-{position}")


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield complete lines, with their ends."""
    start = 0
    while end := data.find(b"\n", start) + 1:
        yield data[start:end]
        start = end


def _lines_backwards(fd: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield complete lines and where they begin, the last first. Stops after `_SCAN_BYTES`."""
    rest, position, lowest = b"", end, max(0, end - _SCAN_BYTES)
    is_tail = True
    while position > lowest:
        size = min(_CHUNK_BYTES, position - lowest)
        position -= size
        data = os.pread(fd, size, position) + rest
        lines = data.split(b"\n")
        rest = lines[0]
        offset = position + len(data)
        for line in reversed(lines[1:]):
            offset -= len(line)
            if is_tail:  # after the last newline: a line that is being written
                is_tail = False
            else:
                yield offset, line
            offset -= 1
        if len(rest) > MAX_LINE_BYTES:
            return
    if position == 0 and rest.strip() and not is_tail:
        yield 0, rest


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


# ── entries as documents ──


def _shown(
    reader: ConversationReader, records: list[dict[str, Any]], session_id: str
) -> list[dict[str, Any]]:
    order, entries = reader.order(records), []
    ordered = [one for record in records for one in order.take(record)]
    for record in (*ordered, *order.flush()):
        entries += reader.entries(record, session_id)
    last_usage = {one.id: number for number, one in enumerate(entries) if one.kind is EntryKind.USAGE}
    return [
        document(one)
        for number, one in enumerate(entries)
        if one.kind is not EntryKind.USAGE or last_usage[one.id] == number
    ]


def _size(entry: Entry) -> int:
    return min(len(entry.text), TEXT_CHARACTERS) + min(len(entry.diff or ""), TEXT_CHARACTERS) + 300


def document(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON: bounded, with `cut` where something was left out."""
    cutter = _Cutter(TEXT_CHARACTERS)
    made: dict[str, Any] = {
        "id": entry.id[:200],
        "kind": str(entry.kind),
        "at": entry.at,
        "text": cutter.text(entry.text),
        "tool": None if entry.tool is None else entry.tool[:200],
        "call": None if entry.call is None else entry.call[:200],
        "input": None,
        "ok": entry.ok,
        "denied": entry.denied,
        "diff": None if entry.diff is None else cutter.text(entry.diff),
        "model": None if entry.model is None else entry.model[:200],
        "tokens": None,
        "subagent": entry.subagent,
    }
    if entry.input is not None:
        made["input"] = cutter.value(dict(entry.input), _INPUT_DEPTH)
    if entry.tokens is not None:
        made["tokens"] = {one.name: getattr(entry.tokens, one.name) for one in fields(entry.tokens)}
    made["cut"] = cutter.has_cut
    bounded_document: dict[str, Any] = bounded(made)
    return bounded_document


class _Cutter:
    """Cuts texts and nesting; all texts of an input share one bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self.has_cut = False

    def text(self, text: str) -> str:
        if len(text) > self._most:
            self.has_cut = True
        return text[: self._most]

    def value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            if len(value) > self._left:
                self.has_cut = True
            value = value[: self._left]
            self._left -= len(value)
            return value
        if isinstance(value, Mapping | list) and depth == 0:
            self.has_cut = True
            return "…"
        if isinstance(value, Mapping):
            self.has_cut |= len(value) > _INPUT_ITEMS
            pairs = list(value.items())[:_INPUT_ITEMS]
            return {str(key)[:200]: self.value(one, depth - 1) for key, one in pairs}
        if isinstance(value, list):
            self.has_cut |= len(value) > _INPUT_ITEMS
            return [self.value(one, depth - 1) for one in value[:_INPUT_ITEMS]]
        return value
