"""The `Screen` on libghostty-vt: the state that other code queries, and the terminal's answers."""

from __future__ import annotations

import ctypes as c
import re
from collections import deque
from typing import Any

from remuda._version import __version__

from . import libghostty as g
from .emulator import CELL_PIXELS, EmulatedTerminal
from .paint import paint, row
from .screen import OUTER_MODES, ClipboardWritten, Cursor, Modes, NotificationShown, Signals

NOTICES_KEPT = 16
"""Clipboard writes and notifications that wait to be taken; a program that floods them loses the oldest."""

_XTVERSION = b"\x1bP>|libghostty\x1b\\"
# The library asks for its name with a callback that returns a structure, which ctypes cannot write.
_OUR_XTVERSION = f"\x1bP>|remuda({__version__})\x1b\\".encode()
# Insert mode, margins left and right, synchronized update. Grapheme clusters change nothing for ASCII.
_TEXT_MODES = re.compile(rb"\x1b\[(4|\?69|\?2026)h")
_ASCII_SETS = re.compile(rb"(\x1b[()*+]B)*[\x0e\x0f]?")
_TARGETS = {g.ClipboardLocation.SELECTION: "s", g.ClipboardLocation.PRIMARY: "p"}


class GhosttyScreen:
    """See `Screen` for the contract."""

    def __init__(self, cols: int, rows: int) -> None:
        self._terminal = EmulatedTerminal.open(cols, rows)
        self._said = _Said(self._terminal)
        self._vitals = _Vitals(self._terminal)
        self._fed, self._last_y = False, 0
        self._last_line: str | None = None
        self.resize(cols, rows)

    @property
    def cols(self) -> int:
        return int(self._said.size.columns)

    @property
    def rows(self) -> int:
        return int(self._said.size.rows)

    @property
    def title(self) -> str:
        return self._terminal.text(g.Data.TITLE).decode("utf-8", "replace")

    @property
    def cursor(self) -> Cursor:
        vitals = self._vitals.read()
        return Cursor(vitals.x.value, vitals.y.value, vitals.visible.value)

    @property
    def alternate(self) -> bool:
        return bool(self._terminal.enumerated(g.Data.ACTIVE_SCREEN))

    @property
    def modes(self) -> Modes:
        vitals = self._vitals.read()
        return Modes(
            dec=frozenset(mode.mode for mode in vitals.modes if mode.value),
            kitty_keyboard=vitals.keyboard.value,
            cursor_style=self._terminal.render.cursor_style(),
        )

    @property
    def plain(self) -> bool:
        terminal = self._terminal
        return bool(
            not terminal.flag(g.Data.CURSOR_PENDING_WRAP)
            and terminal.restoring("style") == b"\x1b[0m"
            and not terminal.restoring("hyperlink")
            and _ASCII_SETS.fullmatch(terminal.restoring("charsets"))
            and not _TEXT_MODES.search(terminal.restoring("modes"))
            and not terminal.continuation()
        )

    @property
    def last_line(self) -> str:
        # Kept until the screen changes: `ls` asks all keepers, and most have printed nothing since.
        if self._last_line is None:
            self._last_line = next((line for line in reversed(self.lines()) if line), "")
        return self._last_line

    def feed(self, data: bytes) -> None:
        self._fed, self._last_line = True, None
        self._terminal.write(data)
        if self._terminal.number(g.Data.COLS) != self.cols:
            # DECCOLM asks for 80 or 132 columns. The size is the session's to decide, not the program's;
            # only what followed in the same write was laid out in the other width.
            self._terminal.resize(self.cols, self.rows)

    def resize(self, cols: int, rows: int) -> None:
        self._last_line = None
        self._terminal.resize(cols, rows)
        self._said.size.columns, self._said.size.rows = cols, rows

    def take_replies(self) -> bytes:
        replies, self._said.replies[:] = b"".join(self._said.replies), []
        return replies

    def take_signals(self) -> Signals:
        return self._said.take()

    def take_dirty(self) -> set[int] | None:
        rows = self._terminal.render.take_dirty()
        if self._fed and rows is not None:
            # The library does not count a mark that combines with what is written already: it can only
            # have come where the cursor is, or was.
            last, self._last_y = self._last_y, self.cursor.y
            rows |= {last, self._last_y}
        self._fed = False
        return rows

    def lines(self) -> list[str]:
        text = self._terminal.plain((self.cols - 1, self.rows - 1))
        lines = [line.rstrip() for line in text.split("\n")]
        return lines + [""] * (self.rows - len(lines))

    def styled_row(self, y: int, width: int, left: int = 0) -> bytes:
        first, last = left, min(left + width, self.cols) - 1
        if first <= last and self._is(g.CellWide.SPACER_TAIL, first, y):
            first += 1
        if first <= last and self._is(g.CellWide.WIDE, last, y):
            last -= 1
        cells = row(self._terminal, y, first, last, edge=left) if first <= last else b""
        return (b" " * (first - left) + cells).rstrip(b" ")

    def _is(self, part: g.CellWide, x: int, y: int) -> bool:
        return self._terminal.wide(self._terminal.ref(x, y)) == part

    def paint(self) -> bytes:
        """Return the bytes of `Screen.paint`. See `paint.py` for what is carried and what cannot be."""
        return paint(self._terminal)

    def close(self) -> None:
        self._terminal.close()


