"""A hub with a real nats-server, and machines that have joined it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fleet import FleetBench, HubMachine, Pair, two_machines


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A machine to act from, and one that runs agents, for tests that leave both as they were."""
    with two_machines(tmp_path_factory.mktemp("fleet")) as pair:
        yield pair


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubMachine]:
    """A hub alone, for tests of connections and keys."""
    made = HubMachine(tmp_path_factory.mktemp("fleet") / "hub")
    made.start()
    yield made
    made.close()


@pytest.fixture
def bench(home: Path) -> Iterator[FleetBench]:
    made = FleetBench(home)
    made.hub.start()
    yield made
    made.close()
