"""docs/reference/pool.md: its examples run, and its tables have every option, error and event."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import remuda
from remuda import errors
from remuda.pool.events import NAMES
from remuda.pool.options import AsyncRunOptions, ClientOptions, ClientSettings, ProfileOptions
from remuda.pool.types import RunResult
from remuda.testing.pool import FakeAgent
from support import ROOT

PAGE = (ROOT / "docs/reference/pool.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs_on_the_fake_agent(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent()
    # The one thing that is changed: which agent answers.
    program = re.sub(r"\b((?:Sync)?Client)\((?!session_factory)", r"\1(session_factory=agent, ", example)
    exec(compile(program, "docs/reference/pool.md", "exec"), {"agent": agent, "__name__": "__main__"})
    assert agent.alive == []
    assert agent.sessions or "FakeAgent()" in example


def test_examples_are_many() -> None:
    assert len(EXAMPLES) >= 8


def rows(heading: str) -> dict[str, str]:
    """The first two columns of the table under that heading, with each name of the first."""
    table = PAGE[PAGE.index(f"| {heading} |") :].partition("\n\n")[0]
    found = {}
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([^`]+)`", cells[0]):
            found[name] = cells[1]
    return found


def test_table_of_the_client_has_every_option_with_its_default() -> None:
    table = rows("option")
    own = set(ClientOptions.__annotations__) - set(ProfileOptions.__annotations__)
    assert set(table) == own
    defaults = {field.name: field.default for field in fields(ClientSettings) if field.name != "wanted"}
    for name, shown in table.items():
        value = defaults[name]
        assert shown == f"`{value!r}`".replace("'", '"')


def test_tables_of_a_request_have_every_option() -> None:
    documented = set(rows("option of a request")) | set(rows("option of a profile"))
    assert documented == set(AsyncRunOptions.__annotations__)


def test_table_of_errors_names_types_of_those_codes_that_are_exported() -> None:
    table = PAGE[PAGE.index("| code | type |") :].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        codes, types = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")[:2])
        for code, name in zip(codes, types, strict=True):
            assert getattr(errors, name).code == code
            assert getattr(remuda, name) is getattr(errors, name)


def test_table_of_events_has_every_event_with_its_fields() -> None:
    from remuda.pool import events

    table = rows("event")
    assert tuple(table) == NAMES
    kinds = (events.SessionSpawned, events.SessionEvicted, events.RequestDone, events.RequestError)
    for kind in kinds:
        named = " ".join(field.name for field in fields(kind))
        assert table[kind.name].startswith(f"`{named}`")
    for reason in events.Reason.__args__:  # type: ignore[attr-defined]
        assert reason in table["session.evicted"]


def test_fields_of_a_result_are_all_named() -> None:
    text = PAGE.replace("\n", " ")
    named = re.search(r"A `RunResult` has `([^`]+)`", text)
    assert named
    assert set(named[1].split()) == {field.name for field in fields(RunResult)}
