"""A keeper from the fork server is as it would be without it. Without it sessions start all the same."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import remuda
from remuda.keeper.fork_server import ForkServer, greeting, may_be_in_sandbox, surroundings
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import start_attended
from remuda.paths import connect_own
from remuda.proctree import children, command_of, descendants
from remuda.supervised.child_process import SupervisedProcess
from support.commands import COMMAND
from support.heimdall_client import PATIENCE
from support.keeper import Process, Start, end_processes, until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or may_be_in_sandbox(),
    reason="fork servers are for Linux only, and not for a sandbox",
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
            words = (entry / "cmdline").read_text(errors="replace").split("\0")
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
    assert surroundings(keeper) == surroundings()
    assert os.readlink(f"/proc/{keeper}/cwd") == "/"
    assert os.getsid(keeper) not in (keeper, os.getsid(server.pid))
    server.kill()
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
        "import site; site.ENABLE_USER_SITE = True; os.environ['HOME'] = '/nonexistent'",
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
        "open('/proc/self/coredump_filter', 'w').write('0')",
        "import ctypes; ctypes.CDLL(None).prctl(29, 5_000_000)",
    ],
)
def test_a_caller_with_other_surroundings_does_not_use_it(server: Process, home: Path, change: str) -> None:
    with started_after(change, home) as keeper:
        assert not is_forked(keeper)


def test_callers_with_other_surroundings_have_a_server_each(
    server: Process, runtime: Path, home: Path
) -> None:
    """As in two tabs of a terminal, which have cgroups of their own."""
    with started_after("os.nice(1)", home, "first-of-the-other") as keeper:
        assert not is_forked(keeper)
    until(lambda: len(listening(runtime)) == 2, "the other fork server")
    for number, change in enumerate(["os.nice(1)", "os.nice(0)"] * 2):
        with started_after(change, home, f"s{number}") as keeper:
            assert is_forked(keeper)
            assert os.getpriority(os.PRIO_PROCESS, keeper) == os.nice(0) + (change == "os.nice(1)")


def listening(runtime: Path) -> list[str]:
    """The sockets on which a fork server listens, and not those of one that still loads."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return [words[7] for words in lines if str(runtime) in words[-1] and words[3] == "00010000"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a namespace")
@pytest.mark.parametrize("kind", ["--uts", "--ipc", "--cgroup", "--mount"])
def test_a_caller_in_another_namespace_does_not_use_it(server: Process, home: Path, kind: str) -> None:
    subprocess.run(
        ["unshare", kind, *COMMAND, "start", "own", "-d", "--", "cat"], check=True, capture_output=True
    )
    assert not is_forked(keeper_of(home, "own"))
    subprocess.run([*COMMAND, "kill", "own"], check=True, capture_output=True)


IN_OTHER_ROOT = """
mount --rbind / "$0" && mount -t tmpfs none "$0/mnt" && touch "$0/mnt/only-here" || exit 99
chroot "$0" "$@" start own -d -- cat && ls "/proc/$(head -n1 "$SESSIONS/own.pid")/root/mnt"
chroot "$0" "$@" kill own >&2
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change its root folder")
def test_a_caller_with_another_root_folder_does_not_use_it(runtime: Path, home: Path) -> None:
    """Its socket may be in both roots. The program would run with the files of the first one's."""
    first = (
        f'"$@" start first -d -- cat; while [ ! -S "$(echo {runtime}/remuda/*.sock)" ]; do sleep 0.1; done'
    )
    end = '"$@" kill first >&2'
    root = home / "root"
    root.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{first}\n{IN_OTHER_ROOT}\n{end}", root, *COMMAND],
        env={**os.environ, "SESSIONS": str(home / "sessions")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "only-here", done


CGROUPS = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
"""Where cgroup v2 may be."""


def test_a_caller_in_another_cgroup_does_not_use_it(server: Process, runtime: Path, home: Path) -> None:
    found = [one for one in CGROUPS if os.access(one / "cgroup.procs", os.W_OK)]
    if not found:
        pytest.skip("no cgroup v2 can be made here")
    group = found[0] / f"remuda-test-{os.getpid()}"
    group.mkdir()
    try:
        change = f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))"
        with started_after(change, home) as keeper:
            assert not is_forked(keeper)
            assert group.name in Path(f"/proc/{keeper}/cgroup").read_text()
    finally:
        end_processes(map(int, (group / "cgroup.procs").read_text().split()))
        group.rmdir()


