"""A picture that fills the terminal and is drawn anew."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self

from .output import can_move, echo, flat, ours


class WholeScreen:
    """On the terminal's second screen; where there is no terminal, one below the other. Ctrl-C ends it."""

    def __enter__(self) -> Self:
        if can_move(sys.stdout):
            echo(ours("\x1b[?1049h\x1b[?25l\x1b[?7l"), nl=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if can_move(sys.stdout):
            echo(ours("\x1b[?7h\x1b[?25h\x1b[?1049l"), nl=False)
        return kind is KeyboardInterrupt

    def draw(self, lines: list[str]) -> None:
        if not can_move(sys.stdout):
            echo("\n".join(lines))
            return
        rows = os.get_terminal_size(sys.stdout.fileno()).lines  # not what a variable said when we began
        if len(lines) > rows:
            lines = [*lines[: rows - 1], f"and {len(lines) - rows + 1} more lines"]
        drawn = ours("\x1b[K\n").join(map(flat, lines))
        echo(ours("\x1b[H") + drawn + ours("\x1b[K\x1b[J"), nl=False)
