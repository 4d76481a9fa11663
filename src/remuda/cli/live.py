"""A list of the boss's that stays on the screen, and follows what happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Self

from remuda.boss.client import BossClient
from remuda.errors import BossDown

from .output import can_move, echo, json_line
from .whole_screen import WholeScreen

_SECOND = 1.0
"""The times that a picture shows grow, also while nothing happens. And so often a boss is looked for."""
_SHORTEST = 0.1
"""A picture stays for so long, whatever comes."""


Document = dict[str, Any]


def follow(
    ask: Callable[[BossClient], Document], lines: Callable[[Document], list[str]], *, as_json: bool
) -> None:
    """Show what is asked for, again with every change, until the user leaves. A boss that ends may come back.

    Raises `BossDown` if there is none at the beginning.
    """
    boss = BossClient()
    ask(boss)
    with _Told(lines, as_json=as_json) if as_json or not can_move(sys.stdout) else _Drawn(lines) as shown:
        while True:
            try:
                with boss.changes() as news:
                    while True:
                        shown.show(ask(boss))
                        time.sleep(_SHORTEST)
                        news.wait(shown.lasts)
            except BossDown as error:
                shown.show_down(error)
                time.sleep(_SECOND)


class _Drawn:
    """One picture on a terminal."""

    lasts: float | None = _SECOND

    def __init__(self, lines: Callable[[Document], list[str]]) -> None:
        self._lines = lines
        self._screen = WholeScreen()

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool:
        return self._screen.__exit__(*error)

    def show(self, document: Document) -> None:
        self._screen.draw(self._lines(document))

    def show_down(self, error: BossDown) -> None:
        self._screen.draw([str(error), "waiting until the boss is back; Ctrl-C stops"])


class _Told:
    """What differs from the last, one behind the other: for a pipe, and as JSON."""

    lasts: float | None = None

    def __init__(self, lines: Callable[[Document], list[str]], *, as_json: bool) -> None:
        self._lines = lines
        self._as_json = as_json
        self._last: Document | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is KeyboardInterrupt

    def show(self, document: Document) -> None:
        told = {name: value for name, value in document.items() if name != "last_event_id"}
        if told != self._last:
            self._last = told
            as_text = json_line(document) if self._as_json else None
            echo(as_text or "\n".join([*self._lines(document), ""]))

    def show_down(self, error: BossDown) -> None:
        pass
