"""Delays and times to live while someone sets the clock: the seconds that passed count."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from remuda.inbox.message import make_message
from remuda.inbox.stop_hook import Clock, Files, HookInbox, Lock
from support.envelopes import put_marked

HOUR = 3600.0


class Hands:
    """A clock for a test: seconds pass, someone sets it, the machine starts again."""

    def __init__(self) -> None:
        self.wall = time.time()
        self.ticks = 5000.0
        self.boot = "boot-1"

    def __call__(self) -> Clock:
        return Clock(self.wall, self.ticks, self.boot)

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.ticks += seconds

    def set(self, seconds: float) -> None:
        self.wall += seconds

    def restart(self, ticks: float = 10.0) -> None:
        self.boot += "1"
        self.ticks = ticks


class Box:
    def __init__(self, folder: Path, clock: Hands) -> None:
        self.files = Files(str(folder / "inbox.jsonl"))
        self.clock = clock

    def put(self, **fields: object) -> None:
        put_marked(self.files.inbox, id="m", prompt="x", **fields)

    def take(self) -> bool:
        """Whether something can be handed out now. Each look is a process of its own, as for the hook."""
        with Lock(self.files):
            inbox = HookInbox(self.files, clock=self.clock)
            try:
                inbox.open()
                return inbox.next_entry() is not None
            finally:
                inbox.close()

    def stages(self) -> list[str]:
        path = Path(self.files.receipts)
        return [json.loads(line)["stage"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def box(tmp_path: Path, clock: Hands) -> Box:
    return Box(tmp_path, clock)


def _delayed(box: Box, delay: float) -> None:
    now = box.clock()
    box.put(at=now.wall, not_before=now.wall + delay, clock=now.stamp())


def test_since_in_one_run_of_the_machine_the_wall_does_not_count() -> None:
    then, later = Clock(1000.0, 50.0, "a"), Clock(9000.0, 60.0, "a")
    assert later.since(then.wall, then.stamp()) == 10.0


def test_since_over_a_restart_and_without_a_stamp_the_wall_counts_and_never_backwards() -> None:
    assert Clock(1010.0, 3.0, "b").since(1000.0, [50.0, "a"]) == 10.0
    assert Clock(1010.0, 3.0, "b").since(1000.0, None) == 10.0
    assert Clock(900.0, 3.0, "b").since(1000.0, [50.0, "a"]) == 0.0
    assert Clock(1010.0, 60.0, "").since(1000.0, [50.0, ""]) == 10.0


@pytest.mark.parametrize("jump", [-5 * HOUR, 5 * HOUR])
@pytest.mark.parametrize("seen", [True, False])
def test_delay_while_the_clock_is_set_takes_the_seconds_that_were_asked_for(
    box: Box, clock: Hands, jump: float, seen: bool
) -> None:
    _delayed(box, 60.0)
    if seen:
        assert not box.take()
    clock.set(jump)
    assert not box.take()
    clock.run(59.0)
    assert not box.take()
    clock.run(1.5)
    assert box.take()


@pytest.mark.parametrize("seen", [True, False])
def test_delay_over_a_restart_with_the_clock_set_back_is_not_held_for_hours(
    box: Box, clock: Hands, seen: bool
) -> None:
    _delayed(box, 60.0)
    if seen:
        assert not box.take()
    clock.restart()
    clock.set(-5 * HOUR)
    assert not box.take()
    clock.run(61.0)
    assert box.take()


def test_delay_over_a_restart_goes_on_where_it_was(box: Box, clock: Hands) -> None:
    _delayed(box, HOUR)
    assert not box.take()
    clock.run(HOUR / 2)
    clock.restart()
    assert not box.take()
    clock.run(HOUR / 2 + 1)
    assert box.take()


def test_delay_of_a_sender_without_our_stamp_is_clamped_to_what_it_asked_for(box: Box, clock: Hands) -> None:
    now = clock()
    box.put(at=now.wall, not_before=now.wall + 60)
    clock.set(-5 * HOUR)
    assert not box.take()
    clock.run(61.0)
    assert box.take()


def test_ttl_and_a_clock_set_forward_the_message_lives(box: Box, clock: Hands) -> None:
    now = clock()
    box.put(at=now.wall, expires=now.wall + 60, clock=now.stamp())
    clock.set(5 * HOUR)
    assert box.take()
    clock.run(61.0)
    assert not box.take()
    assert box.stages() == ["expired"]


def test_ttl_and_a_clock_set_back_the_message_ends_in_time(box: Box, clock: Hands) -> None:
    now = clock()
    box.put(at=now.wall, expires=now.wall + 60, clock=now.stamp())
    clock.set(-5 * HOUR)
    clock.run(61.0)
    assert not box.take()


def test_message_with_delay_or_ttl_carries_the_stamp_and_others_do_not() -> None:
    assert b'"clock"' not in make_message("x").line
    assert isinstance(json.loads(make_message("x", delay=60.0).line)["clock"], list)
    assert b'"clock"' in make_message("x", ttl=60.0).line
