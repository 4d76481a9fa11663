"""Sessions on real keepers, and the proof that the suite leaves nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from remuda.keeper.start import start_session
from support import counts, forks
from support.commands import Commands
from support.keeper import Kept, Process, Start, end_processes, make_spec
from support.old_version import NOT_TESTED, install_old, is_in_history
from support.tmux_attention import TmuxBench

# Every process that this one starts carries it, whatever becomes of its ancestry. Each worker of
# pytest-xdist is a process with a mark of its own. A fork server keeps only variables of the interpreter, so
# it has the mark by a second name, which also gives each worker fork servers of its own.
MARK = f"REMUDA_TEST_RUN={uuid.uuid4().hex[:12]}"
_VARIABLE, _VALUE = MARK.split("=")
os.environ[_VARIABLE] = os.environ[f"PYTHON_{_VARIABLE}"] = _VALUE
_MARKS = {MARK.encode(), f"PYTHON_{MARK}".encode()}
_FOLDER_PREFIX = f"rmd-{_VALUE}-"
# The default is often too long for a socket's path.
_TEMPORARY = Path("/tmp")
# How long a process may take to end by itself. All of it is waited for only when one does not.
_GOING = 10.0

# Most keepers come from the fork server of their worker.
_RUNTIME = _TEMPORARY / f"rmd-run-{_VALUE}"
os.environ["XDG_RUNTIME_DIR"] = str(_RUNTIME)

# No test sees the agents, shells and settings of the user who runs the suite, or adds to them.
_HOME = _TEMPORARY / f"rmd-home-{_VALUE}"
os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # real agents are there
os.environ["HOME"] = str(_HOME)

# Where it is set every process compiles all that it loads, at every start. That doubles the processor time of
# a command (110 ms instead of 50), a keeper (260, 145) and a boss (260, 125).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

forks.install()  # after that: commands are forked only where variables of the interpreter are as now

# Anyone who runs the suite in the background may have them ignored, and our processes would inherit that.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

settings.register_profile(
    "remuda", max_examples=counts.EXAMPLES, deadline=None, database=None, derandomize=not counts.SOAK
)
settings.load_profile("remuda")


def marked_processes() -> dict[int, str]:
    """Those that carry our mark, but for ourselves: their pid and command."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            if not _MARKS.isdisjoint(Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")):
                found[int(entry)] = (
                    Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
        except OSError:  # gone, or another user's
            continue
    return found


def _end_fork_servers() -> None:
    """End them by the folder of their socket: a test may give a command few variables, and no mark."""
    servers = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_text(errors="replace")
            if "keeper.fork_server" in command and (_FOLDER_PREFIX in command or str(_RUNTIME) in command):
                servers.append(int(entry.name))
    end_processes(servers)
    shutil.rmtree(_RUNTIME, ignore_errors=True)
    shutil.rmtree(_HOME, ignore_errors=True)


def _settled_processes() -> dict[int, str]:
    """Those that do not end by themselves in a while."""
    for pid in marked_processes():
        try:
            process = Process(pid)
        except ProcessLookupError:
            continue
        process.ended(_GOING)
        process.close()
    return marked_processes()


def left_behind() -> list[str]:
    forks.close()
    _end_fork_servers()
    processes = _settled_processes()
    end_processes(processes)
    folders = sorted(_TEMPORARY.glob(f"{_FOLDER_PREFIX}*"))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    sockets = [line for line in Path("/proc/net/unix").read_text().splitlines() if _FOLDER_PREFIX in line]
    return [
        *(f"process {pid}: {command}" for pid, command in processes.items()),
        *(f"folder {folder}" for folder in folders),
        *(f"socket {line.split()[-1]}" for line in sockets),
    ]


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    _HOME.mkdir()
    _RUNTIME.mkdir(mode=0o700)  # not earlier: the process that only hands out tests never comes here
    yield
    left = left_behind()
    assert not left, f"the suite left behind: {left}"


@pytest.fixture
def own_interpreters() -> Iterator[None]:
    """Commands and bosses load only what they need, as they do for a user."""
    with forks.paused():
        yield


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty REMUDA_HOME with a short path."""
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=_TEMPORARY))
    monkeypatch.setenv("REMUDA_HOME", str(folder))
    yield folder
    _remove(folder)


@pytest.fixture
def remuda(home: Path) -> Iterator[Commands]:
    commands = Commands(home)
    yield commands
    commands.close()


@pytest.fixture
def tmux(home: Path) -> Iterator[TmuxBench]:
    bench = TmuxBench(home)
    yield bench
    bench.close()


def _remove(folder: Path) -> None:
    """A keeper that has told of its end may still be busy there for a moment."""
    deadline = time.monotonic() + _GOING
    while True:
        try:
            shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
        else:
            return


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Starts sessions on keepers of their own and ends what is left of them."""
    begun: list[Kept] = []

    def one(name: str, argv: Sequence[str], **more: Any) -> Kept:
        folder = Path(more.pop("folder", home / "sessions"))
        spec = make_spec(folder, name, argv, **more)
        kept = Kept(spec, start_session(spec))
        begun.append(kept)
        return kept

    yield one
    for kept in begun:
        kept.end()
    complaints = [line for kept in begun if not kept.may_complain for line in kept.complaints()]
    assert not complaints, f"keepers logged errors: {complaints}"


@pytest.fixture(scope="session")
def old_remuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of version 0.1, installed from git history."""
    return install_old(tmp_path_factory.mktemp("old"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make soak` runs, and put first what repeats: at the end it would run alone."""
    only_in_soak = [] if counts.SOAK else [item for item in items if _is_only_in_soak(item)]
    if only_in_soak:
        config.hook.pytest_deselected(items=only_in_soak)
        items[:] = [item for item in items if not _is_only_in_soak(item)]
    items.sort(key=lambda item: item.get_closest_marker("soak") is None)


def _is_only_in_soak(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("only") for mark in item.iter_markers("soak"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Skipped at this one place they make one line of the summary.
    if "old_remuda" in getattr(item, "fixturenames", ()) and not is_in_history():
        pytest.skip(NOT_TESTED)
