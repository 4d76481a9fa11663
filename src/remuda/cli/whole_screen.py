"""A picture that fills the terminal and is drawn anew."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self

import click


class WholeScreen:
    """On the terminal's second screen; where there is no terminal, one below the other. Ctrl-C ends it."""

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            click.echo("\x1b[?1049h\x1b[?25l\x1b[?7l", nl=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if sys.stdout.isatty():
            click.echo("\x1b[?7h\x1b[?25h\x1b[?1049l", nl=False)
        return kind is KeyboardInterrupt

    def draw(self, lines: list[str]) -> None:
        if not sys.stdout.isatty():
            click.echo("\n".join(lines))
            return
        rows = os.get_terminal_size(sys.stdout.fileno()).lines  # not what a variable said when we began
        if len(lines) > rows:
            lines = [*lines[: rows - 1], f"and {len(lines) - rows + 1} more lines"]
        click.echo("\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[K\x1b[J", nl=False)
