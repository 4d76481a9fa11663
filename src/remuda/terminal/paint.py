"""Return a terminal's state as the bytes that bring another terminal into it.

The library's own formatter restores contents, but not the state around them: it moves the cursor after origin
mode is on, knows one screen of two, and neither saved cursors nor the stack of keyboard flags. So the order
is ours, and state that cannot be queried is tried out on a clone: a cursor saved by DECSC is found by
restoring it there.

Carried: title, folder, changed colours, tab stops, the cells of the shown screen and, under a program on the
alternate screen, of the main one, with styles and hyperlinks, both saved cursors, margins, modes, character
sets, protection, the keyboard stack, the cursor and its style, the pending wrap, the unfinished sequence at
the end.

Not carried, because the library does not report it: the `id` of hyperlinks and which cells are protected,
prompt marks (OSC 133), modes saved by XTSAVE, what a program left on the alternate screen that is not shown,
the origin-mode cursor of a program that changed margins under it, and the soft wrap of a row whose next row
starts blank (it matters to reflow and to copying), and the style of the blank that a wide character leaves at
the end of a row. What CSI b would repeat is carried if it is directly before the cursor. An unfinished
sequence of more than a megabyte is cut off; its rest will show as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from . import libghostty as g
from .emulator import EmulatedTerminal

CANCEL = b"\x18"
RESET = CANCEL + b"\x1bc\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\"
"""A full reset, and the colours, which it leaves alone."""
SAVE, RESTORE = b"\x1b7", b"\x1b8"
KEYBOARD_DEPTH = 8
"""How many levels of keyboard flags the library keeps."""

_ORIGIN, _MARGINS, _GRAPHEMES = 6, 69, 2027
_PLACED = {b"?3", b"?6", b"?47", b"?69", b"?1047", b"?1048", b"?1049", b"?2027"}
"""Modes that move the cursor or switch screens when set: each has its own place in the order."""
_MODE = re.compile(rb"\x1b\[(\??\d+)([hl])")
_REGION = re.compile(rb"\x1b\[(\d+);\d+([rs])")
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class _Pen:
    """The cursor with its attributes: what DECSC saves."""

    x: int
    y: int
    pending_wrap: bool
    origin: bool
    style: bytes
    charsets: bytes
    protection: bytes

    @property
    def attributes(self) -> bytes:
        return self.style + self.charsets + self.protection


def paint(terminal: EmulatedTerminal) -> bytes:
    """Return the bytes of `Screen.paint`. O(screen): about a millisecond at 220x50, whatever ran before."""
    modes = dict(_MODE.findall(terminal.restoring("modes")))
    clone = terminal.clone()
    try:
        parts = [RESET, _labels(terminal), _colours(terminal), terminal.restoring("tabstops")]
        parts += [_set(modes, b"?2027")]
        if terminal.enumerated(g.Data.ACTIVE_SCREEN):
            parts += [_main_screen(terminal, modes)]
        parts += [_contents(terminal), _saved(terminal, clone)]
        parts += [_set(modes, b"?69"), terminal.restoring("scrolling_region"), _current(terminal)]
        parts += [_set(modes, name) for name in modes if name not in _PLACED]
        parts += [
            terminal.restoring("keyboard"),
            _keyboard(clone),
            b"\x1b[%d q" % terminal.render.cursor_style(),
        ]
    finally:
        if clone:
            clone.close()
    return b"".join(parts) + terminal.continuation()


def row(terminal: EmulatedTerminal, y: int, left: int, right: int, *, edge: int = 0) -> bytes:
    """Return columns `left` to `right` (included) of row `y`, where `edge` is the first column shown."""
    cells, start = terminal.cells(y, left, right), terminal.ref(left, y)
    if not terminal.row_flag(start, g.RowData.HYPERLINK):
        return cells
    return cells + b"".join(_links(terminal, y, range(left, right + 1), edge))


def _links(terminal: EmulatedTerminal, y: int, columns: range, edge: int) -> Iterator[bytes]:
    """Write the cells with hyperlinks once more, each run in its column: a row is formatted without them."""
    for uri, run in groupby(columns, key=lambda x: terminal.link(terminal.ref(x, y))):
        if uri:
            first, *rest = run
            cells = terminal.cells(y, first, rest[-1] if rest else first)
            yield b"\x1b[%dG%b" % (first - edge + 1, _link(uri, cells))


def _link(uri: bytes, cells: bytes) -> bytes:
    return b"\x1b]8;;%b\x1b\\%b\x1b]8;;\x1b\\" % (_clean(uri), cells) if uri else cells


def _labels(terminal: EmulatedTerminal) -> bytes:
    title, folder = _clean(terminal.text(g.Data.TITLE)), _clean(terminal.text(g.Data.PWD))
    return (b"\x1b]2;%b\x1b\\" % title if title else b"") + (b"\x1b]7;%b\x1b\\" % folder if folder else b"")


def _clean(text: bytes) -> bytes:
    return _CONTROLS.sub(b"", text)


def _colours(terminal: EmulatedTerminal) -> bytes:
    """Return only the colours that the program changed: an outer terminal keeps its own for the rest."""
    now, default = (terminal.palette(k) for k in (g.Data.COLOR_PALETTE, g.Data.COLOR_PALETTE_DEFAULT))
    changed = (i for i in range(0, len(now), 3) if now[i : i + 3] != default[i : i + 3])
    parts = [b"\x1b]4;%d;rgb:%02x/%02x/%02x\x1b\\" % (i // 3, *now[i : i + 3]) for i in changed]
    dynamic = ((10, g.Data.COLOR_FOREGROUND), (11, g.Data.COLOR_BACKGROUND), (12, g.Data.COLOR_CURSOR))
    for code, key in dynamic:
        if colour := terminal.colour(key):
            parts.append(b"\x1b]%d;rgb:%02x/%02x/%02x\x1b\\" % (code, *colour))
    return b"".join(parts)


def _set(modes: dict[bytes, bytes], name: bytes) -> bytes:
    return b"\x1b[%b%b" % (name, modes[name]) if name in modes else b""


def _main_screen(terminal: EmulatedTerminal, modes: dict[bytes, bytes]) -> bytes:
    """Return the hidden main screen, its saved cursor and keyboard flags, and the step to the alternate
    screen.
    """
    entry = next((name for name in (b"?1049", b"?1047") if name in modes), b"?47")
    hidden = terminal.clone()
    if hidden is None:
        return b"\x1b[%bh" % entry
    try:
        hidden.write(CANCEL + b"\x1b[?1049l")  # restores the saved cursor, and copies nothing over it
        pen = _pen(hidden)
        parts = [_contents(hidden), _style(hidden), _keyboard(hidden)]
        parts += [_place(hidden, pen), SAVE, b"\x1b[%bh" % entry, _unplace(pen)]
        return b"".join(parts)
    finally:
        hidden.close()


def _contents(terminal: EmulatedTerminal) -> bytes:
    """Return all cells of the shown screen; expects a blank screen, no margins and default modes."""
    cols, parts, flows = terminal.number(g.Data.COLS), [], False
    for y in range(terminal.number(g.Data.ROWS)):
        cells = row(terminal, y, 0, cols - 1)
        if cells:
            parts.append(cells if flows else b"\x1b[%dH%b" % (y + 1, cells))
        flows = _flows(terminal, y, cols)
    return b"".join(parts)


def _flows(terminal: EmulatedTerminal, y: int, cols: int) -> bool:
    """Return whether the next row follows row `y` by itself when both are written without a break."""
    row, last = terminal.ref(0, y), terminal.ref(cols - 1, y)
    if not terminal.row_flag(row, g.RowData.WRAP) or terminal.row_flag(row, g.RowData.HYPERLINK):
        return False
    if y + 1 == terminal.number(g.Data.ROWS):
        return False
    below = terminal.ref(0, y + 1)
    if not terminal.row_flag(below, g.RowData.WRAP_CONTINUATION) or not terminal.has_text(below):
        return False
    if terminal.wide(last) == g.CellWide.SPACER_HEAD:
        if terminal.wide(below) != g.CellWide.WIDE:
            return False
        last = terminal.ref(cols - 2, y)
    return terminal.has_text(last) or terminal.wide(last) == g.CellWide.SPACER_TAIL


def _saved(terminal: EmulatedTerminal, clone: EmulatedTerminal | None) -> bytes:
    """Return the cursor that DECRC would restore on the shown screen."""
    if clone is None:
        return b""
    clone.write(CANCEL + RESTORE)
    pen = _pen(clone)
    return _place(terminal, pen) + SAVE + _unplace(pen)


def _pen(terminal: EmulatedTerminal) -> _Pen:
    return _Pen(
        x=terminal.number(g.Data.CURSOR_X),
        y=terminal.number(g.Data.CURSOR_Y),
        pending_wrap=terminal.flag(g.Data.CURSOR_PENDING_WRAP),
        origin=terminal.mode(_ORIGIN),
        style=terminal.restoring("style"),
        charsets=terminal.restoring("charsets"),
        protection=terminal.restoring("protection"),
    )


def _place(terminal: EmulatedTerminal, pen: _Pen, top: int = 0, left: int = 0) -> bytes:
    """Bring the cursor into the state of `pen` where the margins start at `top` and `left`."""
    parts = [b"\x1b[?6h" if pen.origin else b""]
    top, left = (top, left) if pen.origin else (0, 0)
    before = _start_of(terminal, pen.x if pen.pending_wrap else pen.x - 1, pen.y)
    if before >= 0:
        # Written once more: it is what CSI b repeats, and what makes the wrap pending.
        cell = terminal.cells(pen.y, before, before) or b" " * pen.pending_wrap
        parts += [_move(pen.y - top, before - left), _link(terminal.link(terminal.ref(before, pen.y)), cell)]
    if not pen.pending_wrap:
        parts.append(_move(pen.y - top, pen.x - left))
    return b"".join(parts) + pen.attributes


def _unplace(pen: _Pen) -> bytes:
    """Return from `_place` to the defaults that everything else is written in."""
    return (
        (b"\x1b[?6l" if pen.origin else b"")
        + b"\x1b[0m"
        + (b"\x0f\x1b(B\x1b)B\x1b*B\x1b+B" if pen.charsets else b"")
        + (b'\x1b[0"q' if pen.protection else b"")
    )


def _current(terminal: EmulatedTerminal) -> bytes:
    starts = {kind: int(start) - 1 for start, kind in _REGION.findall(terminal.restoring("scrolling_region"))}
    placed = _place(terminal, _pen(terminal), starts.get(b"r", 0), starts.get(b"s", 0))
    return placed + terminal.restoring("hyperlink")


def _start_of(terminal: EmulatedTerminal, x: int, y: int) -> int:
    """Return the column in which the character that covers `x` starts."""
    return x - 1 if x > 0 and terminal.wide(terminal.ref(x, y)) == g.CellWide.SPACER_TAIL else x


def _move(y: int, x: int) -> bytes:
    return b"\x1b[%d;%dH" % (max(y, 0) + 1, max(x, 0) + 1)


def _style(terminal: EmulatedTerminal) -> bytes:
    return b"\x1b[%d q" % terminal.render.cursor_style()


def _keyboard(clone: EmulatedTerminal | None) -> bytes:
    """Return the stack of keyboard flags of the clone's screen, read by popping it."""
    if clone is None:
        return b""
    levels = []
    for _ in range(KEYBOARD_DEPTH):
        levels.append(clone.number(g.Data.KITTY_KEYBOARD_FLAGS))
        clone.write(b"\x1b[<u")
    while levels and not levels[-1]:
        levels.pop()
    return b"".join(b"\x1b[>%du" % flags for flags in reversed(levels))
