"""Where a benchmark plays: a folder of its own, keepers in it, and an end that leaves nothing.

The process adopts its descendants' orphans. So everything that was started, however it detached itself,
can be found and ended by its process id, also after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from benchmarks.stream import make_stream

from remuda.keeper.fork_server import ForkServer
from remuda.keeper.spec import DEFAULT_HISTORY_BYTES, SessionSpec
from remuda.keeper.start import start_session
from remuda.paths import connect_own
from remuda.proctree import adopt_orphans, descendants
from remuda.terminal.pty import Pty, spawn

COLS, ROWS = 80, 24
_END_TIMEOUT = 15.0
_LOOK_INTERVAL, _QUIET_LOOKS, _QUIET_LIMIT = 0.1, 30, 60.0
_MOST_NAMED, _WORTH_NAMING = 3, 5.0
"""Programs that are named as other work, and how many percent of a core make one of them."""


class Kept(NamedTuple):
    """A session on a keeper."""

    name: str
    folder: Path
    keeper_pid: int
    child_pid: int

    @property
    def socket(self) -> str:
        return str(self.folder / f"{self.name}.sock")


class Scene:
    """Use as a context manager."""

    def __init__(self, stream_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
        self.sessions = self.folder / "sessions"  # where a boss of this home finds them
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "REMUDA_HOME": str(self.folder),
            "TMUX_TMPDIR": str(self.folder),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            # Attached clients shall run the code that the keepers run.
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        self._count = 0
        self._wanted_bytes = stream_bytes
        self._stream: tuple[Path, int] | None = None
        self._variables = dict(os.environ)

    def __enter__(self) -> Scene:
        if not adopt_orphans():
            raise SystemExit("the benchmarks need Linux: without adoption of orphans they could leave some")
        # Our own calls use this home too, and no fork server of the user's.
        os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # real agents are there
        os.environ |= {name: self.env[name] for name in ("HOME", "REMUDA_HOME")}
        os.environ.pop("XDG_RUNTIME_DIR", None)
        return self

    def __exit__(self, *exc: object) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning
        self.end_all()
        if self._stream is not None:
            self._stream[0].unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(self._variables)

    @contextlib.contextmanager
    def new_home(self, name: str) -> Iterator[Path]:
        """Use a home without earlier sessions; what was started in it is ended."""
        home, before = self.folder / name, (self.sessions, self.env)
        home.mkdir(mode=0o700)
        self.sessions, self.env = home / "sessions", {**self.env, "REMUDA_HOME": str(home)}
        try:
            yield home
        finally:
            self.end_all()
            self.sessions, self.env = before

    # ── what is played ──

    @property
    def stream(self) -> Path:
        return self._made()[0]

    @property
    def stream_bytes(self) -> int:
        return self._made()[1]

    def _made(self) -> tuple[Path, int]:
        """The stream, in memory where the system has a place for that; made when first wanted."""
        if self._stream is None:
            shm = Path("/dev/shm")
            fd, name = tempfile.mkstemp(prefix="rb", dir=shm if os.access(shm, os.W_OK) else self.folder)
            os.close(fd)
            self._stream = Path(name), 0
            self._stream = Path(name), make_stream(Path(name), self._wanted_bytes)
        return self._stream

    def producer(self) -> list[str]:
        """Says READY on a raw terminal, waits for a line, prints the stream, and stays."""
        script = 'stty raw -echo; printf READY; read -r _; cat "$1"; exec sleep 1000000'
        return ["sh", "-c", script, "sh", str(self.stream)]

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    # ── who plays ──

    def keep(
        self,
        argv: list[str],
        *,
        screen: bool = True,
        cols: int = COLS,
        rows: int = ROWS,
        history_bytes: int = DEFAULT_HISTORY_BYTES,
    ) -> Kept:
        name = self.name("k")
        spec = SessionSpec(
            name=name,
            folder=str(self.sessions),
            argv=argv,
            cwd=str(self.folder),
            env=self.env,
            cols=cols,
            rows=rows,
            kill_grace=1.0,
            history_bytes=history_bytes,
        )
        with self._emulator_hidden() if not screen else contextlib.nullcontext():
            started = start_session(spec)
        return Kept(name, self.sessions, started.keeper_pid, started.child_pid)

    def start_fork_server(self) -> None:
        """Start a session and end it, and wait for the fork server that it leaves to the next ones."""
        self.end(self.keep(["cat"]).keeper_pid)
        with bounded(30.0, "the fork server"):
            while not _listens(ForkServer().path):
                time.sleep(0.01)

    @contextlib.contextmanager
    def _emulator_hidden(self) -> Iterator[None]:
        """A keeper started within finds a package that carries no emulator, and runs degraded, as it must."""
        empty = self.folder / "hidden" / "pyghostty"
        empty.mkdir(parents=True, exist_ok=True)
        (empty / "__init__.py").touch()
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(empty.parent), before)))
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def on_terminal(self, argv: list[str]) -> Pty:
        """A program on a terminal that we read ourselves, blocking."""
        pty = spawn(argv, cwd=self.folder, env=self.env, cols=COLS, rows=ROWS)
        os.set_blocking(pty.fd, True)
        return pty

    # ── the end ──

    def end(self, pid: int) -> None:
        """TERM, then KILL to what is left of it and its own; returns when all are gone."""
        _end([pid], [pid, *descendants(pid)])

    def end_all(self) -> None:
        """End all processes, also the fork server."""
        while left := descendants(os.getpid()):
            _end([pid for pid in left if _parent(pid) == os.getpid()], left)
        _reap()


def _end(asked: list[int], concerned: list[int]) -> None:
    for pid in asked:
        _kill(pid, signal.SIGTERM)
        _kill(pid, signal.SIGCONT)
    if not _gone(concerned, _END_TIMEOUT):
        for pid in concerned:
            _kill(pid, signal.SIGKILL)
        _gone(concerned, _END_TIMEOUT)


def _listens(path: Path) -> bool:
    try:
        connection = connect_own(path)
    except OSError:
        return False
    if connection is not None:
        connection.close()
    return True


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _reap() -> None:
    """Collect children that died. What `subprocess` waits for has been waited for when this is called."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _gone(pids: list[int], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        _reap()
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.01)
    return False


