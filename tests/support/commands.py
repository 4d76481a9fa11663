"""The command line as a user runs it: real processes, in a home of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.paths import SessionPaths
from remuda.proctree import descendants
from remuda.wire.connection import ClientConnection
from support.heimdall_client import PATIENCE
from support.keeper import Process, end_processes

_COMMAND_PATIENCE = 3 * PATIENCE  # the tour takes its time
COMMAND = (sys.executable, "-m", "remuda")
SIZER = (
    "import os, signal\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
    "while True:\n"
    "    cols, rows = os.get_terminal_size(0)\n"
    "    os.write(1, b'%d %d\\n' % (rows, cols))\n"  # at once: a repaint may come between two writes
    "    signal.sigwait([signal.SIGWINCH])\n"
)
"""A Python program that prints its terminal's rows and columns, at once and whenever they change."""
# Root may write everywhere, unless it gives up the right to.
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []


class Done(NamedTuple):
    out: str
    err: str


class Commands:
    """Runs `remuda …`, and at the end ends what is left of the sessions that it started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sessions = home / "sessions"
        self.cwd = home / "cwd"
        self.cwd.mkdir()
        elsewhere = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "TMUX", "TMUX_PANE")
        self.env = {name: value for name, value in os.environ.items() if name not in elsewhere}
        self.env |= {"HOME": str(home), "REMUDA_HOME": str(home), "LC_ALL": "C.UTF-8"}
        self._running: list[subprocess.Popen[bytes]] = []
        self.prefix: tuple[str, ...] = ()
        """What every command is run by: `nsenter` in another namespace."""
        self.may_complain = False
        """Whether the keepers' logs may hold errors."""

    def __call__(
        self,
        *words: str,
        code: int = 0,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Done:
        """Run one to its end, which must be `code`."""
        done = subprocess.run(
            [*self.prefix, *prefix, *COMMAND, *words],
            env={**self.env, **(env or {})},
            cwd=cwd or self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_PATIENCE,
            check=False,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, (words, done.returncode, out, err)
        return Done(out, err)

    def json(self, *words: str) -> Any:
        return json.loads(self(words[0], "--json", *words[1:]).out)

    def refused(self, *words: str, code: int, **more: Any) -> str:
        """Run one that must fail: nothing on stdout, one line on stderr. Returns that line."""
        done = self(*words, code=code, **more)
        assert done.out == ""
        assert done.err.startswith("remuda: ")
        assert done.err.count("\n") == 1, done.err
        return done.err.removeprefix("remuda: ").rstrip("\n")

    def begin(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Run one next to the test, with its output in a pipe."""
        begun = subprocess.Popen(
            [*self.prefix, *COMMAND, *words],
            env=self.env,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self._running.append(begun)
        return begun

    def start(self, name: str, *words: str) -> int:
        """Start a session in the background; returns the program's pid."""
        return int(self.json("start", name, "--detach", *words)["pid"])

    def keeper(self, name: str) -> Process:
        holder = read_holder(SessionPaths(self.sessions, name))
        assert holder is not None
        return Process(holder.keeper_pid)

    def kill_keeper(self, name: str) -> None:
        """As the system's out-of-memory killer does."""
        keeper = self.keeper(name)
        keeper.kill()
        keeper.close()

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()
        for path in self._files(".pid"):
            holder = read_holder(SessionPaths(path.parent, path.stem))
            if holder is not None:
                pid = holder.keeper_pid or int(
                    json.loads(path.read_text())["pid"]
                )  # a boss writes a document
                left = end_processes([pid, *descendants(pid)])
                assert not left, f"cannot be ended: {left}"
        complaints = [] if self.may_complain else list(self._complaints())
        assert not complaints, f"keepers logged errors: {complaints}"

    def _complaints(self) -> Iterator[str]:
        for path in self._files(".log"):
            with contextlib.suppress(FileNotFoundError):
                for line in path.read_text().splitlines():
                    if " ERROR " in line or line.startswith("Traceback"):
                        yield line

    def _files(self, suffix: str) -> list[Path]:
        """Those there are. A keeper that is about to end removes its folders while we look."""
        return [
            Path(folder, name)
            for folder, _, names in os.walk(self.home)
            for name in names
            if name.endswith(suffix)
        ]


def run_by_systemd(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the variables of a unit. None of their words here need systemd's own quoting."""
    lines = [line.partition("=") for line in text.splitlines()]
    command = next(value for name, _, value in lines if name == "ExecStart")
    variables = [shlex.split(value)[0].partition("=") for name, _, value in lines if name == "Environment"]
    return shlex.split(command), {name: value for name, _, value in variables}


def has_open(process: subprocess.Popen[bytes], name: str) -> bool:
    """Whether a file of which this is in the name is open in it."""
    folder = Path(f"/proc/{process.pid}/fd")
    try:
        return any(name in os.readlink(fd) for fd in folder.iterdir())
    except OSError:  # one was closed in the meantime
        return False


def watch(remuda: Commands, name: str) -> KeeperClient:
    client = KeeperClient.connect(name, remuda.sessions)
    client.send(ClientConnection.subscribe())
    client.request("watch")
    return client


def run_to_end(remuda: Commands, name: str, *words: str) -> int | None:
    """Start a session and wait for its end and its keeper's; returns its exit code."""
    # It waits to be told to go on: else it may have ended before it is watched.
    gate = remuda.home / f"{name}.gate"
    os.mkfifo(gate)
    head, command = words[: words.index("--")], words[words.index("--") + 1 :]
    remuda.start(name, *head, "--", "sh", "-c", 'read go < "$0"; exec "$@"', str(gate), *command)
    keeper = remuda.keeper(name)
    with watch(remuda, name) as client:
        gate.write_text("go\n")
        code = client.wait_exit(PATIENCE)
    keeper.gone()
    return code


def until_line(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line:
            return bytes(line)
    raise AssertionError(f"ended without {wanted!r}")


def wait_for_connection(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until it is connected: the kernel lists the accepting end as well, by the path that was bound."""
    while process.poll() is None:
        if Path("/proc/net/unix").read_text().count(f" {folder}/.work.") > 1:
            return
        os.sched_yield()
    raise AssertionError("ended before it was connected")
