"""Report what is appended to transcripts. Long files are never read from their start.

The position in each file is stored. A transcript that is new to us, or has grown by much since the last read,
is read from near its end, and of a new one only the last turn is reported: only the current state matters.
"""

from __future__ import annotations

import asyncio

from remuda.agents.sources import AgentSources
from remuda.errors import StoreFailed
from remuda.jsonl_tail import JsonlTail
from remuda.untrusted import dump_json, parse_object

from ..attention.event_log import EventLog
from ..attention.model import Event, EventKind
from ..service import BossService
from .watches import report

RECENT_BYTES = 256 << 10
"""How much of the end of a new transcript is read."""
_NOTE = "transcripts"


class Transcripts:
    """The transcripts of the sessions that sources ask for."""

    def __init__(self, service: BossService) -> None:
        self._service = service
        self._tails: dict[str, JsonlTail] = {}
        self._busy: set[str] = set()
        self._changed = False
        self._remember()

    def _remember(self) -> None:
        try:
            stored = parse_object(self._service.store.note(_NOTE) or "{}")
            self._tails = {
                name: open_tail(str(path), int(inode), int(offset))
                for name, (path, inode, offset) in stored.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            self._tails = {}

    async def read(self, sources: AgentSources, session_id: str, path: str) -> bool:
        """Report what was appended to a transcript. Returns whether anything was."""
        tail = self._tails.get(session_id)
        if tail is None or tail.path != path:
            tail = self._tails[session_id] = open_tail(path)
        if session_id in self._busy or not tail.has_changed():
            return False
        self._busy.add(session_id)
        try:
            events = await asyncio.to_thread(_read_events, sources, tail, session_id)
            self._changed = True
            await report(self._service, events)
        finally:
            self._busy.discard(session_id)
        return bool(events)

    def has_changed(self, session_id: str, path: str) -> bool:
        tail = self._tails.get(session_id)
        return tail is None or tail.path != path or tail.has_changed()

    async def save(self, wanted: set[str]) -> None:
        """Store the positions, and forget those of all but the `wanted` sessions."""
        if gone := self._tails.keys() - wanted - self._busy:
            self._changed = True
            for session_id in gone:
                del self._tails[session_id]
        if self._changed:
            self._changed = False
            tails = {name: [tail.path, tail.inode, tail.offset] for name, tail in self._tails.items()}
            try:
                await self._service.store.save_note(_NOTE, dump_json(tails))
            except StoreFailed:
                self._changed = True


def open_tail(path: str, inode: int = 0, offset: int = 0) -> JsonlTail:
    return JsonlTail(path, inode=inode, offset=max(0, offset), recent_bytes=RECENT_BYTES, own=True)


def _read_events(sources: AgentSources, tail: JsonlTail, session_id: str) -> list[Event]:
    is_new = tail.is_new
    events = [event for record in tail.read() for event in sources.record_events(record, session_id)]
    return _last_turn(events) if is_new else events


def ended_calls(sources: AgentSources, tail: JsonlTail, session_id: str) -> list[Event]:
    """Return the tool calls that ended since the last read. No hook reports a call that was denied."""
    events = (event for record in tail.read() for event in sources.record_events(record, session_id))
    return [event for event in events if event.kind is EventKind.TOOL_RAN]


def _last_turn(events: list[Event]) -> list[Event]:
    """Return the events from the last prompt on, but no more than the event log keeps."""
    prompts = (number for number, event in enumerate(events) if event.kind is EventKind.PROMPTED)
    return events[max(prompts, default=0) :][-EventLog.KEPT :]
