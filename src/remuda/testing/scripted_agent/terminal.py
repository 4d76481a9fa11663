"""The terminal: raw mode, the bytes of beginning and end, its size, its title."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import tty

# In the order of the real program, which supervisors wait for.
_BEGIN = "\x1b7\x1b[r\x1b8\x1b[?25h"
_INPUT_MODES = "\x1b[?2004h\x1b[?2031h\x1b[?1004h"
_ALTERNATE = "\x1b[?1049h\x1b[2J\x1b[H\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1006h"
_QUERIES = "\x1b[>0q\x1b[?u\x1b]7501;?\x07"
_UNKNOWN_PROBE = "\x1b[>7777z\x1b_remuda-probe\x1b\\"
_DEVICE_QUERY = "\x1b[c"
_END = (
    "\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[?1004l\x1b[<u{leave}"
    "\x1b[>4m\x1b[?2031l\x1b[?2004l\x1b(B\x0f\x1b7\x1b[r\x1b8"
)


class Terminal:
    """Standard input and output. :meth:`close` gives the terminal back as it was, and may be called twice."""

    def __init__(self, *, silent: bool = False, titled: bool = True) -> None:
        self._in, self._out = 0, 1
        self._silent = silent
        self._titled = titled
        self._alternate = False
        self._asked = False
        self._title: str | None = None
        self._before: list[object] | None = None

    def open(self) -> None:
        """Raw mode, and the modes that pastes and focus are reported in."""
        self._before = termios.tcgetattr(self._in)
        tty.setraw(self._in, termios.TCSANOW)
        self.write(_BEGIN)
        self.write(_INPUT_MODES)

    def begin(self, title: str, *, alternate: bool) -> None:
        """Title and screen, before the first frame."""
        self.title(title)
        if alternate:
            self._alternate = True
            self.write(_ALTERNATE)

    def query(self, *, unknown: bool) -> None:
        """Ask what the terminal can do, once. Nothing waits for an answer."""
        if self._asked:
            return
        self._asked = True
        self.write(_QUERIES + (_UNKNOWN_PROBE if unknown else "") + _DEVICE_QUERY)

    def title(self, text: str) -> None:
        """Set the title, unless it is that already."""
        if self._titled and text != self._title:
            self._title = text
            self.write(f"\x1b]0;{text}\x07")

    def write(self, text: str) -> None:
        """All of it, unless nobody is there any more: :meth:`read` will tell."""
        data = b"" if self._silent else text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            pass

    def read(self) -> bytes:
        """What was typed; nothing when the terminal is gone."""
        try:
            return os.read(self._in, 65536)
        except OSError:
            return b""

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            packed = fcntl.ioctl(self._out, termios.TIOCGWINSZ, bytes(8))
        except OSError:
            return 80, 24
        lines, columns, _, _ = struct.unpack("HHHH", packed)
        return columns or 80, lines or 24

    def is_gone(self) -> bool:
        """Whether the other end has hung up."""
        try:
            termios.tcgetattr(self._in)
        except termios.error:
            return True
        return False

    def close(self, farewell: str = "") -> None:
        """Everything back as it was, then ``farewell``."""
        before, self._before = self._before, None
        if before is None:
            return
        self.write(_END.format(leave="\x1b[?1049l" if self._alternate else "\r\n"))
        self.title("")
        self.write(farewell)
        try:
            termios.tcsetattr(self._in, termios.TCSANOW, before)  # type: ignore[arg-type]
        except termios.error:
            pass  # nobody is there any more
