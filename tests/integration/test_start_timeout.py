"""A start that takes too long: when it has failed, nothing of the session runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.errors import SpawnTimeout
from remuda.keeper.claim import read_holder
from remuda.keeper.start import start_attended, start_session
from remuda.paths import SessionPaths
from remuda.process_table import with_variable
from support.keeper import end_processes, make_spec, until

MARK = "REMUDA_TEST_START"
PROGRAM = ["sh", "-c", "trap '' TERM HUP; while :; do sleep 0.1; done"]
SLOW = """
import os, select, sys

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["SLOW_AT"]:
            sys.meta_path.remove(self)
            waiter = select.poll()
            waiter.register(int(sys.argv[1]), select.POLLIN)
            waiter.poll()

if "SLOW_AT" in os.environ:
    sys.meta_path.insert(0, Slow())
"""
"""In a keeper: it waits, before it imports that module, until its starter has given up."""


@pytest.mark.parametrize("attended", [False, True], ids=["alone", "attended"])
@pytest.mark.parametrize(
    "module",
    ["remuda.keeper.process", "remuda.keeper.survivors", "remuda.keeper.logfile", "remuda.keeper.main"],
)
def test_start_that_takes_too_long_leaves_nothing_running(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, attended: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SLOW_AT", module)
    folder, mark = home / "sessions", f"{os.getpid()}-{module}"
    monkeypatch.setenv(MARK, mark)
    spec = make_spec(folder, "s", PROGRAM)
    try:
        with pytest.raises(SpawnTimeout, match="within 1 s"):
            start_attended(spec, 1.0) if attended else start_session(spec, 1.0)
        assert list(with_variable(MARK, mark)) == []  # neither keeper nor program
        assert read_holder(SessionPaths(folder, "s")) is None
        left = os.listdir(folder) if folder.exists() else []
        assert not [one for one in left if one.endswith((".pid", ".sock", ".d"))]
    finally:
        end_processes(with_variable(MARK, mark))


def test_start_whose_keeper_hangs_ends_it_and_its_program(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, and does not hear that its starter gave up."""
    (tmp_path / "sitecustomize.py").write_text(SLOW.replace("waiter.poll()", "os.kill(os.getpid(), 19)"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SLOW_AT", "remuda.keeper.main")
    mark = f"{os.getpid()}-hangs"
    monkeypatch.setenv(MARK, mark)
    try:
        with pytest.raises(SpawnTimeout):
            start_session(make_spec(home / "sessions", "s", ["sleep", "600"]), 1.0)
        until(lambda: not list(with_variable(MARK, mark)), "its end")
    finally:
        end_processes(with_variable(MARK, mark))
