"""Every program that touches an inbox is killed before every system call that it makes, and recovered:
nothing accepted is lost or doubled, and nothing is handed out twice without a receipt that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crash import kill_everywhere
from support.scenarios import HOOK, JOURNAL


@pytest.mark.soak
@pytest.mark.parametrize("scenario", HOOK)
def test_hook_killed_at_any_call_loses_nothing(tmp_path: Path, scenario: str) -> None:
    assert kill_everywhere(tmp_path, HOOK[scenario]) > 10


@pytest.mark.soak
@pytest.mark.parametrize("scenario", JOURNAL)
def test_journal_killed_at_any_call_loses_nothing(tmp_path: Path, scenario: str) -> None:
    assert kill_everywhere(tmp_path, JOURNAL[scenario]) > 5
