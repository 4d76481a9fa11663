"""What waits in an inbox that somebody has opened and locked."""

from __future__ import annotations

from collections.abc import Iterator

from .stop_hook import Entry, Inbox


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
