"""The commands of README, the tutorial and the guides, run in a fresh home with the scripted agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documents import ROOT, Reader, blocks

PAGES = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]


@pytest.fixture
def reader(home: Path) -> Iterator[Reader]:
    one = Reader(home)
    yield one
    one.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_page_run_in_order_without_error(reader: Reader, page: Path) -> None:
    for command, code, output in reader.follow(page):
        assert code == 0, f"{command}\nexit code {code}\n{output}"


def test_pages_fence_commands_so_that_they_are_run() -> None:
    """`text` is for what cannot be run here; a prompt in any other block would be missed."""
    for page in PAGES:
        for block in blocks(page):
            if block.words[0] not in ("console", "text"):
                assert not any(line.startswith("$ ") for line in block.lines), (page.name, block.line)
