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
from remuda.supervised import child_process
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


_CALLER = """
import json, os, signal, sys
from remuda.supervised import child_process
from remuda.supervised.child_process import SelectLoop, SupervisedProcess

output, errors, loop = bytearray(), bytearray(), SelectLoop()
process = SupervisedProcess(output.extend, lambda: None, errors.extend, waits_for_exit=True)
env = {**os.environ, "LC_CTYPE": "C"}
how = {"end_signal": signal.SIGHUP, "grace": 0.1, "forks": True}
process.start(json.loads(sys.argv[1]), sys.argv[2], env, loop, **how)
print(process.pid, flush=True)
process.write(sys.stdin.buffer.read())
process.close_input()
while not process.ended:
    loop.run_once(60.0)
print(json.dumps([output.decode(), errors.decode(), process.returncode]))
"""
"""A program with one thread, which starts another with `forks`."""


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
def test_end_of_the_program_is_reported_as_it_was(script: str, detail: str) -> None:
    held = Supervised(script)
    held.run()
    assert held.detail == detail


def test_program_that_cannot_be_run_is_reported() -> None:
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


# ── a program that starts before its supervisor ──


class Caller:
    """A process that starts a program with `forks`."""

    def __init__(
        self, *argv: str, cwd: Path, ignored: tuple[signal.Signals, ...] = (), left_open: tuple[int, ...] = ()
    ) -> None:
        before = {one: signal.signal(one, signal.SIG_IGN) for one in ignored}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CALLER, json.dumps(argv), str(cwd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=left_open,
        )
        for one, handler in before.items():
            signal.signal(one, handler)
        assert self.process.stdout is not None
        self.supervisor = int(self.process.stdout.readline())

    def run(self, text: str = "") -> list[object]:
        """To its end. Returns output, errors and exit code of the program."""
        return list(json.loads(self.process.communicate(text, PATIENCE)[0]))


@pytest.fixture
def callers() -> Iterator[list[Caller]]:
    some: list[Caller] = []
    yield some
    for one in some:
        end_processes([one.process.pid, one.supervisor, *descendants(one.process.pid)])
        one.process.communicate()


def test_forked_program_is_as_one_that_its_supervisor_starts(tmp_path: Path) -> None:
    read, write = os.pipe()
    script = f"pwd; cat; echo $LC_CTYPE; echo err >&2; [ -e /proc/$$/fd/{write} ] || echo closed"
    script += "; grep Sig[BI] /proc/self/status; exit 4"  # a shell blocks all for itself while it forks
    ignored = (signal.SIGHUP, signal.SIGPIPE)
    try:
        caller = Caller("/bin/sh", "-c", script, cwd=tmp_path, ignored=ignored, left_open=(write,))
    finally:
        os.close(read)
        os.close(write)
    output, errors, code = caller.run("text\n")
    folder, text, locale, left, blocked, ignored_now = str(output).splitlines()
    assert (folder, text, locale, errors, code) == (str(tmp_path), "text", "C", "err\n", 4)
    assert left == "closed"
    ours = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert int(blocked.split()[1], 16) == sum(1 << one - 1 for one in ours)
    changeable = sum(1 << one - 1 for one in signal.valid_signals())  # without two of the C library's own
    assert not int(ignored_now.split()[1], 16) & changeable


def test_end_of_a_forked_program_is_seen_where_its_caller_ignores_the_ends_of_children(
    tmp_path: Path,
) -> None:
    caller = Caller("/bin/sh", "-c", "echo out; exit 4", cwd=tmp_path, ignored=(signal.SIGCHLD,))
    assert caller.run() == ["out\n", "", 0]  # the kernel has dropped the supervisor's exit code


def test_forked_program_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    message = "/no/such/program: No such file or directory\n"
    assert Caller("/no/such/program", cwd=tmp_path).run() == ["", message, 127]


@pytest.mark.parametrize("ends", ["caller", "supervisor"])
def test_forked_program_ends_with_caller_and_supervisor(
    tmp_path: Path, callers: list[Caller], ends: str
) -> None:
    ready = tmp_path / "ready"
    script = f"trap '' HUP; (setsid {FOREVER} > /dev/null &); touch {ready}; {FOREVER}"
    callers.append(caller := Caller("/bin/sh", "-c", script, cwd=tmp_path))
    until(ready.exists, "the program")
    until(lambda: len(descendants(caller.supervisor)) == 3, "the orphan, and the program's child")
    if ends == "supervisor":
        until(lambda: "supervisor.py" in command_of(caller.supervisor), "the supervisor")
    started = [Process(pid) for pid in (caller.supervisor, *descendants(caller.supervisor))]
    if ends == "caller":
        caller.process.kill()
    else:
        os.kill(caller.supervisor, signal.SIGTERM)
    left = [process.pid for process in started if not process.ended(PATIENCE)]
    for process in started:
        process.close()
    assert not left


def test_killed_supervisor_takes_a_forked_program_with_it(tmp_path: Path, callers: list[Caller]) -> None:
    ready = tmp_path / "ready"
    callers.append(caller := Caller("/bin/sh", "-c", f"touch {ready}; exec {FOREVER}", cwd=tmp_path))
    until(ready.exists, "the program")
    [pid] = descendants(caller.supervisor)
    program = Process(pid)
    os.kill(caller.supervisor, signal.SIGKILL)
    assert program.ended(PATIENCE)
    program.close()


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_supervisor_loads_nothing_slow() -> None:
    program = "import sys; sys.path[:0] = [sys.argv[1]]; import supervisor; print(*sys.modules)"
    folder = str(Path(child_process.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder], capture_output=True, text=True, check=True
    )
    slow = {"os", "signal", "enum", "collections", "ctypes", "typing", "subprocess"}
    assert slow.isdisjoint(done.stdout.split())
