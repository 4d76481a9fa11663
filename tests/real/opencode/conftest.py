"""A bench of the real opencode for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.testing.loopback_model import LoopbackModel
from support import commands, keeper, messages, pool_conformance, watcher
from support.opencode import PATIENCE, Opencode, opencode_bench


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than for others: on a machine with load 20 its terminal took 45 s to start."""
    for module in (keeper, messages, pool_conformance, watcher):
        monkeypatch.setattr(module, "PATIENCE", PATIENCE)
    monkeypatch.setattr(commands, "_COMMAND_PATIENCE", PATIENCE)


@pytest.fixture
def opencode(model: LoopbackModel) -> Iterator[Opencode]:
    with opencode_bench(model) as bench:
        yield bench
