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

Events = list[tuple[int, int]]
POLLIN = select.POLLIN
_PIECE_BYTES = 1024
_FAREWELL_TIMEOUT = 0.5
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_CAUGHT = (signal.SIGWINCH, signal.SIGINT, *_ENDING)


class News(NamedTuple):
    """What a wait brought."""

    typed: bool
    signals: list[signal.Signals]
    heard: bool
    sendable: bool


class Console:
    """Use as a context manager. Signals arrive as readable bytes, so one `select` waits for everything."""

    def __init__(self) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise NotATerminal(
                "attach needs a terminal on standard input and output",
                hint="in a script use 'remuda show', 'remuda send' or 'remuda ls --json'",
            )
        self.keyboard = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._saved: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._signal_read = self._signal_write = -1
        self._pending: list[signal.Signals] = []
        self._poll = select.poll()
        self.poll = self._poll.poll
        """What `wait` calls, for those in a hurry: in milliseconds, and without a look at `signalled`."""
        self._watched: tuple[int, bool, bool] | None = None
        self.quick_output = -1
        """The terminal once more, where a write never waits; -1 when it cannot be opened."""
        self._farewell: Callable[[], bytes] = bytes

    def __enter__(self) -> Console:
        self._signal_read, self._signal_write = os.pipe()
        for fd in (self._signal_read, self._signal_write):
            os.set_blocking(fd, False)
        self._poll.register(self._signal_read, select.POLLIN)
        for one in _CAUGHT:
            self._handlers[one] = signal.signal(one, self._caught)
        self._saved = termios.tcgetattr(self.keyboard)
        tty.setraw(self.keyboard, termios.TCSADRAIN)  # what was typed ahead is for the session
        try:
            # Opened anew, because other programs share the modes of our own output.
            self.quick_output = os.open(os.ttyname(self._out), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            pass
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
            termios.tcsetattr(self.keyboard, termios.TCSANOW, self._saved)
        except termios.error:
            pass
        for one, handler in self._handlers.items():
            signal.signal(one, handler)
        os.close(self._signal_read)
        os.close(self._signal_write)
        if self.quick_output >= 0:
            os.close(self.quick_output)
            self.quick_output = -1

    @property
    def size(self) -> tuple[int, int]:
        here = os.get_terminal_size(self._out)
        return here.columns or 80, here.lines or 24

    def watch(self, peer: Any, *, typing: bool, sending: bool) -> None:
        """Say what `wait` is to wait for beside signals: `peer`; the keyboard; `peer` taking some."""
        wanted = (peer.fileno(), typing, sending)
        if wanted != self._watched:
            self._watched = wanted
            self._poll.register(self.keyboard, select.POLLIN if typing else 0)
            self._poll.register(peer, select.POLLIN | select.POLLOUT if sending else select.POLLIN)

    @property
    def signalled(self) -> bool:
        """Whether signals came while something was written; `news` tells which."""
        return bool(self._pending)

    def wait(self, timeout: float | None) -> Events:
        """Which descriptors have something; for `news`."""
        if self._pending:
            timeout = 0.0
        return self.poll(None if timeout is None else timeout * 1000)

    def news(self, peer: Any, events: Events) -> News:
        """What `wait` brought."""
        came = dict(events)
        if self._signal_read in came:
            self._take_signals()
        signals, self._pending = self._pending, []
        heard = came.get(peer.fileno(), 0)
        return News(
            self.keyboard in came, signals, bool(heard & ~select.POLLOUT), bool(heard & select.POLLOUT)
        )

    def _take_signals(self) -> None:
        self._pending += [signal.Signals(number) for number in os.read(self._signal_read, 64)]

    def read(self) -> bytes:
        """What was typed; empty when the terminal is gone."""
        try:
            return os.read(self.keyboard, 65536)
        except OSError:
            return b""

    def write(self, data: bytes, timeout: float | None = None) -> None:
        """All of it. A terminal that does not take it is waited for, but not against an order to end.

        In small pieces: a terminal that can take some may still hold up a long write.
        """
        # Mostly it is short and taken at once.
        view = memoryview(put(self.quick_output, data) if 0 < len(data) < _PIECE_BYTES else data)
        while view:
            ready, writable, _ = select.select([self._signal_read], [self._out], [], timeout)
            if writable:
                view = view[os.write(self._out, view[:_PIECE_BYTES]) :]
                continue
            if ready:
                self._take_signals()
            if not ready or set(self._pending) & {*_ENDING}:
                raise InterruptedError("the terminal does not accept output")


def put(fd: int, data: bytes) -> bytes:
    """Writes what is taken at once and gives what is not. What is wrong shows when that is tried."""
    try:
        return data[os.write(fd, data) :]
    except OSError:
        return data
