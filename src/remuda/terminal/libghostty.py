"""The C interface of libghostty-vt, as far as we use it, declared for ctypes.

The library file comes from the installed package `pyghostty`, which is never imported: parsing its
declarations costs 120 ms and 6 MB in every process, loading the file with ctypes costs 5 ms. The
interface is young and changes without notice, so the package version is pinned and checked here, and a
unit test compares every layout and constant below with the description that the library carries.
"""

from __future__ import annotations

import ctypes as c
import enum
import importlib.util
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

VERSION = "0.1.3"
"""The one release of the package whose C interface is declared here."""


class EngineUnavailable(Exception):
    """The emulator library is not there, or is not the one that we know."""


ENUMS: dict[str, type[enum.IntEnum]] = {}
"""All constants below, under the names of the library's own description."""


class Constants(enum.IntEnum):
    def __init_subclass__(cls, c_name: str) -> None:
        super().__init_subclass__()
        ENUMS[c_name] = cls


class Result(Constants, c_name="GhosttyResult"):
    SUCCESS = 0
    OUT_OF_SPACE = -3


class TerminalOption(Constants, c_name="GhosttyTerminalOption"):
    """What `ghostty_terminal_set` sets."""

    WRITE_PTY = 1
    BELL = 2
    SIZE = 6
    KITTY_IMAGE_STORAGE_LIMIT = 15
    CLIPBOARD_WRITE = 26
    SCROLLBACK_MAX_BYTES = 27
    SCROLLBACK_MAX_LINES = 28
    DESKTOP_NOTIFICATION = 29
    CONTINUATION_MAX_BYTES = 31


class Data(Constants, c_name="GhosttyTerminalData"):
    """What `ghostty_terminal_get` gets."""

    COLS = 1
    ROWS = 2
    CURSOR_X = 3
    CURSOR_Y = 4
    CURSOR_PENDING_WRAP = 5
    ACTIVE_SCREEN = 6
    CURSOR_VISIBLE = 7
    KITTY_KEYBOARD_FLAGS = 8
    TITLE = 12
    PWD = 13
    SCROLLBACK_ROWS = 15
    COLOR_FOREGROUND = 18
    COLOR_BACKGROUND = 19
    COLOR_CURSOR = 20
    COLOR_PALETTE = 21
    COLOR_PALETTE_DEFAULT = 25
    MODE = 37


class CursorStyle(Constants, c_name="GhosttyRenderStateCursorVisualStyle"):
    BAR = 0
    BLOCK = 1
    UNDERLINE = 2
    BLOCK_HOLLOW = 3


class Format(Constants, c_name="GhosttyFormatterFormat"):
    PLAIN = 0
    VT = 1


class PointTag(Constants, c_name="GhosttyPointTag"):
    """What a point is counted from: the first visible row, or the first row of the scrollback."""

    ACTIVE = 0
    SCREEN = 2


class RowData(Constants, c_name="GhosttyRowData"):
    WRAP = 1
    WRAP_CONTINUATION = 2
    HYPERLINK = 5


class CellData(Constants, c_name="GhosttyCellData"):
    CONTENT_TAG = 2
    WIDE = 3
    HAS_TEXT = 4
    COLOR_PALETTE = 10
    COLOR_RGB = 11


class CellContent(Constants, c_name="GhosttyCellContentTag"):
    """What a cell holds; an erased one may hold a background and nothing else."""

    BG_COLOR_PALETTE = 2
    BG_COLOR_RGB = 3


class CellWide(Constants, c_name="GhosttyCellWide"):
    NARROW = 0
    WIDE = 1
    SPACER_TAIL = 2
    SPACER_HEAD = 3


class ClipboardLocation(Constants, c_name="GhosttyClipboardLocation"):
    STANDARD = 0
    SELECTION = 1
    PRIMARY = 2


class RenderDirty(Constants, c_name="GhosttyRenderStateDirty"):
    FALSE = 0
    PARTIAL = 1
    FULL = 2


class RenderRowData(Constants, c_name="GhosttyRenderStateRowData"):
    CELLS_RAW = 5


class RenderData(Constants, c_name="GhosttyRenderStateData"):
    DIRTY = 3
    ROW_ITERATOR = 4
    CURSOR_VISUAL_STYLE = 10
    CURSOR_BLINKING = 12


class Struct(c.Structure):
    """A structure under the name that the library's own description gives it."""

    c_name: ClassVar[str]

    def __init_subclass__(cls, c_name: str) -> None:
        super().__init_subclass__()
        cls.c_name = c_name


