"""The cheapest client of a keeper that still knows what it got: for measuring the keeper, not the client."""

from __future__ import annotations

import select
import socket
import time

from benchmarks.scene import Kept
from benchmarks.stream import END

from remuda.wire.connection import ClientConnection
from remuda.wire.messages import Type

_READ_BYTES = 1 << 18
_HEADER = 5


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return sock


class Watcher:
    """One subscriber that said HELLO, so that a lag shows as a REPAINT and not as output."""

    def __init__(self, kept: Kept) -> None:
        self.sock = connect(kept.socket)
        self.sock.sendall(ClientConnection.hello("bench") + ClientConnection.subscribe())
        self.output_bytes = 0
        self.repaints = 0
        self.ended_at = 0.0
        self._head = bytearray()
        self._kind = 0
        self._left = 1  # the mode byte
        self._tail = b""

    def subscribed(self, buffer: memoryview) -> None:
        """Returns when the first picture is complete, and counts from there."""
        while not self.repaints or self.inside_frame:
            self.take(buffer, self.sock.recv_into(buffer))
        self.output_bytes = self.repaints = 0
        self._tail = b""

    @property
    def inside_frame(self) -> bool:
        return self._left > 0

    def take(self, buffer: memoryview, size: int) -> None:
        """What one `recv_into` brought."""
        if size == 0:
            raise EOFError("the keeper closed the connection")
        at = 0
        while at < size:
            if self._left:
                part = min(self._left, size - at)
                self._left -= part
                if self._kind == Type.OUTPUT:
                    self.output_bytes += part
                    if self.repaints:
                        self._look(buffer[at : at + part])
                elif self._kind == Type.REPAINT:
                    self._look(buffer[at : at + part])
                at += part
            else:
                at = self._open_frame(buffer, at, size)

    def _open_frame(self, buffer: memoryview, at: int, size: int) -> int:
        until = min(size, at + _HEADER - len(self._head))
        self._head += buffer[at:until]
        if len(self._head) == _HEADER:
            self._kind, self._left = self._head[0], int.from_bytes(self._head[1:], "big")
            self._head.clear()
            self.repaints += self._kind == Type.REPAINT
        return until

    def _look(self, data: memoryview) -> None:
        """Bytes are counted; only who has lagged must look for the end in what it is shown."""
        text = self._tail + bytes(data)
        self._tail = text[-len(END) :]
        if END in text:
            self.ended_at = self.ended_at or time.monotonic()

    def done(self, size_bytes: int) -> bool:
        if not self.ended_at and self.output_bytes >= size_bytes:
            self.ended_at = time.monotonic()
        return self.ended_at > 0


def watch_stream(watchers: list[Watcher], size_bytes: int) -> float:
    """Reads until everyone has seen the end; gives the time of the last one's."""
    buffer = memoryview(bytearray(_READ_BYTES))
    if len(watchers) == 1:
        (one,) = watchers
        receive, take = one.sock.recv_into, one.take
        while not one.done(size_bytes):
            take(buffer, receive(buffer))
        return one.ended_at
    poll = select.epoll()
    by_fd = {one.sock.fileno(): one for one in watchers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    waiting = len(by_fd)
    while waiting:
        for fd, _ in poll.poll():
            one = by_fd[fd]
            one.take(buffer, one.sock.recv_into(buffer))
            if one.done(size_bytes):
                poll.unregister(fd)
                waiting -= 1
    poll.close()
    return max(one.ended_at for one in watchers)
