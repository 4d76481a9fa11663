"""A program behind its holder, on bare descriptors of the caller's loop: its input, its output, its end.

Nothing of the caller's process is changed: no signal handler, no watcher of children, no thread where the
system can tell of a process's end by a descriptor.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from remuda.errors import SpawnFailed
from remuda.proctree import descendants, send_signal

from .lifeline import Lifeline

_HOLDER = str(Path(__file__).with_name("holder.py"))
_GRACE = 2.0
"""What the program has between SIGTERM and SIGKILL."""
_READ_BYTES = 1 << 18
_TAIL_BYTES = 512
_LAST_WAIT = 1.0


class HeldProcess:
    """`on_output` gets what it prints as it comes, `on_end` is called once behind all of it."""

    def __init__(self, on_output: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_output = on_output
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = Lifeline()
        self._unsent = b""
        self._closing_input = False
        self._printed = b""
        self._complained = b""
        self._exit_fd = -1
        self._ended: asyncio.Future[None] | None = None

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Raises `SpawnFailed`. A program that cannot be run shows as one that ends with 127."""
        self._loop = asyncio.get_running_loop()
        lifeline = self._lifeline.open()
        lc_ctype = f"={env['LC_CTYPE']}" if "LC_CTYPE" in env else ""
        holder = [sys.executable, "-I", "-S", _HOLDER, str(lifeline), str(os.getpid()), str(_GRACE), lc_ctype]
        try:
            self._process = subprocess.Popen(
                [*holder, *argv],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=dict(env),
                pass_fds=[lifeline],
                start_new_session=True,  # an interrupt from the caller's terminal is not meant for it
            )
        except OSError as error:
            self._lifeline.close()
            raise SpawnFailed(f"cannot start {argv[0]}: {error.strerror}") from error
        finally:
            os.close(lifeline)
        self._ended = self._loop.create_future()
        self._follow(self._process)

    @property
    def ended(self) -> bool:
        return self._ended is not None and self._ended.done()

    def detail(self) -> str:
        """How it ended, and the last that it said."""
        code = None if self._process is None else self._process.returncode
        said = {"stderr": self._complained, "stdout": self._printed}
        tails = [f"{name}: {_shown(tail)}" for name, tail in said.items() if tail.strip()]
        return " -- ".join([f"exit:{code}", *tails])

    def complaint(self) -> str:
        return _shown(self._complained)

    def descendants(self) -> list[int]:
        """The program and all that it started."""
        return [] if self._process is None or self.ended else descendants(self._process.pid)

    # ── talking ──

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        pipes = (process.stdin, process.stdout, process.stderr)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in pipes if pipe is not None)
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self._loop.add_reader(self._stdout, self._read_output)
        self._loop.add_reader(self._stderr, self._read_errors)
        try:
            self._exit_fd = os.pidfd_open(process.pid)
            self._loop.add_reader(self._exit_fd, self._exited)
        except (AttributeError, OSError):  # not on this system, or not by this kernel
            threading.Thread(target=self._wait_in_thread, args=(process,), daemon=True).start()

    def write(self, data: bytes) -> None:
        """All of it, in its order, as fast as the program takes it. Nothing happens when it has ended."""
        if self.ended or self._process is None or self._process.stdin is None or self._process.stdin.closed:
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
        except OSError:  # its end is told elsewhere
            self._unsent = b""
        self._loop.remove_writer(self._stdin)
        if self._closing_input:
            self._close_input()

    def close_input(self) -> None:
        """Behind all that was written."""
        self._closing_input = True
        if not self._unsent:
            self._close_input()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._process.stdin.close()

    def _read_output(self) -> None:
        data = _read(self._stdout)
        if data:
            self._printed = _tail(self._printed, data)
            self._on_output(data)
        elif data == b"":
            self._loop.remove_reader(self._stdout)
            self.end()  # whoever prints no more answers no more

    def _read_errors(self) -> None:
        data = _read(self._stderr)
        if data:
            self._complained = _tail(self._complained, data)
        elif data == b"":
            self._loop.remove_reader(self._stderr)

    # ── the end ──

    def end(self) -> None:
        """Begin to end it and all that it started; the holder does the rest, whatever becomes of us."""
        self._lifeline.close()

    async def wait_ended(self, timeout: float) -> bool:
        if self._ended is None:
            return True
        await asyncio.wait([self._ended], timeout=timeout)
        return self._ended.done()

    async def close(self, timeout: float) -> None:
        self.end()
        if not await self.wait_ended(max(0.0, timeout)):
            self._kill()
            await self.wait_ended(_LAST_WAIT)

    def _kill(self) -> None:
        assert self._process is not None
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            send_signal(pid, signal.SIGKILL)

    def _wait_in_thread(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        try:
            self._loop.call_soon_threadsafe(self._exited)
        except RuntimeError:  # the loop is closed, and nobody wants to know
            pass

    def _exited(self) -> None:
        assert self._process is not None
        assert self._ended is not None
        if self._ended.done() or self._process.poll() is None:
            return
        if self._exit_fd >= 0:
            self._loop.remove_reader(self._exit_fd)
            os.close(self._exit_fd)
        self._read_rest()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                self._loop.remove_writer(pipe.fileno())
                pipe.close()
        self._lifeline.close()
        self._ended.set_result(None)
        self._on_end()

    def _read_rest(self) -> None:
        while data := _read(self._stdout):
            self._printed = _tail(self._printed, data)
            self._on_output(data)
        while data := _read(self._stderr):
            self._complained = _tail(self._complained, data)


def _read(fd: int) -> bytes | None:
    """None when there is nothing now, empty at the end."""
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _tail(old: bytes, new: bytes) -> bytes:
    return new[-_TAIL_BYTES:] if len(new) >= _TAIL_BYTES else (old + new)[-_TAIL_BYTES:]


def _shown(tail: bytes) -> str:
    return tail.decode(errors="replace").strip()
