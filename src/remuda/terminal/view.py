"""What an attached user sees: one session's screen and a status bar, drawn by us.

The program's bytes do not reach the user's terminal. They go into a `Screen`, and its changed rows are drawn
here. So nothing that a program sends can touch the bar. A terminal of another size than the session's shows
it clipped (following the cursor) or with blank margins, never garbled. One exception is plain text that means
the same there as here (`room`): the echo of what is typed.

No I/O: every method returns the bytes to write. The shown part of the session starts in the terminal's top
left corner; where it is clipped, mouse reports are off by the clipped part and `translate_input` corrects
them. The terminal is never queried, so none of its input is a reply.

Passed on: mouse, focus, paste, cursor-key, keypad and keyboard modes, the cursor's style, the title,
hyperlinks, bells, clipboard writes (OSC 52) and notifications (OSC 9, 777). Not passed on: images, colours
that the program redefines (OSC 4, 10, 11), reverse screen, XTMODKEYS, progress bars (OSC 9;4).
"""

from __future__ import annotations

import base64
import re
import unicodedata
from functools import lru_cache

from .reports import PIXELS, SGR, TRACKING, Area, MouseTranslator, WheelReader
from .screen import ClipboardWritten, Cursor, NotificationShown, Screen, Signals

ENTER = b"\x1b[22;0t\x1b[?1049h\x1b[?1007s\x1b[?1007l\x1b[r\x1b[?6l\x1b[?7l\x1b[0m\x1b[2J\x1b[?25l"
"""Saves the title, takes the alternate screen, and turns wrapping off: nothing drawn here may ever scroll.

The wheel sends no arrows (1007) unless the program is itself on its alternate screen."""
LEAVE = b"\x1b[0m\x1b[0 q\x1b[?25h\x1b[?7h\x1b[?1007h\x1b[?1007r\x1b[?1049l\x1b[23;0t"
"""The way back. Where a terminal cannot restore 1007, on is what it starts with."""

