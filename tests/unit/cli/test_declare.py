"""Command lines that are read without click: both readers understand the same."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli import declare
from remuda.cli.command_list import COMMANDS, load
from remuda.cli.declare import DeclaredCommand, parse

DECLARED = {name: one for name in COMMANDS if isinstance(one := load(name), DeclaredCommand)}
HOT = ("ls", "send", "status", "queue", "next")

QUICK = [
    "ls",
    "ls -a",
    "ls --all --json",
    "ls --wide --local",
    "ls -q",
    "ls -w",
    "ls --format {name}",
    "ls --format={name}={state}",
    "ls --format=",
    "ls --json --json",
    "send work hello",
    "send work -",
    "send work",
    "send work hello --wait",
    "send --wait work hello --timeout 10m",
    "send work hello --timeout=90",
    "send work --command /compact",
    "send work hello --dedup a --dedup b",
    "send work hello --from me --delay 1h --ttl 2h",
    "status",
    "status work",
    "status work --explain --json",
    "queue",
    "queue -a",
    "queue --all --local --json",
    "queue --history",
    "queue -i",
    "queue --format {reason}",
    "next",
    "next --show",
    "next --client /dev/pts/3 --json",
    "next --elsewhere",
    "later work",
    "later work 90",
    "later work never",
    "reply work yes",
    "snooze work --for 2h30m",
    "skip --next",
    "dismiss",
    "return",
    "agents --all",
]
SLOW = [
    "ls --help",
    "ls -h",
    "ls -aq",
    "ls --al",
    "ls --all=yes",
    "ls --json=",
    "ls extra",
    "ls --format",
    "ls --format --json",
    "ls --socket-dir /tmp",
    "ls --socket-dir=/tmp",
    "ls --",
    "ls -- work",
    "send",
    "send work hello again",
    "send work -x",
    "send work hello --timeout soon",
    "send work hello --timeout -5",
    "send work hello --dedup=",
    "send work hello --max-attempts 3",
    "send work hello --max-bytes=10",
    "status work other",
    "status --explai work",
    "queue -n 5",
    "queue --limit=5",
    "next work",
    "later",
    "later work soon",
]


def by_click(command: DeclaredCommand, words: list[str]) -> dict[str, Any]:
    return command.to_click().make_context(command.name, list(words)).params


@pytest.mark.parametrize("line", QUICK)
def test_usual_line_is_read_as_by_click(line: str) -> None:
    name, *words = line.split(" ")
    found = parse(DECLARED[name], words)
    assert found is not None
    assert found == by_click(DECLARED[name], words)


@pytest.mark.parametrize("line", SLOW)
def test_other_line_is_left_to_click(line: str) -> None:
    name, *words = line.split(" ")
    assert parse(DECLARED[name], words) is None


def test_commands_that_a_user_waits_for_are_declared() -> None:
    assert set(HOT) <= set(DECLARED)


@pytest.mark.parametrize("name", DECLARED)
def test_parameters_of_a_declared_command_are_those_of_click(name: str) -> None:
    command = DECLARED[name]
    made = command.to_click()
    assert made.name == name
    assert [one.name for one in command.parameters] == [one.name for one in made.params]
    assert all(one.is_usual for one in command.parameters)
    for ours, theirs in zip(command.parameters, made.params, strict=True):
        assert {one for one in ours.names if one.startswith("-")} == {
            one for one in (*theirs.opts, *theirs.secondary_opts) if one.startswith("-")
        }
        assert ours.is_required == theirs.required


def words_of(name: str) -> st.SearchStrategy[list[str]]:
    options = [one for parameter in DECLARED[name].parameters for one in parameter.names if one[0] == "-"]
    values = ["work", "90", "0", "2h", "-", "", "never", "{name}", "--", "-5", "--nothing", "-ab", "a=b"]
    joined = [f"{option}={value}" for option in options for value in ("90", "", "x")]
    return st.lists(st.sampled_from([*options, *values, *joined]), max_size=6)


@given(st.sampled_from(sorted(DECLARED)).flatmap(lambda name: st.tuples(st.just(name), words_of(name))))
def test_any_line_that_is_read_here_is_read_so_by_click(line: tuple[str, list[str]]) -> None:
    name, words = line
    if (found := parse(DECLARED[name], words)) is not None:
        assert found == by_click(DECLARED[name], words)


def test_shared_option_also_serves_a_command_of_click() -> None:
    @click.command("both")
    @declare.option("--loud", is_flag=True, help="Say it loudly.")
    @click.argument("word")
    def both(word: str, loud: bool) -> None: ...

    assert [one.name for one in both.params] == ["loud", "word"]
    assert both.make_context("both", ["--loud", "x"]).params == {"loud": True, "word": "x"}


def test_parameter_that_is_unusual_leaves_all_lines_to_click() -> None:
    @declare.command("many")
    @declare.option("--one", multiple=True)
    def many(one: tuple[str, ...]) -> None: ...

    assert parse(many, []) is None
    assert by_click(many, ["--one", "a", "--one", "b"]) == {"one": ("a", "b")}
