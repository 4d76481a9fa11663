"""An inbox for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.inbox_box import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)
