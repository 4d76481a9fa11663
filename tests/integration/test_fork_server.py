"""A keeper from the fork server is as it would be without it. Without it sessions start all the same."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remuda.keeper.fork_server import ForkServer, surroundings
from remuda.paths import connect_own
from support.commands import COMMAND
from support.keeper import Process, Start, end_processes, until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="fork servers are for Linux only"
)
SECRET = "a-key-of-the-caller"


@pytest.fixture(autouse=True)
def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without a fork server. Those that come are ended."""
    folder = home / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("API_KEY", SECRET)
    yield folder
    end_processes(servers(folder))


def servers(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if "remuda.keeper.fork_server" in words and any(str(folder) in word for word in words):
            found.append(int(entry.name))
    return found


def is_ready() -> bool:
    try:
        sock = connect_own(ForkServer().path)
    except OSError:
        return False
    if sock is not None:
        sock.close()
    return True


@pytest.fixture
def server(start: Start, runtime: Path) -> Process:
    """The fork server that a first session leaves behind."""
    start("first", ["cat"])
    until(is_ready, "a fork server")
    return only_server(runtime)


def only_server(folder: Path) -> Process:
    """Return it, once the processes that it forked for callers who went away have ended."""
    until(lambda: len(servers(folder)) == 1, "one process")
    return Process(servers(folder)[0])


def is_forked(pid: int) -> bool:
    """Return whether a keeper came from a fork server: it began with nothing of our environment."""
    return b"API_KEY" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_keeper_from_it_is_what_it_would_be_without(start: Start, server: Process, home: Path) -> None:
    out = home / "out"
    kept = start("second", ["sh", "-c", f"env > {out}.part; mv {out}.part {out}; exec cat"])
    keeper = kept.keeper_pid
    assert is_forked(keeper)
    until(out.exists, "the environment")
    assert f"API_KEY={SECRET}" in out.read_text()
    words = Path(f"/proc/{keeper}/cmdline").read_text().rstrip("\0").split("\0")
    assert words[1:4] + words[-1:] == ["-P", "-m", "remuda.keeper", "second"]
    assert surroundings(keeper) == surroundings(os.getpid())
    assert os.readlink(f"/proc/{keeper}/cwd") == "/"
    assert os.getsid(keeper) not in (keeper, os.getsid(server.pid))
    server.signal(signal.SIGKILL)
    assert server.ended()
    assert Process(keeper).alive


def test_it_holds_no_session_and_no_secret(start: Start, server: Process) -> None:
    start("second", ["cat"])
    assert SECRET.encode() not in Path(f"/proc/{server.pid}/environ").read_bytes()
    with open(f"/proc/{server.pid}/maps") as maps, open(f"/proc/{server.pid}/mem", "rb") as memory:
        for line in maps:
            where, rights, *_ = line.split()
            low, high = (int(part, 16) for part in where.split("-"))
            if rights.startswith("rw"):
                memory.seek(low)
                assert SECRET.encode() not in memory.read(high - low)
    links = [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.pid}/fd")]
    assert not [link for link in links if "pts" in link or "ptmx" in link or ".pid" in link]


STARTER = (
    "import sys, os, resource; from remuda.__main__ import main; {change}; sys.argv[1:] = {words!r}; main()"
)


@pytest.mark.parametrize(
    "change",
    [
        "os.umask(0o077)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))",
        "os.nice(1)",
        "os.environ['REMUDA_SESSION'] = 'outer'",
        "os.environ['LC_ALL'] = 'C'",
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    ],
)
def test_a_caller_with_other_surroundings_starts_its_own(server: Process, home: Path, change: str) -> None:
    program = STARTER.format(change=change, words=["start", "own", "-d", "--", "cat"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    keeper = int((home / "sessions" / "own.pid").read_text().split()[0])
    try:
        assert not is_forked(keeper)
    finally:
        subprocess.run([*COMMAND, "kill", "own"], check=True, capture_output=True)


def test_one_that_is_old_dead_or_stopped_is_replaced_or_left(
    start: Start, server: Process, runtime: Path
) -> None:
    server.signal(signal.SIGSTOP)
    assert not is_forked(start("beside-a-stopped-one", ["cat"]).keeper_pid)
    server.signal(signal.SIGKILL)
    assert server.ended()
    assert ForkServer().path.exists()
    assert not is_forked(start("after-a-death", ["cat"]).keeper_pid)
    until(is_ready, "the next fork server")
    assert is_forked(start("from-the-next", ["cat"]).keeper_pid)
    second = only_server(runtime)
    import remuda.keeper.emit

    path = Path(remuda.keeper.emit.__file__)
    before = path.stat()
    try:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert not is_forked(start("after-an-update", ["cat"]).keeper_pid)
        assert second.ended()
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_many_at_once_and_its_death_in_the_middle_start_all(start: Start, server: Process) -> None:
    with ThreadPoolExecutor(8) as beside:
        begun = [beside.submit(start, f"s{number}", ["cat"]) for number in range(8)]
        server.signal(signal.SIGKILL)
        begun += [beside.submit(start, f"t{number}", ["cat"]) for number in range(4)]
        assert len({one.result().keeper_pid for one in begun}) == 12


def test_garbage_and_idle_callers_do_not_hold_it_up(start: Start, server: Process) -> None:
    idle = [connect_own(ForkServer().path) for _ in range(3)]
    for sock in idle:
        assert sock is not None
        sock.send(b"\xff" * 100)
    assert is_forked(start("second", ["cat"]).keeper_pid)
    for sock in idle:
        assert sock is not None
        sock.close()


def test_limits_of_the_caller_are_read_as_the_kernel_has_them() -> None:
    before = surroundings(os.getpid())
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    code = (
        "import resource, os, sys; from remuda.keeper.fork_server import surroundings;"
        f"resource.setrlimit(resource.RLIMIT_CORE, (0, {hard})); print(surroundings(os.getpid()))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (other.stdout.strip() == str(before)) is (soft == 0)
