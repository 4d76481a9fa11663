"""This version is killed while it takes over what version 0.1 left: nothing is lost, nothing doubles."""

from __future__ import annotations

import asyncio
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from support import counts
from support.crash import BEGIN, Box, Scenario, kill_everywhere, quick_folder, run_killed, traced_calls
from support.old_home import OldHome
from support.old_version import NEW, Machine

_OPEN_AND_CLOSE = f"""
import asyncio, os, sys
from pathlib import Path
from remuda.boss.records.store import Store
from remuda.boss.service import BossService

async def main():
    os.access({BEGIN!r}, 0)
    service = BossService(Store(Path(sys.argv[1]) / "boss.db"))
    await service.open()
    await service.close()

asyncio.run(main())
"""


class OldBox(Box):
    """An inbox that version 0.1 filled, where a message's text is not its id."""

    def note_handed(self, text: str) -> None:
        documents = map(json.loads, Path(self.files.inbox).read_bytes().strip(b"\0").splitlines())
        ids = {one["prompt"]: one["id"] for one in documents}
        super().note_handed(ids.get(text, text))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_stop_hook_killed_at_an_inbox_of_version_0_1_loses_no_message(
    home: Path, tmp_path: Path, old_remuda: Path
) -> None:
    old_home = OldHome(Machine(home), old_remuda)
    old_home.inbox.mkdir(mode=0o700)
    old_home.fill_inbox()

    def take_over(box: Box) -> None:
        shutil.copytree(old_home.inbox, box.folder, dirs_exist_ok=True)
        if isinstance(box, OldBox):
            for text in ("done", "flying"):  # version 0.1 has handed them out
                box.note_handed(text)

    with quick_folder(tmp_path) as folder:
        assert kill_everywhere(folder, Scenario(take_over), OldBox) > 20 // counts.KILL_STEP


async def _contents(folder: Path) -> dict[str, Any]:
    """Everything that the boss has in its database."""
    store = Store(folder / "boss.db")
    service = BossService(store)
    await service.open()
    try:
        return {
            "sessions": {one.id: one.state for one in service.sessions()},
            "queue": {one.id: one.reason for one in service.queue(hidden=True)},
            "ledger": {one.id: (one.state, one.answer, one.proof) for one in store.approvals(100)},
            "history": {one.id: (one.reason, one.resolution) for one in store.history(100)},
        }
    finally:
        await service.close()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_boss_killed_while_it_opens_a_database_of_version_0_1_loses_nothing(
    home: Path, tmp_path: Path, old_remuda: Path
) -> None:
    machine = Machine(home)
    old_home = OldHome(machine, old_remuda)
    old_home.install()
    try:
        machine.run(old_remuda, ["start", "alive", "--detach", "--agent", "demo"])
        old_home.fill_boss()
    finally:
        machine.close()
    with quick_folder(tmp_path) as folder:

        def copy(name: str) -> Path:
            return Path(shutil.copytree(old_home.state / "boss", folder / name))

        def argv(boss: Path) -> list[str]:
            return [str(NEW), "-c", _OPEN_AND_CLOSE, str(boss)]

        def killed_at(point: tuple[str, int]) -> dict[str, Any]:
            boss = copy(f"{point[0]}-{point[1]}")
            run_killed(argv(boss), point)
            contents = asyncio.run(_contents(boss))
            assert not list(boss.glob("*damaged*"))
            shutil.rmtree(boss)
            return contents

        expected = asyncio.run(_contents(copy("plain")))
        assert [len(expected[one]) for one in ("ledger", "queue")] == [2, 1]
        assert len(expected["history"]) >= 2
        points = traced_calls(argv(copy("traced")), folder / "trace")
        assert len(points) > 20
        tried = points[:: 4 * counts.KILL_STEP]
        with ThreadPoolExecutor(2) as pool:
            for point, contents in zip(tried, pool.map(killed_at, tried), strict=True):
                assert contents == expected, f"killed at {point}"