_BEGIN, _END = b"\x1b[?2026h", b"\x1b[?2026l"
_SHOW, _HIDE = b"\x1b[?25h", b"\x1b[?25l"
_PASSED = frozenset({1, 66, 1004, 2004, 2031, PIXELS}) | TRACKING
_WHEEL_ARROWS = 1007
_KEYPAD = {66: (b"\x1b>", b"\x1b=")}
_SGR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ScreenView:
    """Draws `screen` on a terminal of `cols` by `rows`. One screen has one view: it takes the changes."""

    _place: bytes
    _shown: bool

    def __init__(self, screen: Screen, cols: int, rows: int, *, bar: bool, wheel: bool = False) -> None:
        """Make a view.

        `wheel`: ask the terminal for mouse reports also where the program does not want any.
        """
        self._screen = screen
        self._bar = bar
        self._mouse = MouseTranslator()
        self._wheel = WheelReader() if wheel else None
        self._page: list[bytes] | None = None
        self._entered = False
        self.resize(cols, rows)
        self._forget_modes()

    @property
    def area(self) -> Area:
        """Return the part of the session that is shown."""
        return Area(
            self._left,
            self._top,
            max(0, min(self._cols, self._screen.cols - self._left)),
            max(0, min(self._height, self._screen.rows - self._top)),
        )

    @property
    def held(self) -> bool:
        """Whether the program is in the middle of a synchronized update.

        `render` draws anyway. A caller that waits for the end, a tenth of a second at most, spares the user
        half-drawn frames.
        """
        return 2026 in self._screen.modes.dec

    def resize(self, cols: int, rows: int) -> None:
        """Set the size of the user's terminal: the next `render` draws everything."""
        self._cols, self._rows = max(cols, 1), max(rows, 1)
        self._height = self._rows - (1 if self._bar and rows > 1 else 0)
        self._left = self._top = 0
        self._session = (0, 0)
        self._drawn: list[bytes | None] = [None] * self._height
        self._drawn_bar: bytes | None = None

    @property
    def height(self) -> int:
        """Return how many rows the terminal has for the session."""
        return self._height

    def show_page(self, rows: list[bytes] | None) -> None:
        """Draw these rows in place of the session from the next `render` on; None draws the session again."""
        if (rows is None) != (self._page is None):
            self._drawn = [None] * self._height
        self._page = rows

    def enter(self) -> bytes:
        """Take over the terminal. Call `leave` afterwards, whatever happens."""
        self._entered = True
        self.resize(self._cols, self._rows)
        self._forget_modes()
        return ENTER

    def leave(self) -> bytes:
        """Restore the terminal; empty if it was not taken over, or was restored already."""
        if not self._entered:
            return b""
        undone = self._switch_modes(frozenset()) + (b"\x1b[<u" if self._keyboard is not None else b"")
        self._entered = False
        return undone + LEAVE

    def render(self, bar_left: str = "", bar_right: str = "") -> bytes:
        """Return what to write to bring the terminal up to date; empty if it is."""
        cursor = self._screen.cursor
        rows = self._changed_rows(cursor) + self._changed_bar(bar_left, bar_right)
        drawn = b"".join(rows)
        if len(rows) > 1:
            drawn = _BEGIN + drawn
        around = self._passed_on()
        placed = self._placed(cursor, moved=bool(rows))
        if drawn and self._shown:
            drawn = _HIDE + drawn
        self._shown = self._wants_cursor(cursor)
        return drawn + around + placed + (_END if len(rows) > 1 else b"")

    # --- the short way for an echo

    def room(self) -> int:
        """Return how many characters of printable ASCII the terminal may be sent as the program sends them.

        They mean the same on both: the terminal's cursor is where the program's is, both write in default
        attributes, and neither wraps or splits a wide character. Only right after a `render`, with nothing
        fed since. A caller that uses it calls `wrote`.
        """
        screen, cursor, area = self._screen, self._screen.cursor, self.area
        before = max(0, cursor.x - 1)
        if not self._shown or not screen.plain:
            return 0
        if not screen.styled_row(cursor.y, screen.cols - before, before).isascii():
            return 0
        return max(0, area.left + area.cols - 1 - cursor.x)

    def wrote(self, data: bytes) -> bool:
        """Note that the terminal was sent `data` within its `room`, and the screen has been fed with it now.

        Returns whether the screen took it as expected. If not, the next `render` draws everything.
        """
        cursor = self._screen.cursor
        rows = self._changed_rows(cursor)
        before, self._place = self._place, self._place_of(cursor)
        x = cursor.x - len(data)
        expected = x >= 0 and len(rows) <= 1 and before == self._place_of(Cursor(x, cursor.y, visible=True))
        if expected and self._screen.styled_row(cursor.y, len(data), x) == data.rstrip(b" "):
            return True
        self._drawn, self._place = [None] * self._height, b""
        return False

    @property
    def holds_input(self) -> bool:
        """Whether `translate_input` or `take_wheel` keeps the beginning of a report."""
        return self._mouse.holds or (self._wheel is not None and self._wheel.holds)

    def _is_wheel_ours(self, asked: frozenset[int]) -> bool:
        """Whether reports are for us: the program wants none, and no arrows in their place."""
        return not asked & TRACKING and not (_WHEEL_ARROWS in asked and self._screen.alternate)

    def take_wheel(self, data: bytes) -> tuple[int, bytes]:
        """Return how many times the wheel was turned up, less down, where the program does not use it.

        With the input that is left. A report that is cut at the end of `data` is kept for the next call.
        """
        if self._wheel is None or (b"\x1b" not in data and not self._wheel.holds):
            return 0, data
        return self._wheel.take(data) if self._is_wheel_ours(self._screen.modes.dec) else (0, data)

    def translate_input(self, data: bytes) -> bytes:
        """Return the user's input for the session: mouse reports in its coordinates and encoding.

        A report outside of the shown part (on the bar, on a margin) is dropped. A report that is cut at the
        end of `data` is kept for the next call.
        """
        if b"\x1b" not in data and not self._mouse.holds:
            return data
        return self._mouse.translate(data, self.area, self._screen.modes.dec)

    # --- rows

    def _changed_rows(self, cursor: Cursor) -> list[bytes]:
        dirty = self._screen.take_dirty()
        if self._follow(cursor) or self._page is not None:
            dirty = None
        shown = range(self._height)
        candidates = shown if dirty is None else [y - self._top for y in sorted(dirty)]
        return [self._row(i) for i in candidates if i in shown and self._is_new(i)]

    def _follow(self, cursor: Cursor) -> bool:
        """Move the shown part along with the cursor; return whether everything must be checked again."""
        size = (self._screen.cols, self._screen.rows)
        left = _scrolled(self._left, cursor.x, self._cols, size[0])
        top = _scrolled(self._top, cursor.y, self._height, size[1])
        moved = (left, top, size) != (self._left, self._top, self._session) or None in self._drawn
        self._left, self._top, self._session = left, top, size
        return moved

    def _is_new(self, i: int) -> bool:
        text = self._text(i)
        drawn, self._drawn[i] = self._drawn[i], text
        return text != drawn

    def _text(self, i: int) -> bytes:
        if self._page is not None:
            return self._page[i] if i < len(self._page) else b""
        y = self._top + i
        return self._screen.styled_row(y, self._cols, self._left) if y < self._screen.rows else b""

    def _row(self, i: int) -> bytes:
        # Erased first: after a full row the cursor is on the last cell, not after it.
        return b"\x1b[%d;1H\x1b[K%b" % (i + 1, self._drawn[i] or b"")

    def _changed_bar(self, left: str, right: str) -> list[bytes]:
        if self._height == self._rows:
            return []
        bar = bar_text(left, right, self._cols).encode("utf-8", "replace")
        drawn, self._drawn_bar = self._drawn_bar, bar
        return [] if bar == drawn else [b"\x1b[%d;1H\x1b[7m%b\x1b[0m" % (self._rows, bar)]

    # --- cursor

    def _wants_cursor(self, cursor: Cursor) -> bool:
        area = self.area
        inside = area.left <= cursor.x < area.left + area.cols and area.top <= cursor.y < area.top + area.rows
        return cursor.visible and inside and self._page is None

    def _place_of(self, cursor: Cursor) -> bytes:
        return b"\x1b[%d;%dH" % (cursor.y - self._top + 1, cursor.x - self._left + 1)

    def _placed(self, cursor: Cursor, *, moved: bool) -> bytes:
        wanted = self._wants_cursor(cursor)
        place = self._place_of(cursor) if wanted else b""
        stays = place == self._place and not moved
        self._place = place
        if not wanted:
            return _HIDE if self._shown and not moved else b""
        return (b"" if stays else place) + (_SHOW if moved or not self._shown else b"")

    # --- what else the program asked of its terminal

    def _forget_modes(self) -> None:
        self._modes: frozenset[int] = frozenset()
        self._keyboard: int | None = None
        self._style = 0
        self._title = ""
        self._place, self._shown = b"", False

    def _passed_on(self) -> bytes:
        modes = self._screen.modes
        parts = self._switch_modes(self._outer_modes(modes.dec))
        parts += self._switch_keyboard(modes.kitty_keyboard if self._page is None else 0)
        if modes.cursor_style != self._style:
            self._style = modes.cursor_style
            parts += b"\x1b[%d q" % self._style
        if (title := self._screen.title) != self._title:
            self._title = title
            parts += b"\x1b]2;%b\x1b\\" % _clean(title)
        return parts + _signalled(self._screen.take_signals())

    def _outer_modes(self, asked: frozenset[int]) -> frozenset[int]:
        outer = asked & _PASSED if self._page is None else frozenset()
        if self._wheel is not None and (self._page is not None or self._is_wheel_ours(asked)):
            outer |= {1000}
        if outer & TRACKING and PIXELS not in outer:
            outer |= {SGR}
        if _WHEEL_ARROWS in asked and self._screen.alternate and self._page is None:
            outer |= {_WHEEL_ARROWS}
        return outer

    def _switch_modes(self, modes: frozenset[int]) -> bytes:
        off, on = sorted(self._modes - modes), sorted(modes - self._modes)
        self._modes = modes
        return b"".join([_mode(mode, on=False) for mode in off] + [_mode(mode, on=True) for mode in on])

    def _switch_keyboard(self, flags: int) -> bytes:
        if flags == (self._keyboard or 0):
            return b""
        first, self._keyboard = self._keyboard is None, flags
        return b"\x1b[>%du" % flags if first else b"\x1b[=%d;1u" % flags


