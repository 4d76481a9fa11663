"""What a host writes down of the events of its boss."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path

from remuda.boss.attention.model import Event, EventKind, Source
from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from remuda.fleet.events import EventReporter


def test_event_that_the_boss_takes_while_the_reporter_begins_is_written_once(tmp_path: Path) -> None:
    event = Event(EventKind.STOPPED, "s1", time.time(), Source.HOOK, "e1", {"message": "done"})

    async def go() -> int:
        service = BossService(Store(tmp_path / "boss.db"))
        await service.open()
        with closing(EventReporter(service, tmp_path)):  # of an earlier run
            pass
        taking = asyncio.create_task(service.take(event))
        await asyncio.sleep(0)  # the boss has it in memory, and writes it
        with closing(EventReporter(service, tmp_path)) as reporter:
            await taking
            await service.close()
            return reporter.waiting

    assert asyncio.run(go()) == 1
