"""What waits in an inbox that somebody has opened and locked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from .stop_hook import Entry, Inbox

TakenBack = Literal["dropped", "in flight", "unknown"]


def entries(inbox: Inbox) -> Iterator[Entry]:
    """All that is not acknowledged, in order; what is in flight is among them."""
    if inbox.reader is None:
        return
    for one in inbox.queue.held:
        entry, _ = inbox.reader.next(int(one["start"]))
        if entry is not None:
            yield entry
    position = inbox.queue.frontier
    while True:
        entry, position = inbox.reader.next(position)
        if entry is None:
            return
        yield entry


def take_back(inbox: Inbox, message: str, reason: str) -> TakenBack:
    """Drop a message that waits. One that is in flight is not touched."""
    entry = next((one for one in entries(inbox) if one.id == message), None)
    if entry is None:
        return "unknown"
    flight = inbox.in_flight()
    if flight is not None and entry.start == int(flight["start_offset"]):
        return "in flight"
    inbox.take_back(entry, reason)
    return "dropped"
