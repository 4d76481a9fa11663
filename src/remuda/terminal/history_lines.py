"""What a program printed, as lines of text: for `logs`, and to scroll back in `attach`.

The output goes through a terminal, as when it was printed: a line that was drawn over has its last content.
Rows that have scrolled off the top are taken out of the terminal at once, so memory is bounded.

Text comes out with colours (SGR) or without; it has no other control but what a cell can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .emulator import EmulatedTerminal
from .history_format import Begun, Gap, HistoryEvent, Output, Painted, Resized, plain_text
from .libghostty import Data, EngineUnavailable, TerminalOption

_PIECE_BYTES = 1 << 14
_SCROLLBACK_BYTES = 64 << 20
_SCROLLBACK_LINES = 100_000
"""Bytes of one piece: a sequence of a few bytes can scroll a complete screen."""
_FORGET = b"\x1b[3J"
_LONGEST_LINE = 1 << 20
"""A sequence of a few bytes can make a line longer by thousands of characters."""
_WITHIN = rb"[\x00-\x17\x19\x1c-\x1f\x7f]"
"""Controls that may occur in a sequence, and do not end it."""
_ERASING = re.compile(rb"(\x1b%b*+(?:c|\[(?:%b|[0-?])*+J))" % (_WITHIN, _WITHIN))
_CUT = re.compile(rb"\x1b%b*+(?:\[(?:%b|[0-?])*+)?\Z" % (_WITHIN, _WITHIN))
_CANCEL = b"\x18"
_MAIN_SCREEN = b"\x1b[?1049l"


def open_transcript(*, styled: bool, unwrap: bool) -> HistoryLines | PlainTranscript:
    """Return the lines.

    `unwrap` joins rows that the terminal wrapped. Without the emulator, text without sequences.
    """
    try:
        return HistoryLines(styled=styled, unwrap=unwrap)
    except EngineUnavailable:
        return PlainTranscript()


def gap_line(gap: Gap) -> str:
    return (
        f"[{gap.byte_count} bytes of output are missing here: not written to the disk, or not read in time]"
    )


class HistoryLines:
    """Takes the events of a history and returns lines. Each line is returned once."""

    def __init__(self, *, styled: bool, unwrap: bool) -> None:
        self._styled = styled
        self._unwrap = unwrap
        self._begun = ""
        """The beginning of a line whose rows have not all scrolled off."""
        self._given = 0
        """How many rows at the top of the screen were returned already."""
        self._held = b""
        """The beginning of a sequence that may erase."""
        self._open(80, 24)

    def _open(self, cols: int, rows: int) -> None:
        self._terminal = EmulatedTerminal.open(cols, rows)
        self._terminal.set_size(TerminalOption.SCROLLBACK_MAX_BYTES, _SCROLLBACK_BYTES)
        self._terminal.set_size(TerminalOption.SCROLLBACK_MAX_LINES, _SCROLLBACK_LINES)
        self._size = cols, rows

    def take(self, events: Iterable[HistoryEvent]) -> Iterator[str]:
        """Return the lines that are complete: they have scrolled off, or the session was started again."""
        for event in events:
            if isinstance(event, Output | Painted):
                yield from self._feed(event.data)
            elif isinstance(event, Resized):
                yield from self._resize(max(event.cols, 1), max(event.rows, 1))
            elif isinstance(event, Begun):
                yield from self.rest()
                self._anew(max(event.cols, 1), max(event.rows, 1))
            elif isinstance(event, Gap):
                yield from self.rest()
                yield gap_line(event)
                self._anew(*self._size)

    def settled(self) -> Iterator[str]:
        """Return lines of the screen that a program which prints line by line is done with.

        Such a program has nothing below its cursor. For others, lines come when they scroll off.
        """
        terminal, rows = self._terminal, self._size[1]
        if terminal.enumerated(Data.ACTIVE_SCREEN):
            return
        first, row = terminal.scrolled_rows, terminal.number(Data.CURSOR_Y)
        if terminal.rows_text(first + row + 1, first + rows, styled=False, unwrap=False):
            return
        while row > self._given and terminal.row_wraps(first + row - 1):
            row -= 1
        if row > self._given:
            yield from self._lines(first + self._given, first + row)
            self._given = row

    def rest(self) -> Iterator[str]:
        """Return what the screen shows and was not returned, without the blank rows at its end."""
        if self._terminal.enumerated(Data.ACTIVE_SCREEN):
            # Of the main screen, what the alternate one covers.
            lines = self._screen_text()
            self._terminal.write(_CANCEL + _MAIN_SCREEN)
            yield from self._scrolled()
            yield from self._screen_rest()
            yield from lines
        else:
            yield from self._scrolled()
            yield from self._screen_rest()
        if self._begun:
            yield self._begun
            self._begun = ""

    def _screen_rest(self) -> Iterator[str]:
        first = self._terminal.scrolled_rows
        text = self._text(first + self._given, first + self._size[1])
        self._given = self._size[1]
        if text or self._begun:
            yield from self._joined(text.split("\n"))

    def _screen_text(self) -> list[str]:
        first = self._terminal.scrolled_rows
        text = self._text(first, first + self._size[1])
        return text.split("\n") if text else []

    def _anew(self, cols: int, rows: int) -> None:
        self._terminal.close()
        self._given, self._begun, self._held = 0, "", b""
        self._open(cols, rows)

    def _resize(self, cols: int, rows: int) -> Iterator[str]:
        """Rows are wrapped again, so that the rows that were returned cannot be counted any more."""
        if (cols, rows) == self._size:
            return
        yield from self._scrolled()
        self._terminal.resize(cols, rows)
        self._size = cols, rows
        self._given = min(self._given, rows)

    def _feed(self, data: bytes) -> Iterator[str]:
        data, self._held = self._held + data, b""
        if cut := _CUT.search(data):
            data, self._held = data[: cut.start()], cut[0]
        for number, part in enumerate(_ERASING.split(data)):
            if number % 2:
                yield from self._erase(part)
            else:
                yield from self._write(part)

    def _write(self, data: bytes) -> Iterator[str]:
        terminal, cols = self._terminal, self._size[0]
        for start in range(0, len(data), _PIECE_BYTES):
            terminal.write(data[start : start + _PIECE_BYTES])
            if terminal.number(Data.COLS) != cols:  # DECCOLM
                terminal.resize(*self._size)
            yield from self._scrolled()

    def _erase(self, sequence: bytes) -> Iterator[str]:
        """Erase the screen. Yield the rows that leave it: a program cannot erase our history."""
        terminal = self._terminal
        terminal.write(_CANCEL + (_MAIN_SCREEN if sequence.endswith(b"c") else b""))
        yield from self._scrolled()
        yield from self._write(sequence)
        if self._given and not terminal.enumerated(Data.ACTIVE_SCREEN):
            # What comes into rows that are blank now was not returned.
            first = terminal.scrolled_rows
            text = terminal.rows_text(first, first + self._given, styled=False, unwrap=False)
            left = max(text.count("\n") + 1, terminal.number(Data.CURSOR_Y)) if text else 0
            self._given = min(self._given, left)

    def _scrolled(self) -> Iterator[str]:
        terminal = self._terminal
        count = terminal.scrolled_rows
        if not count or terminal.continuation():
            return  # in the middle of a sequence the terminal cannot be cleared
        skipped, self._given = min(self._given, count), max(0, self._given - count)
        yield from self._lines(skipped, count)
        terminal.write(_FORGET)

    def _lines(self, start: int, end: int) -> Iterator[str]:
        """Return all rows from `start` to `end`, blank ones too.

        The beginning of a line is kept for its end.
        """
        if start >= end:
            return
        text = self._text(start, end)
        lines = text.split("\n") if text else []
        rows = self._terminal.rows_text(start, end, styled=self._styled, unwrap=False)
        blank = end - start - (rows.count("\n") + 1 if rows else 0)
        wraps = self._unwrap and not blank and self._terminal.row_wraps(end - 1)
        last = lines.pop() if wraps and lines else ""
        yield from self._joined([*lines, *[""] * blank])
        self._begun += last
        if len(self._begun) > _LONGEST_LINE:
            yield self._begun
            self._begun = ""

    def _joined(self, lines: list[str]) -> Iterator[str]:
        if lines and self._begun:
            lines[0], self._begun = self._begun + lines[0], ""
        yield from lines

    def _text(self, start: int, end: int) -> str:
        return self._terminal.rows_text(start, end, styled=self._styled, unwrap=self._unwrap)

    def close(self) -> None:
        self._terminal.close()


class PlainTranscript:
    """The text of the output without control sequences, for systems without the emulator."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, events: Iterable[HistoryEvent]) -> Iterator[str]:
        for event in events:
            if isinstance(event, Output):
                *lines, self._begun = (self._begun + event.data).split(b"\n")
                yield from map(plain_text, lines)
            elif isinstance(event, Gap):
                yield from self.rest()
                yield gap_line(event)

    def settled(self) -> Iterator[str]:
        return iter(())

    def rest(self) -> Iterator[str]:
        if self._begun:
            yield plain_text(self._begun)
            self._begun = b""

    def close(self) -> None:
        pass
