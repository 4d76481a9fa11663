"""In which states agents were, and for how long: segments for the last hours, sums for a month. Pure.

What cannot be known, such as the time in which no boss ran, is a state of None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from remuda.agents.state import State

from .records.figures import QUARTER

SEGMENTS = 1000
"""Of one session in one answer. If there are more, short ones are joined to those before them."""
_DEAD = str(State.DEAD)
Change = tuple[str, float, str | None]


class StateHistory:
    """Takes each session's state as it becomes known, and returns what must be written."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str | None, float]] = {}  # state, and up to when its time is counted
        self._changes: dict[tuple[str, float], str | None] = {}
        self._times: dict[tuple[int, str], float] = {}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def note(self, session_id: str, state: str | None, now: float) -> bool:
        """Take a state. True if it is another one than before."""
        known = self._states.get(session_id)
        if known is not None and known[0] == state:
            return False
        if known is None and state in (None, _DEAD):
            return False
        if known is not None:
            self._count(known[0], known[1], now)
        self._changes[session_id, now] = state
        if state == _DEAD:
            self._states.pop(session_id, None)
        else:
            self._states[session_id] = (state, now)
        return True

    def forget(self, session_id: str, now: float) -> None:
        """End a session whose state will not be reported again."""
        if (known := self._states.pop(session_id, None)) is not None:
            self._count(known[0], known[1], now)
            self._changes[session_id, now] = None

    def sessions(self) -> set[str]:
        return set(self._states)

    def take(self, now: float) -> tuple[list[Change], list[tuple[int, str, float]]]:
        """Return changes, and (quarter, state, seconds), up to now: each once."""
        for session_id, (state, counted) in self._states.items():
            self._count(state, counted, now)
            self._states[session_id] = (state, max(counted, now))
        changes = [(session_id, at, state) for (session_id, at), state in self._changes.items()]
        times = [(quarter, state, seconds) for (quarter, state), seconds in self._times.items()]
        self._changes, self._times = {}, {}
        return changes, times

    def _count(self, state: str | None, since: float, until: float) -> None:
        if state is None or until - since > 2 * 86400:  # the clock was set
            return
        while since < until:
            quarter = int(since) // QUARTER
            end = min(until, (quarter + 1) * QUARTER)
            self._times[quarter, state] = self._times.get((quarter, state), 0.0) + end - since
            since = end


# ── reading ──


def segments(changes: Iterable[Change], since: float, until: float) -> Iterator[dict[str, Any]]:
    """Yield the sessions with their segments between the two times. `changes` are sorted."""
    for session_id, own in groupby(changes, key=lambda change: change[0]):
        made = _segments([(at, state) for _, at, state in own], since, until)
        if any(one["state"] not in (None, _DEAD) for one in made):
            yield {"id": session_id, "segments": made}


def _segments(changes: list[tuple[float, str | None]], since: float, until: float) -> list[dict[str, Any]]:
    shortest = (until - since) / SEGMENTS if len(changes) > SEGMENTS else 0.0
    made: list[dict[str, Any]] = []
    for number, (at, state) in enumerate(changes):
        end = changes[number + 1][0] if number + 1 < len(changes) else until
        start, end = max(at, since), min(end, until)
        if end <= start:
            continue
        if made and (made[-1]["state"] == state or end - start < shortest):
            made[-1]["to"] = end
        else:
            made.append({"state": state, "from": start, "to": end})
    return made
