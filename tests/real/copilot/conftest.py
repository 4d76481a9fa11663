"""The bench for tests on the real copilot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support.copilot import MakeCopilot


@pytest.fixture
def make_copilot(model: LoopbackModel) -> Iterator[MakeCopilot]:
    with ExitStack() as stack:

        def make(*, trust: bool = True) -> RealCopilot:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True)
            )
            cli = RealCopilot(Path(folder) / "bench", model.url, trust=trust)
            stack.enter_context(cli)
            benches.append(cli)
            return cli

        benches: list[RealCopilot] = []
        yield make
        left = {pid: command for cli in benches for pid, command in cli.settle().items()}
    assert not left, f"the test left processes behind: {left}"


@pytest.fixture
def copilot(make_copilot: MakeCopilot) -> RealCopilot:
    return make_copilot()
