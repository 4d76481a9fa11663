"""The table of self-tests in the docs is made of the recorded results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SCRIPT = Path(__file__).parents[3] / "scripts" / "canary.py"
_SPEC = importlib.util.spec_from_file_location("canary", _SCRIPT)
assert _SPEC is not None
assert _SPEC.loader is not None
canary = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(canary)


def test_pages_show_the_self_tests_that_were_recorded_last() -> None:
    for path, made in canary.pages(canary.load()).items():
        text = path.read_text()
        assert text == canary.page(text, made), "python scripts/canary.py --write"


def test_every_agent_that_is_tested_is_in_the_table() -> None:
    recorded = canary.load()
    assert {(agent, version) for agent in recorded for version in recorded[agent]} == set(
        canary.all_versions()
    )
    assert "| promise | Claude Code 2.1.325 | codex " in canary.agents_table(recorded)


def test_table_numbers_what_does_not_hold() -> None:
    seen = [
        ("exact", "holds", ""),
        ("clear", "holds", "refused: only at its terminal"),
        ("print", "does not hold", "no usage"),
        ("draft", "not known", "no time"),
    ]
    outcomes = [dict(zip(("promise", "verdict", "detail"), one, strict=True)) for one in seen]
    table = canary.table(
        {"1.10.0": {"outcomes": outcomes, "seconds": 3}, "1.9.0": {"outcomes": [], "seconds": 4}}
    )
    assert table.startswith("| promise | 1.10.0 | 1.9.0 |")
    assert "| a message arrives once, and exactly as sent | yes | - |" in table
    assert "with usage | no (2) | - |" in table
    assert "| the command to clear is confirmed or refused | refused | - |" in table
    assert "took | 3 | 4 |" in table
    assert table.endswith("1. no time\n2. no usage\n")
