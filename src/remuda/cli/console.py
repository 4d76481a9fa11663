"""The user's own terminal while a session is shown on it: raw, sized, and put back on every way out."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any

from remuda.errors import NotATerminal

_CAUGHT = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Console:
    """Use as a context manager. Signals arrive as readable bytes, so one `select` waits for everything."""

    def __init__(self) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise NotATerminal(
                "attach needs a terminal on standard input and output",
                hint="in a script use 'remuda screen', 'remuda status' or 'remuda ls --json'",
            )
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._saved: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._signal_read = self._signal_write = -1
        self._farewell: Callable[[], bytes] = bytes

    def __enter__(self) -> Console:
        self._signal_read, self._signal_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for one in _CAUGHT:
            self._handlers[one] = signal.signal(one, self._caught)
        self._saved = termios.tcgetattr(self._in)
        tty.setraw(self._in, termios.TCSADRAIN)  # what was typed ahead is for the session
        return self

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        try:
            os.write(self._signal_write, bytes((number,)))
        except BlockingIOError:
            pass

    def on_leaving(self, farewell: Callable[[], bytes]) -> None:
        """Gives what the terminal is sent last, whatever ends us."""
        self._farewell = farewell

    def __exit__(self, *exc: object) -> None:
        try:
            self.write(self._farewell())
        except OSError:
            pass
        try:
            # Drained, not flushed: what was typed ahead belongs to the shell.
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved)
        except termios.error:
            pass
        for one, handler in self._handlers.items():
            signal.signal(one, handler)
        os.close(self._signal_read)
        os.close(self._signal_write)

    @property
    def size(self) -> tuple[int, int]:
        here = os.get_terminal_size(self._out)
        return here.columns or 80, here.lines or 24

    def wait(self, others: list[Any], timeout: float | None) -> tuple[bool, list[signal.Signals], bool]:
        """(is there typing, signals that came, is any of `others` readable)"""
        ready, _, _ = select.select([self._in, self._signal_read, *others], [], [], timeout)
        signals: list[signal.Signals] = []
        if self._signal_read in ready:
            signals = [signal.Signals(number) for number in os.read(self._signal_read, 64)]
        return self._in in ready, signals, any(other in ready for other in others)

    def read(self) -> bytes:
        """What was typed; empty when the terminal is gone."""
        try:
            return os.read(self._in, 65536)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except BlockingIOError:
                select.select([], [self._out], [])
