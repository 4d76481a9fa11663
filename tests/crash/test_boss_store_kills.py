"""The boss is killed while events pour in: whatever it acknowledged is there, and there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from remuda.boss.service import BossService
from support import counts
from support.boss import Clock, with_service

# Several tell at once, so that a kill meets transactions of more than one event.
_PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from remuda.boss.service import BossService
from remuda.boss.attention.model import Event, EventKind
from remuda.boss.records.store import Store

async def tell(service, session, first):
    for number in range(first, 10**9):
        kind = EventKind.STOPPED if number % 2 else EventKind.PROMPTED
        facts = {"message": f"{session} {number}", "pane": f"%{session}"}
        await service.take(Event(kind, session, 1000.0 + number, id=f"{session}-{number}", facts=facts))
        os.write(1, f"{session} {number}\\n".encode())

async def main(folder, first):
    service = BossService(Store(Path(folder) / "boss.db"))
    await service.open()
    os.write(1, b"ready\\n")
    await asyncio.gather(*(tell(service, f"s{number}", first) for number in range(8)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def _run_and_kill(folder: Path, first: int, acknowledged: int) -> dict[str, int]:
    """Kill it when this many are acknowledged; returns the last of each session."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder), str(first)], stdout=subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None
    last: dict[str, int] = {}
    with process.stdout as lines:
        assert lines.readline() == b"ready\n"
        for count, line in enumerate(lines):
            if count == acknowledged:
                process.send_signal(signal.SIGKILL)
            words = line.decode().split()
            if len(words) == 2 and line.endswith(b"\n"):
                last[words[0]] = int(words[1])
    assert process.wait() == -signal.SIGKILL
    return last


async def _check(last: dict[str, int], service: BossService) -> int:
    """Every session is where its last acknowledged event left it, or one event further."""
    items = {item.session_id: item for item in service.queue()}
    assert len(items) == len(service.queue())
    newest = 0
    for session in service.sessions():
        told = int(session.last_seen) - 1000
        assert told in (last.get(session.id, told), last.get(session.id, told) + 1)
        assert (session.id in items) == bool(told % 2)
        if told % 2:
            assert items[session.id].message == f"{session.id} {told}"
        newest = max(newest, told)
    assert set(last) <= {session.id for session in service.sessions()}
    return newest


@pytest.mark.soak
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    chance = random.Random(7)
    first = 0
    for _ in range(counts.BOSS_KILLS):
        last = _run_and_kill(tmp_path, first, chance.randrange(1, 400))
        first = with_service(tmp_path, partial(_check, last), Clock(1e9)) + 1
    assert not list(tmp_path.glob("*damaged*"))
