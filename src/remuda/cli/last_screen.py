"""The last screen of a session that has ended, from its history."""

from __future__ import annotations

from typing import Any

from remuda.keeper.history_reader import last_screen
from remuda.paths import SessionPaths
from remuda.terminal.screen import Screen

from .output import print_screen


def show_last_screen(paths: SessionPaths, *, err: bool = False) -> None:
    """Print it, if there is one."""
    screen = last_screen(paths)
    if screen is not None:
        print_screen(screen_lines(screen, styled=True), coloured=None, err=err)
        screen.close()


def screen_lines(screen: Screen, *, styled: bool) -> list[str]:
    if not styled:
        return screen.lines()
    return [screen.styled_row(y, screen.cols).decode("utf-8", "replace") for y in range(screen.rows)]


def screen_document(screen: Screen, *, styled: bool) -> dict[str, Any]:
    """As a keeper describes the screen of a session that runs."""
    cursor = screen.cursor
    return {
        "lines": screen_lines(screen, styled=styled),
        "cols": screen.cols,
        "rows": screen.rows,
        "cursor": {"x": cursor.x, "y": cursor.y, "visible": cursor.visible},
        "alternate": screen.alternate,
        "title": screen.title,
    }
