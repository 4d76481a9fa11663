"""Bring back sessions that ended and are wanted, and report those that are left alone.

When the boss starts after a reboot, these are the sessions that were alive. While it runs, those that crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from remuda.config import load_own_config
from remuda.errors import RemudaError
from remuda.keeper.record import SessionRecord
from remuda.keeper.restart import Tries
from remuda.keeper.resume import Restarter
from remuda.paths import private_folder, sessions_folder
from remuda.tasks import TaskSet
from remuda.untrusted import one_line

from ..attention.model import Event, Origin
from ..service import BossService
from . import kept_events
from .watches import PollSettings, Watches, report

log = logging.getLogger("remuda.boss.evidence.restarts")

_POLLING = PollSettings()
_INTERVAL = 5.0
"""Seconds. A keeper that is killed changes no file."""


class Restarts:
    name = "restarts"

    def __init__(
        self, service: BossService, folder: Path | None = None, polling: PollSettings = _POLLING
    ) -> None:
        self._service = service
        self._folder = folder or sessions_folder()
        self._polling = polling
        self._changed = asyncio.Event()
        self._reported: set[tuple[str, float]] = set()
        self._restarter: Restarter | None = None
        self._watches: Watches | None = None
        self._tasks = TaskSet()

    async def start(self) -> None:
        """Begin. Sessions come back while the boss serves: that may take minutes."""
        private_folder(self._folder)
        self._restarter = Restarter(self._folder, load_own_config(os.environ))
        self._watches = self._polling.watches()
        self._watches.folder(self._folder, self._on_change)
        self._tasks.start(self._run(self._restarter))

    async def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
        if self._restarter is not None:
            self._restarter.stop.set()
        await self._tasks.aclose()

    def _on_change(self, name: str) -> None:
        if not name or (name.endswith(".sock") and not name.startswith(".")):
            self._changed.set()

    async def _run(self, restarter: Restarter) -> None:
        while True:
            self._changed.clear()
            pause = _INTERVAL
            try:
                found = await asyncio.to_thread(restarter.round)
                for record, tries in found.left_alone:
                    await self._report(record, tries)
                if found.next_at is not None:
                    pause = min(pause, max(0.0, found.next_at - time.time()))
            except (OSError, RemudaError) as error:
                log.warning("cannot look for sessions to bring back: %s", error)
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _report(self, record: SessionRecord, tries: Tries) -> None:
        key = (record.name, tries.at)
        if key not in self._reported:
            await report(self._service, [self._event(record, tries)])
            self._reported.add(key)

    def _event(self, record: SessionRecord, tries: Tries) -> Event:
        known = [
            one for one in self._service.sessions() if one.origin is Origin.KEPT and one.name == record.name
        ]
        document = {key: getattr(record, key) for key in ("name", "agent", "cwd", "conversation")}
        newest = max(known, key=lambda one: one.last_seen, default=None)
        session_id = kept_events.session_id_of(document) if newest is None else newest.id
        # At its end, not now: a boss that starts later reports the same event.
        at = max(tries.at, record.ended_at or 0.0, newest.last_seen if newest is not None else 0.0)
        error = one_line(tries.error)
        return kept_events.left_alone_event(
            session_id, kept_events.identity(document), tries.count, error, at
        )
