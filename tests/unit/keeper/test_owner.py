"""When a session ends with its owner."""

from __future__ import annotations

import asyncio
import os

import pytest

from remuda.keeper.owner import CUT_SHORT_GRACE, OwnerWatch
from remuda.keeper.prefork import FAREWELL

PATIENCE = 30.0
FOR_EVER = 1000.0


class Scene:
    """An owner with a message that may be on its way; `killed` has how the session was ended."""

    def __init__(self, patience: float) -> None:
        watched, self._lifeline = os.pipe()
        self.delivering = True
        self.looked = 0
        self.killed: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self.owner = OwnerWatch(
            watched, lambda grace, _why: self.killed.set_result(grace), self._look, patience
        )

    def _look(self) -> bool:
        self.looked += 1
        return self.delivering

    def leave(self, word: bytes = b"") -> None:
        os.write(self._lifeline, word)
        os.close(self._lifeline)

    async def grace(self) -> float | None:
        return await asyncio.wait_for(self.killed, PATIENCE)


def test_an_owner_that_is_cut_short_is_not_waited_for() -> None:
    async def steps() -> None:
        scene = Scene(FOR_EVER)
        scene.leave()
        assert await scene.grace() == CUT_SHORT_GRACE
        assert scene.delivering

    asyncio.run(steps())


def test_what_is_on_its_way_when_an_owner_leaves_in_order_comes_to_its_end() -> None:
    async def steps() -> None:
        scene = Scene(FOR_EVER)
        scene.leave(FAREWELL)
        async with asyncio.timeout(PATIENCE):
            while scene.looked < 3:
                await asyncio.sleep(0.01)
        assert not scene.killed.done()
        scene.delivering = False
        assert await scene.grace() is None

    asyncio.run(steps())


@pytest.mark.parametrize("patience", [0.0, 0.05])
def test_wait_is_limited(patience: float) -> None:
    async def steps() -> None:
        scene = Scene(patience)
        scene.leave(FAREWELL)
        assert await scene.grace() is None
        assert scene.delivering

    asyncio.run(steps())
