"""A supervised process: what ends, when, and that nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.proctree import descendants, is_alive
from remuda.supervised.child_process import SelectLoop, SupervisedProcess
from support.keeper import Process, end_processes, until
from support.pool_conformance import PATIENCE
from support.warm_sessions import StreamBench

FOREVER = "tail -f /dev/null"
_OWNER = """
import asyncio, json, os, sys
from pathlib import Path
from support.warm_sessions import StreamBench
from support.pool_conformance import nobody
from remuda.pool.types import Request

async def main(home, forks):
    bench = StreamBench(Path(home))
    session = bench.make(allowed_tools=("Bash",))
    await session.open(30)
    prompt = "RUNBASH (setsid tail -f /dev/null > /dev/null 2>&1 &); echo x"
    async for _ in session.run(Request("r", prompt, nobody)):
        pass
    if forks and os.fork() == 0:  # it inherits the lifeline, as a worker of multiprocessing would
        sys.stdin.read()
        os._exit(0)
    while len(started := bench.processes()) < 3:  # one that is just being executed has no variables yet
        await asyncio.sleep(0.02)
    print(json.dumps(started), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2] == "forks"))
"""


class Supervised:
    """A shell command with a supervisor, in a loop of its own."""

    def __init__(self, script: str, env: dict[str, str] | None = None) -> None:
        self._script, self._env = script, {**os.environ, **(env or {})}
        self.output = b""
        self.detail = ""

    def run(self, timeout: float = PATIENCE) -> bool:
        """To its end; whether it came in time."""
        return asyncio.run(self._run(timeout))

    async def _run(self, timeout: float) -> bool:
        ended = asyncio.Event()
        held = SupervisedProcess(self._hear, ended.set)
        held.start(["/bin/sh", "-c", self._script], "/", self._env, asyncio.get_running_loop())
        try:
            async with asyncio.timeout(timeout):
                await ended.wait()
        finally:
            await held.close(PATIENCE)
        self.detail = held.detail()
        return True

    def _hear(self, data: bytes) -> None:
        self.output += data


# ── how it ended ──


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("exit 0", "exit:0"),
        ("exit 7", "exit:7"),
        ("kill -9 $$", "exit:137"),
        ("echo out; echo err >&2; exit 1", "exit:1 -- stderr: err -- stdout: out"),
        ("echo err >&2; exit 2", "exit:2 -- stderr: err"),
    ],
)
def test_end_of_the_program_is_told_as_it_was(script: str, detail: str) -> None:
    held = Supervised(script)
    held.run()
    assert held.detail == detail


def test_program_that_cannot_be_run_is_told() -> None:
    async def steps() -> str:
        ended = asyncio.Event()
        held = SupervisedProcess(lambda _: None, ended.set)
        held.start(["/no/such/program"], "/", dict(os.environ), asyncio.get_running_loop())
        await asyncio.wait_for(ended.wait(), PATIENCE)
        await held.close(PATIENCE)
        return held.detail()

    assert asyncio.run(steps()) == "exit:127 -- stderr: /no/such/program: No such file or directory"


def test_last_words_of_a_flood_are_short() -> None:
    held = Supervised(
        "head -c 100000 /dev/zero | tr '\\0' e >&2; head -c 100000 /dev/zero | tr '\\0' o; exit 1"
    )
    held.run()
    assert held.detail == f"exit:1 -- stderr: {'e' * 512} -- stdout: {'o' * 512}"
    assert held.output == b"o" * 100_000


def test_all_output_comes_before_the_end() -> None:
    held = Supervised("head -c 3000000 /dev/zero")
    held.run()
    assert len(held.output) == 3_000_000


def test_program_has_the_signals_and_the_locale_that_it_was_given() -> None:
    held = Supervised("grep SigIgn /proc/$$/status; echo ${LC_CTYPE-none}", {"LANG": "C", "LC_ALL": ""})
    held._env.pop("LC_CTYPE", None)
    held.run()
    ignored, locale = held.output.decode().split("\n")[:2]
    assert not int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1))
    assert locale == "none"


# ── what is left ──


def test_what_the_program_started_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    held = Supervised(f"setsid {FOREVER} > /dev/null 2>&1 & echo $! > {pids}; exit 3")
    held.run()
    assert held.detail == "exit:3"
    assert not is_alive(int(pids.read_text()))


def test_program_that_ignores_sigterm_is_killed_with_all_that_it_started() -> None:
    script = f"trap '' TERM; setsid {FOREVER} & {FOREVER} & echo ready; wait; wait"

    async def steps() -> list[int]:
        heard, ended = asyncio.Event(), asyncio.Event()
        held = SupervisedProcess(lambda _: heard.set(), ended.set)
        held.start(["/bin/sh", "-c", script], "/", dict(os.environ), asyncio.get_running_loop())
        await asyncio.wait_for(heard.wait(), PATIENCE)
        started = held.descendants()
        await held.close(PATIENCE)
        assert held.ended
        return started

    started = asyncio.run(steps())
    assert len(started) >= 3
    assert not [pid for pid in started if is_alive(pid)]


def test_program_that_closes_its_output_is_ended() -> None:
    held = Supervised("exec > /dev/null; exec tail -f /dev/null")
    held.run()
    assert held.detail == "exit:143"


def test_session_that_is_forgotten_ends() -> None:
    async def steps() -> int:
        heard = asyncio.Event()
        held = SupervisedProcess(lambda _: heard.set(), lambda: None)
        held.start(
            ["/bin/sh", "-c", f"echo ready; exec {FOREVER}"],
            "/",
            dict(os.environ),
            asyncio.get_running_loop(),
        )
        await asyncio.wait_for(heard.wait(), PATIENCE)
        [pid] = held.descendants()
        held._lifeline = type(held._lifeline)()  # what the collector of garbage does, in its own time
        assert await held.wait_ended(PATIENCE)
        return pid

    assert not is_alive(asyncio.run(steps()))


# ── without asyncio ──


def test_select_loop_passes_all_input_and_output() -> None:
    output, errors = bytearray(), bytearray()
    loop = SelectLoop()
    process = SupervisedProcess(output.extend, lambda: None, errors.extend, waits_for_exit=True)
    process.start(["/bin/sh", "-c", "cat; echo err >&2; exit 4"], None, dict(os.environ), loop)
    process.write(b"x" * 1_000_000)
    process.close_input()
    while not process.ended:
        loop.run_once(PATIENCE)
    assert (len(output), bytes(errors), process.returncode) == (1_000_000, b"err\n", 4)


def test_close_in_select_loop_kills_a_program_that_ignores_the_signal() -> None:
    loop = SelectLoop()
    output = bytearray()
    process = SupervisedProcess(output.extend, lambda: None)
    script = f"trap '' HUP; echo ready; {FOREVER}"
    process.start(
        ["/bin/sh", "-c", script], None, dict(os.environ), loop, end_signal=signal.SIGHUP, grace=0.1
    )
    while not output:
        loop.run_once(PATIENCE)
    started = process.descendants()
    process.close_in(loop, PATIENCE)
    assert (process.ended, process.returncode) == (True, 137)
    assert started
    assert not [pid for pid in started if is_alive(pid)]


def test_output_of_a_program_that_closes_it_and_goes_on_can_be_waited_for() -> None:
    loop = SelectLoop()
    process = SupervisedProcess(lambda _: None, lambda: None, waits_for_exit=True)
    process.start(["/bin/sh", "-c", "exec > /dev/null; sleep 0.2; exit 5"], None, dict(os.environ), loop)
    while not process.ended:
        loop.run_once(PATIENCE)
    assert process.returncode == 5


# ── a killed owner ──


@pytest.fixture
def owner(home: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process with a session, killed by the test."""
    tests = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(home), request.param],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    end_processes([process.pid, *descendants(process.pid)])
    process.communicate()


@pytest.mark.parametrize("owner", ["alone", "forks"], indirect=True)
def test_killed_owner_leaves_nothing_running(owner: subprocess.Popen[str]) -> None:
    assert owner.stdout is not None
    started = json.loads(owner.stdout.readline())
    assert len(started) >= 3
    held = [Process(pid) for pid in started]
    os.kill(owner.pid, signal.SIGKILL)
    left = [process.pid for process in held if not process.ended(PATIENCE)]
    for process in held:
        process.close()
    assert not left


def test_interrupt_of_the_callers_terminal_does_not_reach_the_agent(home: Path) -> None:
    bench = StreamBench(home)

    async def steps() -> None:
        session = bench.make()
        await session.open(PATIENCE)
        groups = {os.getpgid(pid) for pid in bench.processes()}
        assert os.getpgrp() not in groups
        await session.close(PATIENCE)

    asyncio.run(steps())
    until(lambda: not bench.processes(), "the end of all processes")
