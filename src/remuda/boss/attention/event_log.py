"""The events of one session in the order in which they happened, and the projection they lead to. Pure.

The result does not depend on the order or number of times in which events arrive: a late event is inserted in
its place, and the events after it are replayed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from .model import Event, EventKind
from .projection import SessionProjection
from .rules import step

_ORDER = {kind: number for number, kind in enumerate(EventKind)}


def order(event: Event) -> tuple[float, int, int, str]:
    """Sort key: the time; at the same time the source that is worth more comes last."""
    return (event.at, -event.source, _ORDER[event.kind], event.id)


@dataclass(slots=True)
class EventLog:
    """The last events of one session and their projection. Older events are folded into `snapshot`."""

    KEPT = 64
    """How many late and duplicate events can be corrected, at least."""
    FOLDED = 8
    """Events folded into the snapshot per call; few, because a request waits for this."""

    snapshot: SessionProjection = field(default_factory=SessionProjection)
    snapshot_at: float = 0.0
    events: list[Event] = field(default_factory=list)
    projection: SessionProjection = field(default_factory=SessionProjection)
    _ids: set[str] = field(default_factory=set)

    @property
    def last_at(self) -> float:
        """Return when the last event happened; 0 without events."""
        return self.events[-1].at if self.events else self.snapshot_at

    def replay(self) -> None:
        """Compute the projection from the snapshot on; the events may be in any order."""
        self.events.sort(key=order)
        self._ids = {event.id for event in self.events}
        projection = self.snapshot
        for event in self.events:
            projection = step(projection, event)
        self.projection = projection

    def take(self, event: Event) -> bool:
        """Insert an event. False if it is known, or older than the snapshot: then nothing has changed."""
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
        """Fold the oldest events into the snapshot, once there are enough; returns those."""
        if len(self.events) < self.KEPT + self.FOLDED:
            return []
        folded, self.events = self.events[: -self.KEPT], self.events[-self.KEPT :]
        for event in folded:
            self.snapshot = step(self.snapshot, event)
        self.snapshot_at = folded[-1].at
        self._ids.difference_update(event.id for event in folded)
        return folded
