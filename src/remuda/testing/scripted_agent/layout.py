"""What is shown, as rows of text: wrapping, the conversation, the box, the footer. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .dialog import RULE

DIM, BOLD, WARN, PLAIN = "2", "1", "33", ""
_SPANS = re.compile(r"\S+|\s+")
_BLOCK_ROWS = 400
_BOX_CHARS = 8000
_ASCII_LIMIT = 0x300


@dataclass(frozen=True, slots=True)
class ScreenRow:
    """One row of the screen, no longer than it is wide."""

    text: str
    style: str = PLAIN


@dataclass(slots=True)
class Block:
    """A piece of the conversation: a text after a mark, its further rows indented as far."""

    text: str
    mark: str = ""
    style: str = PLAIN
    spaced: bool = True
    _cached: tuple[str, int, list[ScreenRow]] = ("", 0, [])

    def rows(self, width: int) -> list[ScreenRow]:
        """Return its rows at that width, and a blank one before them where it is spaced."""
        if self._cached[:2] != (self.text, width):
            self._cached = (self.text, width, self._wrapped(width))
        return self._cached[2]

    def _wrapped(self, width: int) -> list[ScreenRow]:
        indent = " " * text_width(self.mark)
        room = max(1, width - len(indent))
        # Cut before it is wrapped: a megabyte of prompt is not laid out to show its first rows.
        lines = wrap(self.text[: _BLOCK_ROWS * room], room)[:_BLOCK_ROWS]
        rows = [
            ScreenRow((indent if index else self.mark) + line, self.style) for index, line in enumerate(lines)
        ]
        return [ScreenRow(""), *rows] if self.spaced else rows


@dataclass(slots=True)
class ConversationView:
    """Everything that is shown at one moment."""

    header: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    activity: str = ""
    hint: str = ""
    box: str = ""
    cursor: int = 0
    footer: str = ""
    dialog: list[str] | None = None


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """A complete screen, and where its cursor is: None while it is hidden."""

    rows: list[ScreenRow]
    cursor: tuple[int, int] | None


def full_screen(view: ConversationView, columns: int, lines: int) -> ScreenFrame:
    """Return the conversation from the top, the box at the bottom, as many rows as there are lines."""
    bottom, cursor = bottom_rows(view, columns, lines)
    room = lines - len(bottom)
    body = _last(_body(view, columns), room)
    rows = [*body, *[ScreenRow("")] * (room - len(body)), *bottom]
    return ScreenFrame(rows, cursor and (room + cursor[0], cursor[1]))


def bottom_rows(
    view: ConversationView, columns: int, lines: int
) -> tuple[list[ScreenRow], tuple[int, int] | None]:
    """Return the dialog, or the box between its rules with the footer; never more than ``lines``."""
    if view.dialog is not None:
        shown = [row for line in view.dialog for row in _dialog_rows(line, columns)]
        return shown[-lines:], None
    box, cursor = _box(view, columns, max(1, lines - 4))
    rows = [
        ScreenRow(RULE * columns, DIM),
        *box,
        ScreenRow(RULE * columns, DIM),
        ScreenRow(clip(f"  {view.footer}", columns), DIM),
    ]
    if view.hint and lines > len(rows) + 1:
        rows.insert(0, ScreenRow(clip(view.hint.rjust(columns - 2), columns), DIM))
        cursor = (cursor[0] + 1, cursor[1])
    cut = max(0, len(rows) - lines)
    return rows[cut:], (max(0, cursor[0] + 1 - cut), cursor[1])


def text_width(text: str) -> int:
    """Return the columns that a text takes."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def char_width(char: str) -> int:
    """Return the columns that a character takes: none for what combines, two for wide ones."""
    if ord(char) < _ASCII_LIMIT:
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """Return the text, cut to that many columns."""
    if text_width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += char_width(char)
        if used >= columns:
            break
        kept += char
    return f"{kept}…"


def wrap(text: str, columns: int) -> list[str]:
    """Return the text's lines, broken at blanks where they are too long, and in a word where it must be."""
    return [part for line in text.split("\n") for part in _wrap_line(line, columns)]


def _wrap_line(line: str, columns: int) -> Iterator[str]:
    if text_width(line) <= columns:
        yield line
        return
    kept, used = "", 0
    for span in _SPANS.findall(line):
        width = text_width(span)
        if used + width > columns and kept:
            yield kept.rstrip()
            kept, used = "", 0
            if span.isspace():
                continue
        while width > columns:
            head = _head(span, columns)
            yield head
            span = span[len(head) :]
            width = text_width(span)
        kept, used = kept + span, used + width
    if kept.rstrip():
        yield kept.rstrip()


def _head(text: str, columns: int) -> str:
    if text.isascii():
        return text[:columns]
    used = 0
    for index, char in enumerate(text):
        used += char_width(char)
        if used > columns:
            return text[: max(1, index)]
    return text


def _body(view: ConversationView, columns: int) -> Iterator[list[ScreenRow]]:
    """Groups of rows from the newest to the oldest, so that what has scrolled away is never wrapped."""
    if view.activity:
        yield [ScreenRow(""), ScreenRow(clip(view.activity, columns))]
    for text in reversed(view.queued):
        yield Block(text, "❯ ", DIM).rows(columns)
    for block in reversed(view.blocks):
        yield block.rows(columns)
    yield [ScreenRow(clip(line, columns), DIM if index else BOLD) for index, line in enumerate(view.header)]


def _last(groups: Iterator[list[ScreenRow]], room: int) -> list[ScreenRow]:
    rows: list[ScreenRow] = []
    for group in groups:
        rows = [*group, *rows]
        if len(rows) >= room:
            break
    return rows[-room:] if room else []


def _dialog_rows(line: str, columns: int) -> Sequence[ScreenRow]:
    if line and len(set(line)) == 1 and line[0] in "─╌":
        return [ScreenRow(line[0] * columns, DIM)]
    return [ScreenRow(part) for part in wrap(line, columns)]


def _box(view: ConversationView, columns: int, limit: int) -> tuple[list[ScreenRow], tuple[int, int]]:
    """Return the box's rows and where the cursor is in them; of a long text, those around the cursor."""
    width = max(1, columns - 2)
    start = max(0, view.cursor - _BOX_CHARS)
    before = wrap(view.box[start : view.cursor], width)
    lines = wrap(view.box[start : view.cursor + _BOX_CHARS], width)
    row = min(len(before), len(lines)) - 1
    first = max(0, row - limit + 1)
    shown = lines[first : first + limit]
    rows = [ScreenRow(("❯\u00a0" if first + index == 0 else "  ") + line) for index, line in enumerate(shown)]
    return rows, (row - first, min(columns - 1, 2 + text_width(before[-1])))
