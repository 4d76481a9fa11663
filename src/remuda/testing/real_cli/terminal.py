"""A bare terminal for one program: what it prints is kept, what is asked of it is never answered."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

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
