"""Waking whoever started a session for one message and waits for its end: a line when something has changed.

It goes over the pipe on which the start was reported; its end tells that the keeper is gone. Most lines are
empty. One may have the answer, before it is written down anywhere: when the agent has stopped, nothing can
send it on, and what it showed last is what it says that it said.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable, Mapping
from typing import Any

# What a pipe takes whole or not at all. A longer answer is written down and read like any other.
_LINE_BYTES = min(4096, select.PIPE_BUF)


class News:
    """Call it when there is something to see, as often as you like, with what is told to those who watch.

    `last_shown` is what the agent showed last, exactly, once it has shown all of it.
    """

    def __init__(self, fd: int, last_shown: Callable[[], str | None]) -> None:
        self._fd = fd
        self._last_shown = last_shown
        self._stopped: Mapping[str, Any] | None = None
        self._due = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)

    def __call__(self, told: Mapping[str, Any] | None = None) -> None:
        if told is not None and told.get("event") == "stopped":
            self._stopped = told
        if not self._due:
            self._due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        if self._fd < 0:
            return
        try:
            os.write(self._fd, self._answer() + b"\n")
        except BlockingIOError:  # there is enough to wake it
            pass
        except OSError:  # nobody listens any more
            os.close(self._fd)
            self._fd = -1

    def _answer(self) -> bytes:
        """Once, when it is known and proven: a hook tells it without the blanks around it."""
        stopped, shown = self._stopped, self._last_shown()
        if stopped is None or not stopped.get("final") or stopped.get("background"):
            return b""
        text = str(stopped.get("text") or "").strip()
        if stopped.get("end") != "answered" or not text or shown is None or shown.strip() != text:
            return b""
        self._stopped = None
        line = json.dumps({"answer": shown}).encode()
        return line if len(line) < _LINE_BYTES else b""
