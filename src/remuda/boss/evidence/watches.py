"""Watch many files and folders, and report events to the service.

A turn of an agent changes several files within a few milliseconds, and needs the processor just then. So
changes are collected for a moment and handled together.
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
"""Seconds. By then an agent has sent its request to its model, and users do not notice the delay."""

OnChange = Callable[[str], None]
"""Called with the name of the file in its folder that changed; empty for "check all files"."""


class Watches:
    """If the system reports no changes (`works` is false) nothing is called: poll as well."""

    def __init__(self, *, uses_events: bool = True, moment: float = _MOMENT) -> None:
        self._moment = moment
        self._callbacks: dict[int, OnChange] = {}
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None
        self._inotify = _inotify() if uses_events else None
        if self._inotify:
            self._listen()

    @property
    def works(self) -> bool:
        return self._inotify is not None

    def folder(self, path: Path, on_change: OnChange) -> int | None:
        """Return the id of the watch, or None if it cannot be watched."""
        return self._add(path, _FOLDER, on_change)

    def arrivals(self, path: Path, on_change: OnChange) -> int | None:
        """Watch for complete files: closed after writing, or moved there."""
        return self._add(path, CLOSE_WRITE | MOVED_TO, on_change)

    def entries(self, path: Path, on_change: OnChange) -> int | None:
        """Watch for new files and folders."""
        return self._add(path, CREATE | MOVED_TO, on_change)

    def file(self, path: Path, on_change: OnChange) -> int | None:
        return self._add(path, _FILE, on_change)

    def _add(self, path: Path, mask: int, on_change: OnChange) -> int | None:
        try:
            watch_id = self._inotify.add(path, mask) if self._inotify else None
        except OSError as error:
            if not self._refused:
                log.warning("polling some files instead of watching them: %s", error)
            self._refused = True
            return None
        if watch_id is not None:
            self._callbacks[watch_id] = on_change
        return watch_id

    def remove(self, watch_id: int | None) -> None:
        if watch_id in self._callbacks and self._inotify:
            del self._callbacks[watch_id]
            self._inotify.remove(watch_id)

    def _listen(self) -> None:
        assert self._inotify is not None
        self._timer = None
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._wait_a_moment)

    def _wait_a_moment(self) -> None:
        assert self._inotify is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify.fd)
        self._timer = loop.call_later(self._moment, self._dispatch)

    def _dispatch(self) -> None:
        assert self._inotify is not None
        self._listen()
        for watch_id, mask, name in list(self._inotify.read()):
            if mask & OVERFLOW:
                for on_change in list(self._callbacks.values()):
                    on_change("")
            elif (callback := self._callbacks.get(watch_id)) is not None:
                callback(name)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._inotify is not None and self._inotify.fd >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
        self._callbacks.clear()


@dataclass(frozen=True, slots=True)
class PollSettings:
    """How often to poll for changes that the kernel does not report."""

    interval: float = 5.0
    uses_events: bool = True
    """False on a system that reports neither changes of files nor ends of processes."""
    last_words_timeout: float = 0.3
    """How long the last words of an agent may come after its registry says that it stopped."""

    def watches(self) -> Watches:
        return Watches(uses_events=self.uses_events)


def _inotify() -> Inotify | None:
    try:
        return Inotify()
    except OSError as error:
        log.warning("polling files instead of watching them: %s", error)
        return None


async def report(service: BossService, events: Sequence[Event]) -> bool:
    """Report events; retries while the disk is full. Returns whether they were taken."""
    for _ in range(_TRIES if events else 0):
        try:
            await service.take(*_valid(events))
        except StoreFailed:
            await asyncio.sleep(_PAUSE)
        else:
            return True
    if events:
        log.error("%d events could not be written", len(events))
    return not events


def _valid(events: Sequence[Event]) -> list[Event]:
    """Drop invalid events: one file with an impossible date must not block the others."""
    valid = []
    for event in events:
        try:
            check(event)
        except InvalidOptions as error:
            log.warning("dropped an event: %s", error)
        else:
            valid.append(event)
    return valid


async def report_until_written(service: BossService, events: Sequence[Event]) -> None:
    """Report events, however long the disk is full: for a source that reports each event once, and waits."""
    while not await report(service, events):
        if await _can_write(service, sum(len(repr(event.facts)) for event in events)):
            return  # the events themselves cannot be written


async def _can_write(service: BossService, size: int) -> bool:
    try:
        await service.store.save_note(_PROBE, "x" * size)
        await service.store.save_note(_PROBE, "")
    except StoreFailed:
        return False
    return True
