"""What a terminal shows: the model that a keeper and an attached client keep of a session's screen.

`Screen` is the port; `terminal/ghostty.py` is its one engine. Where its library is missing, `open_screen`
returns None and `unavailable_reason` says why: a session runs without a screen, degraded. The engine is
loaded by the first of these calls, never by importing this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

OUTER_MODES = (1, 9, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 2026, 2031)
"""The DEC private modes that change what an outer terminal sends, or when it draws.

Cursor keys (1) and keypad (66) in application mode, mouse tracking (9, 1000, 1002, 1003), focus (1004), the
encoding of mouse reports (1005, 1006, 1015, 1016), wheel as arrows (1007), bracketed paste (2004),
synchronized update (2026), reports of the colour scheme (2031).
"""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of the cursor, counted from 0, and whether the program shows it."""

    x: int
    y: int
    visible: bool


@dataclass(frozen=True, slots=True)
class Modes:
    """What the program requested of its terminal, so that an outer terminal must do it."""

    dec: frozenset[int]
    """Those of `OUTER_MODES` that are set."""
    kitty_keyboard: int
    """Flags of the kitty keyboard protocol; 0 is the legacy encoding."""
    cursor_style: int
    """The parameter of DECSCUSR: 1 and 2 block, 3 and 4 underline, 5 and 6 bar; the odd ones blink."""


@dataclass(frozen=True, slots=True)
class ClipboardWritten:
    """The program put `data` on a clipboard (OSC 52); `target` is `c`, `p` or `s`."""

    target: str
    data: bytes


@dataclass(frozen=True, slots=True)
class NotificationShown:
    """The program asked for a desktop notification (OSC 9 or 777)."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Signals:
    """What went past the screen since the last query: pass it on at once, or drop it."""

    bells: int = 0
    clipboard: tuple[ClipboardWritten, ...] = ()
    notifications: tuple[NotificationShown, ...] = ()


class Screen(Protocol):
    """A terminal without a display: it is fed what the program writes, and queried for what it would show.

    Not to be used from two threads at once. `feed` releases the GIL while it works, so it may run in a worker
    thread, as long as nothing else touches this screen until it returns; different screens are independent.
    After `close` no method but `close` may be called.
    """

    @property
    def cols(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def title(self) -> str:
        """Return the window title; empty if none was set."""
        ...

    @property
    def cursor(self) -> Cursor: ...

    @property
    def alternate(self) -> bool:
        """Whether the alternate screen is shown."""
        ...

    @property
    def modes(self) -> Modes: ...

    @property
    def plain(self) -> bool:
        """Whether printable ASCII, if it came now, would be shown unchanged and in default attributes.

        False when in doubt. In the last column it may still wrap.
        """
        ...

    @property
    def last_line(self) -> str:
        """Return the lowest row that is not blank; empty if all are."""
        ...

    def feed(self, data: bytes) -> None:
        """Take any bytes, cut anywhere. Never raises for their content."""
        ...

    def resize(self, cols: int, rows: int) -> None:
        """Reflow the main screen, history included.

        The result depends on the history, which `paint` does not carry: after a resize, paint a copy again
        instead of resizing it.
        """
        ...

    def take_replies(self) -> bytes:
        """Return the terminal's answers to the program's queries since the last call, for its input.

        Call it after every `feed`; nothing is dropped, so answers pile up otherwise.
        """
        ...

    def take_signals(self) -> Signals:
        """Return bells, clipboard writes and notifications since the last call.

        Bounded: the oldest are dropped.
        """
        ...

    def take_dirty(self) -> set[int] | None:
        """Return the rows that may have changed since the last call; None means all."""
        ...

    def lines(self) -> list[str]:
        """Return the visible rows as text without trailing blanks; exactly `rows` entries."""
        ...

    def styled_row(self, y: int, width: int, left: int = 0) -> bytes:
        """Return row `y` from column `left` on, at most `width` columns, for a terminal's row and its first
        column.

        A wide character on either edge is left out, never split. The bytes start and end with default
        attributes and leave out trailing blanks. They contain SGR and hyperlinks (which are set with moves
        along the row), no other control.
        """
        ...

    def paint(self) -> bytes:
        """Return the bytes that bring any terminal of this size into exactly this state."""
        ...

    def close(self) -> None:
        """Free the memory of the engine now. May be called again."""
        ...


def open_screen(cols: int, rows: int) -> Screen | None:
    """Return a blank screen, or None where no emulator is available (see `unavailable_reason`)."""
    from .libghostty import EngineUnavailable

    try:
        from .ghostty import GhosttyScreen

        return GhosttyScreen(cols, rows)
    except EngineUnavailable:
        return None


def unavailable_reason() -> str | None:
    """Return why `open_screen` returns None here, in one sentence for the user; None when it returns a
    screen.
    """
    from .libghostty import EngineUnavailable, load

    try:
        load()
    except EngineUnavailable as error:
        return str(error)
    return None
