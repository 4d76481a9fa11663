"""Send one stream of output to any number of watchers, and let none of them slow it down.

Each read of the terminal becomes one frame; all watchers get the same bytes. What a watcher's socket does not
take at once waits in its own queue. When that queue exceeds its limit, the watcher has lagged: the queue is
dropped, and once its socket is empty again, the watcher gets the current screen. So it misses history, never
the present, and it is notified.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.errors import InvalidOptions
from remuda.wire.connection import KeeperConnection
from remuda.wire.frames import MAX_PAYLOAD_BYTES, frame, header, split
from remuda.wire.messages import Type

QUEUE_BYTES = 4 << 20
# Answers that a client requested and does not read. Above this, we stop reading its requests.
ANSWER_BYTES = 64 << 10
# Answers and events that a client does not read at all. Above this, it is disconnected.
UNREAD_BYTES = 1 << 20
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
    """One read of the terminal on its way to all watchers. Head and data are sent without a copy."""

    __slots__ = ("_whole", "data", "head")

    def __init__(self, data: bytes) -> None:
        self.head = header(Type.OUTPUT, len(data))
        self.data = data
        self._whole: bytes | None = None

    @property
    def whole(self) -> bytes:
        """Return head and data in one piece, for sockets that did not take it at once; made once for all
        watchers.
        """
        if self._whole is None:
            self._whole = self.head + self.data
        return self._whole


@dataclass(slots=True)
class _Item:
    """Complete frames that wait for the socket, less what was sent of them."""

    left: memoryview
    output_bytes: int
    """How much output they carry; 0 for an answer or an event, which is never dropped."""
    begun: bool = False


class Outlet:
    """The output to one client: a socket, its queue, and how it catches up after a lag.

    Output waits in two places: in the queue for the socket, and before that, while the client's window is
    closed, among the held. Answers and events overtake held output.
    """

    def __init__(
        self, sock: socket.socket, connection: KeeperConnection, on_broken: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._connection = connection
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Item] = deque()
        self._held: deque[OutputFrame] = deque()
        self._output_bytes = 0  # waiting in either place
        self._answer_bytes = 0
        self._window = _Window()
        self._paint: Paint | None = None
        self._lost: int | None = None  # output that was dropped; None while it keeps up
        self._writing = False
        self._broken = False
        self.sent_bytes = 0
        self.drained = asyncio.Event()
        """Set while nothing waits for the socket."""
        self.drained.set()

    # ── being a subscriber ──

    @property
    def subscribed(self) -> bool:
        return self._paint is not None

    def subscribe(self, first: bytes, paint: Paint, window_bytes: int = 0) -> None:
        """Begin with `first` (a replay), go on with live output; `paint` returns the screen after a lag."""
        self._paint = paint
        self._window = _Window(window_bytes)
        self.send(first)

    def offer(self, output: OutputFrame) -> None:
        """Send live output, the same object for every watcher."""
        if self._paint is None or self._broken:
            return
        size = len(output.data)
        if self._lost is not None or self._output_bytes + size > QUEUE_BYTES:
            self._lag(size)
        elif self._held or not self._window.open:
            self._held.append(output)
            self._output_bytes += size
        else:
            self._release(output)

    def echo(self, frame: bytes, data: bytes) -> None:
        """Do as `offer`, for short output that someone waits for."""
        if self._queue or self._lost is not None or self._window.limit_bytes or self._broken:
            self.offer(OutputFrame(data))
            return
        try:
            sent = os.write(self._fd, frame)
        except OSError:
            sent = 0  # an error comes again with the next write
        self.sent_bytes += sent
        if sent < len(frame):
            self._output_bytes += len(data)
            self._enqueue(_Item(memoryview(frame)[sent:], len(data), sent > 0))

    def _release(self, output: OutputFrame) -> None:
        size = len(output.data)
        self._window.unacked_bytes += size
        sent = 0 if self._queue else self._write((output.head, output.data))
        if sent < len(output.head) + size and not self._broken:
            self._output_bytes += size
            self._enqueue(_Item(memoryview(output.whole)[sent:], size, sent > 0))

    def acked(self, byte_count: int) -> None:
        self._window.unacked_bytes = max(0, self._window.unacked_bytes - byte_count)
        self._release_held()
        self._watch_writable()

    def _release_held(self) -> None:
        while self._held and self._window.open:
            output = self._held.popleft()
            self._output_bytes -= len(output.data)
            self._release(output)

    def repaint(self) -> None:
        """Send the complete screen again; to a client that does not read, once it reads again."""
        if self._paint is None or self._lost is not None:
            return
        if self._queue:
            self._lag(0)
        else:
            self.send(repaint_frame(self._paint()))

    def _lag(self, size_bytes: int) -> None:
        if self._lost is None:
            # A frame that has begun must be finished, or the stream is lost; other output is stale.
            stays = [item for item in self._queue if item.begun or not item.output_bytes]
            kept_bytes = sum(item.output_bytes for item in stays)
            size_bytes += self._output_bytes - kept_bytes
            # What was let through its window is no longer waited for, whether it was sent or not.
            released = sum(item.output_bytes for item in self._queue) - kept_bytes
            self._window.unacked_bytes = max(0, self._window.unacked_bytes - released)
            self._queue, self._output_bytes = deque(stays), kept_bytes
            self._held.clear()
        self._lost = (self._lost or 0) + size_bytes
        # Not painted here: the screen has not seen this output yet. The socket reports when it is empty.
        self._watch_writable()

    def _catch_up(self) -> None:
        lost, self._lost = self._lost, None
        assert self._paint is not None
        painted = self._paint()
        if self._connection.hello is None:
            self.send(b"".join(split(Type.OUTPUT, painted)))
        else:
            self.send(self._connection.event({"event": "lagged", "bytes": lost}) + repaint_frame(painted))

    # ── sending ──

    @property
    def backlogged(self) -> bool:
        """Return whether the limit of waiting answers is reached, so that no more requests should be read."""
        return self._answer_bytes > ANSWER_BYTES

    def send(self, data: bytes) -> None:
        """Send answers, events or pictures: one or more complete frames."""
        if not data or self._broken:
            return
        sent = 0
        if not self._queue:
            sent = self._write((data,))
        elif self._answer_bytes > UNREAD_BYTES:  # events come unrequested, and the client does not read them
            self._break()
        if sent < len(data) and not self._broken:
            self._answer_bytes += len(data) - sent
            self._enqueue(_Item(memoryview(data)[sent:], 0, sent > 0))

    def _enqueue(self, item: _Item) -> None:
        self._queue.append(item)
        self.drained.clear()
        self._watch_writable()

    def _write(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            sent = self._sock.sendmsg(pieces)
            self.sent_bytes += sent
            return sent
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._break()
            return 0

    def _flush(self) -> None:
        while self._queue and not self._broken:
            item = self._queue[0]
            sent = self._write((item.left,))
            if not item.output_bytes:
                self._answer_bytes -= sent
            if sent < len(item.left):
                item.left, item.begun = item.left[sent:], item.begun or sent > 0
                break
            self._output_bytes -= item.output_bytes
            self._queue.popleft()
        if self._can_catch_up:
            self._catch_up()
        if not self._queue:
            self.drained.set()
        self._watch_writable()

    @property
    def _can_catch_up(self) -> bool:
        return self._lost is not None and not self._queue and self._window.open and not self._broken

    def _watch_writable(self) -> None:
        want = (bool(self._queue) or self._can_catch_up) and not self._broken
        if want and not self._writing:
            self._loop.add_writer(self._sock, self._flush)
        elif not want and self._writing:
            self._loop.remove_writer(self._sock)
        self._writing = want

    def _break(self) -> None:
        if not self._broken:
            self._broken = True
            self._forget()
            self._loop.call_soon(self._on_broken)

    def _forget(self) -> None:
        self._queue.clear()
        self._held.clear()
        self.drained.set()

    # ── the end ──

    def finish(self, last: bytes) -> None:
        """Send `last` after everything else, whatever the window says: nothing follows it."""
        self._window = _Window()
        self._release_held()
        if self._lost is not None and not self._broken:
            self._catch_up()
        self._paint = None
        self.send(last)

    def close(self) -> None:
        self._broken = True
        self._forget()
        if self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False


def repaint_frame(painted: bytes) -> bytes:
    """Return a screen as REPAINT; what exceeds a frame follows as OUTPUT, which continues it."""
    head, rest = painted[:_REPAINT_CHUNK], painted[_REPAINT_CHUNK:]
    return frame(Type.REPAINT, head) + b"".join(split(Type.OUTPUT, rest, _REPAINT_CHUNK))


# ── events that are too large for one frame ──

# An event that is not read soon counts against its reader (see `fanout`), and a tool's output can have
# megabytes. So only short events are sent complete.

MAX_EVENT_BYTES = 16 << 10
"""Larger events are sent only on request."""
_PIECE_BYTES = 256 << 10
_KEPT_BYTES = 64 << 20
_SHORT_BYTES = 256


class LargeEvents:
    """Keeps the newest, some megabytes of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._numbers = itertools.count(1)

    def shorten(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the event to send: complete, or its short fields and the `parcel` with all fields."""
        data = json.dumps(document, separators=(",", ":")).encode()
        if len(data) <= MAX_EVENT_BYTES:
            return document
        name = f"p{next(self._numbers)}"
        self._keep(name, data)
        short = {key: value for key, value in document.items() if len(json.dumps(value)) <= _SHORT_BYTES}
        return {**short, "parcel": {"id": name, "bytes": len(data)}}

    def _keep(self, name: str, data: bytes) -> None:
        self._kept[name] = data
        self._bytes += len(data)
        while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])

    def piece(self, name: object, offset: object) -> dict[str, Any]:
        """Return a piece.

        The data is JSON in ASCII, so it may be cut anywhere. `next` is None after the last piece.
        """
        data = self._kept.get(str(name))
        if data is None:
            raise InvalidOptions(f"no parcel {name!r}", hint="it has expired")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise InvalidOptions(f"offset must be an integer, not {offset!r}")
        end = offset + _PIECE_BYTES
        return {"data": data[offset:end].decode(), "next": end if end < len(data) else None}
