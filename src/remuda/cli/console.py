"""The user's terminal while a session is attached: raw mode, size, and restoring it on every exit"""

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


class PollResult(NamedTuple):
    """What happened during a wait."""

    typed: bool
    signals: list[signal.Signals]
    received: bool
    """Whether the peer sent something."""
    sendable: bool
    """Whether the peer accepts data."""


class Console:
    """Use as a context manager. Signals arrive as readable bytes, so one `poll` waits for everything."""

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
        """What `wait` calls, for the fast path: in milliseconds, and without a check of `signalled`."""
        self._watched: tuple[int, bool, bool] | None = None
        self.quick_output = -1
        """A second descriptor of the terminal whose writes never block; -1 if it cannot be opened."""
        self._farewell: Callable[[], bytes] = bytes

    def __enter__(self) -> Console:
        self._signal_read, self._signal_write = os.pipe()
        for fd in (self._signal_read, self._signal_write):
            os.set_blocking(fd, False)
        self._poll.register(self._signal_read, select.POLLIN)
        for one in _CAUGHT:
            self._handlers[one] = signal.signal(one, self._caught)
        self._saved = termios.tcgetattr(self.keyboard)
        tty.setraw(self.keyboard, termios.TCSADRAIN)  # input typed ahead is for the session
        try:
            # Opened a second time, because other programs share the mode of our own output.
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
        """Set a function that returns the last bytes for the terminal, sent on every exit."""
        self._farewell = farewell

    def __exit__(self, *exc: object) -> None:
        try:
            self.write(self._farewell(), _FAREWELL_TIMEOUT)
        except OSError:
            pass
        try:
            # Not drained: the terminal may never accept what we wrote. Not flushed: input typed ahead
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
        """Set what `wait` waits for besides signals: `peer`, the keyboard, and `peer` accepting data."""
        watched = (peer.fileno(), typing, sending)
        if watched != self._watched:
            self._watched = watched
            self._poll.register(self.keyboard, select.POLLIN if typing else 0)
            self._poll.register(peer, select.POLLIN | select.POLLOUT if sending else select.POLLIN)

    @property
    def signalled(self) -> bool:
        """Whether signals came during a write; `result` returns them."""
        return bool(self._pending)

    def wait(self, timeout: float | None) -> Events:
        """Return the descriptors that are ready; for `result`."""
        if self._pending:
            timeout = 0.0
        return self.poll(None if timeout is None else timeout * 1000)

    def result(self, peer: Any, events: Events) -> PollResult:
        """Translate what `wait` returned."""
        ready = dict(events)
        if self._signal_read in ready:
            self._take_signals()
        signals, self._pending = self._pending, []
        peer_events = ready.get(peer.fileno(), 0)
        return PollResult(
            self.keyboard in ready,
            signals,
            bool(peer_events & ~select.POLLOUT),
            bool(peer_events & select.POLLOUT),
        )

    def _take_signals(self) -> None:
        self._pending += [signal.Signals(number) for number in os.read(self._signal_read, 64)]

    def read(self) -> bytes:
        """Return what was typed; empty if the terminal is gone."""
        try:
            return os.read(self.keyboard, 65536)
        except OSError:
            return b""

    def write(self, data: bytes, timeout: float | None = None) -> None:
        """Write all of `data`. Waits for a slow terminal, but not after a signal to end.

        Writes small pieces: a terminal that accepts some bytes may still block a long write.
        """
        # Most writes are short and accepted at once.
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
    """Write without waiting. Return what was not written; an error shows when that is tried again."""
    try:
        return data[os.write(fd, data) :]
    except OSError:
        return data