def _flags(names: str) -> list[tuple[str, type[c.c_bool]]]:
    return [(name, c.c_bool) for name in names.split()]


class String(Struct, c_name="GhosttyString"):
    _fields_ = [("ptr", c.c_void_p), ("len", c.c_size_t)]

    def read(self) -> bytes:
        """Return a copy of the borrowed bytes."""
        return c.string_at(self.ptr, self.len) if self.len else b""


class CellsView(Struct, c_name="GhosttyCellsView"):
    _fields_ = [("ptr", c.c_void_p), ("len", c.c_size_t)]


class ColorRgb(Struct, c_name="GhosttyColorRgb"):
    _fields_ = [("r", c.c_uint8), ("g", c.c_uint8), ("b", c.c_uint8)]


class GridRef(Struct, c_name="GhosttyGridRef"):
    _fields_ = [("size", c.c_size_t), ("node", c.c_void_p), ("x", c.c_uint16), ("y", c.c_uint16)]


class PointValue(Struct, c_name="GhosttyPointValue"):
    """The coordinate of a point. A union in C; a structure of the same size is passed alike."""

    _fields_ = [("x", c.c_uint16), ("y", c.c_uint32), ("_padding", c.c_uint64)]


class Point(Struct, c_name="GhosttyPoint"):
    _fields_ = [("tag", c.c_int), ("value", PointValue)]


class Selection(Struct, c_name="GhosttySelection"):
    _fields_ = [("size", c.c_size_t), ("start", GridRef), ("end", GridRef), ("rectangle", c.c_bool)]


class ScreenExtra(Struct, c_name="GhosttyFormatterScreenExtra"):
    _fields_ = [("size", c.c_size_t), *_flags("cursor style hyperlink protection kitty_keyboard charsets")]


class TerminalExtra(Struct, c_name="GhosttyFormatterTerminalExtra"):
    _fields_ = [
        ("size", c.c_size_t),
        *_flags("palette modes scrolling_region tabstops pwd keyboard"),
        ("screen", ScreenExtra),
    ]


class FormatOptions(Struct, c_name="GhosttyFormatterTerminalOptions"):
    _fields_ = [
        ("size", c.c_size_t),
        ("emit", c.c_int),
        ("unwrap", c.c_bool),
        ("trim", c.c_bool),
        ("extra", TerminalExtra),
        ("selection", c.POINTER(Selection)),
    ]


class ModeConfig(Struct, c_name="GhosttyTerminalModeConfig"):
    _fields_ = [("mode", c.c_uint16), ("value", c.c_bool)]


class SizeReport(Struct, c_name="GhosttySizeReportSize"):
    _fields_ = [
        ("rows", c.c_uint16),
        ("columns", c.c_uint16),
        ("cell_width", c.c_uint32),
        ("cell_height", c.c_uint32),
    ]


class Notification(Struct, c_name="GhosttyTerminalDesktopNotification"):
    _fields_ = [("size", c.c_size_t), ("title", String), ("body", String)]


class ClipboardContent(Struct, c_name="GhosttyClipboardContent"):
    _fields_ = [("mime", String), ("data", String)]


class ClipboardWrite(Struct, c_name="GhosttyClipboardWrite"):
    _fields_ = [
        ("size", c.c_size_t),
        ("location", c.c_int),
        ("contents", c.POINTER(ClipboardContent)),
        ("contents_len", c.c_size_t),
        ("name", String),
        ("granted", c.c_bool),
        ("can_remember", c.c_bool),
        ("ctx", c.c_void_p),
        ("reply", c.c_void_p),
    ]


STRUCTS: tuple[type[Struct], ...] = tuple(one for one in Struct.__subclasses__() if one is not PointValue)
"""Every structure whose layout the library describes too."""

WriteFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
BellFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)
SizeFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_void_p, c.POINTER(SizeReport))
NotificationFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.POINTER(Notification))
ClipboardFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.POINTER(ClipboardWrite))

