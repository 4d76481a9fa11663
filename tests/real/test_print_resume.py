"""`--resume` with a title on a terminal: the conversation of `claude -p`, and never a list to choose from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.real_cli import RealCli
from support.commands import Commands
from support.print_calls import Calls


@pytest.fixture
def calls(home: Path, cli: RealCli) -> Iterator[Calls]:
    commands = Commands(home)
    made = Calls(commands, cli.binary, cli.env, cli.project)
    yield made
    made.close()
    commands.close()


def test_a_title_is_that_of_a_conversation_whoever_began_it(calls: Calls, cli: RealCli) -> None:
    assert cli.run_print("one", "--name", "of print").stdout == "REPLY#1 to: one\n"
    calls("two", "--name", "of a terminal")
    assert calls("more", "--resume", "of print").out == "REPLY#2 to: more\n"
    assert calls("more", "--resume", "Of A Terminal").out == "REPLY#2 to: more\n"
    calls.assert_nothing_left()


def test_a_title_that_nothing_has_is_refused_as_claude_refuses_it(calls: Calls, cli: RealCli) -> None:
    cli.run_print("one", "--name", "some title")
    asked = ("hello", "--resume", "some tit")
    assert cli.run_print(*asked).returncode == 1
    said = calls(*asked, code=1).err
    assert said == "remuda print: --resume: no conversation in this folder has that id or title\n"
    calls.assert_nothing_left()
