"""Output that is drawn again in place: one line about a long wait, or a picture that fills the terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self

from remuda.duration import show_duration

from .output import can_move, complain, cut, echo, flat, ours


class ProgressLine:
    """One line about a long wait; it disappears when the context ends.

    `after`: a shorter wait shows nothing.
    """

    def __init__(self, *, after: float = 0.0) -> None:
        self._shown = can_move(sys.stderr)
        self._began = time.monotonic()
        self._after = after
        self._is_drawn = False
        self._text = ""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressLine:
        if self._shown:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def say(self, text: str) -> None:
        self._text = text
        self._draw()

    def tell(self, message: str) -> None:
        """Print a line that stays."""
        self._clear()
        complain(message)
        self._draw()

    def _run(self) -> None:
        while not self._done.wait(1.0):
            self._draw()

    def _draw(self) -> None:
        if self._shown and self._text and time.monotonic() - self._began >= self._after:
            self._is_drawn = True
            import shutil  # slow to load

            width = shutil.get_terminal_size().columns
            line = f"{self._text} · {show_duration(time.monotonic() - self._began)}"
            echo(ours("\r\x1b[K") + cut(flat(line), width - 1), nl=False, err=True)

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._clear()

    def _clear(self) -> None:
        if self._is_drawn:
            echo(ours("\r\x1b[K"), nl=False, err=True)


class LiveScreen:
    """A picture on the terminal's alternate screen; without a terminal, appended. Ctrl-C ends it."""

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
        rows = os.get_terminal_size(sys.stdout.fileno()).lines  # a variable may have an earlier size
        if len(lines) > rows:
            lines = [*lines[: rows - 1], f"and {len(lines) - rows + 1} more lines"]
        drawn = ours("\x1b[K\n").join(map(flat, lines))
        echo(ours("\x1b[H") + drawn + ours("\x1b[K\x1b[J"), nl=False)
