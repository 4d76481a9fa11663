"""The terminal backend on the scripted agent does what every warm session does."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import pool_conformance as conformance
from support.pool_conformance import Check, checks_of
from support.pool_terminals import TerminalBench


@pytest.mark.parametrize("check", checks_of(TerminalBench))
def test_terminal(check: Check, home: Path) -> None:
    conformance.run(check, TerminalBench(home))