class _Said:
    """What the terminal reports while it is fed. The callbacks must not refer to the screen: a cycle."""

    def __init__(self, terminal: EmulatedTerminal) -> None:
        self.replies: list[bytes] = []
        self.size = g.SizeReport(0, 0, *CELL_PIXELS)
        self._bells = c.c_uint64()
        self._clipboard: deque[ClipboardWritten] = deque(maxlen=NOTICES_KEPT)
        self._notifications: deque[NotificationShown] = deque(maxlen=NOTICES_KEPT)
        self._callbacks: dict[g.TerminalOption, Any] = {
            g.TerminalOption.WRITE_PTY: _on_reply(self.replies),
            g.TerminalOption.BELL: _on_bell(self._bells),
            g.TerminalOption.SIZE: _on_size(self.size),
            g.TerminalOption.CLIPBOARD_WRITE: _on_clipboard(self._clipboard),
            g.TerminalOption.DESKTOP_NOTIFICATION: _on_notification(self._notifications),
        }
        for option, callback in self._callbacks.items():
            terminal.set(option, c.cast(callback, c.c_void_p))

    def take(self) -> Signals:
        signals = Signals(self._bells.value, tuple(self._clipboard), tuple(self._notifications))
        self._bells.value = 0
        self._clipboard.clear()
        self._notifications.clear()
        return signals


def _on_reply(replies: list[bytes]) -> Any:
    def on_reply(_terminal: int, _userdata: int, data: int, size: int) -> None:
        reply = c.string_at(data, size)
        replies.append(_OUR_XTVERSION if reply == _XTVERSION else reply)

    return g.WriteFn(on_reply)


def _on_bell(bells: c.c_uint64) -> Any:
    def on_bell(_terminal: int, _userdata: int) -> None:
        bells.value += 1

    return g.BellFn(on_bell)


def _on_size(size: g.SizeReport) -> Any:
    def on_size(_terminal: int, _userdata: int, out: Any) -> bool:
        out[0] = size
        return True

    return g.SizeFn(on_size)


def _on_clipboard(written: deque[ClipboardWritten]) -> Any:
    def on_clipboard(_terminal: int, _userdata: int, write: Any) -> None:
        asked = write.contents
        if asked.contents_len:
            target = _TARGETS.get(asked.location, "c")
            written.append(ClipboardWritten(target, asked.contents[0].data.read()))

    return g.ClipboardFn(on_clipboard)


def _on_notification(shown: deque[NotificationShown]) -> Any:
    def on_notification(_terminal: int, _userdata: int, notification: Any) -> None:
        title, body = (
            text.read().decode("utf-8", "replace")
            for text in (notification.contents.title, notification.contents.body)
        )
        shown.append(NotificationShown(title, body))

    return g.NotificationFn(on_notification)


class _Vitals:
    """The few values that are needed after every change, read with one call."""

    def __init__(self, terminal: EmulatedTerminal) -> None:
        self._terminal = terminal
        self.x, self.y, self.visible = c.c_uint16(), c.c_uint16(), c.c_bool()
        self.keyboard = c.c_uint8()
        self.modes = [g.ModeConfig(mode=number) for number in OUTER_MODES]
        values: dict[g.Data, Any] = {
            g.Data.CURSOR_X: self.x,
            g.Data.CURSOR_Y: self.y,
            g.Data.CURSOR_VISIBLE: self.visible,
            g.Data.KITTY_KEYBOARD_FLAGS: self.keyboard,
        }
        keys = [*values, *(g.Data.MODE for _ in self.modes)]
        places = [c.addressof(value) for value in (*values.values(), *self.modes)]
        self._keys = (c.c_int * len(keys))(*keys)
        self._places = (c.c_void_p * len(places))(*places)

    def read(self) -> _Vitals:
        self._terminal.get_multi(self._keys, self._places)
        return self
