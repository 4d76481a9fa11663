"""Events that hooks left in files: read in order, when the boss starts and whenever a file arrives.

`hook.sh` leaves most events there, `hook.py` those that no boss took. A file is deleted when its event is on
disk. An event that came both ways has one id, and counts once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_sources
from remuda.durable import open_regular
from remuda.errors import InvalidOptions, StoreFailed
from remuda.paths import private_folder
from remuda.tasks import TaskSet
from remuda.untrusted import parse_object

from ..attention.model import Event
from ..folder import BossFolder
from ..http.event_routes import read_hook
from ..service import BossService
from .watches import PollSettings, Watches

log = logging.getLogger("remuda.boss.evidence.spool")

_POLLING = PollSettings()
_BATCH = 64
_PAUSE = 0.4
_BAD = ".bad"
_WATCHED = ".watched"
"""Shows hooks that the boss watches the folder."""
_WRITING = 15.0
"""A hook that takes longer to write its file was killed."""
_NOT_AN_EVENT = (ValueError, KeyError, TypeError, AttributeError, InvalidOptions)

Document = dict[str, Any]


class Spool:
    name = "spool"

    def __init__(
        self, service: BossService, folder: Path | None = None, polling: PollSettings = _POLLING
    ) -> None:
        self._service = service
        self._polling = polling
        self._folder = folder or BossFolder.default().spool
        self._watches: Watches | None = None
        self._came = asyncio.Event()
        self._unreadable: set[str] = set()
        self._one_at_a_time = asyncio.Lock()
        self._tasks = TaskSet()

    async def start(self) -> None:
        private_folder(self._folder)
        self._watches = self._polling.watches()
        if self._watches.arrivals(self._folder, self._on_change) is not None:
            (self._folder / _WATCHED).touch(0o600)
        else:
            (self._folder / _WATCHED).unlink(missing_ok=True)
        self._tell_dropped()
        if not await self._catch_up():
            self._came.set()  # try again
        self._service.catching_up.append(self._catch_up)
        self._tasks.start(self._take_what_comes())

    async def close(self) -> None:
        if self._catch_up in self._service.catching_up:
            self._service.catching_up.remove(self._catch_up)
        if self._watches is not None:
            self._watches.close()
        await self._tasks.aclose()

    def _on_change(self, name: str) -> None:
        if not name.startswith("."):
            self._came.set()

    async def _take_what_comes(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._polling.interval):
                    await self._came.wait()
            except TimeoutError:
                pass
            self._came.clear()
            if not await self._catch_up():
                await asyncio.sleep(_PAUSE)

    async def _catch_up(self) -> bool:
        try:
            await self._take_all()
        except (OSError, StoreFailed) as error:
            log.warning("cannot read the spool: %s", error)
            return False
        return True

    async def _take_all(self) -> None:
        """More may arrive at the same time.

        A file that is still being written is left: its end is reported.
        """
        left: set[str] = set()
        async with self._one_at_a_time:
            while names := [name for name in _listed(self._folder) if name not in left]:
                for start in range(0, len(names), _BATCH):
                    left |= await self._take(names[start : start + _BATCH])

    async def _take(self, names: list[str]) -> set[str]:
        """Return the files that cannot be read yet."""
        events: list[Event] = []
        left: set[str] = set()
        for name, found in await asyncio.to_thread(_read_all, self._folder, names):
            try:
                if isinstance(found, Exception):
                    raise found
                events += await _events(found)
            except FileNotFoundError:  # dropped, because there were too many
                continue
            except _NOT_AN_EVENT as error:
                if _is_being_written(self._folder / name):
                    left.add(name)
                else:
                    log.warning("%s is not an event: %s", name, error)
                    os.replace(self._folder / name, self._folder / _BAD)
            except OSError as error:  # perhaps another user's; the others are read
                if name not in self._unreadable:
                    log.warning("%s cannot be read: %s", name, error.strerror)
                self._unreadable.add(name)
                left.add(name)
        if events:
            await self._service.take(*events)
            log.debug("read %d events from the spool", len(events))
        for name in set(names) - left:
            (self._folder / name).unlink(missing_ok=True)
        return left

    def _tell_dropped(self) -> None:
        counter = self._folder / ".dropped"
        try:
            dropped = counter.stat().st_size
            counter.unlink()
        except FileNotFoundError:
            return
        log.warning("%d events were dropped while no boss was running: too many", dropped)


# ── files ──


def _listed(folder: Path) -> list[str]:
    """Return the names, oldest first."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".json", ".hook")) and not entry.name.startswith("."):
                try:
                    names.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
                except FileNotFoundError:
                    continue
    return [name for _, name in sorted(names)]


def _is_being_written(path: Path) -> bool:
    """By `hook.sh`; a file of `hook.py` appears when it is complete."""
    try:
        return path.suffix == ".hook" and _is_young(path.stat().st_mtime_ns)
    except FileNotFoundError:
        return False


def _is_young(written: int) -> bool:
    return abs(time.time() - written / 1e9) < _WRITING  # the clock may have been set back


def _read_all(folder: Path, names: list[str]) -> list[tuple[str, Document | Exception]]:
    return [(name, found) for name in names for found in _read(folder / name)]


def _read(path: Path) -> Iterator[Document | Exception]:
    """Yield nothing for a file whose hook got no input, or was killed before."""
    try:
        with open(open_regular(path), "rb") as file:
            data, written = file.read(), os.fstat(file.fileno()).st_mtime_ns
        if path.suffix == ".json":
            yield parse_object(data)
        elif document := _from_shell(data, path.stem, written):
            yield document
    except (OSError, *_NOT_AN_EVENT) as error:
        yield error


def _from_shell(data: bytes, pid: str, written: int) -> Document | None:
    """Read what `hook.sh` wrote, which only the default agent runs: its variables, then its event."""
    names: tuple[str, ...] = getattr(find_sources(DEFAULT_AGENT), "shell_variables", ())
    *values, payload = data.split(b"\0", len(names))
    if len(values) < len(names):
        raise ValueError("it is incomplete")
    if not payload.strip():
        if _is_young(written):
            raise ValueError("its payload is missing")
        return None
    variables = zip(names, (value.decode("utf-8", "replace") for value in values), strict=True)
    return {
        "id": f"h{written}-{pid}",
        "at": written / 1e9,
        "env": {name: value for name, value in variables if value},
        "payload": parse_object(payload),
    }


async def _events(document: Document) -> list[Event]:
    env = {str(name): str(value) for name, value in dict(document.get("env", {})).items()}
    payload, at = document["payload"], float(document["at"])
    if not isinstance(payload, dict):
        raise TypeError("its payload is not an object")
    session = payload.get("session_id")
    if not isinstance(session, str) or not session.isprintable() or not 0 < len(session) <= 256:
        raise ValueError("it has no session")
    if not math.isfinite(at) or at < 0:
        raise ValueError("it has no time")
    number, agent = str(document.get("id", "")), str(document.get("agent", DEFAULT_AGENT))
    return await read_hook(payload, at, number=number, env=env, agent=agent)
