"""The user's own terminal while a launched program is shown on it: raw, and always restored.

Also what the program prints, passed on at the pace of its reader.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import signal
import stat
import termios
import tty
from collections.abc import Callable
from typing import Any

from remuda.keeper.child import Child
from remuda.terminal.pty import get_size

# What a full-screen program switches on and cannot switch off any more when it was killed: the other screen,
# mouse, focus and colour reports, bracketed paste, key reports, colours, a hidden cursor.
RESET = (
    b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2031l\x1b[?2004l"
    b"\x1b[<u\x1b[>4m\x1b[0m\x1b[?25h\r\n"
)
# Ctrl-Z, plain and as sent by terminals that report keys. Claude Code (2.1.325) then waits for a shell's
# `fg`, which cannot come; it listens for that a moment after the key. Other programs ignore the signal.
_SUSPEND = re.compile(rb"\x1a|\x1b\[122;5u")
_WAKE_AFTER = (0.2, 0.6, 1.5, 4.0)


def is_ours(stdin: int = 0, stdout: int = 1) -> bool:
    """Return whether a user can type and see it. A job in the background must not touch its terminal."""
    try:
        return os.isatty(stdin) and os.isatty(stdout) and os.tcgetpgrp(stdin) == os.getpgrp()
    except OSError:
        return False


class LaunchConsole:
    """Sends what is typed to the program, and gives it the size of the user's terminal."""

    def __init__(self, child: Child, stdin: int = 0, stdout: int = 1) -> None:
        self._child = child
        self._in, self._out = stdin, stdout
        self._loop = asyncio.get_running_loop()
        self._saved: list[Any] = []

    def __enter__(self) -> LaunchConsole:
        self._saved = termios.tcgetattr(self._in)
        tty.setraw(self._in, termios.TCSADRAIN)  # what was typed ahead is for the program
        self._loop.add_reader(self._in, self._typed)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.remove_reader(self._in)
        self._loop.remove_signal_handler(signal.SIGWINCH)
        try:
            termios.tcsetattr(self._in, termios.TCSANOW, self._saved)
        except termios.error:  # it is gone
            pass

    def _typed(self) -> None:
        try:
            keys = os.read(self._in, 65536)
        except OSError:
            keys = b""
        if not keys:
            self._loop.remove_reader(self._in)
            return
        self._child.write(keys)
        if _SUSPEND.search(keys):
            for seconds in _WAKE_AFTER:
                self._loop.call_later(seconds, self._child.wake)
        if self._child.input_full:
            self._loop.remove_reader(self._in)
            self._child.when_input_drains(lambda: self._loop.add_reader(self._in, self._typed))

    def _resized(self) -> None:
        cols, rows = get_size(self._out)
        if cols and rows:
            self._child.resize(cols, rows)


# ── output ──

# The descriptor stays blocking: it is shared with the shell that started us and with its other programs. So
# it is written to only when it can take something, and in pieces that cannot block us.

HIGH_BYTES = 256 * 1024
_LOW_BYTES = 64 * 1024
# A pipe that can be written to takes a page. A terminal that can may take less than that.
_PIPE_PIECE, _TERMINAL_PIECE = select.PIPE_BUF, 256


class PacedOutput:
    """Calls `full` when too much waits, `room` when it no longer does.

    Calls `lost` once if nothing can be written at all; from then on output is dropped.
    """

    def __init__(
        self, fd: int, full: Callable[[], None], room: Callable[[], None], lost: Callable[[OSError], None]
    ) -> None:
        self._fd = fd
        self._full, self._room, self._lost = full, room, lost
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._is_lost = False
        self.is_full = False
        self.flushed = asyncio.Event()
        self.flushed.set()
        self._piece = _TERMINAL_PIECE if os.isatty(fd) else _PIPE_PIECE
        self._waits = self._can_be_waited_for()

    def _can_be_waited_for(self) -> bool:
        """Return False for a file: it takes everything at once, and the kernel's event queue refuses it."""
        mode = os.fstat(self._fd).st_mode
        if stat.S_ISREG(mode):
            return False
        try:
            self._loop.add_writer(self._fd, self._writable)
        except PermissionError:  # /dev/null
            return False
        self._loop.remove_writer(self._fd)
        return True

    def write(self, data: bytes) -> None:
        if self._is_lost:
            return
        if not self._waits:
            self._attempt(data, len(data))
            return
        self._waiting += data
        if self.flushed.is_set():
            self.flushed.clear()
            self._loop.add_writer(self._fd, self._writable)
        if len(self._waiting) > HIGH_BYTES and not self.is_full:
            self.is_full = True
            self._full()

    def _writable(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        sent = 0
        with memoryview(self._waiting) as view:
            # For each event at most as much as one read brings, so that timers and signals get their turn.
            while sent < min(len(view), HIGH_BYTES) and poll.poll(0):
                took = self._attempt(view[sent:], self._piece)
                if not took:
                    break
                sent += took
        del self._waiting[: len(self._waiting) if self._is_lost else sent]
        self._report_room()

    def _attempt(self, data: bytes | memoryview, piece: int) -> int:
        """Write at least the first `piece`, if possible. Returns how many bytes that was."""
        sent = 0
        try:
            while sent < min(piece, len(data)):
                sent += os.write(self._fd, data[sent : sent + piece])
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                self._is_lost = True
                self._lost(error)
        return sent

    def _report_room(self) -> None:
        if not self._waiting:
            self._loop.remove_writer(self._fd)
            self.flushed.set()
        if self.is_full and len(self._waiting) <= _LOW_BYTES:
            self.is_full = False
            self._room()

    def close(self) -> None:
        if self._waits:
            self._loop.remove_writer(self._fd)
