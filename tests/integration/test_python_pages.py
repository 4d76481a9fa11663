"""The examples of docs/reference/python, run in a fresh home."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documents import ROOT, Reader, blocks

EXAMPLES = [
    (f"{page.stem}-{block.line}", "\n".join(block.lines))
    for page in sorted((ROOT / "docs/reference/python").glob("*.md"))
    for block in blocks(page)
    if block.words[0] == "python"
]


@pytest.fixture
def reader(home: Path) -> Iterator[Reader]:
    one = Reader(home)
    yield one
    one.close()


@pytest.mark.parametrize("example", [text for _, text in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_example_runs_in_a_fresh_home(reader: Reader, example: str) -> None:
    if "Boss()" in example:
        assert reader.run("remuda boss up --detach")[0] == 0
    code, output = reader.run(f"{sys.executable} -W error -c {shlex.quote(example)}")
    assert code == 0, output
    assert "REPLY#1" in output or "ask" not in example
