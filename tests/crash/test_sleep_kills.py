"""Keepers and agents are killed around sleep and wake, with messages in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import counts
from support.delivery import Bench
from support.keeper import Start
from support.sleep_kills import SleepKills


@pytest.mark.soak
@pytest.mark.timeout(120 + 20 * counts.SLEEP_KILLS)
def test_kills_around_sleep_and_wake_lose_no_message_and_run_none_twice(start: Start, tmp_path: Path) -> None:
    bench = Bench(start, tmp_path)
    kills = SleepKills(lambda resume: bench.start(resume=resume))
    kills.rage(counts.SLEEP_KILLS)
    asked = bench.prompts(kills.post)
    kills.judge(asked.count)
