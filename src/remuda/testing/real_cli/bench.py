"""A bare terminal and a made-up home for the real CLI.

There it needs no account, and can harm nothing of the caller's.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from remuda.agents import find_self_test
from remuda.agents.self_test import BenchPlace, SelfTest, remove_leftovers
from remuda.frozen import replaced
from remuda.proctree import send_signal

from ..offline import closed_proxies, is_offline, proxies_closed
from .fetch import binary_path

# ── a terminal: what the program prints is kept, what it asks is never answered ──

# Makes the PTY the controlling terminal, then becomes the program. Not a `preexec_fn`, because a process with
# threads must not use one.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
_WITH_TERMINAL = (sys.executable, "-IS", "-c", _TAKE_TERMINAL)


class PlainTerminal:
    """Runs ``argv`` on a PTY. A thread drains it at all times: the program never waits for its reader."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int = 100, rows: int = 30
    ) -> None:
        self._output = bytearray()
        self._changed = threading.Condition()
        self._ended = False
        # Closed, it makes the reader stop: the terminal may be held open by others than the program.
        self._stop_read, self._stop_write = os.pipe()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        try:
            self.process = subprocess.Popen(
                [*_WITH_TERMINAL, *argv],
                cwd=cwd,
                env=env,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._drain, name="plain-terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def output(self) -> bytes:
        """Everything that the program has printed until now."""
        with self._changed:
            return bytes(self._output)

    def write(self, keys: bytes) -> None:
        """Type these bytes."""
        while keys:
            keys = keys[os.write(self._master, keys) :]

    def wait_for(self, landmark: bytes, timeout: float = 30.0) -> bytes:
        """Return the output up to and with ``landmark``. TimeoutError shows what was printed instead."""
        with self._changed:
            self._changed.wait_for(lambda: landmark in self._output or self._ended, timeout)
            at = self._output.find(landmark)
            if at < 0:
                raise TimeoutError(f"{landmark!r} was not printed; the end is {bytes(self._output[-600:])!r}")
            return bytes(self._output[: at + len(landmark)])

    def close(self, timeout: float = 10.0) -> int:
        """End the program by SIGTERM, after ``timeout`` by SIGKILL; gives its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self._master >= 0:
            os.close(self._stop_write)
            self._reader.join(timeout)
            if not self._reader.is_alive():  # else it would read from whatever gets their numbers next
                os.close(self._stop_read)
                os.close(self._master)
            self._master = -1
        return self.process.returncode

    def _drain(self) -> None:
        while block := self._read():
            with self._changed:
                self._output += block
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read(self) -> bytes:
        """Return what the program printed next; nothing at its end, and when all is read at a close."""
        ready, _, _ = select.select([self._master, self._stop_read], [], [])
        if self._master not in ready:
            return b""
        try:
            return os.read(self._master, 65536)
        except OSError:  # EIO: no process holds the other end any more
            return b""


# ── the CLI with a home of its own ──


def plan_of(agent: str) -> SelfTest:
    """Return how `remuda doctor --agent` tries an agent: tests use the same made-up home."""
    plan = find_self_test(agent)
    assert plan is not None, f"{agent} has no self-test"
    return plan


class NetworkReachableError(Exception):
    """The real CLI is not started where it could reach a network."""


class RealCli:
    """The pinned CLI with a fresh HOME and project below ``folder``, talking to the model at ``base_url``.

    Everything that it does stays in ``folder``. ``env`` is the complete environment for it, to be handed to
    whatever starts it; ``home`` and ``project`` may be filled further before that. Folders of ``trusted`` are
    trusted besides the project; with ``trust=False`` none is, and the trust dialog comes up.
    """

    plan: SelfTest = plan_of("claude")

    def __init__(
        self,
        folder: Path,
        base_url: str,
        *,
        trust: bool = True,
        trusted: Iterable[Path] = (),
        binary: Path | None = None,
    ) -> None:
        if not is_offline() and not proxies_closed(os.environ):
            raise NetworkReachableError(
                "the real CLI runs offline only: `make test`, or `python -m remuda.testing.offline -- CMD`"
            )
        self.folder = folder.resolve()
        self.binary = binary or binary_path()
        self.home = self._made("home")
        self.project = self._made("project")
        temporary = self._made("tmp")
        chosen = tuple(path.resolve() for path in [self.project, *trusted]) if trust else ()
        self.sockets: set[Path] = set()
        """Where its servers listen. What a server leaves elsewhere is found by that."""
        self._place = BenchPlace(self.home, temporary, base_url, chosen)
        self.env = {**bench_environment(self.home, temporary), **self.plan.environment(self._place)}
        write_files(self.plan.files(self._place))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def argv(self, *flags: str) -> list[str]:
        """Return the command line with these flags."""
        return [str(self.binary), *flags]

    def run_print(
        self,
        prompt: str | None,
        *flags: str,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """``claude -p`` in the project, to its end. ``env`` is laid over the bench's own environment."""
        # After `--`, because flags such as --tools take every word up to the next flag.
        return subprocess.run(
            self.argv("-p", *flags, *([] if prompt is None else ["--", prompt])),
            cwd=self.project,
            env={**self.env, **(env or {})},
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def open_terminal(
        self, *flags: str, env: Mapping[str, str] | None = None, columns: int = 100, rows: int = 30
    ) -> PlainTerminal:
        """Start the TUI in the project, on a terminal that answers no queries."""
        return PlainTerminal(
            self.argv(*flags), cwd=self.project, env={**self.env, **(env or {})}, columns=columns, rows=rows
        )

    def transcripts(self) -> list[Path]:
        """Return the transcripts that the CLI has written, oldest first."""
        found = (self.home / ".claude" / "projects").glob("*/*.jsonl")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def running(self) -> dict[int, str]:
        """Return every process that was started with this HOME and still lives, with its command line.

        The CLI's tools run in process sessions of their own and outlive it when it is killed; the environment
        is what they all share. Zombies count as ended. Empty where there is no ``/proc``.
        """
        mark = f"HOME={self.home}".encode()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                    )
            except OSError:  # ended by now, or not ours to read
                continue
        return found

    def settle(self, timeout: float = 30.0) -> dict[int, str]:
        """Wait until nothing runs any more; gives what still does after ``timeout``."""
        deadline = time.monotonic() + timeout
        while running := self.running():
            left = deadline - time.monotonic()
            if left <= 0 or not _wait_for_exit(next(iter(running)), left):
                break
        return running

    def close(self) -> None:
        """Kill what still runs and remove the folder; returns within some seconds."""
        while running := self.running():
            for pid in running:
                send_signal(pid, signal.SIGKILL)
            if not self.settle():
                break
        remove_leftovers(self.plan, replaced(self._place, sockets=list(self.sockets)))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True)
        return path


def write_files(files: Mapping[Path, bytes]) -> None:
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def bench_environment(home: Path, temporary: Path) -> dict[str, str]:
    """Return the variables of any agent on a bench. Of the caller's it has only PATH."""
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "SHELL": "/bin/sh",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "GIT_SSH_COMMAND": "false",
    }
    return variables if is_offline() else variables | closed_proxies()


def _wait_for_exit(pid: int, timeout: float) -> bool:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], timeout)[0])
    finally:
        os.close(watched)
