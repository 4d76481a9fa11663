"""A key that counts twice within 0.8 s: when it is pressed, on an agent that draws at once, late or never."""

from __future__ import annotations

from itertools import pairwise

import pytest

from remuda.turns.interruption import Presses

LOOK = 0.05
WITHIN = 0.8
"""The agent takes two presses for a pair when they are no further apart."""


def pressed(drawn_after: float | None, seconds: float = 12.0) -> list[float]:
    """When the key is pressed; `drawn_after`: how long the agent takes to draw what it did."""
    presses, found, drawn = Presses(), [], [-1.0]
    for look in range(round(seconds / LOOK)):
        now = look * LOOK
        if presses.is_due(now, max(at for at in drawn if at <= now)):
            presses.press(now)
            found.append(now)
            if drawn_after is not None:
                drawn.append(now + drawn_after)
    return found


def test_pair_is_pressed_apart_and_close_enough_when_the_agent_draws() -> None:
    first, second, *_ = pressed(0.02)
    assert first == 0.0
    assert Presses.GAP <= second - first <= WITHIN


def test_second_of_a_pair_follows_what_the_first_did() -> None:
    first, second, *_ = pressed(0.4)
    assert 0.4 <= second - first <= 0.5


def test_agent_that_draws_nothing_is_still_given_a_pair() -> None:
    first, second, *_ = pressed(None)
    assert Presses.GAP < second - first <= WITHIN


def test_agent_that_draws_nothing_is_given_no_more_than_that() -> None:
    assert len(pressed(None)) == 2


@pytest.mark.parametrize("delay", [0.02, 0.4], ids=["quick", "slow"])
def test_pairs_are_further_apart_than_a_pair_and_not_forever(delay: float | None) -> None:
    times = pressed(delay)
    assert len(times) == Presses.MOST
    gaps = [after - before for before, after in pairwise(times)]
    assert all(gap <= WITHIN for gap in gaps[0::2])
    assert all(gap > WITHIN for gap in gaps[1::2])
    assert times[-1] < 6.0
