"""The socket on disk where a pool is served, the lock on it, and one connection to it.

Next to `pool.sock` is `pool.sock.pid`. The server holds a lock on it for as long as it lives, as a keeper
does: the lock shows who serves, and a socket without one is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.duration import show_duration
from remuda.errors import FolderUnusable, InvalidOptions, PoolNotServed, SessionExists
from remuda.keeper.claim import Claim, read_holder
from remuda.paths import SessionPaths

from .codec import event_message, read_decision
from .pool_connection import connect
from .protocol import Message, PoolProtocol, encode
from .request_builder import whole_options
from .types import Decision, Deny, Done, Failed, PermissionRequest, Raw, StreamEvent

_PROBE_TIMEOUT = 5.0


class PoolPaths(SessionPaths):
    """`name` is the file name of the socket."""

    @property
    def socket(self) -> Path:
        return self.folder / self.name

    @property
    def pid(self) -> Path:
        return self.folder / f"{self.name}.pid"


class PoolSocket:
    """Use from `open` to `close`, in one thread."""

    def __init__(self, path: str) -> None:
        absolute = Path(path).expanduser().absolute()
        self.path = str(absolute)
        self._paths = PoolPaths(absolute.parent, absolute.name)
        self._claim: Claim | None = None
        self._file_id: tuple[int, int] | None = None

    def open(self) -> socket.socket:
        """Return a listening socket that only this user can reach.

        Raises `SessionExists` if a pool is served there, `FolderUnusable` if other users could replace it.
        """
        try:
            self._claim = Claim.take(self._paths)
        except SessionExists:
            raise self._taken() from None
        try:
            self._check_unserved()
            self._claim.write_pids(os.getpid(), os.getpid())
            listener = self._claim.listen()
        except BaseException:
            self.close()
            raise
        self._file_id = self._current_file()
        return listener

    def _check_unserved(self) -> None:
        """Raise if a server answers that does not hold the lock: it is not ours to replace."""
        try:
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise FolderUnusable(f"{self.path} is not a socket", hint="choose another path with --socket")
        except FileNotFoundError:
            return
        try:
            connect(self.path, _PROBE_TIMEOUT).close()
        except PoolNotServed:
            return
        raise self._taken()

    def _taken(self) -> SessionExists:
        holder = read_holder(self._paths)
        who = f" (pid {holder.keeper_pid}, up {show_duration(holder.uptime)})" if holder else ""
        return SessionExists(
            f"a pool is already served at {self.path}{who}",
            hint="stop it with 'remuda pool stop', or choose another path with --socket",
        )

    def _current_file(self) -> tuple[int, int] | None:
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def hide(self) -> None:
        """Remove the socket file, if it is still ours. Existing connections stay."""
        if self._file_id is not None and self._current_file() == self._file_id:
            os.unlink(self.path)
        self._file_id = None

    def close(self) -> None:
        """Remove the socket file and release the lock. May be called repeatedly."""
        self.hide()
        if self._claim is not None:
            self._claim.release()
            self._claim = None


# ── one connection: its messages, and the one request that it carries ──

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
