"""The command line in a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import Commands


@pytest.fixture
def remuda(home: Path) -> Iterator[Commands]:
    commands = Commands(home)
    yield commands
    commands.close()
