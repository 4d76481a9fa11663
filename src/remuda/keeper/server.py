"""The keeper's socket: accepts peers of this user, reads their requests, and carries them out."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from remuda.errors import (
    InvalidOptions,
    LocalProtocolError,
    PermissionRefused,
    RemoteProtocolError,
    RemudaError,
)
from remuda.paths import peer_uid
from remuda.terminal.reports import CURSOR_QUERY, ReplyFilter
from remuda.wire import connection as wire
from remuda.wire.connection import KeeperConnection
from remuda.wire.frames import split
from remuda.wire.messages import ONE_KEY, Type

from .fanout import Outlet, repaint_frame
from .session import HookSubscription, Session

log = logging.getLogger("remuda.keeper.server")

_READ_BYTES = 8192
# Reads up to this size use pymalloc's small objects, whose memory is cache-warm when a key comes. A client
# that sends more gets larger reads.
_SHORT_READ_BYTES = 448
# After the end: how long a slow client may pause in its reading, and how long everything may take.
_LINGER = 5.0
_LINGER_LIMIT = 60.0

# How a client calls itself that does not know the state `asleep`.
_BEFORE_SLEEP = ("remuda 0.1.", "remuda 0.2.")

Operation = Callable[["Peer", dict[str, Any]], dict[str, Any]]


class SessionServer:
    """All connections of one session."""

    def __init__(self, session: Session, listener: socket.socket, operations: dict[str, Operation]) -> None:
        self.session = session
        self.operations = operations
        self.peers: set[Peer] = set()
        self._listener = listener
        self._numbers = itertools.count(1)
        self._reported_count = 0
        self.subscribed_once = asyncio.Event()
        self.exit_code: int | None = None
        """Set once the end is being reported."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of descriptors: the peer waits in the backlog; a closed connection lets us try again.
            log.error("cannot accept: %s", error)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(1.0, self._accept_again)
            return
        if peer_uid(sock) != os.getuid():
            log.warning("refused a connection from uid %d", peer_uid(sock))
            sock.close()
            return
        sock.setblocking(False)
        self.peers.add(Peer(self, sock, next(self._numbers)))

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def listen_on(self, listener: socket.socket) -> None:
        """Listen on a new socket, after the file of the one before was removed. Connections stay."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._listener = listener
        self._accept_again()

    @property
    def watcher_count(self) -> int:
        return sum(peer.outlet.subscribed for peer in self.peers)

    def peers_changed(self) -> None:
        """Report a changed count. No other: at each event `ls --watch` connects and asks for the status."""
        count = self.watcher_count
        if self.exit_code is None and count != self._reported_count:
            self._reported_count = count
            self.session.tell({"event": "clients", "count": count})

    async def finish(self, code: int) -> None:
        """Report the end to all after all output, wait a limited time for slow readers, and close."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self.exit_code = code
        for peer in list(self.peers):
            if peer.outlet.subscribed:
                peer.outlet.finish(peer.connection.exit(code))
        await self._drained()
        for peer in list(self.peers):
            peer.close()

    async def _drained(self) -> None:
        """Wait until all have read everything, or the rest have stopped reading, or it takes too long."""
        late = {self._loop.create_task(peer.outlet.drained.wait()) for peer in self.peers}
        deadline, sent = self._loop.time() + _LINGER_LIMIT, -1
        while late and self._loop.time() < deadline:
            before, sent = sent, sum(peer.outlet.sent_bytes for peer in self.peers)
            if sent == before:
                break
            _, late = await asyncio.wait(late, timeout=_LINGER)
        for task in late:
            task.cancel()


