"""Every backend of the pool that runs on a stream, and the fake, do what all warm sessions do."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import pool_conformance as conformance
from support.pool_conformance import Check, checks_of
from support.warm_sessions import FakeBench, PrintBench, StreamBench


@pytest.mark.parametrize("check", checks_of(StreamBench))
def test_stream(check: Check, home: Path) -> None:
    conformance.run(check, StreamBench(home))


@pytest.mark.parametrize("check", checks_of(PrintBench))
def test_print(check: Check, home: Path) -> None:
    conformance.run(check, PrintBench(home))


@pytest.mark.parametrize("check", checks_of(FakeBench))
def test_fake(check: Check, home: Path) -> None:
    conformance.run(check, FakeBench(home))
