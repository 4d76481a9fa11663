"""Waking whoever started a session for one message and waits for its end: a byte when something has changed.

It goes over the pipe on which the start was reported; its end tells that the keeper is gone.
"""

from __future__ import annotations

import asyncio
import os


class News:
    """Call it when there is something to see, as often as you like."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._due = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)

    def __call__(self, _what: object = None) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        if self._fd < 0:
            return
        try:
            os.write(self._fd, b"\n")
        except BlockingIOError:  # there is enough to wake it
            pass
        except OSError:  # nobody listens any more
            os.close(self._fd)
            self._fd = -1
