"""What repeats more often in a soak is run by it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Tests on hypothesis have its own mark, which `make soak` runs too.
_OF_HYPOTHESIS = "EXAMPLES"
_MARKS = ("pytest.mark.soak", "pytest.mark.versions")


def used_counts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "support.counts":
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "counts":
            yield node.attr


@pytest.mark.parametrize("folder", sorted(one.name for one in TESTS.iterdir() if one.is_dir()))
def test_module_that_uses_a_count_of_the_soak_has_a_test_that_the_soak_runs(folder: str) -> None:
    texts = {path: path.read_text() for path in (TESTS / folder).rglob("test_*.py")}
    counting = {path: text for path, text in texts.items() if "counts" in text}
    left_out = [
        path.name
        for path, text in counting.items()
        if {*used_counts(ast.parse(text))} - {_OF_HYPOTHESIS} and not any(mark in text for mark in _MARKS)
    ]
    assert left_out == []
