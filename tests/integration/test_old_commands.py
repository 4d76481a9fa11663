"""Every command of version 0.1 still works, with the same flags, JSON keys and exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from support.old_commands import Runner, flags_now, run_all

OLD = json.loads((Path(__file__).parents[1] / "data" / "old_commands.json").read_text())
CHANGED = {"kill --all at the end": "--yes is new"}
"""Other exit codes than before, on purpose."""


@pytest.mark.timeout(600)  # about eighty commands
def test_old_commands_have_the_exit_codes_and_json_keys_of_before(home: Path) -> None:
    program = shutil.which("remuda", path=str(Path(sys.executable).parent))
    assert program is not None
    runner = Runner(program, home / "old")
    run_all(runner)
    now = runner.record
    assert now.keys() == OLD["commands"].keys()
    codes = {name: (one["code"], now[name]["code"]) for name, one in OLD["commands"].items()}
    assert {name: pair for name, pair in codes.items() if pair[0] != pair[1]}.keys() == CHANGED.keys()
    gone = {name: {*one["keys"]} - {*now[name]["keys"]} for name, one in OLD["commands"].items()}
    assert {name: keys for name, keys in gone.items() if keys} == {}


def test_old_commands_take_every_flag_of_before() -> None:
    now = flags_now()
    gone = {name: {*flags} - {*now.get(name, [])} for name, flags in OLD["flags"].items()}
    assert {name: flags for name, flags in gone.items() if flags} == {}
