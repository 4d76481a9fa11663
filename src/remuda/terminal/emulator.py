"""One terminal of libghostty-vt as a Python object: the only code that calls into the library.

Everything here uses the library's own terms; `ghostty.py` makes a screen for the rest of the program of it,
and `paint.py` turns its state into bytes.
"""

from __future__ import annotations

import ctypes as c
import weakref
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from . import libghostty as g

SCROLLBACK_LINES = 10_000
"""Fewer make scrolling ten times slower (measured: 40 against 600 MB/s); the bytes are what bounds memory."""
SCROLLBACK_BYTES = 1 << 20
CONTINUATION_BYTES = 1 << 20
"""How much of an unfinished sequence is remembered, so that it can be repeated to a second terminal."""
CELL_PIXELS = (8, 16)
"""The size of a cell in size reports. It cannot be known: the outer terminals differ."""

_CURSOR_STYLES = {int(g.CursorStyle.UNDERLINE): 4, int(g.CursorStyle.BAR): 6}
_BEFORE, _HOME = ("modes", "tabstops"), b"\x1b[H"
"""What the formatter emits before the cells; it moves to the home position before these, and emits the rest
after them.
"""


class EngineError(Exception):
    """The library refused a call that cannot fail; never the fault of the bytes that were fed."""


class EmulatedTerminal:
    """A handle on one emulated terminal, freed by `close` or by the garbage collector."""

    def __init__(self, handle: c.c_void_p) -> None:
        self._lib = g.load()
        self.handle = handle
        self._free = weakref.finalize(self, self._lib.ghostty_terminal_free, handle)
        self._buffer = c.create_string_buffer(16 * 1024)
        self._written = c.c_size_t()
        self._render: RenderState | None = None
        self._raw: dict[int, memoryview] = {}
        self._stale = True

    @classmethod
    def open(cls, cols: int, rows: int) -> EmulatedTerminal:
        lib, handle = g.load(), c.c_void_p()
        _check(lib.ghostty_terminal_new(None, c.byref(handle), cols, rows), "terminal_new")
        terminal = cls(handle)
        terminal.set_size(g.TerminalOption.SCROLLBACK_MAX_BYTES, SCROLLBACK_BYTES)
        terminal.set_size(g.TerminalOption.SCROLLBACK_MAX_LINES, SCROLLBACK_LINES)
        terminal.set_size(g.TerminalOption.CONTINUATION_MAX_BYTES, CONTINUATION_BYTES)
        # We cannot show images, so we do not store them, nor answer that we could.
        terminal.set_size(g.TerminalOption.KITTY_IMAGE_STORAGE_LIMIT, 0)
        return terminal

    def clone(self) -> EmulatedTerminal | None:
        """Return a copy that can be fed for a trial; None while an overlong sequence is unfinished."""
        data, size = c.c_void_p(), c.c_size_t()
        if self._lib.ghostty_snapshot_encode_alloc(self.handle, None, c.byref(data), c.byref(size)):
            return None
        decoder, handle = c.c_void_p(), c.c_void_p()
        try:
            _check(
                self._lib.ghostty_snapshot_decoder_new_buf(None, c.byref(decoder), data, size), "decoder_new"
            )
            _check(self._lib.ghostty_snapshot_decoder_ready(decoder, c.byref(handle)), "decoder_ready")
        finally:
            self._lib.ghostty_snapshot_decoder_free(decoder)
            self._lib.ghostty_free(None, data, size)
        return EmulatedTerminal(handle)

    def close(self) -> None:
        if self._render:
            self._render.close()
        self._free()

    @property
    def render(self) -> RenderState:
        """Return the library's state for renderers, as of now. It copies the screen, so only on demand."""
        if self._render is None:
            self._render = RenderState()
        if self._stale:
            self._render.update(self.handle)
            self._raw.clear()
            self._stale = False
        return self._render

    def set_size(self, option: g.TerminalOption, value: int) -> None:
        self.set(option, c.byref(c.c_size_t(value)))

    def set(self, option: g.TerminalOption, value: Any) -> None:
        _check(self._lib.ghostty_terminal_set(self.handle, option, value), option.name)

    def write(self, data: bytes) -> None:
        self._stale = True
        self._lib.ghostty_terminal_vt_write(self.handle, data, len(data))

    def resize(self, cols: int, rows: int) -> None:
        self._stale = True
        _check(self._lib.ghostty_terminal_resize(self.handle, cols, rows, *CELL_PIXELS), "resize")

    def number(self, key: g.Data) -> int:
        value = c.c_uint16()
        _check(self._lib.ghostty_terminal_get(self.handle, key, c.byref(value)), key.name)
        return value.value

    def get_multi(self, keys: Any, places: Any) -> None:
        """Fill every place of an array of addresses with the value of its key."""
        result = self._lib.ghostty_terminal_get_multi(self.handle, len(keys), keys, places, None)
        _check(result, "get_multi")

    def enumerated(self, key: g.Data) -> int:
        value = c.c_int()
        _check(self._lib.ghostty_terminal_get(self.handle, key, c.byref(value)), key.name)
        return value.value

    def flag(self, key: g.Data) -> bool:
        value = c.c_bool()
        _check(self._lib.ghostty_terminal_get(self.handle, key, c.byref(value)), key.name)
        return value.value

    def text(self, key: g.Data) -> bytes:
        value = g.String()
        _check(self._lib.ghostty_terminal_get(self.handle, key, c.byref(value)), key.name)
        return value.read()

    def colour(self, key: g.Data) -> tuple[int, int, int] | None:
        value = g.ColorRgb()
        if self._lib.ghostty_terminal_get(self.handle, key, c.byref(value)):
            return None
        return value.r, value.g, value.b

    def palette(self, key: g.Data) -> bytes:
        value = (g.ColorRgb * 256)()
        _check(self._lib.ghostty_terminal_get(self.handle, key, c.byref(value)), key.name)
        return bytes(value)

    def mode(self, number: int) -> bool:
        """Return whether a DEC private mode is set."""
        value = g.ModeConfig(mode=number)
        _check(self._lib.ghostty_terminal_get(self.handle, g.Data.MODE, c.byref(value)), "mode")
        return bool(value.value)

    def continuation(self) -> bytes:
        """Return the bytes of the sequence or character that was cut at the end of the last write."""
        self._written.value = 0
        function = self._lib.ghostty_terminal_continuation_buf
        function(self.handle, None, 0, c.byref(self._written))
        buffer = c.create_string_buffer(max(self._written.value, 1))
        if function(self.handle, buffer, len(buffer), c.byref(self._written)):
            return b""
        return buffer.raw[: self._written.value]

    def ref(self, x: int, y: int) -> g.GridRef:
        """Return a cell of the active area; valid until the terminal changes."""
        return self._ref(g.PointTag.ACTIVE, x, y)

    def _ref(self, tag: g.PointTag, x: int, y: int) -> g.GridRef:
        ref = g.GridRef(size=c.sizeof(g.GridRef))
        point = g.Point(tag, g.PointValue(x, y, 0))
        _check(self._lib.ghostty_terminal_grid_ref(self.handle, point, c.byref(ref)), "grid_ref")
        return ref

    @property
    def scrolled_rows(self) -> int:
        """Return how many rows have scrolled off the top and are remembered."""
        value = c.c_size_t()
        result = self._lib.ghostty_terminal_get(self.handle, g.Data.SCROLLBACK_ROWS, c.byref(value))
        _check(result, "scrolled_rows")
        return value.value

    def rows_text(self, start: int, end: int, *, styled: bool, unwrap: bool) -> str:
        """Return rows `start` to `end` (excluded) as lines, counted from the first that scrolled off.

        `unwrap` joins the rows of a line that the terminal wrapped. Blank rows at the end are left out.
        """
        if start >= end:
            return ""
        last = self.number(g.Data.COLS) - 1
        selection = _selection(self._screen_ref(0, start), self._screen_ref(last, end - 1))
        options = _options(selection, g.Format.VT if styled else g.Format.PLAIN, trim=True)
        options.unwrap = unwrap
        return self._format(options).decode("utf-8", "replace").replace("\r\n", "\n")

    def row_wraps(self, y: int) -> bool:
        """Return whether the line goes on in the row after `y`, which is counted as for `rows_text`."""
        return self.row_flag(self._screen_ref(0, y), g.RowData.WRAP)

    def _screen_ref(self, x: int, y: int) -> g.GridRef:
        return self._ref(g.PointTag.SCREEN, x, y)

    def row_flag(self, ref: g.GridRef, key: g.RowData) -> bool:
        row, value = c.c_uint64(), c.c_bool()
        self._lib.ghostty_grid_ref_row(c.byref(ref), c.byref(row))
        self._lib.ghostty_row_get(row, key, c.byref(value))
        return value.value

    def wide(self, ref: g.GridRef) -> int:
        """Return which part of a wide character the cell is: a `CellWide`."""
        cell, value = c.c_uint64(), c.c_int()
        self._lib.ghostty_grid_ref_cell(c.byref(ref), c.byref(cell))
        self._lib.ghostty_cell_get(cell, g.CellData.WIDE, c.byref(value))
        return value.value

    def has_text(self, ref: g.GridRef) -> bool:
        cell, value = c.c_uint64(), c.c_bool()
        self._lib.ghostty_grid_ref_cell(c.byref(ref), c.byref(cell))
        self._lib.ghostty_cell_get(cell, g.CellData.HAS_TEXT, c.byref(value))
        return value.value

    def link(self, ref: g.GridRef) -> bytes:
        """Return the address of the hyperlink on the cell; empty without one."""
        arguments = (c.byref(ref), self._buffer, len(self._buffer), c.byref(self._written))
        if self._lib.ghostty_grid_ref_hyperlink_uri(*arguments):
            return b""
        return self._buffer.raw[: self._written.value]

    def plain(self, end: tuple[int, int]) -> str:
        """Return the active area as text, one line for a row, without trailing blanks."""
        selection = _selection(self.ref(0, 0), self.ref(*end))
        return self._format(_options(selection, g.Format.PLAIN, trim=True)).decode("utf-8", "replace")

    def cells(self, y: int, left: int, right: int) -> bytes:
        """Return columns `left` to `right` (included) of a row: text and SGR, nothing else.

        Blanks at the end are left out. A wide character on an edge is included completely.
        """
        text = self._formatted(y, left, right)
        if text and b"\x1b" not in text:
            return text
        # The formatter lets cells that were never written take the style of those before them, and drops a
        # run of cells without text even if it was erased in a colour. So it only gets what was written.
        raw = self._raw_cells(y)[left : right + 1]
        if text and all(raw):
            return text
        parts, at, until = [], left, 0
        for written, run in groupby(raw, key=bool):
            cells = list(run)
            parts.append(self._written_cells(y, at, cells) if written else b" " * len(cells))
            at, until = at + len(cells), len(parts) if written else until
        return b"".join(parts[:until])

    def _raw_cells(self, y: int) -> memoryview:
        """Return a row as the library holds it: 0 is a cell that was never written, or erased without a
        colour.
        """
        render = self.render
        if y not in self._raw:
            self._raw[y] = memoryview(render.raw_row(y)).cast("Q")
        return self._raw[y]

    def _written_cells(self, y: int, x: int, cells: list[int]) -> bytes:
        text = self._formatted(y, x, x + len(cells) - 1)
        return text or b"".join(self._backgrounds(cells))

    def _formatted(self, y: int, left: int, right: int) -> bytes:
        start = self.ref(left, y)
        end = g.GridRef(start.size, start.node, right, start.y)
        return self._format(_options(_selection(start, end), g.Format.VT))

    def _backgrounds(self, cells: list[int]) -> Iterator[bytes]:
        coloured = b""
        for cell, run in groupby(cells):
            reset, coloured = coloured and b"\x1b[0m", self._background(cell)
            yield (coloured or reset) + b" " * sum(1 for _ in run)
        yield coloured and b"\x1b[0m"

    def _background(self, cell: int) -> bytes:
        """Return the SGR of a cell that holds a background and nothing else; empty for any other."""
        tag, index, rgb = c.c_int(), c.c_uint8(), g.ColorRgb()
        self._lib.ghostty_cell_get(cell, g.CellData.CONTENT_TAG, c.byref(tag))
        if tag.value == g.CellContent.BG_COLOR_PALETTE:
            self._lib.ghostty_cell_get(cell, g.CellData.COLOR_PALETTE, c.byref(index))
            return b"\x1b[0m\x1b[48;5;%dm" % index.value
        if tag.value == g.CellContent.BG_COLOR_RGB:
            self._lib.ghostty_cell_get(cell, g.CellData.COLOR_RGB, c.byref(rgb))
            return b"\x1b[0m\x1b[48;2;%d;%d;%dm" % (rgb.r, rgb.g, rgb.b)
        return b""

    def restoring(self, name: str) -> bytes:
        """Return what the library would emit to restore one part of the terminal's state, not the cells."""
        selection = _selection(corner := self.ref(0, 0), corner)
        options = _options(selection, g.Format.VT)
        cell = self._format(options)
        setattr(options.extra if hasattr(options.extra, name) else options.extra.screen, name, True)
        whole = self._format(options)
        return whole.removesuffix(cell).removesuffix(_HOME) if name in _BEFORE else whole.removeprefix(cell)

    def _format(self, options: g.FormatOptions) -> bytes:
        formatter = c.c_void_p()
        function = self._lib.ghostty_formatter_format_buf
        _check(
            self._lib.ghostty_formatter_terminal_new(None, c.byref(formatter), self.handle, options),
            "formatter",
        )
        try:
            size = c.byref(self._written)
            if function(formatter, self._buffer, len(self._buffer), size) == g.Result.OUT_OF_SPACE:
                self._buffer = c.create_string_buffer(self._written.value)
                _check(function(formatter, self._buffer, len(self._buffer), size), "format")
        finally:
            self._lib.ghostty_formatter_free(formatter)
        return c.string_at(self._buffer, self._written.value)


