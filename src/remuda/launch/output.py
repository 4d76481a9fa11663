"""Pass on what the program prints, at the pace of its reader.

The descriptor stays blocking: it is shared with the shell that started us and with its other programs. So it
is written to only when it can take something, and in pieces that cannot block us.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import stat
from collections.abc import Callable

HIGH_BYTES = 256 * 1024
_LOW_BYTES = 64 * 1024
# A pipe that can be written to takes a page. A terminal that can may take less than that.
_PIPE_PIECE, _TERMINAL_PIECE = select.PIPE_BUF, 256


class Output:
    """Calls `full` when too much waits, `room` when it no longer does.

    Calls `lost` once if nothing can be written at all; from then on output is dropped.
    """

    def __init__(
        self, fd: int, full: Callable[[], None], room: Callable[[], None], lost: Callable[[OSError], None]
    ) -> None:
        self._fd = fd
        self._full, self._room, self._lost = full, room, lost
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._is_lost = False
        self.is_full = False
        self.flushed = asyncio.Event()
        self.flushed.set()
        self._piece = _TERMINAL_PIECE if os.isatty(fd) else _PIPE_PIECE
        self._waits = self._can_be_waited_for()

    def _can_be_waited_for(self) -> bool:
        """Return False for a file: it takes everything at once, and the kernel's event queue refuses it."""
        mode = os.fstat(self._fd).st_mode
        if stat.S_ISREG(mode):
            return False
        try:
            self._loop.add_writer(self._fd, self._writable)
        except PermissionError:  # /dev/null
            return False
        self._loop.remove_writer(self._fd)
        return True

    def write(self, data: bytes) -> None:
        if self._is_lost:
            return
        if not self._waits:
            self._attempt(data, len(data))
            return
        self._waiting += data
        if self.flushed.is_set():
            self.flushed.clear()
            self._loop.add_writer(self._fd, self._writable)
        if len(self._waiting) > HIGH_BYTES and not self.is_full:
            self.is_full = True
            self._full()

    def _writable(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        sent = 0
        with memoryview(self._waiting) as view:
            # For each event at most as much as one read brings, so that timers and signals get their turn.
            while sent < min(len(view), HIGH_BYTES) and poll.poll(0):
                took = self._attempt(view[sent:], self._piece)
                if not took:
                    break
                sent += took
        del self._waiting[: len(self._waiting) if self._is_lost else sent]
        self._report_room()

    def _attempt(self, data: bytes | memoryview, piece: int) -> int:
        """Write at least the first `piece`, if possible. Returns how many bytes that was."""
        sent = 0
        try:
            while sent < min(piece, len(data)):
                sent += os.write(self._fd, data[sent : sent + piece])
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                self._is_lost = True
                self._lost(error)
        return sent

    def _report_room(self) -> None:
        if not self._waiting:
            self._loop.remove_writer(self._fd)
            self.flushed.set()
        if self.is_full and len(self._waiting) <= _LOW_BYTES:
            self.is_full = False
            self._room()

    def close(self) -> None:
        if self._waits:
            self._loop.remove_writer(self._fd)