def test_one_whose_surroundings_changed_is_not_used(home: Path) -> None:
    """It may be moved to another cgroup after its start."""
    spec = SessionSpec("other", str(home / "sessions"), ["cat"], "/", {})
    server = ForkServer()
    server.path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as beside:
        listener.bind(str(server.path))
        listener.listen()
        begun = beside.submit(server.fork, spec, [0], PATIENCE)
        with listener.accept()[0] as connection:
            connection.sendall(greeting()[:-1] + b"?")
            assert begun.result(PATIENCE) is None
            assert connection.recv(1) == b""


SANDBOXED = "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)"


def test_a_caller_in_a_sandbox_has_none(runtime: Path, home: Path) -> None:
    """Another sandbox may have other rules, which look the same."""
    with started_after(SANDBOXED, home) as keeper:
        assert not is_forked(keeper)
        assert not servers(runtime)


IN_NAMESPACE = """
from remuda.paths import home
from test_fork_server import *
for name in ("first", "second"):
    subprocess.run([*COMMAND, "start", name, "-d", "--", "cat"], check=True, stdout=subprocess.DEVNULL)
    until(is_ready, "a fork server")
print(parent_of(os.getpid()), is_forked(keeper_of(home(), "second")))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a namespace")
def test_caller_that_came_into_a_namespace_uses_it() -> None:
    """As after `docker exec`: its parent is outside."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "1000"]
    with subprocess.Popen(words) as outside:
        try:
            until(lambda: has_begun(outside.pid), "the first process of the namespace")
            inside = children(outside.pid)[0]
            assert output_of(IN_NAMESPACE, "nsenter", "-t", str(inside), "-p", "-m").split() == ["0", "True"]
        finally:
            outside.kill()


def has_begun(parent: int) -> bool:
    return any("sleep" in command_of(pid)[:1] for pid in children(parent))


CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    print(len(connection.recv(100)))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_caller_of_another_user_is_not_served(server: Process) -> None:
    """No other user can reach its socket, unless its folder is changed."""
    other = ["setpriv", "--reuid=12345", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    words = [sys.executable, "-c", CONNECT, str(ForkServer().path)]
    done = [subprocess.run([*by, *words], capture_output=True, check=True).stdout for by in ([], other)]
    assert [int(one) > 0 for one in done] == [True, False]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a namespace")
@pytest.mark.parametrize(
    "by",
    [
        ["setpriv", "--no-new-privs"],
        ["setpriv", "--bounding-set=-sys_module"],
        ["unshare", "--pid", "--fork"],
    ],
)
def test_a_caller_in_a_sandbox_is_not_served_though_it_compares_nothing(
    server: Process, by: list[str]
) -> None:
    """In a sandbox or container that has the socket, any program could start another one outside."""
    words = [*by, sys.executable, "-c", CONNECT, str(ForkServer().path)]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b"0\n"
    assert is_ready()


def test_no_session_gets_the_io_priority_of_the_first(runtime: Path, home: Path) -> None:
    first = "os.system('ionice -c 3 -p %d' % os.getpid())"
    with started_after(first, home) as keeper:
        assert not is_forked(keeper)
        until(lambda: not servers(runtime), "the end of what serves no one")


def test_it_ends_when_no_one_needs_it(runtime: Path) -> None:
    path = ForkServer().path
    path.parent.mkdir(mode=0o700)
    short = "import remuda.keeper.fork_server as server; server.IDLE_LIMIT = 0.1; server.main()"
    subprocess.run([sys.executable, "-P", "-c", short, str(path)], check=True, timeout=PATIENCE)
    assert not os.listdir(path.parent)


def test_one_removes_the_files_of_those_that_were_killed(server: Process, runtime: Path, home: Path) -> None:
    """As after a reboot: the same surroundings may never come again."""
    before = set(os.listdir(runtime / "remuda"))
    with started_after("os.nice(1)", home):
        until(lambda: len(listening(runtime)) == 2, "the other fork server")
    assert before < set(os.listdir(runtime / "remuda"))
    server.kill()
    with started_after("os.nice(2)", home):
        until(lambda: len(listening(runtime)) == 2, "the third fork server")
    left = set(os.listdir(runtime / "remuda"))
    assert len(left) == 4
    assert not left & before


@contextmanager
def started_after(change: str, home: Path, name: str = "own") -> Iterator[int]:
    """The keeper that a command starts whose process did something before."""
    program = STARTER.format(change=change, words=["start", name, "-d", "--", "cat"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    try:
        yield keeper_of(home, name)
    finally:
        subprocess.run([*COMMAND, "kill", name], check=True, capture_output=True)


def keeper_of(home: Path, name: str) -> int:
    return int((home / "sessions" / f"{name}.pid").read_text().split()[0])


def signals(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


ODD_SIGNALS = (
    "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN);"
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])"
)


def test_signals_are_those_of_the_caller_and_not_of_the_first(start: Start, home: Path) -> None:
    with started_after(ODD_SIGNALS, home, "odd") as odd:  # it starts the server too
        until(is_ready, "a fork server")
        plain = start("plain", ["cat"]).keeper_pid
        with started_after("os.environ['LC_ALL'] = 'C'", home, "slow") as slow:
            assert is_forked(plain)
            assert not is_forked(slow)
            assert signals(plain) == signals(slow)
        with started_after(ODD_SIGNALS, home, "forked") as forked:
            assert is_forked(forked)
            assert signals(forked) == signals(odd) != signals(plain)


def test_program_has_no_descriptor_of_the_keeper(home: Path, server: Process) -> None:
    spec = SessionSpec("owned", str(home / "sessions"), ["cat"], "/", dict(os.environ), owned=True)
    attended = start_attended(spec)
    try:
        assert is_forked(attended.started.keeper_pid)
        assert sorted(os.listdir(f"/proc/{attended.started.child_pid}/fd")) == ["0", "1", "2"]
    finally:
        keeper = Process(attended.started.keeper_pid)
        os.close(attended.lifeline)
        os.close(attended.news)
        assert keeper.ended()


def test_a_session_in_a_session_belongs_to_it_whatever_its_environment(
    start: Start, server: Process, home: Path
) -> None:
    inner = f"env -u REMUDA_SESSION {shlex.join(COMMAND)} start inner -d -- cat; exec cat"
    outer = start("outer", ["sh", "-c", inner])
    assert is_forked(outer.keeper_pid)
    until((home / "sessions" / "inner.json").exists, "the inner session")
    keeper = keeper_of(home, "inner")
    try:
        assert not is_forked(keeper)
        assert keeper in descendants(outer.keeper_pid)
    finally:
        subprocess.run([*COMMAND, "kill", "inner"], check=True, capture_output=True)


def test_a_session_of_a_supervised_agent_ends_with_it(server: Process, home: Path) -> None:
    async def steps() -> None:
        held = SupervisedProcess(lambda _: None, lambda: None)
        script = f"{shlex.join(COMMAND)} start inner -d -- cat; exec cat"
        held.start(["/bin/sh", "-c", script], "/", dict(os.environ), asyncio.get_running_loop())
        try:
            record = home / "sessions" / "inner.json"
            await asyncio.to_thread(until, record.exists, "the inner session")
            keeper = Process(keeper_of(home, "inner"))
            assert not is_forked(keeper.pid)
        finally:
            await held.close(PATIENCE)
        assert keeper.ended()

    asyncio.run(steps())


ADOPTS_ORPHANS = """
from remuda.keeper.start import start_session
from remuda.proctree import adopt_orphans
from test_fork_server import *
adopt_orphans()
folder = Path(os.environ["REMUDA_HOME"], "sessions")
keepers = []
for name in ("first", "second"):
    keepers.append(start_session(SessionSpec(name, str(folder), ["cat"], "/", dict(os.environ))).keeper_pid)
    until(is_ready, "a fork server")
print(*map(is_forked, keepers), *(parent_of(pid) == os.getpid() for pid in keepers))
subprocess.run([*COMMAND, "kill", "--all"], check=True, stdout=subprocess.DEVNULL)
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_program_that_adopts_orphans_gets_its_keepers_from_it_and_adopts_them() -> None:
    assert output_of(ADOPTS_ORPHANS).split() == ["False", "True", "True", "True"]


def output_of(program: str, *prefix: str) -> str:
    """What a program prints that uses this module, in an interpreter of its own."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WITH_A_READ_ONLY_PROC = """
mount --bind /proc /proc && mount -o remount,ro,bind /proc && exec "$@"
"""
KEEPER_WITHOUT_FILES = """
import os
from pathlib import Path
from remuda.keeper.survivors import find_survivors
from remuda.paths import sessions_folder
from test_fork_server import *
def begin(name):
    subprocess.run([*COMMAND, "start", name, "-d", "--", "cat"], check=True, stdout=subprocess.DEVNULL)
begin("first")
until(is_ready, "a fork server")
begin("second")
folder = sessions_folder()
keeper = keeper_of(folder.parent, "second")
(folder / "second.pid").unlink()
print(is_forked(keeper), "fork_server" in Path(f"/proc/{keeper}/cmdline").read_text(), find_survivors(folder))
subprocess.run([*COMMAND, "kill", "first"], check=True, stdout=subprocess.DEVNULL)
subprocess.run([*COMMAND, "kill", "second"], check=True, stdout=subprocess.DEVNULL)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_keeper_that_cannot_change_its_command_is_a_keeper_all_the_same() -> None:
    prefix = ("unshare", "-m", "sh", "-c", WITH_A_READ_ONLY_PROC, "sh")
    assert output_of(KEEPER_WITHOUT_FILES, *prefix).split() == ["True", "True", "{}"]


def test_caller_reads_nothing_of_it_that_only_a_debugger_may_read(server: Process, home: Path) -> None:
    """Yama (on Ubuntu by default) denies `personality` and its like to a process that is no ancestor."""
    log = home / "opened"
    base = f"/proc/{server.pid}/"
    change = (
        f"sys.addaudithook(lambda event, words: event == 'open' and str(words[0]).startswith({base!r})"
        f" and os.write(fd, (words[0] + '\\n').encode())); fd = os.open({str(log)!r}, os.O_CREAT | os.O_RDWR)"
    )
    with started_after(change, home) as keeper:
        assert is_forked(keeper)
    assert set(log.read_text().split()) == {f"{base}stat"}


def test_one_that_does_not_read_the_request_is_left_after_the_timeout(home: Path) -> None:
    """Its process may be stopped, and a long request does not fit into the socket."""
    spec = SessionSpec("long", str(home / "sessions"), ["cat"], "/", {}, prompt="x" * 4_000_000)
    path = ForkServer().path
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as beside:
        listener.bind(str(path))
        listener.listen()
        begun = beside.submit(ForkServer().fork, spec, [0], 0.1)
        connection, _ = listener.accept()
        connection.sendall(greeting())
        try:
            assert begun.result(PATIENCE) is None
            assert connection.recv(4) != b""
        finally:
            connection.close()


def test_one_of_another_copy_of_the_package_is_not_used(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "remuda").symlink_to(Path(remuda.__file__).parent)
    code = "from remuda.keeper.fork_server import ForkServer; print(ForkServer().path)"
    other = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert Path(other).parent == ForkServer().path.parent
    assert other != str(ForkServer().path)
    ForkServer().path.parent.mkdir(mode=0o700)
    command = [sys.executable, "-P", "-m", "remuda.keeper.fork_server", other]
    subprocess.run(command, check=True, timeout=PATIENCE)  # it ends: it would be another's
    assert not os.listdir(ForkServer().path.parent)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_runtime_folder_of_another_user_is_left_alone(runtime: Path, home: Path) -> None:
    os.chown(runtime, 12345, 12345)
    assert ForkServer().path.parent == home


def test_one_that_is_old_dead_or_stopped_is_replaced_or_left(
    start: Start, server: Process, runtime: Path
) -> None:
    server.signal(signal.SIGSTOP)
    assert not is_forked(start("beside-a-stopped-one", ["cat"]).keeper_pid)
    server.kill()
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
        assert not list(ForkServer().path.parent.glob("keepers-*"))
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
    before = surroundings()
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    code = (
        "import resource, os, sys; from remuda.keeper.fork_server import surroundings;"
        f"resource.setrlimit(resource.RLIMIT_CORE, (0, {hard})); print(surroundings())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (other.stdout.strip() == str(before)) is (soft == 0)
