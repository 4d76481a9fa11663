"""The trust dialog of calls and pools: answered for this start, and not written down for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.keeper.claim import read_holder
from remuda.paths import SessionPaths
from support.keeper import Process, until
from support.print_calls import Calls, processes_of

KEY = "hasTrustDialogAccepted"
POOL = """
from remuda import SyncClient
import sys
with SyncClient(claude_binary=sys.argv[1]) as client:
    assert client.run("hello").text == "REPLY#1 to: hello"
    assert client.run("again").text.endswith("to: again")
"""


@pytest.fixture
def calls(calls: Calls) -> Calls:
    """In a home where the agent asks for trust, and knows other folders."""
    write(calls, {"theme": "dark", "projects": {"/other": {KEY: True, "n": 1}}})
    return calls


def config(calls: Calls) -> Path:
    return calls.home / ".claude.json"


def notes(calls: Calls) -> Path:
    return calls.home / ".claude.json.remuda-trust"


def write(calls: Calls, document: object) -> None:
    config(calls).write_text(json.dumps(document, indent=2))


def read(calls: Calls) -> Any:
    return json.loads(config(calls).read_text())


def trust(calls: Calls) -> object:
    return read(calls)["projects"].get(os.path.realpath(calls.cwd), {}).get(KEY)


def untrusted(calls: Calls) -> bool:
    return not trust(calls) and not notes(calls).exists()


@pytest.mark.parametrize("flags", [[], ["--keep"]], ids=["call", "kept"])
def test_a_call_leaves_no_trust_behind(calls: Calls, flags: list[str]) -> None:
    done = calls("hello", *flags)
    assert done.out == "REPLY#1 to: hello\n"
    until(lambda: untrusted(calls), "the end of the loan")
    entry = {} if (found := read(calls)["projects"].pop(os.path.realpath(calls.cwd), None)) is None else found
    assert entry == {}
    assert read(calls)["projects"].pop("/other") == {KEY: True, "n": 1}
    if flags:
        calls.remuda("kill", "--all")


def test_a_call_leaves_no_trust_in_a_moved_configuration(calls: Calls, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / ".claude.json").write_text('{"projects": {}}')
    env = {"CLAUDE_CONFIG_DIR": str(moved)}
    assert calls("hello", env=env).out == "REPLY#1 to: hello\n"
    cwd = os.path.realpath(calls.cwd)
    until(lambda: not (moved / ".claude.json.remuda-trust").exists(), "the end of the loan")
    assert json.loads((moved / ".claude.json").read_text())["projects"].get(cwd, {}) == {}
    assert trust(calls) is None, "the other file is not touched"


def test_several_calls_at_once_in_one_folder_leave_no_trust(calls: Calls) -> None:
    running = [calls.begin(f"hello {number}") for number in range(3)]
    for number, call in enumerate(running):
        code, out, err = call.ended()
        assert (code, out) == (0, f"REPLY#1 to: hello {number}\n"), err
    until(lambda: untrusted(calls), "the end of all loans")


SLOW_DIALOG = {"MOCK_DIALOG_GUARD": "1500"}
"""The dialog takes no key for so many milliseconds: the loan is noted before."""


def begin_call(calls: Calls) -> subprocess.Popen[bytes]:
    return calls.begin("hello", env=SLOW_DIALOG).process


def begin_pool(calls: Calls) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", POOL, str(calls.binary)]
    return subprocess.Popen(words, env=calls.env | SLOW_DIALOG, cwd=calls.cwd, stderr=subprocess.DEVNULL)


def next_call(calls: Calls) -> None:
    assert calls("again").out == "REPLY#1 to: again\n"


def next_session(calls: Calls) -> None:
    calls.remuda("start", "kept", "--agent", "demo", "--detach", "--", "--model", "x")


@pytest.mark.parametrize(
    ("begin", "start_next"), [(begin_call, next_call), (begin_call, next_session), (begin_pool, next_session)]
)
def test_a_killed_call_or_pool_and_its_killed_keeper_leave_no_trust_after_the_next_start(
    calls: Calls,
    begin: Callable[[Calls], subprocess.Popen[bytes]],
    start_next: Callable[[Calls], None],
) -> None:
    process = begin(calls)
    lock = calls.home / ".claude.json.lock"

    def holds_lock() -> bool:
        """From here on the keeper waits for the lock, and withdraws nothing. The agent does without it."""
        if not notes(calls).exists():
            return False
        try:
            lock.mkdir()
        except FileExistsError:
            return False
        return True

    until(holds_lock, "the loan")
    until(lambda: trust(calls) is True, "the agent's answer")
    (pid,) = calls.sessions.glob("*.pid")
    holder = read_holder(SessionPaths(calls.sessions, pid.stem))
    assert holder is not None
    keeper = Process(holder.keeper_pid)
    keeper.signal(signal.SIGKILL)
    process.kill()
    process.communicate()
    keeper.gone()
    until(lambda: not list(processes_of(pid.stem)), "the end of its agent")
    lock.rmdir()
    assert (trust(calls), notes(calls).exists()) == (True, True)
    start_next(calls)
    until(lambda: untrusted(calls), "the end of the loan")
    assert read(calls)["projects"]["/other"] == {KEY: True, "n": 1}


def test_a_pool_leaves_no_trust_behind_and_stays_warm(calls: Calls) -> None:
    words = [sys.executable, "-c", POOL, str(calls.binary)]
    subprocess.run(words, env=calls.env, cwd=calls.cwd, check=True, timeout=120)
    assert untrusted(calls)


def test_pretrust_is_for_good(calls: Calls) -> None:
    calls("hello", "--pretrust-cwd")
    assert trust(calls) is True
    calls("hello")
    assert trust(calls) is True


def test_start_with_trust_is_for_good(calls: Calls) -> None:
    calls.remuda("start", "kept", "--agent", "demo", "--trust", "--detach", "--", "--model", "x")
    until(lambda: trust(calls) is True, "the answer")
    calls.remuda("kill", "kept")
    assert trust(calls) is True
