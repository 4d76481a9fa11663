"""Heimdall's classifiers: a state from nothing but the sizes and times of output bursts. Pure.

Times are integers, in milliseconds, on any clock that does not go back.

`simple`  active while output flows, idle after a silence.
`claude`  distinguishes thinking (small, regular repaints), streaming (larger, irregular ones) and tool use
          (a burst after a pause), with a debounce; idle after a silence, at once.
`none`    always idle.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Protocol

from remuda.errors import InvalidOptions

from .state import State

DEFAULT_IDLE_THRESHOLD_MS = 3000
DEFAULT_DEBOUNCE_MS = 200

_WINDOW = 20
_BURST_BYTES = 4096
_PAUSE_MS, _AFTER_PAUSE_BYTES = 200, 1024


class Classifier(Protocol):
    state: State

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Note output of that size."""

    def tick(self, now_ms: int) -> None:
        """Note that time has passed."""

    def set_dead(self) -> None:
        """Note the end of the program. Nothing changes the state after this."""

    def next_tick_ms(self, now_ms: int) -> int | None:
        """Return when a `tick` could change the state if no output comes; None if it never will."""


def make_classifier(
    name: str, idle_threshold_ms: int | None = None, debounce_ms: int | None = None
) -> Classifier:
    idle = DEFAULT_IDLE_THRESHOLD_MS if idle_threshold_ms is None else idle_threshold_ms
    debounce = DEFAULT_DEBOUNCE_MS if debounce_ms is None else debounce_ms
    if name == "simple":
        return SimpleClassifier(idle)
    if name == "claude":
        return ClaudeClassifier(idle, debounce)
    if name == "none":
        return NoneClassifier()
    raise InvalidOptions(f"unknown classifier {name!r}", hint="use simple, claude or none")


class NoneClassifier:
    state = State.IDLE

    def record(self, size_bytes: int, now_ms: int) -> None:
        pass

    def tick(self, now_ms: int) -> None:
        pass

    def set_dead(self) -> None:
        pass

    def next_tick_ms(self, now_ms: int) -> int | None:
        return None


class _Timed:
    """Shared by the two classifiers that use time: a state and silence."""

    def __init__(self, idle_threshold_ms: int) -> None:
        self.state = State.IDLE
        self._last_ms: int | None = None
        self._threshold_ms = idle_threshold_ms

    def _silent(self, now_ms: int) -> bool:
        return self._last_ms is None or now_ms - self._last_ms >= self._threshold_ms

    def set_dead(self) -> None:
        self.state = State.DEAD


class SimpleClassifier(_Timed):
    def record(self, size_bytes: int, now_ms: int) -> None:
        self._last_ms = now_ms
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        if self.state is not State.DEAD:
            self.state = State.IDLE if self._silent(now_ms) else State.ACTIVE

    def next_tick_ms(self, now_ms: int) -> int | None:
        if self.state is not State.ACTIVE or self._last_ms is None:
            return None
        return self._last_ms + self._threshold_ms


class ClaudeClassifier(_Timed):
    def __init__(self, idle_threshold_ms: int, debounce_ms: int) -> None:
        super().__init__(idle_threshold_ms)
        self._debounce_ms = debounce_ms
        self._events: deque[tuple[int, int]] = deque(maxlen=_WINDOW)
        self._pending: tuple[State, int] | None = None

    def record(self, size_bytes: int, now_ms: int) -> None:
        self._events.append((now_ms, size_bytes))
        self._last_ms = now_ms
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        if self.state is State.DEAD:
            return
        raw = self.raw_state(now_ms)
        if raw is State.IDLE or raw is self.state:
            self._pending = None
            self.state = raw
            return
        if self._pending is None or self._pending[0] is not raw:
            self._pending = (raw, now_ms)
        if now_ms - self._pending[1] >= self._debounce_ms:
            self._pending = None
            self.state = raw

    def next_tick_ms(self, now_ms: int) -> int | None:
        if self.state is State.DEAD or self._last_ms is None or self._silent(now_ms):
            return None
        silence = self._last_ms + self._threshold_ms
        return silence if self._pending is None else min(silence, self._pending[1] + self._debounce_ms)

    def raw_state(self, now_ms: int) -> State:
        """Return the state before the debounce."""
        if self._silent(now_ms):
            return State.IDLE
        recent = list(self._events)[-5:]
        if any(size >= _BURST_BYTES for _, size in recent):
            return State.TOOL_USE
        if len(self._events) < 3:
            return State.THINKING
        if any(_bursts_after_pause(before, after) for before, after in pairwise(recent)):
            return State.TOOL_USE
        return self._by_rhythm()

    def _by_rhythm(self) -> State:
        last = list(self._events)[-10:]
        if len(last) < 5:
            return State.THINKING
        sizes = [size for _, size in last]
        mean = sum(sizes) / len(sizes)
        spread = (sum((size - mean) ** 2 for size in sizes) / len(sizes)) ** 0.5
        gap = (last[-1][0] - last[0][0]) / (len(last) - 1)
        if 40 <= mean <= 120 and spread < 30 and 30 <= gap <= 200:
            return State.THINKING
        if (mean > 100 or spread > 50) and gap < 200:
            return State.STREAMING
        return State.THINKING


def _bursts_after_pause(before: tuple[int, int], after: tuple[int, int]) -> bool:
    return after[0] - before[0] > _PAUSE_MS and after[1] > _AFTER_PAUSE_BYTES
