"""One line about a long wait: on a terminal, rewritten every second; in a pipe, nothing."""

from __future__ import annotations

import shutil
import sys
import threading
import time

import click

from remuda.duration import show_duration

from .common import complain, cut


class Progress:
    """`say` what is being waited for; the line is gone when the context ends."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._began = time.monotonic()
        self._text = ""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._shown:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def say(self, text: str) -> None:
        self._text = text
        self._draw()

    def tell(self, message: str) -> None:
        """A line that stays."""
        if self._shown and self._text:
            click.echo("\r\x1b[K", nl=False, err=True)
        complain(message)
        self._draw()

    def _run(self) -> None:
        while not self._done.wait(1.0):
            self._draw()

    def _draw(self) -> None:
        if self._shown and self._text:
            width = shutil.get_terminal_size().columns
            line = f"{self._text} · {show_duration(time.monotonic() - self._began)}"
            click.echo(f"\r\x1b[K{cut(line, width - 1)}", nl=False, err=True)

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._shown and self._text:
            click.echo("\r\x1b[K", nl=False, err=True)
