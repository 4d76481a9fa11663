"""Which connections a server keeps, and which it drops for a new one. Pure: no sockets, no clock.

A connection is pending until it has shown the token, then trusted. Each has a limit of its own, so another
user, who has no token, can only displace pending connections. A new connection displaces the oldest pending
one: a client of ours sends its head at once, and is trusted before it can become the oldest. A peer known to
be another user's displaces only one that has had its time: else it is closed at once, before a transport and
a parser are made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

RESERVED_DESCRIPTORS = 128
"""For files, programs and terminals, whatever the number of connections."""
STRANGER_STAY = 0.1
"""Seconds for which a connection is not displaced by another user's."""
_FEWEST = 4

C = TypeVar("C", bound=Hashable)


class Limits(NamedTuple):
    pending: int
    trusted: int


def fit(wanted: tuple[Limits, ...], descriptors: int) -> tuple[Limits, ...]:
    """Return the limits of all servers of a process, reduced if it may not open that many files."""
    total = sum(pending + trusted for pending, trusted in wanted)
    part = min(1.0, max(0, descriptors - RESERVED_DESCRIPTORS) / total)
    return tuple(
        Limits(max(_FEWEST, int(pending * part)), max(_FEWEST, int(trusted * part)))
        for pending, trusted in wanted
    )


class Admission(Generic[C]):
    """The connections of one listening socket.

    `is_own` returns whether a peer is this user or root, None if unknown. It is called at most once for a
    connection, and only when the pending ones are at their limit.
    """

    def __init__(self, limits: Limits, is_own: Callable[[C], bool | None]) -> None:
        self.limits = limits
        self._is_own = is_own
        self._pending: dict[C, float] = {}  # the oldest first, with the time when it came
        self._owned: dict[C, bool | None] = {}  # of those that are pending and were looked up
        self._trusted: set[C] = set()

    def enter(self, one: C, now: float) -> C | None:
        """Count a new connection. Returns the one to drop for it, which may be `one` itself."""
        self._pending[one] = now
        if len(self._pending) <= self.limits.pending:
            return None
        dropped = self._to_drop(one, now)
        self.leave(dropped)
        return dropped

    def _to_drop(self, one: C, now: float) -> C:
        oldest = next((other for other in self._pending if not self._belongs(other)), None)
        if oldest is None:
            return next(iter(self._pending))
        is_young = now - self._pending[oldest] < STRANGER_STAY
        return one if is_young and self._belongs(one) is False else oldest

    def _belongs(self, one: C) -> bool | None:
        if one not in self._owned:
            self._owned[one] = self._is_own(one)
        return self._owned[one]

    def trust(self, one: C) -> bool:
        """Move a pending connection to the trusted ones. False when these are at their limit."""
        if one in self._trusted:
            return True
        if one not in self._pending or len(self._trusted) >= self.limits.trusted:
            return False
        self.leave(one)
        self._trusted.add(one)
        return True

    def oldest_pending(self) -> C | None:
        return next(iter(self._pending), None)

    def leave(self, one: C) -> None:
        """Remove a closed connection. May be called twice."""
        self._pending.pop(one, None)
        self._owned.pop(one, None)
        self._trusted.discard(one)
