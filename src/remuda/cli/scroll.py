"""Scrolling back in `attach`: a still picture of earlier output, over a session that continues.

Keys typed while scrolling do not reach the program, and its output does not move the picture.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from remuda.errors import RemudaError
from remuda.keeper.client import KeeperClient
from remuda.keeper.history_reader import last_lines, styled_lines
from remuda.keeper.history_stream import HistoryStream
from remuda.paths import SessionPaths
from remuda.terminal.view import clipped

WHEEL_LINES = 3
_TOKEN = re.compile(
    rb"\x1b\[<(\d+);\d+;\d+[Mm]|\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|\Z|(?=\x1b))|[\x00-\xff]", re.DOTALL
)
_CUT = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)\Z")
_PAGE_UP = re.compile(rb"\x1b\[5(?:;\d+)?~")
_PAGE_DOWN = re.compile(rb"\x1b\[6(?:;\d+)?~")
_UP, _DOWN = (b"\x1b[A", b"\x1bOA", b"k"), (b"\x1b[B", b"\x1bOB", b"j")
_HOME = (b"\x1b[H", b"\x1bOH", b"\x1b[1~", b"\x1b[7~", b"g")
_LEAVE = (b"\x1b[F", b"\x1bOF", b"\x1b[4~", b"\x1b[8~", b"G", b"q", b"\x1b", b"\x03")
_PASTE = b"\x1b[200~"
_PASTED = re.compile(rb"\x1b\[200~.*?\x1b\[201~", re.DOTALL)
_START = re.compile(rb"\x1b\[5(;2)?~")


def scrolling_key(data: bytes) -> str:
    """Return `shift` for Shift-PgUp, `plain` for PgUp, else nothing."""
    match = _START.fullmatch(data)
    return "" if match is None else "shift" if match[1] else "plain"


class Scroll:
    """The position of the user in the lines. Pure; `height` is that of the picture."""

    def __init__(self, lines: list[str], height: int) -> None:
        self._lines = lines
        self._height = max(1, height)
        self._top = self._last
        self._held = b""

    @property
    def _last(self) -> int:
        return max(0, len(self._lines) - self._height)

    @property
    def lines_below(self) -> int:
        return self._last - self._top

    @property
    def lines_above(self) -> int:
        return self._top

    def resize(self, height: int) -> None:
        below = self.lines_below
        self._height = max(1, height)
        self._top = max(0, self._last - below)

    def move(self, lines: int) -> bool:
        """Move down or up. Return whether that stays above the end."""
        self._top = max(0, self._top + lines)
        return self._top < self._last or lines < 0

    def type(self, data: bytes) -> bool:
        """Handle keys. Return whether to keep scrolling; if not, the rest of the keys is dropped."""
        # Pasted text has no keys: one that ends scrolling would pass the rest to the program.
        data, self._held = _PASTED.sub(b"", self._held + data), b""
        if (at := data.find(_PASTE)) >= 0:
            data, self._held = data[:at], _PASTE + data[at + len(_PASTE) :][1 - len(_PASTE) :]
        elif cut := _CUT.search(data):
            data, self._held = data[: cut.start()], cut[0]
        return all(self._press(found[0], found[1]) for found in _TOKEN.finditer(data))

    def _press(self, key: bytes, button: bytes | None) -> bool:
        page = max(1, self._height - 1)
        if button is not None:
            turned = {64: -WHEEL_LINES, 65: WHEEL_LINES}.get(int(button), 0)
            return not turned or self.move(turned)
        if _PAGE_UP.fullmatch(key):
            return self.move(-page)
        if _PAGE_DOWN.fullmatch(key) or key == b" ":
            return self.move(page)
        if key in _UP or key in _DOWN:
            return self.move(-1 if key in _UP else 1)
        if key in _HOME:
            return self.move(-len(self._lines))
        return key not in _LEAVE

    def page(self, cols: int) -> list[bytes]:
        shown = self._lines[self._top : self._top + self._height]
        return [clipped(line, cols).encode("utf-8", "replace") for line in shown]


def make_history(paths: SessionPaths) -> Callable[[], list[str]]:
    """Return a function for the last rows that a session showed, with colours; no rows without history."""

    def read() -> list[str]:
        try:
            with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
                client.request("history")  # on a second connection: the first one is receiving output
            return last_lines(paths)
        except (RemudaError, EOFError, OSError):
            return []

    return read


def make_history_elsewhere(host: str, name: str) -> Callable[[], list[str]]:
    """The same for a session of another host."""

    def read() -> list[str]:
        try:
            with HistoryStream(host, name, last=True) as stream:
                return styled_lines(stream.read())
        except (RemudaError, OSError):
            return []

    return read
