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
from typing import Any, NamedTuple

from remuda.errors import NotATerminal

_PIECE_BYTES = 1024
_FAREWELL_TIMEOUT = 0.5
_CAUGHT = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


class News(NamedTuple):
    """What a wait brought."""

    typed: bool
    signals: list[signal.Signals]
    heard: bool
    sendable: bool


TYPED = News(typed=True, signals=[], heard=False, sendable=False)
HEARD = News(typed=False, signals=[], heard=True, sendable=False)
NOTHING = News(typed=False, signals=[], heard=False, sendable=False)


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
        self._pending: list[signal.Signals] = []
        self._poll = select.poll()
        self._watched: tuple[int, int, int] | None = None
        self._farewell: Callable[[], bytes] = bytes

    def __enter__(self) -> Console:
        self._signal_read, self._signal_write = os.pipe()
        for fd in (self._signal_read, self._signal_write):
            os.set_blocking(fd, False)
        self._poll.register(self._signal_read, select.POLLIN)
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
            self.write(self._farewell(), _FAREWELL_TIMEOUT)
        except OSError:
            pass
        try:
            # Now, not drained: its terminal may never take what we wrote. Nor flushed: what was typed ahead
            # belongs to the shell.
            termios.tcsetattr(self._in, termios.TCSANOW, self._saved)
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

    def wait(self, peer: Any, *, typing: bool, sending: bool, timeout: float | None) -> News:
        """Until the terminal (if `typing`) or `peer` has something, or `peer` takes some (if `sending`)."""
        number = peer.fileno()
        watched = (number, typing, sending)
        if watched != self._watched:
            self._watched = watched
            self._poll.register(self._in, select.POLLIN if typing else 0)
            self._poll.register(number, select.POLLIN | select.POLLOUT if sending else select.POLLIN)
        events = self._poll.poll(_milliseconds(0.0 if self._pending else timeout))
        if not self._pending:  # mostly it is one thing, and somebody waits for it
            if not events:
                return NOTHING
            if events == [(self._in, select.POLLIN)]:
                return TYPED
            if events == [(number, select.POLLIN)]:
                return HEARD
        came = dict(events)
        if self._signal_read in came:
            self._take_signals()
        signals, self._pending = self._pending, []
        heard = came.get(number, 0)
        return News(self._in in came, signals, bool(heard & ~select.POLLOUT), bool(heard & select.POLLOUT))

    def _take_signals(self) -> None:
        self._pending += [signal.Signals(number) for number in os.read(self._signal_read, 64)]

    def read(self) -> bytes:
        """What was typed; empty when the terminal is gone."""
        try:
            return os.read(self._in, 65536)
        except OSError:
            return b""

    def write(self, data: bytes, timeout: float | None = None) -> None:
        """All of it. A terminal that does not take it is waited for, but not against an order to end.

        In small pieces: a terminal that can take some may still hold up a long write.
        """
        view = memoryview(data)
        while view:
            ready, writable, _ = select.select([self._signal_read], [self._out], [], timeout)
            if writable:
                view = view[os.write(self._out, view[:_PIECE_BYTES]) :]
                continue
            if ready:
                self._take_signals()
            if not ready or set(self._pending) & {signal.SIGTERM, signal.SIGHUP}:
                raise InterruptedError("the terminal does not take what it is sent")