def _scrolled(start: int, cursor: int, shown: int, size: int) -> int:
    """Return the first shown line of `size`, moved no more than needed to have `cursor` among `shown`."""
    start = min(max(start, cursor - shown + 1), cursor)
    return max(0, min(start, size - shown))


def _mode(number: int, *, on: bool) -> bytes:
    return _KEYPAD[number][on] if number in _KEYPAD else b"\x1b[?%d%c" % (number, b"h" if on else b"l")


def _signalled(signals: Signals) -> bytes:
    bell = b"\x07" if signals.bells else b""
    return bell + b"".join([*map(_copied, signals.clipboard), *map(_notified, signals.notifications)])


def _copied(clipboard: ClipboardWritten) -> bytes:
    return b"\x1b]52;%b;%b\x1b\\" % (clipboard.target.encode(), base64.b64encode(clipboard.data))


def _notified(note: NotificationShown) -> bytes:
    title, body = _clean(note.title).replace(b";", b","), _clean(note.body)
    return b"\x1b]777;notify;%b;%b\x1b\\" % (title, body) if title else b"\x1b]9;%b\x1b\\" % body


def _clean(text: str) -> bytes:
    return _CONTROLS.sub("", text).encode("utf-8", "replace")


@lru_cache(maxsize=8)
def bar_text(left: str, right: str, cols: int) -> str:
    """Return one line of exactly `cols` columns; if both do not fit, the right end is cut."""
    left, right = (_fitted(_CONTROLS.sub(" ", text), cols) for text in (left, right))
    room = cols - _width(left) - 1
    right = _fitted(right, room) if room > 0 else ""
    return left + " " * (cols - _width(left) - _width(right)) + right


def clipped(line: str, cols: int) -> str:
    """Return as much of a line of text and SGR as fits into `cols` columns, with all of its SGR."""
    parts, left = _SGR.split(line), cols
    for i in range(0, len(parts), 2):
        parts[i] = _fitted(parts[i], left)
        left -= _width(parts[i])
    return "".join(parts)


def _fitted(text: str, cols: int) -> str:
    width = 0
    for i, char in enumerate(text):
        width += _width(char)
        if width > cols:
            return text[:i]
    return text


def _width(text: str) -> int:
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
