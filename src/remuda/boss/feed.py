"""Changes for those who watch: in order, with ids, and never a silent gap. No I/O.

The last changes are kept, so that a watcher can reconnect and go on. One that was away for too long, or
cannot keep up, gets a `reset`: it must read everything again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from .attention.model import document

KEPT = 1000
_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """Pass `id` to `watch` to go on from here."""

    id: str
    kind: str
    """session, item or approval; reset after a gap."""
    value: Any

    @property
    def document(self) -> Any:
        """Made on demand: often no one watches."""
        return document(self.value)


class Watcher:
    """Iterate over it, then `close` it."""

    def __init__(self, feed: Feed, missed: list[Change], *, is_stream: bool) -> None:
        self.is_stream = is_stream
        self._feed = feed
        self._waiting: deque[Change] = deque(missed)
        self._came = asyncio.Event()
        if missed:
            self._came.set()
        self._closed = False

    def put(self, change: Change) -> None:
        if len(self._waiting) >= _WAITING:
            self._waiting.clear()
            change = Change(change.id, "reset", {})
        self._waiting.append(change)
        self._came.set()

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._came.set()
        self._feed.forget(self)

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
        return self._waiting.popleft()


class Feed:
    def __init__(self, boot: str) -> None:
        self._boot = boot
        """Ids of another run of the boss are not valid here."""
        self._kept: deque[Change] = deque(maxlen=KEPT)
        self._watchers: set[Watcher] = set()
        self._count = 0

    @property
    def last_id(self) -> str:
        return f"{self._boot}-{self._count}"

    @property
    def streams(self) -> int:
        """Number of watchers outside of the boss."""
        return sum(watcher.is_stream for watcher in self._watchers)

    def publish(self, kind: str, value: Any) -> None:
        self._count += 1
        change = Change(self.last_id, kind, value)
        self._kept.append(change)
        for watcher in list(self._watchers):
            watcher.put(change)

    def watch(self, after: str | None = None, *, is_stream: bool = False) -> Watcher:
        """Watch from now on, or from that id on."""
        missed = self._missed(after) if after is not None else []
        watcher = Watcher(self, missed, is_stream=is_stream)
        self._watchers.add(watcher)
        return watcher

    def _missed(self, after: str) -> list[Change]:
        boot, _, number = after.rpartition("-")
        known = boot == self._boot and number.isdecimal() and len(number) < 19 and int(number) <= self._count
        if not known or int(number) < self._count - len(self._kept):
            return [Change(self.last_id, "reset", {})]
        return list(self._kept)[len(self._kept) - (self._count - int(number)) :] if self._count else []

    def forget(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def close(self) -> None:
        for watcher in list(self._watchers):
            watcher.close()
