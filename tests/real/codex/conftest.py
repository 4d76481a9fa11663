"""The bench for tests on the real codex."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support.codex import MakeCodex


@pytest.fixture
def make_codex(model: LoopbackModel) -> Iterator[MakeCodex]:
    """Benches on ``model``. The test fails if a process of theirs outlives it."""
    with ExitStack() as stack:
        benches: list[RealCodex] = []

        def make(*, trust: bool = True) -> RealCodex:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True)
            )
            benches.append(stack.enter_context(RealCodex(Path(folder) / "bench", model.url, trust=trust)))
            return benches[-1]

        yield make
        left = {pid: command for bench in benches for pid, command in bench.settle().items()}
    assert not left, f"the test left processes behind: {left}"


@pytest.fixture
def codex(make_codex: MakeCodex) -> RealCodex:
    """codex on ``model``, with its project trusted."""
    return make_codex()
