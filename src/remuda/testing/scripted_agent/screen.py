"""The bytes that make a screen show a view: only the rows that changed, none when nothing did."""

from __future__ import annotations

from typing import Protocol

from .layout import Frame, Row, View, bottom_rows, clip, full_screen


class Screen(Protocol):
    """Two ways to show a view: on a screen of its own, or below what the terminal already shows."""

    def paint(self, view: View, columns: int, lines: int) -> str:
        """The bytes from what is shown to this view."""

    def forget(self) -> None:
        """The terminal was cleared or resized: everything must be drawn again."""


class FullScreen:
    """The whole terminal belongs to us."""

    def __init__(self) -> None:
        self._shown: list[Row] = []
        self._cursor: tuple[int, int] | None = None
        self._fresh = True

    def forget(self) -> None:
        self._shown = []
        self._fresh = True

    def paint(self, view: View, columns: int, lines: int) -> str:
        frame = full_screen(view, columns, lines)
        changed = [index for index, row in enumerate(frame.rows) if self._differs(index, row)]
        if not changed and frame.cursor == self._cursor and not self._fresh:
            return ""
        drawn = "".join(f"\x1b[{index + 1};1H{_styled(frame.rows[index])}" for index in changed)
        bytes_ = ("\x1b[2J" if self._fresh else "") + drawn + self._place(frame)
        self._shown, self._cursor, self._fresh = frame.rows, frame.cursor, False
        return bytes_

    def _differs(self, index: int, row: Row) -> bool:
        if index >= len(self._shown):
            return bool(row.text)
        return self._shown[index] != row

    @staticmethod
    def _place(frame: Frame) -> str:
        if frame.cursor is None:
            return "\x1b[?25l"
        return f"\x1b[{frame.cursor[0] + 1};{frame.cursor[1] + 1}H\x1b[?25h"


class Inline:
    """What is finished scrolls away as in any program; what changes is drawn again below it."""

    def __init__(self) -> None:
        self._header_shown = False
        self._blocks_shown = 0
        self._live: list[Row] = []
        self._cursor = (0, 0)

    def forget(self) -> None:
        self._live = []

    def paint(self, view: View, columns: int, lines: int) -> str:
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

    def _finished(self, view: View, columns: int) -> list[Row]:
        rows = [] if self._header_shown else [Row(clip(line, columns)) for line in view.header]
        self._header_shown = True
        # The newest block may still grow while the agent is busy.
        until = len(view.blocks) - (1 if view.activity else 0)
        if len(view.blocks) < self._blocks_shown:
            self._blocks_shown = 0
        for block in view.blocks[self._blocks_shown : max(until, self._blocks_shown)]:
            rows += block.rows(columns)
        self._blocks_shown = max(until, self._blocks_shown)
        return rows

    def _changing(self, view: View, columns: int, lines: int) -> tuple[list[Row], tuple[int, int]]:
        growing = view.blocks[self._blocks_shown :]
        above = [row for block in growing for row in block.rows(columns)]
        above += [Row(clip(f"❯ {text}", columns)) for text in view.queued]
        if view.activity:
            above += [Row(""), Row(clip(view.activity, columns))]
        bottom, cursor = bottom_rows(view, columns, max(1, lines - 2))
        above = [*above, Row("")][-max(0, lines - len(bottom) - 1) :]
        row, column = cursor or (len(bottom) - 1, 0)
        return [*above, *bottom], (len(above) + row, column)


def _styled(row: Row) -> str:
    text = f"\x1b[{row.style}m{row.text}\x1b[0m" if row.style and row.text else row.text
    # Cleared before, not after: behind a full row the cursor stands on its last column still, and clears it.
    return f"\x1b[K{text}"
