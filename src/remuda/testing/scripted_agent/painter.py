"""The bytes that make a screen show a view: only the rows that changed, none when nothing did."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import tty
from typing import Protocol

from .layout import ConversationView, ScreenFrame, ScreenRow, bottom_rows, clip, full_screen


class Painter(Protocol):
    """Two ways to show a view: on a screen of its own, or below what the terminal already shows."""

    def paint(self, view: ConversationView, columns: int, lines: int) -> str:
        """Return the bytes from what is shown to this view."""

    def forget(self) -> None:
        """The terminal was cleared or resized: everything must be drawn again."""


class FullScreen:
    """The terminal belongs to us."""

    def __init__(self) -> None:
        self._shown: list[ScreenRow] = []
        self._cursor: tuple[int, int] | None = None
        self._fresh = True

    def forget(self) -> None:
        self._shown = []
        self._fresh = True

    def paint(self, view: ConversationView, columns: int, lines: int) -> str:
        frame = full_screen(view, columns, lines)
        changed = [index for index, row in enumerate(frame.rows) if self._differs(index, row)]
        if not changed and frame.cursor == self._cursor and not self._fresh:
            return ""
        drawn = "".join(f"\x1b[{index + 1};1H{_styled(frame.rows[index])}" for index in changed)
        bytes_ = ("\x1b[2J" if self._fresh else "") + drawn + self._place(frame)
        self._shown, self._cursor, self._fresh = frame.rows, frame.cursor, False
        return bytes_

    def _differs(self, index: int, row: ScreenRow) -> bool:
        if index >= len(self._shown):
            return bool(row.text)
        return self._shown[index] != row

    @staticmethod
    def _place(frame: ScreenFrame) -> str:
        if frame.cursor is None:
            return "\x1b[?25l"
        return f"\x1b[{frame.cursor[0] + 1};{frame.cursor[1] + 1}H\x1b[?25h"


class Inline:
    """What is finished scrolls away as in any program; what changes is drawn again below it."""

    def __init__(self) -> None:
        self._header_shown = False
        self._blocks_shown = 0
        self._live: list[ScreenRow] = []
        self._cursor = (0, 0)

    def forget(self) -> None:
        self._live = []

    def paint(self, view: ConversationView, columns: int, lines: int) -> str:
        finished = self._finished(view, columns)
        live, cursor = self._changing(view, columns, lines)
        if not finished and live == self._live and cursor == self._cursor:
            return ""
        up = f"\x1b[{self._cursor[0]}A" if self._live and self._cursor[0] else ""
        drawn = "\r\n".join(_styled(row) for row in [*finished, *live])
        back = len(live) - 1 - cursor[0]
        place = (f"\x1b[{back}A" if back else "") + f"\r\x1b[{cursor[1]}C"
        self._live, self._cursor = live, cursor
        return f"\r{up}\x1b[J{drawn}{place}"

    def _finished(self, view: ConversationView, columns: int) -> list[ScreenRow]:
        rows = [] if self._header_shown else [ScreenRow(clip(line, columns)) for line in view.header]
        self._header_shown = True
        # The newest block may still grow while the agent is busy.
        until = len(view.blocks) - (1 if view.activity else 0)
        if len(view.blocks) < self._blocks_shown:
            self._blocks_shown = 0
        for block in view.blocks[self._blocks_shown : max(until, self._blocks_shown)]:
            rows += block.rows(columns)
        self._blocks_shown = max(until, self._blocks_shown)
        return rows

    def _changing(
        self, view: ConversationView, columns: int, lines: int
    ) -> tuple[list[ScreenRow], tuple[int, int]]:
        growing = view.blocks[self._blocks_shown :]
        above = [row for block in growing for row in block.rows(columns)]
        above += [ScreenRow(clip(f"❯ {text}", columns)) for text in view.queued]
        if view.activity:
            above += [ScreenRow(""), ScreenRow(clip(view.activity, columns))]
        bottom, cursor = bottom_rows(view, columns, max(1, lines - 2))
        above = [*above, ScreenRow("")][-max(0, lines - len(bottom) - 1) :]
        row, column = cursor or (len(bottom) - 1, 0)
        return [*above, *bottom], (len(above) + row, column)


def _styled(row: ScreenRow) -> str:
    text = f"\x1b[{row.style}m{row.text}\x1b[0m" if row.style and row.text else row.text
    # Cleared before, not after: after a full row the cursor is on its last column still, and clears it.
    return f"\x1b[K{text}"


# ── the terminal ──

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


class AgentTerminal:
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
        """Write the complete text, unless the terminal is gone, which `read` reports."""
        data = b"" if self._silent else text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            pass

    def read(self) -> bytes:
        """Return what was typed; nothing when the terminal is gone."""
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
            pass  # the reader is gone
