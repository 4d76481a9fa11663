"""What several of these tests start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hooking import Box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    one = Box(tmp_path)
    yield one
    one.end()
