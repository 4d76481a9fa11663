"""One stream of output to any number of watchers, none of whom can slow it.

Each read of the terminal becomes one frame; all watchers are handed the same bytes. What a watcher's
socket does not take at once waits in its own queue. When that queue outgrows its bound the watcher has
lagged: what waits is dropped, and once its socket is empty again it is painted the screen as it is then.
So it misses history, never the present, and it is told.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remuda.wire.connection import KeeperConnection
from remuda.wire.frames import MAX_PAYLOAD_BYTES, frame, header, split
from remuda.wire.messages import Type

QUEUE_BYTES = 4 << 20
# A repaint is sent in pieces, so that one large screen never exceeds a frame.
_REPAINT_CHUNK = MAX_PAYLOAD_BYTES

Paint = Callable[[], bytes]


@dataclass(slots=True)
class _Window:
    """Flow control by the client's own acknowledgements; a limit of 0 means none."""

    limit_bytes: int = 0
    unacked_bytes: int = 0

    @property
    def open(self) -> bool:
        return self.limit_bytes == 0 or self.unacked_bytes < self.limit_bytes


class OutputFrame:
    """One read of the terminal on its way to all watchers. Head and data are sent from where they lie."""

    __slots__ = ("_whole", "data", "head")

    def __init__(self, data: bytes) -> None:
        self.head = header(Type.OUTPUT, len(data))
        self.data = data
        self._whole: bytes | None = None

    @property
    def whole(self) -> bytes:
        """In one piece, for those whose socket did not take it at once; made once for all of them."""
        if self._whole is None:
            self._whole = self.head + self.data
        return self._whole


class Outlet:
    """The way out to one client: a socket, what waits for it, and how it catches up after a lag."""

    def __init__(
        self, sock: socket.socket, connection: KeeperConnection, on_broken: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._connection = connection
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._begun = False  # is the head of the queue partly sent?
        self._writing = False
        self._window = _Window()
        self._paint: Paint | None = None
        self._lagged_bytes = 0
        self._broken = False
        self.drained = asyncio.Event()
        """Set while nothing waits to be sent."""
        self.drained.set()

    # ── being a subscriber ──

    @property
    def subscribed(self) -> bool:
        return self._paint is not None

    @property
    def lagging(self) -> bool:
        return self._lagged_bytes > 0

    def subscribe(self, first: bytes, paint: Paint, window_bytes: int = 0) -> None:
        """Begin with `first` (a replay), go on with live output; `paint` gives the screen after a lag."""
        self._paint = paint
        self._window = _Window(window_bytes)
        self.send(first)

    def offer(self, output: OutputFrame) -> None:
        """Live output, the same object for every watcher."""
        if self._paint is None or self._broken:
            return
        if self._lagged_bytes or self._queued_bytes + len(output.data) > QUEUE_BYTES:
            self._lag(len(output.data))
            return
        self._window.unacked_bytes += len(output.data)
        if self._queue or not self._window.open:
            self._enqueue(output.whole, 0)
            return
        sent = self._write((output.head, output.data))
        if sent < len(output.head) + len(output.data) and not self._broken:
            self._enqueue(output.whole, sent)

    def repaint(self) -> None:
        """The whole screen again, unless a lag will bring it anyway."""
        if self._paint is not None and not self._lagged_bytes:
            self.send(repaint_frame(self._paint()))

    def acked(self, byte_count: int) -> None:
        self._window.unacked_bytes = max(0, self._window.unacked_bytes - byte_count)
        self._flush()

    def _lag(self, size_bytes: int) -> None:
        if not self._lagged_bytes:
            # A frame that has begun must be finished, or the stream is lost; the others are stale.
            begun = self._queue[0] if self._queue and self._begun else None
            self._queue.clear()
            self._queued_bytes = 0
            if begun is not None:
                self._queue.append(begun)
                self._queued_bytes = len(begun)
        self._lagged_bytes += size_bytes
        # Not painted here: the screen has not seen this output yet. The socket says when it is empty.
        self._watch_writable()

    def _catch_up(self) -> None:
        lost, self._lagged_bytes = self._lagged_bytes, 0
        self._window.unacked_bytes = 0
        assert self._paint is not None
        painted = self._paint()
        if self._connection.hello is None:
            for piece in split(Type.OUTPUT, painted, _REPAINT_CHUNK):
                self._put(piece)
            return
        self._put(self._connection.event({"event": "lagged", "bytes": lost}))
        self._put(repaint_frame(painted))

    # ── sending ──

    def send(self, data: bytes) -> None:
        """Queue `data`, one or more whole frames. A peer that asks and never reads is let go."""
        if self._queued_bytes > 2 * QUEUE_BYTES:
            self._break()
        if data and not self._broken:
            self._put(data)

    def _put(self, data: bytes) -> None:
        sent = self._write((data,)) if not self._queue and self._window.open else 0
        if sent < len(data) and not self._broken:
            self._enqueue(data, sent)

    def _enqueue(self, data: bytes, sent: int) -> None:
        """Whole frames, of which the first so many bytes are gone already."""
        self._begun = self._begun or sent > 0
        self._queue.append(memoryview(data)[sent:])
        self._queued_bytes += len(data) - sent
        self.drained.clear()
        self._watch_writable()

    def _write(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            return self._sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._break()
            return 0

    def _flush(self) -> None:
        while self._queue and not self._broken and (self._window.open or self._begun):
            head = self._queue[0]
            sent = self._write((head,))
            self._queued_bytes -= sent
            if sent < len(head):
                self._queue[0] = head[sent:]
                self._begun = self._begun or sent > 0
                break
            self._queue.popleft()
            self._begun = False
        if not self._queue and self._lagged_bytes and self._window.open and not self._broken:
            self._catch_up()
        if not self._queue:
            self.drained.set()
        self._watch_writable()

    def _watch_writable(self) -> None:
        waits = bool(self._queue) or self._lagged_bytes > 0
        want = waits and not self._broken and (self._window.open or self._begun)
        if want and not self._writing:
            self._loop.add_writer(self._sock, self._flush)
        elif not want and self._writing:
            self._loop.remove_writer(self._sock)
        self._writing = want

    def _break(self) -> None:
        if not self._broken:
            self._broken = True
            self._queue.clear()
            self.drained.set()
            self._loop.call_soon(self._on_broken)

    # ── the end ──

    def finish(self, last: bytes) -> None:
        """Send `last` behind everything else, whatever the window says: there is no more to come."""
        self._window = _Window()
        if self._lagged_bytes and not self._broken:
            self._catch_up()
        self.send(last)

    def close(self) -> None:
        self._broken = True
        self._queue.clear()
        self.drained.set()
        if self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False


def repaint_frame(painted: bytes) -> bytes:
    """A screen as REPAINT; what exceeds a frame follows as OUTPUT, which continues it."""
    head, rest = painted[:_REPAINT_CHUNK], painted[_REPAINT_CHUNK:]
    return frame(Type.REPAINT, head) + b"".join(split(Type.OUTPUT, rest, _REPAINT_CHUNK))
