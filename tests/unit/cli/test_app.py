"""Which module a command is loaded from, and that no other is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

import remuda.cli
from remuda.cli.app import COMMANDS, SHARED_MODULES, cli

ALWAYS = {"app", "command_list", "declare", "output", "quick"}
LOADED = """
import sys
from remuda.cli.app import cli
cli.get_command(None, {name!r})
print(*sorted(name.removeprefix("remuda.cli.") for name in sys.modules if name.startswith("remuda.cli.")))
"""


def loaded_for(command: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(name=command)], capture_output=True, check=True, text=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_found_under_its_name(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name


def test_shared_modules_exist_and_have_no_command_of_their_own_file() -> None:
    modules = {path.stem for path in Path(remuda.cli.__file__).parent.glob("*.py")}
    assert set(SHARED_MODULES.values()) <= modules
    assert not {name.replace("-", "_") for name in SHARED_MODULES} & modules


def test_ls_loads_no_module_of_another_command() -> None:
    assert loaded_for("ls") == ALWAYS | {"common", "elsewhere", "ls", "outside"}


def test_segment_loads_no_module_of_another_command() -> None:
    assert loaded_for("segment") == ALWAYS | {"common", "segment"}
