"""A session's last output on disk: written by its keeper, readable by anyone, also when the keeper is dead.

Two files take turns. The keeper appends to `<name>.history`. When that has half of the allowed bytes, it
becomes `<name>.history.1` and a new one begins. At the next pause the new one gets a picture of the screen,
so that it can be read alone. A reader that is too slow learns from its position how much is gone. A keeper
that is killed loses the output of its last tenth of a second. A full disk costs history, never the session:
the keeper counts what it could not write, and the history contains a gap record.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from remuda.durable import open_new
from remuda.paths import SessionPaths
from remuda.terminal.history_format import (
    MAGIC,
    HistoryParser,
    begun_record,
    gap_record,
    output_header,
    painted_record,
    position_after,
    position_record,
    resized_record,
)
from remuda.terminal.pty import DRAIN_BYTES, READ_BYTES

log = logging.getLogger("remuda.keeper.history")

_FLUSH_INTERVAL = 0.1
_CHUNK_BYTES = 1 << 18
_INLINE_BYTES = 1 << 14
"""Up to this many bytes are written at once. More is written in a thread: a busy disk can delay a write."""
_BEHIND_BYTES = 1 << 23
_SETTLE_LIMIT = 2.0
_READ_BYTES = 1 << 16
_PIECES_AT_ONCE = 512
"""The system takes 1024."""


class _Append(NamedTuple):
    """Records to append, in pieces, and how the next file begins if this one is full."""

    pieces: list[bytes]
    size_bytes: int
    output_bytes: int
    """How much output that is, or says to be missing."""
    head: bytes


class _Files:
    """The two files, for one thread at a time. Nothing here raises: losses are counted."""

    def __init__(self, paths: SessionPaths, head: bytes) -> None:
        self._current, self._older = paths.history, paths.older_history
        self._fd = -1
        self._size = 0
        self._head = head
        """How the next file begins; empty to continue the present one."""
        self._position = 0
        """Bytes of output in all files so far, with those of gaps."""
        self.lost_bytes = 0
        self.failure: str | None = None
        self.had_gap = False
        """Whether a gap was written since the last query."""

    def resume(self) -> int:
        """Continue after the last complete record, if the file exists. Returns its length."""
        try:
            fd = os.open(self._current, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return 0
        parser, size, position = HistoryParser(), 0, 0
        while data := os.read(fd, _READ_BYTES):
            size += len(data)
            for event in parser.feed(data):
                position = position_after(event, position) or 0
        if parser.damaged or size < len(MAGIC):
            os.close(fd)
            return 0
        self._fd, self._size, self._position = fd, size - parser.pending_bytes, position
        os.ftruncate(fd, self._size)
        os.lseek(fd, self._size, os.SEEK_SET)
        self._head = b""
        return self._size

    def perform(self, job: _Append) -> None:
        try:
            if self._head:
                self._begin(self._head)
                self._head = b""
            gap = gap_record(self.lost_bytes) if self.lost_bytes else b""
            self._append([gap, *job.pieces], len(gap) + job.size_bytes)
            self._position += self.lost_bytes + job.output_bytes
        except OSError as error:
            if self.failure is None:
                log.warning("history has a gap: %s", error.strerror)
            self.lost_bytes += job.output_bytes
            self.failure = f"history has a gap: {error.strerror}"
        else:
            self.had_gap |= bool(gap)
            self.lost_bytes, self.failure = 0, None
        self._head = job.head or self._head

    def _begin(self, head: bytes) -> None:
        head += position_record(self._position)
        temporary = self._current.with_name(f".{self._current.name}.tmp")
        fd = open_new(temporary)
        try:
            _write(fd, [head])
            if self._current.exists():
                os.rename(self._current, self._older)
            os.rename(temporary, self._current)
        except OSError:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        self.close()
        self._fd, self._size = fd, len(head)

    def _append(self, pieces: list[bytes], size_bytes: int) -> None:
        try:
            _write(self._fd, pieces)
        except OSError:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            raise
        self._size += size_bytes

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write(fd: int, pieces: list[bytes]) -> None:
    for start in range(0, len(pieces), _PIECES_AT_ONCE):
        left: deque[bytes | memoryview] = deque(pieces[start : start + _PIECES_AT_ONCE])
        while left:
            done = os.writev(fd, left)
            while left and done >= len(left[0]):
                done -= len(left.popleft())
            if left:
                left[0] = memoryview(left[0])[done:]


class History:
    """Takes a session's output in the keeper's loop and writes it to the disk, in order.

    `paint` returns the screen once it has seen all output taken so far.
    """

    def __init__(
        self,
        paths: SessionPaths,
        max_bytes: int,
        size: tuple[int, int],
        paint: Callable[[], bytes],
        *,
        resume: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        segment_bytes = max_bytes // 2
        self._chunk_bytes = min(_CHUNK_BYTES, segment_bytes // 8)
        # What comes next still fits: the queue, one more read, and a picture of the screen.
        self._full_bytes = segment_bytes - 2 * self._chunk_bytes - DRAIN_BYTES - READ_BYTES
        self._cols_rows = size
        self._paint = paint
        self._records: list[bytes] = []
        self._output: list[bytes] = []
        self._output_bytes = self._fresh_bytes = self._record_bytes = self._segment = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wants_picture = self._closed = False
        """Output at the start of a file, or after a gap, can be understood only with the screen that it began
        on.
        """
        self._queue: SimpleQueue[_Append | None] = SimpleQueue()
        self._written = threading.Condition()
        self._behind_bytes = 0
        self._thread: threading.Thread | None = None
        begun = begun_record(time.time(), *size)
        self._files = _Files(paths, MAGIC + begun)
        try:
            if resume:
                self._segment = self._files.resume()
            else:
                remove_history(paths)
        except OSError as error:
            log.warning("earlier history cannot be read: %s", error)
        self._add(begun if self._segment else b"")
        self._hand_over()

    @property
    def failure(self) -> str | None:
        """Return why output is missing from the disk now; None if it is complete."""
        return self._files.failure

    def output(self, data: bytes) -> None:
        if self._closed:
            return
        self._output.append(data)
        self._fresh_bytes += len(data)
        if self._fresh_bytes >= self._chunk_bytes:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(_FLUSH_INTERVAL, self._pause)

    def resized(self, cols: int, rows: int) -> None:
        self._seal()
        self._cols_rows = cols, rows
        self._add(resized_record(cols, rows))

    def _add(self, record: bytes) -> None:
        self._records.append(record)
        self._record_bytes += len(record)

    def _seal(self) -> None:
        if self._output:
            self._add(output_header(self._fresh_bytes))
            self._records += self._output
            self._record_bytes += self._fresh_bytes
            self._output_bytes += self._fresh_bytes
            self._output, self._fresh_bytes = [], 0

    def _pause(self) -> None:
        """Take a picture, if one is wanted, while the program prints little or nothing.

        It takes 1 to 3 ms.
        """
        self._seal()
        if self._wants_picture or self._files.had_gap:
            self._wants_picture = self._files.had_gap = False
            picture = painted_record(self._paint())
            self._add(resized_record(*self._cols_rows))
            self._add(picture if len(picture) <= self._chunk_bytes else b"")
        self._hand_over()

    def _hand_over(self) -> None:
        """Start to write what was taken."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seal()
        job = _Append(
            self._records, self._record_bytes, self._output_bytes, self._next_head(self._record_bytes)
        )
        self._records, self._record_bytes, self._output_bytes = [], 0, 0
        if job.pieces:
            self._put(job)

    def _next_head(self, size: int) -> bytes:
        self._segment += size
        if self._segment < self._full_bytes:
            return b""
        head = MAGIC + resized_record(*self._cols_rows)
        self._segment = len(head)
        self._wants_picture = True
        return head

    def _put(self, job: _Append) -> None:
        if self._behind_bytes == 0 and job.size_bytes <= _INLINE_BYTES:
            self._files.perform(job)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="history", daemon=True)
            self._thread.start()
        with self._written:
            if self._behind_bytes > _BEHIND_BYTES:
                # The disk is slower than the program, which does not wait for it.
                gap = gap_record(job.output_bytes)
                job = _Append([gap], len(gap), job.output_bytes, job.head)
                self._files.had_gap = True
            self._behind_bytes += job.size_bytes
        self._queue.put(job)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            self._files.perform(job)
            with self._written:
                self._behind_bytes -= job.size_bytes
                self._written.notify_all()

    def flush(self) -> None:
        """Return when all output is on the disk, or that takes too long."""
        if not self._closed:
            self._pause()
        with self._written:
            self._written.wait_for(lambda: self._behind_bytes == 0, _SETTLE_LIMIT)

    def close(self) -> None:
        if self._closed:
            return
        self.flush()
        self._closed = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_SETTLE_LIMIT)
            if self._thread.is_alive():
                return  # a disk that hangs
        if self._files.lost_bytes:  # reports the loss at the end, if there is room now
            self._files.perform(_Append([], 0, 0, b""))
        self._files.close()


def remove_history(paths: SessionPaths) -> None:
    for path in (paths.history, paths.older_history):
        path.unlink(missing_ok=True)
