"""The user's own terminal while a launched program is shown on it: raw, and always restored."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import termios
import tty
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


class Console:
    """Sends what is typed to the program, and gives it the size of the user's terminal."""

    def __init__(self, child: Child, stdin: int = 0, stdout: int = 1) -> None:
        self._child = child
        self._in, self._out = stdin, stdout
        self._loop = asyncio.get_running_loop()
        self._saved: list[Any] = []

    def __enter__(self) -> Console:
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
