"""A list of who waits, on a terminal: what is drawn, and what keys do to it. Pure.

Leave is given with two keys, and only for what was drawn whole and has stood there long enough to be read:
the list changes while somebody looks at it, and a key may be meant for what stood there before.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from remuda.boss.navigator import Item

from .output import RESET, cells, cut, flat, ours

KEYS = "Enter go · z later 10m · s last · d remove · j/k move · 1-9 go there · q quit"
LEAVE_KEYS = "a allow · n deny · Enter go · z later 10m · s last · d remove · q quit"
FADE = 5.0
"""Seconds that is shown what was done."""
READ = 0.7
"""Seconds that a request has to stand there before it can be answered."""
_LEAVE = {"a": "allow", "n": "deny"}
_KEYS = {
    "\r": "go", "\n": "go", "l": "go", "s": "skip", "z": "snooze", "d": "dismiss", "r": "look",
    "q": "leave", "\x1b": "leave", "\x03": "leave",
}  # fmt: skip
_MOVES = {"j": 1, "\x1b[B": 1, "\x1bOB": 1, "k": -1, "\x1b[A": -1, "\x1bOA": -1, "\x04": 10, "\x15": -10}
_FAINT, _MARKED = ours("\x1b[2m"), ours("\x1b[7m")


class Row(NamedTuple):
    """One who waits, in words."""

    item: Item
    text: str
    body: str
    request: str = ""
    """The number of what it asks leave for; the body says all of it."""
    hidden: str = ""
    """Why the body does not."""


class Picker:
    """`rows` may be replaced at any time; who is marked stays marked as long as he waits."""

    def __init__(self, rows: Sequence[Row] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = list(rows)
        self.at = 0
        self.note = ""
        self.trouble = ""
        """Why what is shown may not be so any more."""
        self._clock = clock
        self._is_whole = False
        """Whether all of the marked one's body was drawn."""
        self._drawn = ("", 0.0)
        """The request that was drawn last, and since when."""
        self._fades_at: float | None = None
        self._asked: tuple[str, str] | None = None
        """What is to be done, and to which request, if the next key says yes."""

    @property
    def marked(self) -> Item | None:
        return self.rows[self.at].item if self.rows else None

    @property
    def request(self) -> str:
        """What the marked one asks leave for."""
        return self.rows[self.at].request if self.rows else ""

    @property
    def asks(self) -> bool:
        """Whether the next key is the answer to a question that has yet to be drawn."""
        return self._asked is not None

    def replace(self, rows: Sequence[Row]) -> None:
        before = self.marked["id"] if self.marked else None
        self.rows, self.trouble = list(rows), ""
        places = [number for number, row in enumerate(rows) if row.item["id"] == before]
        self.at = places[0] if places else min(self.at, max(0, len(rows) - 1))
        if self._asked is not None and self._asked[1] != self.request:
            self.fail("this request is no longer open")

    def fail(self, why: str) -> None:
        """Nothing that was begun is done."""
        self._asked, self.note = None, why

    def say(self, what: str) -> None:
        """Show what was done, for a while or until the next key."""
        self.note, self._fades_at = what, self._clock() + FADE

    def press(self, key: str) -> str | None:
        """What is to be done: go, skip, snooze, dismiss, allow, deny, look, leave. None for nothing more."""
        asked, self._asked, self.note, self._fades_at = self._asked, None, "", None
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
        drawn, since = self._drawn
        if not self.request:
            self.note = "nothing here can be allowed or denied; press Enter to go there"
        elif drawn != self.request or self._clock() - since < READ:
            self.note = "this request is new: read it, then press the key again"
        elif what == "allow" and (why := self._unseen()):
            self.note = f"{why}; press Enter to go there"
        else:
            self._asked = (what, self.request)
            self.note = f"{what} this? y: yes, any other key: no"

    def _unseen(self) -> str:
        """Why not all of what it asks for can be seen here."""
        return self.rows[self.at].hidden or ("" if self._is_whole else "too long for this screen")

    def _move_to(self, at: int) -> None:
        self.at = max(0, min(at, len(self.rows) - 1))

    def draw(self, cols: int, rows: int) -> list[str]:
        """At most `rows` lines of at most `cols` columns: the list, what the marked one says, the keys."""
        if self._fades_at is not None and self._clock() >= self._fades_at:
            self.note, self._fades_at = "", None
        if not self.rows:
            self._drawn = ("", 0.0)
            return [cut(" no agent is waiting", cols), *[""] * (rows - 2), self._foot(cols)][-rows:]
        if self._drawn[0] != self.request:
            self._drawn = (self.request, self._clock())
        listed = max(1, min(len(self.rows), (rows - 2) // 2))
        top = max(0, min(self.at - listed // 2, len(self.rows) - listed))
        lines = [self._line(number, cols) for number in range(top, top + listed)]
        body = self._body(cols, max(0, rows - listed - 2))
        if self._asked is not None and self._asked[0] == "allow" and (why := self._unseen()):
            self.fail(why)
        blank = [""] * max(0, rows - listed - 2 - len(body))
        return [*lines, _FAINT + "─" * cols + RESET, *body, *blank, self._foot(cols)][:rows]

    def _foot(self, cols: int) -> str:
        keys = LEAVE_KEYS if self.request else KEYS
        return _FAINT + cut(flat(self.trouble or self.note or keys), cols) + RESET

    def _body(self, cols: int, rows: int) -> list[str]:
        """The end of it, where an agent's question stands; of what is asked for, which has to be read whole,
        the beginning."""
        lines = _wrapped(self.rows[self.at].body, cols)
        self._is_whole = len(lines) <= rows and all(cells(line) < cols for line in lines)
        lines = [cut(line, cols) for line in lines]
        if not self.request or len(lines) <= rows:
            return lines[-rows:] if rows else []
        return [*lines[: rows - 1], cut(f" … {len(lines) - rows + 1} more lines", cols)] if rows else []

    def _line(self, number: int, cols: int) -> str:
        text = cut(f" {number + 1:>2}  {flat(self.rows[number].text)}", cols)
        filled = text + " " * (cols - cells(text))
        return f"{_MARKED}{filled}{RESET}" if number == self.at else text


def _wrapped(text: str, cols: int) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        lines += textwrap.wrap(line, max(10, cols - 2), drop_whitespace=True) or [""]
    while lines and not lines[-1]:
        lines.pop()
    return [f" {line}" for line in lines]