class Peer:
    """One connection."""

    def __init__(self, server: SessionServer, sock: socket.socket, client_id: int) -> None:
        self.server = server
        self.session = server.session
        self.client_id = client_id
        self.connection = KeeperConnection()
        self.outlet = Outlet(sock, self.connection, self.close)
        self._replies = ReplyFilter()
        self._types_plainly = False  # neither within a frame nor within an answer of its terminal
        self._sock = sock
        self._fd = sock.fileno()
        self._read_bytes = _SHORT_READ_BYTES
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._loop.add_reader(sock, self._readable)
        self.outlet.send(self.connection.greeting())

    @property
    def read_only(self) -> bool:
        return self.connection.hello is not None and self.connection.hello.read_only

    # ── hearing ──

    def _readable(self) -> bool:
        """Read requests. Returns whether someone waits for what comes next (see `loop`)."""
        try:
            # Not `recv`: `os.read` is used again on the way of a key, and so is cache-warm then.
            data = os.read(self._fd, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        # A key, whose echo someone waits for, goes the short way: one more function call would cost 4 us.
        if (
            len(data) == 6
            and data[:5] == ONE_KEY
            and data[5] != 0x1B
            and self._types_plainly
            and self.session.last_typist == self.client_id
        ):
            if not self.session.keyboard.type(data[5:]):
                self._wait_for_program()
            return True
        self.session.settle()
        try:
            for event in self.connection.receive(data):
                self._hear(event)
        except RemudaError as error:
            log.warning("dropped client %d: %s", self.client_id, error)
            self.close()
        if self.outlet.backlogged and not self._closed:
            self._pause()
            self._loop.create_task(self._resume_when_read())
        self._types_plainly = self.connection.between_frames and not self._replies.begun
        self._read_bytes = _READ_BYTES if len(data) >= _SHORT_READ_BYTES else _SHORT_READ_BYTES
        return False

    def _pause(self) -> None:
        self._loop.remove_reader(self._sock)

    async def _resume_when_read(self) -> None:
        await self.outlet.drained.wait()
        self._resume_reading()

    def _hear(self, event: wire.KeeperEvent) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None and not self._closed:
            handler(self, event)

    def on_input(self, event: wire.InputReceived) -> None:
        self._typed(event.data)

    def _typed(self, data: bytes) -> None:
        hello = self.connection.hello
        if hello is not None and hello.read_only:
            self.note({"event": "refused", "what": "input", "why": "this client is read-only"})
            return
        if b"\x1b" in data or self._replies.begun:
            data = self._without_replies(data)
            if not data:  # sent by its terminal, not by its user
                return
        session = self.session
        if session.last_typist != self.client_id:
            session.client_typed(self.client_id)
        if not session.keyboard.type(data):
            self._wait_for_program()

    def _wait_for_program(self) -> None:
        """The program does not read, so what is typed has to wait."""
        if self.session.child.input_full:
            self._pause()
            self.session.child.when_input_drains(self._resume_reading)

    def _without_replies(self, data: bytes) -> bytes:
        """Remove what the client's terminal answered to queries that the keeper has answered."""
        if not self._sees_raw_output or not self.session.has_screen:
            return data
        return self._replies.strip(data, self.session.cursor_queries)

    def _resume_reading(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._readable)

    @property
    def _sees_raw_output(self) -> bool:
        return self.outlet.subscribed and (self.connection.hello is None or self.connection.hello.raw)

    def on_subscribe(self, event: wire.SubscribeAsked) -> None:
        if self.outlet.subscribed:
            return
        hello = self.connection.hello
        if hello is None:
            history = self.session.history()
            # Old queries are shown again with the history, and its terminal will answer those as well.
            self._replies.answered = self.session.cursor_queries - history.count(CURSOR_QUERY)
            self.outlet.subscribe(b"".join(split(Type.OUTPUT, history)), self.session.paint)
        else:
            self._replies.answered = self.session.cursor_queries
            self.note(self.session.size_document())
            self.note({"event": "state", **self.session.state_document()})
            self.outlet.subscribe(repaint_frame(self.session.paint()), self.session.paint, hello.window_bytes)
            self.session.add_listener(self.note)
        self.session.add_outlet(self.outlet)
        self.server.subscribed_once.set()
        self.server.peers_changed()
        if self.server.exit_code is not None:  # it came while the end was being reported to others
            self.outlet.finish(self.connection.exit(self.server.exit_code))

    def on_status(self, event: wire.StatusAsked) -> None:
        self.outlet.send(self.connection.status(self.session.status()))

    def on_resize(self, event: wire.ResizeAsked) -> None:
        if self.read_only or not (event.cols and event.rows):
            return
        try:
            self.session.client_size(self.client_id, event.cols, event.rows)
        except InvalidOptions as error:
            log.warning("client %d: %s", self.client_id, error)

    def on_kill(self, event: wire.KillAsked) -> None:
        if not self.read_only:
            self.session.kill()

    def on_hello(self, event: wire.HelloReceived) -> None:
        if event.read_only:
            self.session.client_gone(self.client_id)  # one that only watches has no say in the size
        self.session.last_typist = 0  # it may have lost the right to type
        self.outlet.send(self.connection.welcome(self.server.operations["status"](self, {})))

    def on_request(self, event: wire.RequestReceived) -> None:
        if self.connection.hello is None:
            raise RemoteProtocolError("a REQUEST came before a HELLO")
        answer = self._carry_out(event)
        try:
            self.outlet.send(self.connection.response(event.id, answer))
        except LocalProtocolError as error:  # longer than a frame can be
            self.outlet.send(self.connection.response(event.id, _refusal(error)))

    def _carry_out(self, event: wire.RequestReceived) -> dict[str, Any]:
        operation = self.server.operations.get(event.op)
        try:
            if operation is None:
                raise InvalidOptions(
                    f"this keeper does not support the request {event.op!r}",
                    hint="it may be an older version",
                )
            return {"ok": True, "result": operation(self, event.args)}
        except RemudaError as error:
            return _refusal(error)

    def on_ack(self, event: wire.OutputAcked) -> None:
        self.outlet.acked(event.byte_count)

    def on_unknown(self, event: wire.UnknownFrame) -> None:
        log.warning("client %d sent an unknown frame type 0x%02x", self.client_id, event.type)

    # ── events ──

    def note(self, document: dict[str, Any]) -> None:
        """Pass an event on, to a peer that knows events."""
        if self.connection.hello is None or self.server.exit_code is not None:
            return
        self.outlet.send(self.connection.event(self.in_known_words(document)))
        if document["event"] == "resized" and self.outlet.subscribed:
            # Reflow depends on history, which a painted copy does not have: it is painted again.
            self.outlet.repaint()

    def in_known_words(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with a state that the peer knows. Before 0.3, `wait` only ends at `idle`."""
        hello = self.connection.hello
        if document.get("state") != "asleep" or hello is None or not hello.client.startswith(_BEFORE_SLEEP):
            return document
        return {**document, "state": "idle"}

    def watch(
        self, *, tools: bool = False, agent_events: bool = False, hooks: HookSubscription | None = None
    ) -> None:
        """Send events without output."""
        self.session.add_listener(self.note, tools=tools, agent_events=agent_events, hooks=hooks)

    def require_typist(self) -> None:
        if self.read_only:
            raise PermissionRefused("this client is read-only")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        self.outlet.close()
        self._sock.close()
        self.server.peers.discard(self)
        self.session.discard_outlet(self.outlet)
        self.session.discard_listener(self.note)
        self.session.client_gone(self.client_id)
        self.server.peers_changed()


def _refusal(error: RemudaError) -> dict[str, Any]:
    return {"ok": False, "error": {"code": error.code, "message": error.message, "hint": error.hint}}


_HANDLERS: dict[type, Callable[[Peer, Any], None]] = {
    wire.InputReceived: Peer.on_input,
    wire.SubscribeAsked: Peer.on_subscribe,
    wire.StatusAsked: Peer.on_status,
    wire.ResizeAsked: Peer.on_resize,
    wire.KillAsked: Peer.on_kill,
    wire.HelloReceived: Peer.on_hello,
    wire.RequestReceived: Peer.on_request,
    wire.OutputAcked: Peer.on_ack,
    wire.UnknownFrame: Peer.on_unknown,
}
