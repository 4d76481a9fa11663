"""A list of who waits, on a terminal: what is drawn, and what keys do to it. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from remuda.boss.guide import Item

from .common import cells, cut

KEYS = "Enter go · s skip · z snooze 10m · d dismiss · j/k move · 1-9 go there · q leave"
LEAVE_KEYS = "a allow · n deny · Enter go · s skip · z snooze 10m · d dismiss · q leave"
_LEAVE = {"a": "allow", "n": "deny"}
_KEYS = {
    "\r": "go", "\n": "go", "l": "go", "s": "skip", "z": "snooze", "d": "dismiss", "r": "look",
    "q": "leave", "\x1b": "leave", "\x03": "leave",
}  # fmt: skip
_MOVES = {"j": 1, "\x1b[B": 1, "\x1bOB": 1, "k": -1, "\x1b[A": -1, "\x1bOA": -1, "\x04": 10, "\x15": -10}
_BOLD, _FAINT, _MARKED, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[7m", "\x1b[m"


class Row(NamedTuple):
    """One who waits, in words."""

    item: Item
    text: str
    body: str
    request: str = ""
    """The number of what it asks leave for; the body says all of it."""


class Picker:
    """`rows` may be replaced at any time; who is marked stays marked as long as he waits."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self.at = 0
        self.note = ""
        self._is_whole = False
        """Whether all of the marked one's body was drawn."""
        self._asked: tuple[str, str] | None = None
        """What is to be done, and to which request, if the next key says yes."""

    @property
    def request(self) -> str:
        """What the marked one asks leave for."""
        return self.rows[self.at].request if self.rows else ""

    @property
    def marked(self) -> Item | None:
        return self.rows[self.at].item if self.rows else None

    def replace(self, rows: Sequence[Row]) -> None:
        before = self.marked["id"] if self.marked else None
        self.rows = list(rows)
        places = [number for number, row in enumerate(rows) if row.item["id"] == before]
        self.at = places[0] if places else min(self.at, max(0, len(rows) - 1))
        if self._asked is not None and self._asked[1] != self.request:  # it is over
            self._asked, self.note = None, ""

    def press(self, key: str) -> str | None:
        """What is to be done: go, skip, snooze, dismiss, allow, deny, look, leave. None for nothing more."""
        asked, self._asked, self.note = self._asked, None, ""
        if asked is not None:
            return asked[0] if key == "y" else None
        if key in _LEAVE:
            self._consider(_LEAVE[key])
            return None
        if key.isdecimal() and 0 < int(key) <= len(self.rows):
            self.at = int(key) - 1
            return "go"
        if key in ("g", "G"):
            self._move_to(0 if key == "g" else len(self.rows))
        elif key in _MOVES:
            self._move_to(self.at + _MOVES[key])
        return _KEYS.get(key)

    def _consider(self, what: str) -> None:
        """Leave is given with two keys, for what can be seen."""
        if not self.request:
            self.note = "it asks for no leave that can be given here; Enter goes there"
        elif what == "allow" and not self._is_whole:
            self.note = "not all of what it asks for fits in here; Enter goes there"
        else:
            self._asked = (what, self.request)
            self.note = f"{what} it? y: yes, any other key: no"

    def _move_to(self, at: int) -> None:
        self.at = max(0, min(at, len(self.rows) - 1))

    def draw(self, cols: int, rows: int) -> list[str]:
        """At most `rows` lines of at most `cols` columns: the list, what the marked one says, the keys."""
        foot = [_FAINT + cut(self.note or (LEAVE_KEYS if self.request else KEYS), cols) + _PLAIN]
        if not self.rows:
            return [cut(" nobody waits", cols), *[""] * (rows - 2), *foot][-rows:]
        listed = max(1, min(len(self.rows), (rows - 2) // 2))
        top = max(0, min(self.at - listed // 2, len(self.rows) - listed))
        lines = [self._line(number, cols) for number in range(top, top + listed)]
        body = self._body(cols, max(0, rows - listed - 2))
        blank = [""] * max(0, rows - listed - 2 - len(body))
        return [*lines, _FAINT + "─" * cols + _PLAIN, *body, *blank, *foot][:rows]

    def _body(self, cols: int, rows: int) -> list[str]:
        """The end of it, where an agent's question stands; of what is asked for, which has to be read whole,
        the beginning."""
        lines = _wrapped(self.rows[self.at].body, cols)
        self._is_whole = len(lines) <= rows and all(cells(line) <= cols for line in lines)
        lines = [cut(line, cols) for line in lines]
        if not self.request or self._is_whole:
            return lines[-rows:] if rows else []
        return [*lines[: rows - 1], cut(f" … {len(lines) - rows + 1} more lines", cols)] if rows else []

    def _line(self, number: int, cols: int) -> str:
        text = cut(f" {number + 1:>2}  {self.rows[number].text}", cols)
        filled = text + " " * (cols - cells(text))
        return f"{_MARKED}{filled}{_PLAIN}" if number == self.at else text


def _wrapped(text: str, cols: int) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        lines += textwrap.wrap(line, max(10, cols - 2), drop_whitespace=True) or [""]
    while lines and not lines[-1]:
        lines.pop()
    return [f" {line}" for line in lines]
