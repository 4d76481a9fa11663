"""What hooks left behind while no boss took it: taken in when one begins and whenever more comes, in order.

Each file goes when its event is on the disk. An event that came both ways has one id, and counts once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from pathlib import Path
from typing import Any

from remuda.errors import InvalidOptions, StoreFailed
from remuda.paths import private_folder

from ..attention.model import Event
from ..desk import Desk
from ..folder import BossFolder
from ..http.events import read_hook
from .watches import Watches

log = logging.getLogger("remuda.boss.evidence.spool")

_LOOK_INTERVAL = 5.0
_BATCH = 64
_BAD = ".bad"


class Spool:
    name = "spool"

    def __init__(self, desk: Desk, folder: Path | None = None) -> None:
        self._desk = desk
        self._folder = folder or BossFolder.default().spool
        self._watches: Watches | None = None
        self._came = asyncio.Event()
        self._taking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        private_folder(self._folder)
        self._watches = Watches()
        self._watches.folder(self._folder, self._on_change)
        self._tell_dropped()
        await self._take_all()
        self._taking = asyncio.create_task(self._take_what_comes())

    async def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    def _on_change(self, name: str) -> None:
        if not name.startswith("."):
            self._came.set()

    async def _take_what_comes(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_INTERVAL):
                    await self._came.wait()
            except TimeoutError:
                pass
            self._came.clear()
            try:
                await self._take_all()
            except (OSError, StoreFailed) as error:
                log.warning("cannot take the spool in: %s", error)
                await asyncio.sleep(0.4)

    async def _take_all(self) -> None:
        while names := sorted(name for name in os.listdir(self._folder) if _is_entry(name))[:_BATCH]:
            events: list[Event] = []
            for name in names:
                events += await self._read(self._folder / name)
            if events:
                await self._desk.take(*events)
            for name in names:
                (self._folder / name).unlink(missing_ok=True)
            log.info("took %d events from the spool", len(events))

    async def _read(self, path: Path) -> list[Event]:
        """None of a file that holds no event: it is laid aside under another name, once."""
        try:
            return await _events(await asyncio.to_thread(_document, path))
        except FileNotFoundError:  # dropped, because there were too many
            return []
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidOptions) as error:
            log.warning("%s is no event: %s", path.name, error)
            os.replace(path, self._folder / _BAD)
            return []

    def _tell_dropped(self) -> None:
        counter = self._folder / ".dropped"
        try:
            dropped = counter.stat().st_size
            counter.unlink()
        except FileNotFoundError:
            return
        log.warning("%d events were dropped while no boss ran: there were too many", dropped)


def _document(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _is_entry(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")


async def _events(found: dict[str, Any]) -> list[Event]:
    env = {str(name): str(value) for name, value in dict(found.get("env", {})).items()}
    payload, at = found["payload"], float(found["at"])
    if not isinstance(payload, dict):
        raise TypeError("its payload is no object")
    session = payload.get("session_id")
    if not isinstance(session, str) or not session.isprintable() or not 0 < len(session) <= 256:
        raise ValueError("it is of no session")
    if not math.isfinite(at) or at < 0:
        raise ValueError("it has no time")
    return await read_hook(payload, at, number=str(found.get("id", "")), env=env)