_HANDLE = c.c_void_p
_OUT = c.c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ghostty_type_json": (c.c_char_p, []),
    "ghostty_free": (None, [c.c_void_p, c.c_void_p, c.c_size_t]),
    "ghostty_terminal_new": (c.c_int, [c.c_void_p, _OUT, c.c_uint16, c.c_uint16]),
    "ghostty_terminal_free": (None, [_HANDLE]),
    "ghostty_terminal_resize": (c.c_int, [_HANDLE, c.c_uint16, c.c_uint16, c.c_uint32, c.c_uint32]),
    "ghostty_terminal_set": (c.c_int, [_HANDLE, c.c_int, c.c_void_p]),
    "ghostty_terminal_get": (c.c_int, [_HANDLE, c.c_int, _OUT]),
    "ghostty_terminal_get_multi": (c.c_int, [_HANDLE, c.c_size_t, c.c_void_p, c.c_void_p, _OUT]),
    "ghostty_terminal_vt_write": (None, [_HANDLE, c.c_char_p, c.c_size_t]),
    "ghostty_terminal_continuation_buf": (c.c_int, [_HANDLE, c.c_void_p, c.c_size_t, _OUT]),
    "ghostty_terminal_grid_ref": (c.c_int, [_HANDLE, Point, _OUT]),
    "ghostty_grid_ref_row": (c.c_int, [_OUT, _OUT]),
    "ghostty_grid_ref_cell": (c.c_int, [_OUT, _OUT]),
    "ghostty_grid_ref_hyperlink_uri": (c.c_int, [_OUT, c.c_void_p, c.c_size_t, _OUT]),
    "ghostty_row_get": (c.c_int, [c.c_uint64, c.c_int, _OUT]),
    "ghostty_cell_get": (c.c_int, [c.c_uint64, c.c_int, _OUT]),
    "ghostty_formatter_terminal_new": (c.c_int, [c.c_void_p, _OUT, _HANDLE, FormatOptions]),
    "ghostty_formatter_format_buf": (c.c_int, [_HANDLE, c.c_void_p, c.c_size_t, _OUT]),
    "ghostty_formatter_free": (None, [_HANDLE]),
    "ghostty_snapshot_encode_alloc": (c.c_int, [_HANDLE, c.c_void_p, _OUT, _OUT]),
    "ghostty_snapshot_decoder_new_buf": (c.c_int, [c.c_void_p, _OUT, c.c_void_p, c.c_size_t]),
    "ghostty_snapshot_decoder_ready": (c.c_int, [_HANDLE, _OUT]),
    "ghostty_snapshot_decoder_free": (None, [_HANDLE]),
    "ghostty_render_state_new": (c.c_int, [c.c_void_p, _OUT]),
    "ghostty_render_state_free": (None, [_HANDLE]),
    "ghostty_render_state_update": (c.c_int, [_HANDLE, _HANDLE]),
    "ghostty_render_state_clean": (c.c_int, [_HANDLE]),
    "ghostty_render_state_get": (c.c_int, [_HANDLE, c.c_int, _OUT]),
    "ghostty_render_state_row_iterator_new": (c.c_int, [c.c_void_p, _OUT]),
    "ghostty_render_state_row_iterator_free": (None, [_HANDLE]),
    "ghostty_render_state_row_iterator_next": (c.c_bool, [_HANDLE]),
    "ghostty_render_state_row_get": (c.c_int, [_HANDLE, c.c_int, _OUT]),
    "ghostty_render_state_row_iterator_next_dirty": (c.c_bool, [_HANDLE, _OUT]),
}


@cache
def load() -> c.CDLL:
    """Return the library with our declarations; raises `EngineUnavailable` with the reason."""
    try:
        lib = c.CDLL(str(_library_file()))
        for name, (restype, argtypes) in _SIGNATURES.items():
            function: Callable[..., Any] = getattr(lib, name)
            function.restype, function.argtypes = restype, argtypes  # type: ignore[attr-defined]
    except (OSError, AttributeError) as error:
        raise EngineUnavailable(f"the terminal emulator library cannot be loaded: {error}") from error
    return lib


def _library_file() -> Path:
    spec = importlib.util.find_spec("pyghostty")
    if spec is None or spec.origin is None:
        raise EngineUnavailable("the package pyghostty is not installed")
    folder = Path(spec.origin).parent
    version = re.search(r'__version__\s*=\s*"([^"]+)"', Path(spec.origin).read_text(encoding="utf-8"))
    if version is None or version[1] != VERSION:
        raise EngineUnavailable(
            f"pyghostty is {version[1] if version else 'of unknown version'}, not {VERSION}"
        )
    for name in ("libghostty-vt.so", "libghostty-vt.dylib"):
        if (folder / "_lib" / name).exists():
            return folder / "_lib" / name
    raise EngineUnavailable(f"pyghostty {VERSION} has no library for this platform")
