"""All events of one session, in the order in which they happened, and where they lead. Pure.

Whatever the order in which they come, and however often each does, the end is the same: an event that comes
late is put in its place, and what follows is told again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from .model import Event, EventKind
from .projection import SessionProjection
from .rules import step

_ORDER = {kind: number for number, kind in enumerate(EventKind)}


def order(event: Event) -> tuple[float, int, int, str]:
    """When it happened; of the same moment the source that is worth more has the last word."""
    return (event.at, -event.source, _ORDER[event.kind], event.id)


@dataclass(slots=True)
class EventLog:
    """The last events of one session, and where they lead. Older ones are told in one: `base`."""

    KEPT = 64
    """How many late and twice told events can be put right at least."""
    FOLDED = 8
    """How many are told in one at a time: few, since somebody waits for the event that comes with them."""

    snapshot: SessionProjection = field(default_factory=SessionProjection)
    snapshot_at: float = 0.0
    events: list[Event] = field(default_factory=list)
    projection: SessionProjection = field(default_factory=SessionProjection)
    _ids: set[str] = field(default_factory=set)

    @property
    def last_at(self) -> float:
        """When the last of it happened; 0 for an empty one."""
        return self.events[-1].at if self.events else self.snapshot_at

    def replay(self) -> None:
        """From the base on; the events may come from the disk in any order."""
        self.events.sort(key=order)
        self._ids = {event.id for event in self.events}
        projection = self.snapshot
        for event in self.events:
            projection = step(projection, event)
        self.projection = projection

    def take(self, event: Event) -> bool:
        """False for one that is known, or is older than what can be told again: nothing has changed then."""
        if event.at < self.snapshot_at or (event.id and event.id in self._ids):
            return False
        place = bisect_left(self.events, order(event), key=order)
        self.events.insert(place, event)
        self._ids.add(event.id)
        if place == len(self.events) - 1:
            self.projection = step(self.projection, event)
        else:
            self.replay()
        return True

    def trim(self) -> list[Event]:
        """Tell the oldest in one, once there are so many more than are kept; returns those."""
        if len(self.events) < self.KEPT + self.FOLDED:
            return []
        told, self.events = self.events[: -self.KEPT], self.events[-self.KEPT :]
        for event in told:
            self.snapshot = step(self.snapshot, event)
        self.snapshot_at = told[-1].at
        self._ids.difference_update(event.id for event in told)
        return told
