"""The one way to reach a session from outside its keeper. Blocking, with a bound on every wait.

A supervisor that speaks only Heimdall's protocol is served as well, for as much as it knows: it ignores
our HELLO and answers the STATUS that follows it, which is how the two are told apart.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remuda._version import __version__
from remuda.errors import (
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    WaitTimeout,
    from_code,
)
from remuda.paths import SessionPaths, SocketAddress
from remuda.readable import is_readable
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection, ClientEvent
from remuda.wire.messages import PROTOCOL_VERSION, StateByte, Status

from .claim import read_holder
from .record import SessionRecord

ANSWER_TIMEOUT = 5.0
_READ_BYTES = 1 << 16


class KeeperClient:
    """One connection to one session. Use as a context manager, or `close` it."""

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        *,
        read_only: bool = False,
        window_bytes: int = 0,
        raw: bool = False,
    ) -> None:
        self.name = name
        self._sock = sock
        self._connection = ClientConnection()
        self._numbers = itertools.count(1)
        self._waiting: deque[ClientEvent] = deque()
        self.welcome: dict[str, Any] | None = None
        """What the keeper said of itself; None for a supervisor that knows only Heimdall's part."""
        self._greet(read_only, window_bytes, raw)

    @classmethod
    def connect(
        cls,
        name: str,
        folder: Path | None = None,
        *,
        read_only: bool = False,
        window_bytes: int = 0,
        raw: bool = False,
    ) -> KeeperClient:
        """Raises `SessionNotFound`, `SessionDead` or `SessionUnreachable`."""
        paths = SessionPaths.of(name, folder)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(ANSWER_TIMEOUT)
            with SocketAddress(paths.socket) as address:
                _connect(sock, address)
            return cls(sock, name, read_only=read_only, window_bytes=window_bytes, raw=raw)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            raise absent(paths) from None
        except EOFError:
            sock.close()
            raise SessionUnreachable(f"the keeper of '{name}' hung up") from None
        except OSError as error:
            sock.close()
            raise SessionUnreachable(f"cannot reach session '{name}': {error.strerror or error}") from error
        except BaseException:
            sock.close()
            raise

    def _greet(self, read_only: bool, window_bytes: int, raw: bool) -> None:
        hello = ClientConnection.hello(
            f"remuda {__version__}", read_only=read_only, window_bytes=window_bytes, raw=raw
        )
        self._sock.sendall(hello + ClientConnection.ask_status())
        first = self._next_of(wire.WelcomeReceived, wire.StatusReceived)
        if isinstance(first, wire.WelcomeReceived):
            self.welcome = first.document
            self._next_of(wire.StatusReceived)

    @property
    def other_version(self) -> str | None:
        """The keeper's version when it is not ours; new and old keep working for what both know."""
        theirs = (self.welcome or {}).get("keeper_version")
        return str(theirs) if theirs is not None and theirs != __version__ else None

    @property
    def speaks_ours(self) -> bool:
        return self.welcome is not None and self.welcome.get("version") == PROTOCOL_VERSION

    # ── asking ──

    def status(self) -> Status:
        """Heimdall's short answer, which every supervisor gives."""
        self._sock.sendall(ClientConnection.ask_status())
        answer = self._next_of(wire.StatusReceived)
        assert isinstance(answer, wire.StatusReceived)
        return answer.status

    def request(self, op: str, **args: Any) -> dict[str, Any]:
        """Raises what the keeper refused with, and `SessionUnreachable` when it vanished."""
        try:
            return self._request(op, args)
        except (EOFError, ConnectionError) as error:
            raise SessionUnreachable(f"the keeper of '{self.name}' is gone") from error

    def _request(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if not self.speaks_ours:
            raise SessionUnreachable(
                f"session '{self.name}' is kept by another program or version, which cannot answer this"
            )
        number = next(self._numbers)
        self._sock.sendall(ClientConnection.request(number, op, args))
        document = self._response(number).document
        if not document.get("ok"):
            error = document.get("error") or {}
            raise from_code(error.get("code", ""), error.get("message", "refused"), error.get("hint"))
        result = document.get("result")
        return result if isinstance(result, dict) else {}

    def describe(self, *, explain: bool = False) -> dict[str, Any]:
        """Everything known of the session; for a foreign supervisor, what its status byte tells."""
        if self.speaks_ours:
            return self.request("status", explain=explain)
        status = self.status()
        return {
            "name": self.name,
            "agent": "heimdall",
            "pid": status.pid,
            "alive": status.alive,
            "idle": status.idle_ms / 1000,
            "state": StateByte.name_of(status.state),
            "age": status.state_ms / 1000,
            "source": "status byte",
        }

    def _response(self, number: int) -> wire.ResponseReceived:
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while True:
            event = self._next_of(wire.ResponseReceived, deadline=deadline)
            if isinstance(event, wire.ResponseReceived) and event.id == number:
                return event

    def _next_of(self, *kinds: type, deadline: float | None = None) -> ClientEvent:
        """The next event of these kinds; others are kept for `receive`."""
        limit = time.monotonic() + ANSWER_TIMEOUT if deadline is None else deadline
        passed: list[ClientEvent] = []
        try:
            while True:
                for event in self.receive(max(0.0, limit - time.monotonic())):
                    if isinstance(event, kinds):
                        return event
                    passed.append(event)
                if time.monotonic() >= limit:
                    raise SessionUnreachable(f"the keeper of '{self.name}' does not answer")
        finally:
            self._waiting.extendleft(reversed(passed))

    # ── the stream ──

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, data: bytes) -> None:
        """Frames made by `ClientConnection`. A keeper that does not take them in time is a broken stream."""
        self._sock.sendall(data)

    def send_some(self, data: bytes | bytearray | memoryview) -> int:
        """How much of it the socket takes at once."""
        try:
            return os.write(self._sock.fileno(), data)  # a socket with a timeout never blocks by itself
        except BlockingIOError:
            return 0

    def receive(self, timeout: float | None = 0.0) -> Iterator[ClientEvent]:
        """What has come, waiting up to `timeout` for the first of it. Raises `EOFError` at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._waiting:  # a frame may come in several pieces
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not is_readable(self._sock.fileno(), left):
                break
            if not (data := self.read()):
                raise EOFError
            self._waiting.extend(self._connection.receive(data))
        while self._waiting:
            yield self._waiting.popleft()

    def read(self) -> bytes:
        """What has come, when something is known to have come: for `take`. Empty at the end."""
        try:
            # `recv` would ask the kernel once more whether there is anything.
            return os.read(self._sock.fileno(), _READ_BYTES)
        except ConnectionResetError:
            return b""  # also within a frame: a keeper that was killed has no last word

    @property
    def between_frames(self) -> bool:
        """Whether all is taken of what has come."""
        return not self._waiting and self._connection.between_frames

    def take(self, data: bytes | None = None) -> Iterator[ClientEvent]:
        """The meaning of what `read` gave. Without it, reads itself, and raises `EOFError` at the end."""
        if data is None and not (data := self.read()):
            raise EOFError
        self._waiting.extend(self._connection.receive(data))
        while self._waiting:
            yield self._waiting.popleft()

    def wait_exit(self, timeout: float | None) -> int | None:
        """After `subscribe`: the exit code when the session ends; None when its keeper vanished."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise WaitTimeout(f"session '{self.name}' has not ended")
                for event in self.receive(left):
                    if isinstance(event, wire.ExitReceived):
                        return event.code
        except EOFError:
            return None

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> KeeperClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _connect(sock: socket.socket, address: str) -> None:
    """A keeper whose backlog is full says so at once, and is asked again."""
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while True:
        try:
            sock.connect(address)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def absent(paths: SessionPaths) -> SessionNotFound | SessionDead | SessionUnreachable:
    """Why there is nobody at that socket."""
    name = paths.name
    if holder := read_holder(paths):
        return SessionUnreachable(
            f"session '{name}' has no socket, though its keeper runs (pid {holder.keeper_pid})",
            hint="its socket file was removed; end it by that pid",
        )
    record = SessionRecord.load(paths.record)
    if record is None:
        return SessionNotFound(f"no session named '{name}'", hint="'remuda ls' shows those there are")
    how = (
        f"with exit code {record.exit_code}" if record.exit_code is not None else "when its keeper was killed"
    )
    return SessionDead(
        f"session '{name}' has ended {how}", hint=f"'remuda start {name} --resume' brings it back"
    )
