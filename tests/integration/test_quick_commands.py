"""Commands that a user waits for load little, and behave as they do with click."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remuda.agents.state import WAITING
from remuda.boss.navigator import own_program
from remuda.cli.ls import WAITS
from support.boss import RunningBoss, stop
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
MOST_MODULES = {"version": 75, "ls": 98, "status": 92, "send": 115, "queue": 96, "next": 94, "ask": 93}
"""Beyond the interpreter's own. About a dozen more than on Python 3.11, as later versions load some more."""


def python(remuda: Commands, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        env=remuda.env,
        cwd=remuda.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def modules_of(remuda: Commands, argv: list[str], code: int) -> set[str]:
    """Run a program of Python. Returns the modules that were loaded until its end."""
    done = python(remuda, "-X", "importtime", *argv)
    lines = done.stderr.splitlines()
    found = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    said = [line for line in lines if not line.startswith("import time:")]
    assert done.returncode == code, said
    return found


def loaded_by(remuda: Commands, *words: str, code: int = 0) -> set[str]:
    """Run a command as a user does, by the script that pip installs. Returns what it loaded."""
    script = [word for word in own_program() if word != sys.executable]
    return modules_of(remuda, [*script, *words], code) - modules_of(remuda, ["-c", "pass"], 0)


def assert_quick(remuda: Commands, *words: str, code: int = 0) -> set[str]:
    modules = loaded_by(remuda, *words, code=code)
    assert not SLOW_MODULES & modules
    assert len(modules) <= MOST_MODULES[words[0]]
    return modules


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
    assert_quick(work, *words)


@pytest.mark.parametrize(("words", "code"), [(["queue"], 0), (["next"], 4), (["next", "--show"], 0)])
def test_command_on_the_queue_loads_nothing_slow(
    remuda: Commands, boss: RunningBoss, words: list[str], code: int
) -> None:
    boss.tell(stop("s", time.time(), cwd="/srv/demo"))
    assert len(boss.waiting()) == 1
    assert_quick(remuda, *words, code=code)


@pytest.mark.parametrize("words", [["version"], ["ls"], ["ls", "--json"], ["status", "work"]])
def test_most_common_commands_do_not_load_typing(work: Commands, words: list[str]) -> None:
    """It takes 2 ms, and its first `NamedTuple` another one."""
    assert not {"typing", "signal"} & assert_quick(work, *words)


def test_command_without_sessions_and_boss_loads_nothing_slow(remuda: Commands) -> None:
    assert_quick(remuda, "ls")
    assert_quick(remuda, "queue", code=7)
    assert_quick(remuda, "status", "work", code=3)


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
    done = subprocess.run(
        [sys.executable, "-c", OPENED, *words], env=work.env, cwd=work.cwd, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "0"
    assert len(work.json("ls", "--all")) == 502


def test_ask_with_a_pool_loads_nothing_slow(remuda: Commands) -> None:
    remuda("pool", "serve", "--detach", "--demo", "--warm", "1")
    try:
        modules = loaded_by(remuda, "ask", "hello")
    finally:
        remuda("pool", "stop")
    assert (SLOW_MODULES | {"typing"}) & modules <= {"remuda.oneshot.run"}
    assert len(modules) <= MOST_MODULES["ask"]


def test_print_on_a_stream_starts_its_agent_without_typing(remuda: Commands) -> None:
    words = ["print", "hello", "--backend", "stream", "--claude-binary", "/bin/false"]
    modules = loaded_by(remuda, *words, code=2)
    assert "remuda.supervised.forked" in modules
    assert not {"typing", "subprocess", "asyncio"} & modules


def test_line_that_is_not_usual_is_left_to_click(remuda: Commands) -> None:
    assert "click" in loaded_by(remuda, "ls", "--socket-dir", str(remuda.home))


def test_other_words_for_waiting_are_those_of_the_states() -> None:
    assert set(WAITS) == WAITING


# ── the same as with click ──


def outcome(remuda: Commands, *words: str) -> tuple[int, str, str]:
    done = python(remuda, "-m", "remuda", *words)
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
