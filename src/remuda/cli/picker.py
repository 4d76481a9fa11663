"""A list of waiting agents on a terminal: what is drawn, and what keys do. Pure.

A permission is decided with two keys, and only if the request was drawn completely and long enough to be
read. The list changes while the user looks at it, so a key may be meant for what was drawn before.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from remuda.boss.navigator import Item

from .output import RESET, cells, cut, flat, ours
from .queue_keys import SeenRequest, key_actions

HELP = "j k move · a allow, n deny, then y · z later 10m · s last · d remove · Enter l 1-9 go there · q quit"
KEYS = "Enter go · z later 10m · s last · d remove · j/k move · 1-9 go there · q quit"
DECISION_KEYS = "a allow · n deny · Enter go · z later 10m · s last · d remove · q quit"
FADE = 5.0
"""Seconds for which the result of a key is shown."""
_NAMES = {"Enter": ("\r", "\n"), "ArrowDown": ("\x1b[B", "\x1bOB"), "ArrowUp": ("\x1b[A", "\x1bOA")}
_ACTIONS = key_actions(_NAMES) | dict.fromkeys(("q", "\x1b", "\x03"), "quit")
_DONE_ELSEWHERE = ("go", "skip", "snooze", "dismiss", "refresh", "quit")
_MOVES = {"\x04": 10, "\x15": -10}
_FAINT, _MARKED = ours("\x1b[2m"), ours("\x1b[7m")


class PickerRow(NamedTuple):
    """One waiting agent, as text."""

    item: Item
    text: str
    body: str
    request: str = ""
    """The id of its permission request, which the body shows completely."""
    hidden: str = ""
    """Why the body does not show it."""


class Picker:
    """`rows` may be replaced at any time. The marked agent stays marked as long as it waits."""

    def __init__(self, rows: Sequence[PickerRow] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = list(rows)
        self.at = 0
        self.note = ""
        self.trouble = ""
        """Why the list may be outdated."""
        self._clock = clock
        self._reading = SeenRequest(clock)
        self._fades_at: float | None = None
        self._asked: tuple[str, str] | None = None
        """The decision and the request id that the next key confirms."""

    @property
    def marked(self) -> Item | None:
        return self.rows[self.at].item if self.rows else None

    @property
    def request(self) -> str:
        """Return the id of the permission request of the marked agent."""
        return self.rows[self.at].request if self.rows else ""

    @property
    def asks(self) -> bool:
        """Whether the next key answers a question that is not drawn yet."""
        return self._asked is not None

    def replace(self, rows: Sequence[PickerRow]) -> None:
        before = self.marked["id"] if self.marked else None
        self.rows, self.trouble = list(rows), ""
        places = [number for number, row in enumerate(rows) if row.item["id"] == before]
        self.at = places[0] if places else min(self.at, max(0, len(rows) - 1))
        if self._asked is not None and self._asked[1] != self.request:
            self.fail("this request is no longer open")

    def fail(self, why: str) -> None:
        """Show why nothing was done, and drop a question."""
        self._asked, self.note = None, why

    def say(self, what: str) -> None:
        """Show the result of a key, for a while or until the next key."""
        self.note, self._fades_at = what, self._clock() + FADE

    def press(self, key: str) -> str | None:
        """Return the action: go, skip, snooze, dismiss, allow, deny, refresh, quit. None for no action."""
        asked, self._asked, self.note, self._fades_at = self._asked, None, "", None
        if asked is not None:
            return asked[0] if key == "y" else None
        if key.isdecimal() and 0 < int(key) <= len(self.rows):
            self.at = int(key) - 1
            return "go"
        match _ACTIONS.get(key):
            case "allow" | "deny" as what:
                self._consider(what)
            case "help":
                self.note = HELP
            case "edit" | "reply":
                self.note = "you cannot type here; press Enter to go there, or use 'remuda dash'"
            case "down" | "up" as where:
                self._move_to(self.at + (1 if where == "down" else -1))
            case action if action in _DONE_ELSEWHERE:
                return action
        if key in ("g", "G"):
            self._move_to(0 if key == "g" else len(self.rows))
        elif key in _MOVES:
            self._move_to(self.at + _MOVES[key])
        return None

    def _consider(self, what: str) -> None:
        if not self.request:
            self.note = "nothing here can be allowed or denied; press Enter to go there"
        elif why := self._reading.why_not(self.request):
            self.note = why
        elif what == "allow" and (why := self._unseen()):
            self.note = f"{why}; press Enter to go there"
        else:
            self._asked = (what, self.request)
            self.note = f"{what} this? y: yes, any other key: no"

    def _unseen(self) -> str:
        """Return why the request cannot be seen completely; empty if it can."""
        return self.rows[self.at].hidden or ("" if self._reading.is_complete else "too long for this screen")

    def _move_to(self, at: int) -> None:
        self.at = max(0, min(at, len(self.rows) - 1))

    def draw(self, cols: int, rows: int) -> list[str]:
        """Return at most `rows` lines of `cols` columns: the list, the body of the marked agent, the keys."""
        if self._fades_at is not None and self._clock() >= self._fades_at:
            self.note, self._fades_at = "", None
        if not self.rows:
            self._reading.drawn("", is_complete=False)
            return [cut(" no agent is waiting", cols), *[""] * (rows - 2), self._foot(cols)][-rows:]
        listed = max(1, min(len(self.rows), (rows - 2) // 2))
        top = max(0, min(self.at - listed // 2, len(self.rows) - listed))
        lines = [self._line(number, cols) for number in range(top, top + listed)]
        body = self._body(cols, max(0, rows - listed - 2))
        if self._asked is not None and self._asked[0] == "allow" and (why := self._unseen()):
            self.fail(why)
        blank = [""] * max(0, rows - listed - 2 - len(body))
        return [*lines, _FAINT + "─" * cols + RESET, *body, *blank, self._foot(cols)][:rows]

    def _foot(self, cols: int) -> str:
        keys = DECISION_KEYS if self.request else KEYS
        return _FAINT + cut(flat(self.trouble or self.note or keys), cols) + RESET

    def _body(self, cols: int, rows: int) -> list[str]:
        """Return the end of the body, which has the agent's question; of a permission request, which must be
        read completely, the beginning."""
        lines = _wrapped(self.rows[self.at].body, cols)
        fits = len(lines) <= rows and all(cells(line) < cols for line in lines)
        self._reading.drawn(self.request, is_complete=fits)
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
