"""When a transcript is read for what its agent used."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

from remuda.boss.evidence.usage import UsageReader
from remuda.boss.service import BossService


def test_file_that_has_just_changed_is_read_a_moment_later_and_not_put_off_twice(tmp_path: Path) -> None:
    source = UsageReader(cast(BossService, None))  # only asked about files here
    path = tmp_path / "t.jsonl"
    path.write_text("{}\n")
    written_ago = [(0.0, True), (0.0, False), (0.0, True), (60.0, False), (60.0, False), (-60.0, False)]
    for seconds, too_early in written_ago:
        at = time.time() - seconds
        os.utime(path, (at, at))
        assert source._is_too_early(str(path)) is too_early, seconds
    assert not source._is_too_early(str(tmp_path / "missing"))