class RenderState:
    """Which rows changed, and how the cursor looks: only a renderer of the library can query that."""

    def __init__(self) -> None:
        self._lib = g.load()
        self._free: list[weakref.finalize[..., RenderState]] = []
        self._state = self._new("ghostty_render_state")
        self._rows = self._new("ghostty_render_state_row_iterator")
        self._walk = self._new("ghostty_render_state_row_iterator")
        self._at: int | None = None

    def _new(self, kind: str) -> c.c_void_p:
        handle = c.c_void_p()
        _check(getattr(self._lib, f"{kind}_new")(None, c.byref(handle)), kind)
        self._free.append(weakref.finalize(self, getattr(self._lib, f"{kind}_free"), handle))
        return handle

    def update(self, terminal: c.c_void_p) -> None:
        self._at = None
        _check(self._lib.ghostty_render_state_update(self._state, terminal), "render_state_update")

    def cursor_style(self) -> int:
        """Return the parameter of DECSCUSR for the current cursor."""
        style, blink = c.c_int(), c.c_bool()
        self._get(g.RenderData.CURSOR_VISUAL_STYLE, style)
        self._get(g.RenderData.CURSOR_BLINKING, blink)
        return _CURSOR_STYLES.get(style.value, 2) - blink.value

    def take_dirty(self) -> set[int] | None:
        """Return the rows that changed since the last call; None for all."""
        dirty = c.c_int()
        self._get(g.RenderData.DIRTY, dirty)
        rows = self._dirty_rows() if dirty.value == g.RenderDirty.PARTIAL else set()
        self._lib.ghostty_render_state_clean(self._state)
        return None if dirty.value == g.RenderDirty.FULL else rows

    def _dirty_rows(self) -> set[int]:
        rows, y = set(), c.c_uint16()
        self._get(g.RenderData.ROW_ITERATOR, self._rows)
        while self._lib.ghostty_render_state_row_iterator_next_dirty(self._rows, c.byref(y)):
            rows.add(y.value)
        return rows

    def raw_row(self, y: int) -> bytes:
        """Return the cells of a row, eight bytes each.

        The library only steps forward: cheap in ascending order.
        """
        if self._at is None or self._at >= y:
            self._get(g.RenderData.ROW_ITERATOR, self._walk)
            self._at = -1
        while self._at < y:
            self._lib.ghostty_render_state_row_iterator_next(self._walk)
            self._at += 1
        view = g.CellsView()
        self._lib.ghostty_render_state_row_get(self._walk, g.RenderRowData.CELLS_RAW, c.byref(view))
        return c.string_at(view.ptr, 8 * view.len)

    def _get(self, key: g.RenderData, out: Any) -> None:
        _check(self._lib.ghostty_render_state_get(self._state, key, c.byref(out)), key.name)

    def close(self) -> None:
        for free in self._free:
            free()


def _selection(start: g.GridRef, end: g.GridRef) -> g.Selection:
    return g.Selection(c.sizeof(g.Selection), start, end, False)


def _options(selection: g.Selection, emit: g.Format, *, trim: bool = False) -> g.FormatOptions:
    options = g.FormatOptions(size=c.sizeof(g.FormatOptions), emit=emit, trim=trim)
    options.extra.size = c.sizeof(g.TerminalExtra)
    options.extra.screen.size = c.sizeof(g.ScreenExtra)
    options.selection = c.pointer(selection)
    return options


def _check(result: int, call: str) -> None:
    if result != g.Result.SUCCESS:
        raise EngineError(f"{call} failed with {result}")
