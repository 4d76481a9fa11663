"""Being told of changes in many folders and files at once, and telling the service what they mean.

A turn of an agent changes several files within a few milliseconds, and needs the processor for itself just
then. So changes are told together, a moment after the first of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.errors import InvalidOptions, StoreFailed
from remuda.inotify import (
    CLOSE_WRITE,
    CREATE,
    DELETE,
    DELETE_SELF,
    MODIFY,
    MOVE_SELF,
    MOVED_TO,
    OVERFLOW,
    Inotify,
)

from ..attention.model import Event
from ..service import BossService, check

log = logging.getLogger("remuda.boss.evidence.watches")

_FOLDER = CREATE | MOVED_TO | DELETE | MODIFY
_FILE = MODIFY | DELETE_SELF | MOVE_SELF
_PROBE = "probe"
_TRIES = 20
_PAUSE = 0.4
_MOMENT = 0.1
"""Seconds: an agent has asked its model by then, and nobody who looks at the queue sees so short a time."""

Changed = Callable[[str], None]
"""Hears the name of the file in its folder that changed; an empty one for "look at all of it"."""


class Watches:
    """Where the system tells of no changes (`works` is false) nobody is called: look at times as well."""

    def __init__(self, *, uses_events: bool = True, moment: float = _MOMENT) -> None:
        self._moment = moment
        self._changed: dict[int, Changed] = {}
        self._refused = False
        self._telling: asyncio.TimerHandle | None = None
        self._inotify = _inotify() if uses_events else None
        if self._inotify:
            self._listen()

    @property
    def works(self) -> bool:
        return self._inotify is not None

    def folder(self, path: Path, changed: Changed) -> int | None:
        """Returns the watch's number, or None where nothing can be watched."""
        return self._add(path, _FOLDER, changed)

    def arrivals(self, path: Path, changed: Changed) -> int | None:
        """Of whole files alone: when one was written to its end, or moved there."""
        return self._add(path, CLOSE_WRITE | MOVED_TO, changed)

    def entries(self, path: Path, changed: Changed) -> int | None:
        """Of new files and folders alone."""
        return self._add(path, CREATE | MOVED_TO, changed)

    def file(self, path: Path, changed: Changed) -> int | None:
        return self._add(path, _FILE, changed)

    def _add(self, path: Path, mask: int, changed: Changed) -> int | None:
        try:
            watch_id = self._inotify.add(path, mask) if self._inotify else None
        except OSError as error:
            if not self._refused:
                log.warning("polling some files instead of watching them: %s", error)
            self._refused = True
            return None
        if watch_id is not None:
            self._changed[watch_id] = changed
        return watch_id

    def remove(self, watch_id: int | None) -> None:
        if watch_id in self._changed and self._inotify:
            del self._changed[watch_id]
            self._inotify.remove(watch_id)

    def _listen(self) -> None:
        assert self._inotify is not None
        self._telling = None
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._hear)

    def _hear(self) -> None:
        assert self._inotify is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify.fd)
        self._telling = loop.call_later(self._moment, self._tell)

    def _tell(self) -> None:
        assert self._inotify is not None
        self._listen()
        for watch_id, mask, name in list(self._inotify.read()):
            if mask & OVERFLOW:
                for changed in list(self._changed.values()):
                    changed("")
            elif (found := self._changed.get(watch_id)) is not None:
                found(name)

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        if self._inotify is not None and self._inotify.fd >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
        self._changed.clear()


@dataclass(frozen=True, slots=True)
class PollSettings:
    """How often to poll for changes that the kernel does not report."""

    interval: float = 5.0
    uses_events: bool = True
    """False on a system that reports neither changes of files nor ends of processes."""

    def watches(self) -> Watches:
        return Watches(uses_events=self.uses_events)


def _inotify() -> Inotify | None:
    try:
        return Inotify()
    except OSError as error:
        log.warning("polling files instead of watching them: %s", error)
        return None


async def tell(service: BossService, events: Sequence[Event]) -> bool:
    """Also when the disk is full for a moment. For sources to which nobody listens. Whether it was taken."""
    for _ in range(_TRIES if events else 0):
        try:
            await service.take(*_right(events))
        except StoreFailed:
            await asyncio.sleep(_PAUSE)
        else:
            return True
    if events:
        log.error("%d events could not be written", len(events))
    return not events


def _right(events: Sequence[Event]) -> list[Event]:
    """Those that the service takes: one file with an impossible date must not cost what stands beside it."""
    found = []
    for event in events:
        try:
            check(event)
        except InvalidOptions as error:
            log.warning("dropped an event: %s", error)
        else:
            found.append(event)
    return found


async def keep_telling(service: BossService, events: Sequence[Event]) -> None:
    """However long the disk is full: for what is told once, by somebody whose next word waits for this."""
    while not await tell(service, events):
        if await _can_write(service, sum(len(repr(event.facts)) for event in events)):
            return  # it is they that cannot be written


async def _can_write(service: BossService, size: int) -> bool:
    try:
        await service.store.save_note(_PROBE, "x" * size)
        await service.store.save_note(_PROBE, "")
    except StoreFailed:
        return False
    return True
