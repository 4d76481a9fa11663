"""One connection to a served pool: its messages, and the one request that it carries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import deque
from collections.abc import Mapping
from typing import Any

from remuda.errors import InvalidOptions

from .codec import event_message, read_decision
from .protocol import Message, PoolProtocol, encode
from .request_builder import whole_options
from .types import Decision, Deny, Done, Failed, PermissionRequest, Raw, StreamEvent

MAX_UNREAD_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_PERMISSIONS = ("deny", "allow", "ask")


class PeerGone(ConnectionError):
    """The peer closed the connection, ended its sending, or reads too slowly."""


class PoolPeer:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        max_bytes: int,
        slow_timeout: float,
        alive_interval: float,
    ) -> None:
        self.has_request = False
        """Whether its request has arrived."""
        self.begun = False
        """Whether the request has been started."""
        self.refused = False
        """Whether it is one too many: it only gets an error."""
        self.has_error = False
        """Whether it got an error, after which nothing follows."""
        self._reader, self._writer = reader, writer
        self._slow_timeout, self._alive_interval = slow_timeout, alive_interval
        self._protocol = PoolProtocol(server=True, max_bytes=max_bytes)
        self._received: deque[Message] = deque()
        self._loop = asyncio.get_running_loop()
        self._alive_timer: asyncio.TimerHandle | None = None
        writer.transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)

    async def receive(self) -> Message:
        """Return the next message. Raises `PeerGone` or `RemoteProtocolError`."""
        while not self._received:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise PeerGone("closed the connection")
            self._received.extend(self._protocol.receive(data))
        return self._received.popleft()

    async def ignore(self, timeout: float) -> None:
        """Read and drop what it sends, until it closes: a peer that cannot finish sending may never read."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(timeout):
                while await self._reader.read(_READ_BYTES):
                    pass

    async def send(self, message: Message) -> None:
        """Return when most of it is read. Raises `PeerGone` if the peer is gone or reads too slowly."""
        if self._writer.is_closing():
            raise PeerGone("disconnected")
        self.has_error = message["type"] == "error"
        self._writer.write(encode(message))
        if self._writer.transport.get_write_buffer_size() > 0:
            await self._drain()
        if self._alive_timer is not None:
            self.keep_alive()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._slow_timeout):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise PeerGone("does not read its answer") from None

    def keep_alive(self) -> None:
        """Send `alive` from now on whenever nothing else was sent for a while."""
        if self._alive_timer is not None:
            self._alive_timer.cancel()
        self._alive_timer = self._loop.call_later(self._alive_interval, self._send_alive)

    def _send_alive(self) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() == 0:
            self._writer.write(encode({"type": "alive"}))
        self.keep_alive()

    async def close(self) -> None:
        """Send what is left, within the time limit, and close."""
        if self._alive_timer is not None:
            self._alive_timer.cancel()
            self._alive_timer = None
        self._writer.close()
        try:
            async with asyncio.timeout(self._slow_timeout):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()


class RequestHandler:
    """A request that takes time (`run`, `prewarm`), and the messages that arrive while it runs.

    `facts` is what the server says of itself.
    """

    def __init__(self, peer: PoolPeer, request: Message, facts: Mapping[str, Any]) -> None:
        self.peer, self.request, self._facts = peer, request, facts
        self.cancelled = asyncio.Event()
        self._undecided: dict[str, asyncio.Future[Decision]] = {}

    def options(self) -> dict[str, Any]:
        """Return the options for the client, which checks them. Folder and environment must be the peer's."""
        options = dict(self.request.get("options") or {})
        if self.request.get("inherit_env") and isinstance(options.get("cwd"), str):
            # From another machine: its variables are added to those of this server.
            options = whole_options(options, cwd=options["cwd"], environ=os.environ)
        if not isinstance(options.get("cwd"), str) or not os.path.isabs(options["cwd"]):
            raise InvalidOptions("a request needs an absolute path in options.cwd")
        if not isinstance(options.get("env"), Mapping):
            raise InvalidOptions("a request needs the environment of its caller in options.env")
        for name in ("signal", "permissions"):
            if name in options:
                raise InvalidOptions(f"{name} cannot be sent to a pool server")
        self._check_requirements(options["env"])
        permissions = self.request.get("permissions")
        if permissions is not None and permissions not in _PERMISSIONS:
            raise InvalidOptions(
                f"permissions must be one of {', '.join(_PERMISSIONS)}, not {permissions[:40]!r}"
            )
        if permissions is not None:
            options["permissions"] = self._ask if permissions == "ask" else permissions
        return {**options, "signal": self.cancelled}

    def _check_requirements(self, env: Mapping[str, str]) -> None:
        for name, required in (self.request.get("requires") or {}).items():
            actual = self._facts.get(name)
            if name == "claude_binary" and isinstance(actual, str) and os.sep not in actual:
                actual = shutil.which(actual, path=env.get("PATH", os.defpath))
            if actual != required:
                raise InvalidOptions(f"the pool's {name} is {actual or 'not set'}, not {required}")

    async def receive_decisions(self) -> None:
        """Take decisions until the peer cancels or disconnects. Raises `RemoteProtocolError`."""
        while True:
            try:
                message = await self.peer.receive()
            except ConnectionError:
                return
            if message["type"] == "cancel":
                return
            decision = read_decision(message)
            waiting = self._undecided.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(decision)

    async def _ask(self, request: PermissionRequest) -> Decision:
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._undecided[request.id] = decided
        try:
            await self.peer.send({**event_message(request), "decide": True})
            return await decided
        except ConnectionError:
            return Deny("Permission was not granted: no one is available to decide.")
        finally:
            self._undecided.pop(request.id, None)

    def event_message(self, event: StreamEvent | Raw) -> Message | None:
        """Return the message for an event; None if the peer learns of it in another way, or does not ask."""
        if isinstance(event, Raw):
            return {"type": "raw", "message": dict(event.message)}
        if isinstance(event, Done | Failed) or not self.request.get("stream"):
            return None
        if isinstance(event, PermissionRequest) and self.request.get("permissions") == "ask":
            return None
        return event_message(event)
