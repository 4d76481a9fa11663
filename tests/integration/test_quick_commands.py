"""Commands that a user waits for load little, and behave as they do with click."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.agents.state import WAITING
from remuda.cli.ls import WAITS
from support.boss import RunningBoss
from support.commands import Commands

SLOW_MODULES = {
    "asyncio",
    "click",
    "concurrent.futures",
    "dataclasses",
    "datetime",
    "http.client",
    "importlib.metadata",
    "inspect",
    "ipaddress",
    "logging",
    "remuda.config",
    "remuda.oneshot.run",
    "shutil",
    "sqlite3",
    "ssl",
    "starlette",
    "subprocess",
    "textual",
    "threading",
    "tomllib",
    "traceback",
    "urllib.parse",
}
"""Each takes from 1 to 100 ms to load."""
PROGRAM = """
import sys
from remuda.__main__ import load_pathlib
load_pathlib()
from remuda.cli.quick import run
code = run(sys.argv[1:])
print(code, *sorted(sys.modules), file=sys.stderr)
"""


ASK = """
import sys
from remuda.__main__ import _call, load_pathlib
load_pathlib()
sys.argv[1:1] = ["ask"]
code = _call(sys.argv[2:])
print(code, *sorted(sys.modules), file=sys.stderr)
"""


def printed_by(remuda: Commands, program: str, *words: str) -> tuple[str, set[str]]:
    """Run a program. Returns the exit code of the command, and what else it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=remuda.env,
        cwd=remuda.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    code, *others = done.stderr.splitlines()[-1].split()
    return code, set(others)


def loaded_by(remuda: Commands, *words: str, program: str = PROGRAM) -> tuple[str, set[str]]:
    """Run it in an interpreter of its own. Returns its exit code, and the slow modules that it loaded."""
    code, modules = printed_by(remuda, program, *words)
    return code, SLOW_MODULES & modules


@pytest.fixture
def work(remuda: Commands) -> Commands:
    remuda.start("work", "--agent", "demo")
    return remuda


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["ls", "--json"],
        ["status", "work"],
        ["send", "work", "hello"],
        ["send", "work", "a", "--json"],
    ],
)
def test_command_on_a_session_loads_nothing_slow(work: Commands, words: list[str]) -> None:
    assert loaded_by(work, *words) == ("0", set())


@pytest.mark.parametrize(("words", "code"), [(["queue"], "0"), (["next"], "3"), (["next", "--show"], "3")])
def test_command_on_the_queue_loads_nothing_slow(
    remuda: Commands, boss: RunningBoss, words: list[str], code: str
) -> None:
    assert loaded_by(remuda, *words) == (code, set())


@pytest.mark.parametrize("words", [["version"], ["ls"], ["ls", "--json"], ["status", "work"]])
def test_most_common_commands_do_not_load_typing(work: Commands, words: list[str]) -> None:
    """It takes 2 ms, and its first `NamedTuple` another one."""
    code, modules = printed_by(work, PROGRAM, *words)
    assert (code, {"typing", "signal"} & modules) == ("0", set())


def test_command_without_sessions_and_boss_loads_nothing_slow(remuda: Commands) -> None:
    assert loaded_by(remuda, "version") == ("0", set())
    assert loaded_by(remuda, "ls") == ("0", set())
    assert loaded_by(remuda, "queue") == ("7", set())
    assert loaded_by(remuda, "status", "work") == ("3", set())


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, words: event == "open" and opened.append(str(words[0])))
from remuda.cli.quick import run
code = run(sys.argv[1:])
print(code, *(path for path in opened if "/old" in path), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["ls"], ["ls", "-q"], ["status", "work"], ["send", "work", "hello"]])
def test_command_reads_no_record_of_a_session_that_has_ended(work: Commands, words: list[str]) -> None:
    work.start("before", "--", "cat")
    work("kill", "before")
    record = (work.sessions / "before.json").read_text()
    for number in range(500):
        (work.sessions / f"old{number}.json").write_text(record.replace("before", f"old{number}"))
    assert printed_by(work, OPENED, *words) == ("0", set())
    assert len(work.json("ls", "--all")) == 502


def test_ask_with_a_pool_loads_nothing_slow(remuda: Commands) -> None:
    remuda("pool", "serve", "--detach", "--demo", "--warm", "1")
    try:
        code, modules = loaded_by(remuda, "hello", program=ASK)
    finally:
        remuda("pool", "stop")
    assert (code, modules - {"remuda.oneshot.run"}) == ("0", set())


def test_line_that_is_not_usual_is_left_to_click(remuda: Commands) -> None:
    code, _ = loaded_by(remuda, "ls", "--socket-dir", str(remuda.home))
    assert code == "None"


def test_other_words_for_waiting_are_those_of_the_states() -> None:
    assert set(WAITS) == WAITING


# ── the same as with click ──


def outcome(remuda: Commands, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "remuda", *words],
        env=remuda.env,
        cwd=remuda.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "long"),
    [
        (["ls", "-q"], ["ls", "-q", "--"]),
        (["ls", "-q", "--json"], ["ls", "-q", "--json", "--"]),
        (["status", "nothing"], ["status", "--", "nothing"]),
        (["send", "nothing", "x"], ["send", "--", "nothing", "x"]),
        (["send", "work", "/compact"], ["send", "--", "work", "/compact"]),
        (["send", "work", "x", "--timeout", "5"], ["send", "--timeout", "5", "--", "work", "x"]),
        (["version"], ["version", "--"]),
        (["version", "--json"], ["version", "--json", "--"]),
        (["queue"], ["queue", "--"]),
        (["queue", "--history", "--watch"], ["queue", "--history", "--watch", "--"]),
        (["queue", "-i", "--json"], ["queue", "-i", "--json", "--"]),
        (["next"], ["next", "--"]),
        (["later", "work", "soon"], ["later", "--", "work", "soon"]),
    ],
)
def test_outcome_is_that_of_click(work: Commands, words: list[str], long: list[str]) -> None:
    """`--` leaves a line to click."""
    assert outcome(work, *words) == outcome(work, *long)


def test_closed_pipe_ends_it_quietly(work: Commands) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "remuda", "ls"],
        env=work.env,
        cwd=work.cwd,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_full_disk_is_reported(work: Commands) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "remuda", "ls"],
            env=work.env,
            cwd=work.cwd,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("remuda: standard output cannot be written: ")


def test_interrupt_of_a_command_that_handles_it_is_no_error(remuda: Commands, boss: RunningBoss) -> None:
    watching = remuda.begin("queue", "--watch", "--json")
    assert watching.stdout is not None
    assert watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    assert watching.wait(60) == 0


def test_interrupt_of_any_other_exits_with_130(work: Commands) -> None:
    work("wait", "work", "--timeout", "60")
    work("kill", "work")
    waiting = work.begin("send", "work", "hello", "--wait")
    assert waiting.stderr is not None
    assert b"the message waits" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == 130
