"""The pages that `remuda help TOPIC` shows: each can be reached, and the Python pages name every method."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import remuda
from remuda.cli.app import DAILY, cli
from remuda.cli.help import render_page, topics
from remuda.cli.output import cells, unstyled
from support import ROOT

DOCS = ROOT / "docs"
CLASSES = {
    "session.md": ["Session", "AsyncSession"],
    "client.md": ["Client", "SyncClient", "RemoteClient"],
    "inbox.md": ["Inbox"],
    "boss.md": ["Boss", "AsyncBoss"],
}


def test_every_page_is_a_topic() -> None:
    assert set(topics().values()) == set(DOCS.rglob("*.md"))
    assert topics()["inbox"] == DOCS / "reference/inbox.md"
    assert topics()["python/inbox"] == DOCS / "reference/python/inbox.md"


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_every_page_has_one_title_and_is_printed(path: Path) -> None:
    assert render_page(path, 79)
    without_code = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", without_code, re.MULTILINE)) == 1


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_every_page_fits_80_columns_except_code_and_long_words(path: Path) -> None:
    lines = [unstyled(line) for line in render_page(path, 79)]
    text = [line for line in lines if not line.startswith("    ")]
    assert [line for line in text if cells(line) > 79 and " " in line.strip()] == []
    assert [line for line in text if line.strip() == ":"] == []


@pytest.mark.parametrize("name", [name for group in DAILY.values() for name in group])
def test_help_of_a_daily_command_fits_80_columns(name: str) -> None:
    root = click.Context(cli, info_name="remuda")
    command = cli.get_command(root, name)
    assert command is not None
    shown = click.Context(command, info_name=name, parent=root, terminal_width=80).get_help()
    assert [line for line in unstyled(shown).splitlines() if cells(line) > 80] == []
    assert "...\n" not in shown.partition("\n")[2]


def _groups(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    if isinstance(command, click.Group):
        ctx = click.Context(command, info_name=command.name, parent=parent, terminal_width=80)
        yield ctx
        for name in command.list_commands(ctx):
            if (one := command.get_command(ctx, name)) is not None:
                yield from _groups(one, ctx)


def test_no_line_of_a_list_of_commands_is_cut() -> None:
    lines = [line for ctx in _groups(cli) for line in ctx.get_help().splitlines()]
    cut = [line for line in lines if line.startswith("  ") and line.endswith("...")]
    assert cut == []


@pytest.mark.parametrize("name", CLASSES)
def test_python_page_names_every_public_method(name: str) -> None:
    code = " ".join(re.findall(r"`([^`\n]+)`", (DOCS / "reference/python" / name).read_text()))
    for one in CLASSES[name]:
        methods = {method for method in vars(getattr(remuda, one)) if not method.startswith("_")}
        assert {method for method in methods if not re.search(rf"\b{method}\b", code)} == set()
