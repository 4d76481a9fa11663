"""The loop whose clock jumps."""

from __future__ import annotations

import asyncio

import pytest

from remuda.testing.clock import Deadlock, run


def test_run_sleeps_are_over_at_once_and_the_clock_shows_them() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(main()) == 3600


def test_run_timers_fire_in_their_order_at_their_moment() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        def note(name: str) -> None:
            seen.append((name, loop.time()))

        for name, delay in (("c", 30.0), ("a", 0.1), ("b", 20.0)):
            loop.call_later(delay, note, name)
        await asyncio.sleep(25)
        return seen

    assert run(main()) == [("a", 0.1), ("b", 20.0)]


def test_run_what_can_go_on_goes_on_before_the_clock_moves() -> None:
    async def main() -> tuple[int, float]:
        done = 0

        async def work() -> None:
            nonlocal done
            for _ in range(100):
                await asyncio.sleep(0)
                done += 1

        task = asyncio.create_task(work())
        await asyncio.sleep(0.001)
        await task
        return done, asyncio.get_running_loop().time()

    assert run(main()) == (100, 0.001)


def test_run_timeout_is_kept() -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(main())


def test_run_word_of_a_thread_is_waited_for() -> None:
    async def main() -> str:
        return await asyncio.to_thread(lambda: "word")

    assert run(main()) == "word"


def test_run_in_which_nothing_will_happen_raises() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(main(), patience=0.01)