# ── looking at processes ──


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used so far; exact, unlike the ticks of /proc/PID/stat."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def memory_bytes(pid: int) -> tuple[int, int]:
    """(RSS, PSS)"""
    found = {"Rss:": 0, "Pss:": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, value, *_ = line.split()
        if key in found:
            found[key] = int(value) * 1024
    return found["Rss:"], found["Pss:"]


def await_quiet(limit: float = _QUIET_LIMIT) -> str:
    """Return when nothing else has run for some seconds, or after `limit`: another's work would be measured.

    Returns what is to be noted beside the figures: nothing, or that it never was quiet, and what ran. The
    load average decides nothing: it remembers the section before for minutes.
    """
    began, before, quiet = time.monotonic(), _used_ticks(), 0
    while quiet < _QUIET_LOOKS:
        seconds = time.monotonic() - began
        if seconds >= limit:
            return f"other work ran, load {os.getloadavg()[0]:.2f}{_busiest(before, seconds)}"
        time.sleep(_LOOK_INTERVAL)
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        quiet = quiet + 1 if running == 1 else 0
    return ""


def _used_ticks() -> dict[tuple[int, str], int]:
    """Processor time of each process, by its id and name; without ours."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text(errors="replace").rpartition(")")
        except OSError:  # it has ended
            continue
        pid, _, name = head.partition(" (")
        fields = rest.split()
        found[int(pid), name] = int(fields[11]) + int(fields[12])
    found.pop((os.getpid(), Path("/proc/self/comm").read_text().rstrip("\n")), None)
    return found


def _busiest(before: dict[tuple[int, str], int], seconds: float) -> str:
    """Return the programs that used most since then. A process that has ended is not seen."""
    ticks: Counter[str] = Counter()
    for one, used in _used_ticks().items():
        ticks[one[1]] += used - before.get(one, 0)
    percent = {name: used / os.sysconf("SC_CLK_TCK") / seconds * 100 for name, used in ticks.most_common()}
    busy = [f"{name} {share:.0f} %" for name, share in percent.items() if share >= _WORTH_NAMING]
    return f" ({', '.join(busy[:_MOST_NAMED])} of a core)" if busy else ""


# ── every wait is bounded ──


@contextlib.contextmanager
def bounded(seconds: float, what: str) -> Iterator[None]:
    """Break blocking calls in the main thread after this many seconds. Limits can be inside each other."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{what} took longer than {seconds:g} s")

    began = time.monotonic()
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if 0 < left <= seconds:
        yield  # the limit around this one ends first
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))
