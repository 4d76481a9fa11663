"""A list of who waits, on a terminal: what is drawn, and what keys do to it. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from remuda.boss.guide import Item

from .common import cells, cut

KEYS = "Enter go · s skip · z snooze 10m · d dismiss · j/k move · 1-9 go at once · q leave"
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


class Picker:
    """`rows` may be replaced at any time; who is marked stays marked as long as he waits."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self.at = 0
        self.note = ""

    @property
    def marked(self) -> Item | None:
        return self.rows[self.at].item if self.rows else None

    def replace(self, rows: Sequence[Row]) -> None:
        before = self.marked["id"] if self.marked else None
        self.rows = list(rows)
        places = [number for number, row in enumerate(rows) if row.item["id"] == before]
        self.at = places[0] if places else min(self.at, max(0, len(rows) - 1))

    def press(self, key: str) -> str | None:
        """What is to be done: go, skip, snooze, dismiss, look, leave. None for what means nothing more."""
        self.note = ""
        if key.isdecimal() and 0 < int(key) <= len(self.rows):
            self.at = int(key) - 1
            return "go"
        if key in ("g", "G"):
            self._move_to(0 if key == "g" else len(self.rows))
        elif key in _MOVES:
            self._move_to(self.at + _MOVES[key])
        return _KEYS.get(key)

    def _move_to(self, at: int) -> None:
        self.at = max(0, min(at, len(self.rows) - 1))

    def draw(self, cols: int, rows: int) -> list[str]:
        """At most `rows` lines of at most `cols` columns: the list, what the marked one says, the keys."""
        foot = [_FAINT + cut(self.note or KEYS, cols) + _PLAIN]
        if not self.rows:
            return [cut(" nobody waits", cols), *[""] * (rows - 2), *foot][-rows:]
        listed = max(1, min(len(self.rows), (rows - 2) // 2))
        top = max(0, min(self.at - listed // 2, len(self.rows) - listed))
        lines = [self._line(number, cols) for number in range(top, top + listed)]
        body = _wrapped(self.rows[self.at].body, cols, max(0, rows - listed - 2))
        blank = [""] * max(0, rows - listed - 2 - len(body))
        return [*lines, _FAINT + "─" * cols + _PLAIN, *body, *blank, *foot][:rows]

    def _line(self, number: int, cols: int) -> str:
        text = cut(f" {number + 1:>2}  {self.rows[number].text}", cols)
        filled = text + " " * (cols - cells(text))
        return f"{_MARKED}{filled}{_PLAIN}" if number == self.at else text


def _wrapped(text: str, cols: int, rows: int) -> list[str]:
    """The last lines of it: an agent's question stands at the end of what it says."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += textwrap.wrap(line, max(10, cols - 2), drop_whitespace=True) or [""]
    while lines and not lines[-1]:
        lines.pop()
    return [cut(f" {line}", cols) for line in lines[-rows:]] if rows else []
