"""The keeper's loop: who is in a hurry goes first, and no one else waits long for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from remuda.keeper.loop import KeeperLoop
from remuda.keeper.session import afterwards


@contextmanager
def pipes(count: int) -> Iterator[list[tuple[int, int]]]:
    made = [os.pipe() for _ in range(count)]
    try:
        yield made
    finally:
        for ends in made:
            for fd in ends:
                os.close(fd)


@pytest.fixture(params=[KeeperLoop, asyncio.SelectorEventLoop])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    made: asyncio.AbstractEventLoop = request.param()
    yield made
    made.close()


def test_what_is_left_over_is_done_once_and_without_another_event(loop: asyncio.AbstractEventLoop) -> None:
    done: list[str] = []

    def reader() -> bool:
        os.read(heard, 1)
        afterwards(loop)(lambda: done.append("left over"))
        loop.call_later(0.1, loop.stop)
        return True

    with pipes(1) as [(heard, said)]:
        loop.add_reader(heard, reader)
        os.write(said, b"x")
        loop.run_forever()
        loop.remove_reader(heard)
    assert done == ["left over"]


def test_what_is_left_over_is_done_before_tasks_and_timers() -> None:
    loop = KeeperLoop()
    done: list[str] = []

    def reader() -> bool:
        os.read(heard, 1)
        loop.call_soon(done.append, "soon")
        loop.call_later(0, done.append, "timer")
        afterwards(loop)(lambda: done.append("left over"))
        loop.call_later(0.05, loop.stop)
        return True

    with pipes(1) as [(heard, said)]:
        loop.add_reader(heard, reader)
        os.write(said, b"x")
        loop.run_forever()
        loop.remove_reader(heard)
    loop.close()
    assert done[0] == "left over"
    assert sorted(done[1:]) == ["soon", "timer"]


def test_readers_that_always_hurry_do_not_keep_timers_from_their_turn(
    loop: asyncio.AbstractEventLoop,
) -> None:
    def reader() -> bool:
        return True  # and reads nothing: it is called again and again

    with pipes(1) as [(heard, said)]:
        loop.add_reader(heard, reader)
        os.write(said, b"x")
        loop.call_later(0.01, loop.stop)
        loop.run_forever()
        loop.remove_reader(heard)


def test_reader_and_left_over_that_fail_are_reported_and_hurt_no_one(loop: asyncio.AbstractEventLoop) -> None:
    told: list[str] = []
    done: list[str] = []

    def fail() -> None:
        raise ValueError("mine")

    def failing() -> bool:
        os.read(first[0], 1)
        afterwards(loop)(fail)
        fail()
        return True

    def working() -> None:
        os.read(second[0], 1)
        done.append("worked")

    def handler(_loop: object, context: dict[str, Any]) -> None:
        told.append(str(context["exception"]))
        if len(told) == 2:
            loop.call_soon(loop.stop)  # behind what is ready now

    loop.set_exception_handler(handler)
    with pipes(2) as [first, second]:
        for (heard, said), reader in ((first, failing), (second, working)):
            loop.add_reader(heard, reader)
            os.write(said, b"x")
        loop.call_later(30, loop.stop)
        loop.run_forever()
        for heard, _ in (first, second):
            loop.remove_reader(heard)
    assert done == ["worked"]
    assert told == ["mine", "mine"]
