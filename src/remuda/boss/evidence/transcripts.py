"""What was added to transcripts since we last looked. Whole files are never read.

How far each was read is remembered over the life of a boss. One that is new to us, or has grown by much while
nobody looked, is read from near its end: what counts is where its session stands now. For the same reason of
one that is new to us only the last turn is told.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from remuda.agents.claude.attention import record_events
from remuda.durable import open_regular
from remuda.errors import StoreFailed
from remuda.untrusted import BadJson, dump_json, parse_object

from ..attention.model import Event, EventKind
from ..attention.story import Story
from ..desk import Desk
from .watches import tell

TAIL_BYTES = 256 << 10
"""So much of the end is read of one that is new to us."""
_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 16 << 20
_NOTE = "transcripts"


@dataclass(slots=True)
class Tail:
    """How far a file was read: `offset` is behind the last whole line."""

    path: str
    inode: int = 0
    offset: int = -1


def read_tail(tail: Tail) -> list[dict[str, Any]]:
    """The records that were added, and moves the tail behind them. Empty when the file is not there.

    A file that was replaced or cut is new. A line that is no record is passed over; one that has no end yet
    is left for the next time.
    """
    try:
        fd = open_regular(tail.path, own=True)
    except OSError:
        return []
    try:
        return _read(fd, tail)
    finally:
        os.close(fd)


def _read(fd: int, tail: Tail) -> list[dict[str, Any]]:
    found = os.fstat(fd)
    size = found.st_size
    known = tail.inode == found.st_ino and 0 <= tail.offset <= size
    start = tail.offset if known else 0
    jumps = size - start > TAIL_BYTES if not known else size - start > _LINE_BYTES
    if jumps:
        start = size - TAIL_BYTES - 1
    tail.inode, tail.offset = found.st_ino, start
    if size == start:
        return []
    data = bytearray()
    while len(data) < size - start and (piece := os.pread(fd, _CHUNK_BYTES, start + len(data))):
        data += piece
    end = data.rfind(b"\n") + 1
    if not end:
        return []
    begin = data.find(b"\n") + 1 if jumps else 0
    tail.offset = start + end
    return [record for line in bytes(data[begin:end]).split(b"\n") if (record := _record(line))]


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        return parse_object(line) if line.strip() else None
    except BadJson:
        return None


class Transcripts:
    """The transcripts of the sessions that somebody asks for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tails: dict[str, Tail] = {}
        self._busy: set[str] = set()
        self._changed = False
        self._remember()

    def _remember(self) -> None:
        try:
            found = parse_object(self._desk.store.note(_NOTE) or "{}")
            self._tails = {name: Tail(str(one[0]), int(one[1]), int(one[2])) for name, one in found.items()}
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            self._tails = {}

    async def look(self, session_id: str, path: str) -> bool:
        """Tell what is new in it. Whether anything was."""
        tail = self._tails.get(session_id)
        if tail is None or tail.path != path:
            tail = self._tails[session_id] = Tail(path)
        if session_id in self._busy or not _has_grown(tail):
            return False
        self._busy.add(session_id)
        try:
            events = await asyncio.to_thread(_read_events, tail, session_id)
            self._changed = True
            await tell(self._desk, events)
        finally:
            self._busy.discard(session_id)
        return bool(events)

    def has_news(self, session_id: str, path: str) -> bool:
        tail = self._tails.get(session_id)
        return tail is None or tail.path != path or _has_grown(tail)

    async def save(self, wanted: set[str]) -> None:
        """Remember how far they were read; of those that are not wanted any more, forget it."""
        if gone := self._tails.keys() - wanted - self._busy:
            self._changed = True
            for session_id in gone:
                del self._tails[session_id]
        if self._changed:
            self._changed = False
            tails = {name: [tail.path, tail.inode, tail.offset] for name, tail in self._tails.items()}
            try:
                await self._desk.store.save_note(_NOTE, dump_json(tails))
            except StoreFailed:
                self._changed = True


def _has_grown(tail: Tail) -> bool:
    try:
        found = os.stat(tail.path)
    except OSError:
        return False
    return (found.st_ino, found.st_size) != (tail.inode, tail.offset)


def _read_events(tail: Tail, session_id: str) -> list[Event]:
    """Records of other conversations may stand in it too: those it was forked from."""
    is_new = tail.offset < 0
    records = read_tail(tail)
    own = [one for one in records if one.get("sessionId") in (None, session_id)]
    events = [event for record in own for event in record_events(record, session_id)]
    return _last_turn(events) if is_new else events


def calls_in(tail: Tail, session_id: str) -> list[Event]:
    """The ends of calls that were added: what was refused never ran, and is told nowhere else."""
    events = (event for record in read_tail(tail) for event in record_events(record, session_id))
    return [event for event in events if event.kind is EventKind.TOOL_RAN]


def _last_turn(events: list[Event]) -> list[Event]:
    """From the last prompt on; no more than would be kept."""
    prompts = (number for number, event in enumerate(events) if event.kind is EventKind.PROMPTED)
    return events[max(prompts, default=0) :][-Story.KEPT :]
