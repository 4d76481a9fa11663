"""How many calls of one client are let in."""

from __future__ import annotations

import pytest

from remuda.errors import NotSafe
from remuda.mcp.tools import BURST, MOST_AT_ONCE, PER_SECOND, Pace


def test_pace_after_a_burst_lets_in_as_many_as_the_time_since_allows() -> None:
    now = 100.0
    pace = Pace(lambda: now)

    def calls() -> int:
        for count in range(2 * BURST):
            try:
                pace.enter()
            except NotSafe:
                return count
            pace.leave()
        return 2 * BURST

    assert calls() == BURST
    with pytest.raises(NotSafe, match="too many calls"):
        pace.enter()
    now += 2
    assert calls() == 2 * PER_SECOND
    now += 10 * BURST
    assert calls() == BURST


def test_pace_with_the_most_calls_at_once_refuses_one_more_until_one_ends() -> None:
    pace = Pace(lambda: 0.0)
    for _ in range(MOST_AT_ONCE):
        pace.enter()
    with pytest.raises(NotSafe, match=f"{MOST_AT_ONCE} calls run already"):
        pace.enter()
    pace.leave()
    pace.enter()
