"""A program with a supervisor, on bare descriptors of the caller's loop: its input, its output, its end.

Nothing in the caller's process changes: no signal handler, no watcher of children, and no thread where the
system can report the end of a process by a descriptor. The loop is asyncio's, or a `SelectLoop`, which needs
no asyncio.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from io import FileIO
from pathlib import Path

from remuda.errors import SpawnFailed
from remuda.proctree import descendants, is_alive, send_signal
from remuda.tried_program import check_program

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    import asyncio
    import subprocess
    from typing import Protocol

    from .forked import ForkedProcess
else:
    Protocol = object

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_GRACE = 2.0
"""Seconds between the signal that ends the program and SIGKILL."""
_MARK = "REMUDA_SUPERVISED"
_READ_BYTES = 1 << 18
_TAIL_BYTES = 512
_LAST_WAIT = 1.0
_POLL_INTERVAL = 0.02


class EventLoop(Protocol):
    """The part of an event loop that is needed here."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...


class SelectLoop:
    """A loop for one blocking call: `run_once` waits and calls what is ready."""

    def __init__(self) -> None:
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self._readers[fd] = callback

    def remove_reader(self, fd: int, /) -> None:
        self._readers.pop(fd, None)

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None:
        self._writers[fd] = callback

    def remove_writer(self, fd: int, /) -> None:
        self._writers.pop(fd, None)

    def run_once(self, timeout: float) -> None:
        readable, writable, _ = select.select(self._readers, self._writers, [], max(0.0, timeout))
        for fds, callbacks in ((readable, self._readers), (writable, self._writers)):
            for fd in fds:
                if fd in callbacks:  # one before it may have removed it
                    callbacks[fd]()


