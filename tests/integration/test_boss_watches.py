"""Changes of files are told to the boss together, a moment after the first, and none of them is missed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from remuda.boss.evidence.watches import Watches

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's notice is Linux's")

PATIENCE = 10.0
MOMENT = 2.0
"""Longer than a machine that is busy with other tests may stall."""


class Heard:
    """What was told, apart by the round of the loop in which it was."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self._is_open = False
        self._count = asyncio.Semaphore(0)

    def __call__(self, name: str) -> None:
        if not self._is_open:
            self.rounds.append([])
            self._is_open = True
            asyncio.get_running_loop().call_soon(self._end)
        self.rounds[-1].append(name)
        self._count.release()

    def _end(self) -> None:
        self._is_open = False

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            for _ in range(count):
                await self._count.acquire()


def watching(
    folder: Path, act: Callable[[Watches, Heard], Awaitable[None]], *, moment: float = MOMENT
) -> list[list[str]]:
    async def whole() -> list[list[str]]:
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["message"]))
        heard = Heard()
        watches = Watches(moment=moment)
        try:
            assert watches.arrivals(folder, heard) is not None
            await act(watches, heard)
        finally:
            watches.close()
        assert not failed
        return heard.rounds

    return asyncio.run(whole())


async def give_the_loop_time() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_changes_within_a_moment_is_reported_together(tmp_path: Path) -> None:
    async def act(_: Watches, heard: Heard) -> None:
        for name in "abc":
            (tmp_path / name).write_text("x")
            await give_the_loop_time()
        assert not heard.rounds
        await heard.wait(3)

    assert watching(tmp_path, act) == [["a", "b", "c"]]


def test_change_while_others_are_reported_is_reported_next(tmp_path: Path) -> None:
    async def act(watches: Watches, heard: Heard) -> None:
        def one_more(name: str) -> None:
            heard(name)
            if name == "a":
                (tmp_path / "b").write_text("x")

        watches.arrivals(tmp_path, one_more)  # the same watch, for another
        (tmp_path / "a").write_text("x")
        await heard.wait(2)

    assert watching(tmp_path, act, moment=0.01) == [["a"], ["b"]]


def test_one_that_cannot_be_reported_does_not_end_the_listening(tmp_path: Path) -> None:
    async def act(watches: Watches, heard: Heard) -> None:
        def fail(name: str) -> None:
            heard(name)
            raise RuntimeError("of this test")

        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        number = watches.arrivals(tmp_path, fail)
        (tmp_path / "a").write_text("x")
        await heard.wait(1)
        watches.remove(number)
        watches.arrivals(tmp_path, heard)
        (tmp_path / "b").write_text("x")
        await heard.wait(1)

    assert watching(tmp_path, act, moment=0.01) == [["a"], ["b"]]


def test_more_than_one_read_takes_is_reported_to_its_end(tmp_path: Path) -> None:
    names = [f"{number:0200}" for number in range(400)]

    async def act(_: Watches, heard: Heard) -> None:
        for name in names:
            (tmp_path / name).touch()
        await heard.wait(len(names))

    assert [name for told in watching(tmp_path, act, moment=0.01) for name in told] == names


def test_nothing_is_reported_after_the_close(tmp_path: Path) -> None:
    async def act(watches: Watches, heard: Heard) -> None:
        (tmp_path / "a").write_text("x")
        await give_the_loop_time()
        watches.close()
        await asyncio.sleep(MOMENT + 0.1)

    assert watching(tmp_path, act) == []
