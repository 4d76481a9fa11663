"""A hub with a real nats-server, and machines that have joined it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fleet import FleetBench


@pytest.fixture
def bench(home: Path) -> Iterator[FleetBench]:
    made = FleetBench(home)
    made.hub.start()
    yield made
    made.close()
