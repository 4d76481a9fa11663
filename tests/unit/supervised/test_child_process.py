"""The parts of a supervised process that need no process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from remuda.supervised.child_process import Lifeline, SelectLoop


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_select_loop_callback_that_removes_the_next_one_is_the_last(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"x")
    loop, called = SelectLoop(), []

    def readable() -> None:
        called.append("read")
        loop.remove_writer(write)

    loop.add_reader(read, readable)
    loop.add_writer(write, lambda: called.append("written"))
    loop.run_once(0)
    assert called == ["read"]


def test_lifeline_other_end_is_at_its_end_when_closed_or_deleted() -> None:
    for cut in (Lifeline.close, lambda _: None):
        lifeline = Lifeline()
        other = lifeline.open()
        cut(lifeline)
        del lifeline
        assert os.read(other, 1) == b""
        os.close(other)
