"""The bench for tests on the real codex."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex


@pytest.fixture
def codex(model: LoopbackModel) -> Iterator[RealCodex]:
    """codex on ``model``, with its project trusted. The test fails if a process of its outlives it."""
    with (
        tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True) as folder,
        RealCodex(Path(folder) / "bench", model.url) as bench,
    ):
        yield bench
        left = bench.settle()
    assert not left, f"the test left processes behind: {left}"
