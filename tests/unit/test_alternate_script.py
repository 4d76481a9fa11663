"""`scripts/alternate.py`: the table that compares two commits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "scripts" / "alternate.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("alternate_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(**values: float) -> dict[str, Any]:
    return {"figures": [{"name": name, "value": value, "unit": "ms"} for name, value in values.items()]}


def test_medians_of_all_turns_are_compared_and_figures_of_one_commit_come_last() -> None:
    script = load()
    old = script.medians([run(gone=1, put=4), run(gone=1, put=2), run(gone=1, put=90)])
    new = script.medians([run(put=2, added=0)])
    assert list(script.table(old, new))[2:] == [
        "| put | 4 ms | 2 ms | 0.50 |",
        "| gone | 1 ms |  |  |",
        "| added |  | 0 ms |  |",
    ]
