"""Every hazard in the docs of an agent names tests on the real binary that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("agent", "count"), [("codex", 10), ("opencode", 8), ("copilot", 7)])
def test_hazards_of_an_agent_each_name_a_test_that_exists(agent: str, count: int) -> None:
    page = (ROOT / "docs" / "why" / f"{agent}.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, count + 1))
    folder = ROOT / "tests" / "real" / agent
    tests = {
        name
        for path in folder.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for number, cell in rows:
        named = set(re.findall(r"`(test_\w+)`", cell))
        assert named <= tests, f"hazard {number}: no such test: {named - tests}"
        assert named or "not tested: " in cell, f"hazard {number} names no test"