class Lifeline:
    """One end of a pipe: the agent's supervisor, or its keeper, ends the agent when this end is closed.

    That happens in `close`, when this process ends, or when the object is deleted. Not for two threads.
    """

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd

    def open(self) -> int:
        """Return the other end, for the supervisor."""
        read, self._fd = os.pipe()
        return read

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class SupervisedProcess:
    """`on_output` gets the output as it comes, `on_error` standard error. `on_end` is called once, at last.

    `waits_for_exit`: a program that closes its output is left alone until it exits. Otherwise it is ended.
    """

    def __init__(
        self,
        on_output: Callable[[bytes], None],
        on_end: Callable[[], None],
        on_error: Callable[[bytes], None] | None = None,
        *,
        waits_for_exit: bool = False,
    ) -> None:
        self._on_output, self._on_error, self._on_end = on_output, on_error, on_end
        self._waits_for_exit = waits_for_exit
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._lifeline = Lifeline()
        self._unsent = b""
        self._closing_input = False
        self._output_tail = self._error_tail = b""
        self._stdin = self._stdout = self._stderr = self._exit_fd = -1
        self._pipes: list[FileIO] = []
        self._waiters: list[asyncio.Future[None]] = []
        self.ended = False

    def start(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str],
        loop: EventLoop,
        *,
        end_signal: signal.Signals = signal.SIGTERM,
        grace: float = _GRACE,
        inherit_input: bool = False,
        forks: bool = False,
    ) -> None:
        """Start the program. Raises `SpawnFailed`, and `NotSafe` if a self-test found it unsafe.

        One that cannot be executed exits with 127.

        `inherit_input`: it reads our standard input. `forks`: it gets our terminal's signals, and starts at
        once, while the supervisor is loaded. For a process without threads. Elsewhere than on Linux the
        supervisor starts the program when it is loaded.
        """
        check_program(argv[0])
        self._loop = loop
        lifeline = self._lifeline.open()
        self._stdout, output = os.pipe()
        self._stderr, errors = os.pipe()
        # Files are closed with this object, if its loop is gone before the program has ended.
        self._pipes = [FileIO(fd) for fd in (self._stdout, self._stderr)]
        # The supervisor reads the output when we are dead: an agent that cannot write takes longer to end.
        inherited = [lifeline, self._stdout, self._stderr]
        parent = os.getpid()
        lc_ctype = f"={env['LC_CTYPE']}" if "LC_CTYPE" in env else ""

        def command(started: int) -> list[str]:
            settings = [*map(str, (*inherited, parent, started, grace, int(end_signal))), _mark(), lc_ctype]
            return [sys.executable, "-I", "-S", _SUPERVISOR, *settings, *argv]

        try:
            if forks and sys.platform.startswith("linux"):
                from .forked import start_forked

                self._process = start_forked(
                    argv,
                    cwd,
                    env,
                    command,
                    inherited,
                    (output, errors),
                    end_signal,
                    inherit_input=inherit_input,
                )
            else:
                import subprocess

                self._process = subprocess.Popen(
                    command(0),
                    bufsize=0,
                    stdin=None if inherit_input else subprocess.PIPE,
                    stdout=output,
                    stderr=errors,
                    cwd=cwd,
                    env=dict(env),
                    pass_fds=inherited,
                    start_new_session=not forks,
                )
        except OSError as error:
            self._lifeline.close()
            self._close_output()
            raise SpawnFailed(f"cannot start {argv[0]}: {error.strerror}") from error
        finally:
            for fd in (lifeline, output, errors):
                os.close(fd)
        self._follow(self._process)

    @property
    def pid(self) -> int | None:
        """Return the process id of the supervisor."""
        return None if self._process is None else self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code, 128 plus the signal for a killed program; None while it runs."""
        return None if self._process is None else self._process.returncode

    def detail(self) -> str:
        """Return how it ended, and its last output."""
        tails = {"stderr": self._error_tail, "stdout": self._output_tail}
        shown = [f"{name}: {_as_text(tail)}" for name, tail in tails.items() if tail.strip()]
        return " -- ".join([f"exit:{self.returncode}", *shown])

    def complaint(self) -> str:
        """Return the end of its standard error."""
        return _as_text(self._error_tail)

    def descendants(self) -> list[int]:
        """Return the program and everything it started."""
        return [] if self._process is None or self.ended else descendants(self._process.pid)

    # ── input and output ──

    def _follow(self, process: subprocess.Popen[bytes] | ForkedProcess) -> None:
        if process.stdin is not None:
            self._stdin = process.stdin.fileno()
        for fd in (self._stdin, self._stdout, self._stderr):
            if fd >= 0:
                os.set_blocking(fd, False)
        self._exit_fd = _exit_descriptor(process)
        self._loop.add_reader(self._stdout, self._read_output)
        self._loop.add_reader(self._stderr, self._read_errors)
        self._loop.add_reader(self._exit_fd, self._exited)

    def write(self, data: bytes) -> None:
        """Send data, in order, as fast as the program reads. Does nothing when it has ended."""
        if self.ended or self._stdin < 0:
            return
        if self._unsent:
            self._unsent += data
            return
        self._unsent = data
        self._send()
        if self._unsent:
            self._loop.add_writer(self._stdin, self._send)

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # its end is reported elsewhere
            self._unsent = b""
        self._loop.remove_writer(self._stdin)
        if self._closing_input:
            self._close_input()

    def close_input(self) -> None:
        """Close its standard input after everything that was written."""
        self._closing_input = True
        if not self._unsent:
            self._close_input()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None and self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            self._process.stdin.close()
            self._stdin = -1

    def _read_output(self) -> None:
        if self._take_output() == b"":
            self._loop.remove_reader(self._stdout)
            if not self._waits_for_exit:
                self.end()  # without output there will be no answer

    def _read_errors(self) -> None:
        if self._take_errors() == b"":
            self._loop.remove_reader(self._stderr)

    def _take_output(self) -> bytes | None:
        data = _read(self._stdout)
        if data:
            self._output_tail = _tail(self._output_tail, data)
            self._on_output(data)
        return data

    def _take_errors(self) -> bytes | None:
        data = _read(self._stderr)
        if data:
            self._error_tail = _tail(self._error_tail, data)
            if self._on_error is not None:
                self._on_error(data)
        return data

    # ── the end ──

    def end(self) -> None:
        """Begin to end it and everything it started. The supervisor does the rest, whatever happens to us."""
        self._lifeline.close()

    async def wait_ended(self, timeout: float) -> bool:
        import asyncio

        if self._process is None or self.ended:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await asyncio.wait([waiter], timeout=timeout)
        return self.ended

    async def close(self, timeout: float) -> None:
        """End it and wait for that. What does not end in time is killed."""
        self.end()
        if not await self.wait_ended(max(0.0, timeout)):
            self._kill()
            await self.wait_ended(_LAST_WAIT)

    def close_in(self, loop: SelectLoop, timeout: float) -> None:
        """As `close`, for a program that was started in a `SelectLoop`."""
        self.end()
        for limit in (timeout, _LAST_WAIT):
            deadline = time.monotonic() + limit
            while self._process is not None and not self.ended and (left := deadline - time.monotonic()) > 0:
                loop.run_once(left)
            if not self.ended:
                self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            for pid in [self._process.pid, *descendants(self._process.pid)]:
                send_signal(pid, signal.SIGKILL)

    def _exited(self) -> None:
        assert self._process is not None
        if self.ended or self._process.poll() is None:
            return
        self._loop.remove_reader(self._exit_fd)
        os.close(self._exit_fd)
        while self._take_output():
            pass
        while self._take_errors():
            pass
        self._unsent = b""
        self._close_input()
        for fd in (self._stdout, self._stderr):
            self._loop.remove_reader(fd)
        self._close_output()
        self._lifeline.close()
        self.ended = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._on_end()

    def _close_output(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def _mark() -> str:
    """Return a variable to know orphans by, where the supervisor cannot adopt them; empty elsewhere."""
    return "" if sys.platform.startswith("linux") else f"{_MARK}={os.getpid()}-{os.urandom(6).hex()}"


def _exit_descriptor(process: subprocess.Popen[bytes] | ForkedProcess) -> int:
    """Return a descriptor that becomes readable when the process has ended."""
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not on this system, or not by this kernel
        ended, ending = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(ending)

    import threading

    threading.Thread(target=wait, daemon=True).start()
    return ended


def _read(fd: int) -> bytes | None:
    """Return what there is; None if there is nothing now, empty at the end."""
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _tail(old: bytes, new: bytes) -> bytes:
    return new[-_TAIL_BYTES:] if len(new) >= _TAIL_BYTES else (old + new)[-_TAIL_BYTES:]


def _as_text(tail: bytes) -> str:
    return tail.decode(errors="replace").strip()


# ── processes that are not our children ──


async def outliving(pids: Collection[int], timeout: float) -> list[int]:
    """Return the processes that still run after `timeout`; empty as soon as all have ended."""
    import asyncio

    waits = [asyncio.ensure_future(_ended(pid)) for pid in pids]
    if not waits:
        return []
    try:
        await asyncio.wait(waits, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()
    return [pid for pid in pids if is_alive(pid)]


async def _ended(pid: int) -> None:
    import asyncio

    if not hasattr(os, "pidfd_open"):
        while is_alive(pid):  # noqa: ASYNC110  # no event reports it there
            await asyncio.sleep(_POLL_INTERVAL)
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has ended
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _settle, ended)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
