"""The one way to reach a session from outside its keeper. Blocking, with a limit on every wait.

It also works with a supervisor that speaks only Heimdall's protocol, as far as that goes. Such a supervisor
ignores our HELLO and answers the STATUS after it, which is how we recognise it.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from remuda._version import __version__
from remuda.arguments import absolute_path
from remuda.duration import check_seconds, clamp_seconds
from remuda.errors import (
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    WaitTimeout,
)
from remuda.names import did_you_mean
from remuda.paths import SessionPaths, connect_own, known_names
from remuda.readable import is_readable
from remuda.wire import connection as wire
from remuda.wire.connection import ANSWER_TIMEOUT, ClientConnection, ClientEvent, result_of
from remuda.wire.messages import PROTOCOL_VERSION, StateByte, Status

from .claim import read_holder
from .elsewhere import Tunnel, open_tunnel, why_closed
from .record import SessionRecord

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

RETRY_INTERVAL = 0.01
"""Seconds between two attempts to connect to a keeper whose backlog is full."""
_READ_BYTES = 1 << 16
_ATTEMPTS = 3
# A keeper that closes connections has this many seconds until it has ended.
_END_LIMIT = 2.0


class _NoSocket(Exception):
    """Nothing answers at the session's socket."""


class _Closed(Exception):
    """The keeper took the connection, and closed it before it answered."""


class KeeperClient:
    """A connection to the keeper of one session: requests, output, and input.

    Use it in a `with`, or `close` it. Every call blocks, with a limit.
    """

    def __init__(self, sock: socket.socket, name: str, hello: bytes) -> None:
        self.name = name
        self._sock = sock
        self._connection = ClientConnection()
        self._numbers = itertools.count(1)
        self._waiting: deque[ClientEvent] = deque()
        self.tunnel: Tunnel | None = None
        """The way to a session of another host; None for one of this machine."""
        self.welcome: dict[str, Any] | None = None
        """What the keeper reported about itself; None for a Heimdall supervisor."""
        self.has_ended = False
        """Whether the keeper ended before it took `ask_end`. Its last events may still be received."""
        self._greet(hello)

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
        """Connect to a session. Raises `SessionNotFound`, `SessionDead` or `SessionUnreachable`.

        `window_bytes` limits how much output the keeper sends before it is acknowledged; 0 means unlimited.
        """
        paths = SessionPaths.of(name, None if folder is None else absolute_path("folder", folder))
        hello = ClientConnection.hello(
            f"remuda {__version__}", read_only=read_only, window_bytes=window_bytes, raw=raw
        )
        closed = False
        for _ in range(_ATTEMPTS):
            try:
                return cls._connect(paths, hello)
            except _NoSocket:
                from .hidden import is_back, recall

                if recall(paths) is None or not is_back(paths):
                    break
            except _Closed:
                if closed:
                    raise SessionUnreachable(f"the keeper of '{name}' closed the connection") from None
                closed = True
                wait_for_end(paths)  # of its own accord, or killed; it may be started again
        raise absent(paths)

    @classmethod
    def connect_elsewhere(
        cls, host: str, name: str, *, read_only: bool = False, window_bytes: int = 0, raw: bool = False
    ) -> KeeperClient:
        """Connect to a session of another host. It is as `connect`, also for what it returns.

        Raises what `connect` raises, and what prevents the way there: `HostUnreachable`, `HubUnreachable`,
        `BossDown`, and `PermissionRefused` unless it is `read_only`.
        """
        hello = ClientConnection.hello(
            f"remuda {__version__}", read_only=read_only, window_bytes=window_bytes, raw=raw
        )
        tunnel = open_tunnel(host, name, types=not read_only)
        with ExitStack() as on_error:
            sock = on_error.enter_context(tunnel.sock)
            sock.settimeout(ANSWER_TIMEOUT)
            try:
                client = cls(sock, f"{host}/{tunnel.session}", hello)
            except (EOFError, OSError):
                why = why_closed(tunnel)
                raise why or SessionUnreachable(
                    f"the keeper of '{host}/{tunnel.session}' closed the connection"
                ) from None
            on_error.pop_all()
        client.tunnel = tunnel
        return client

    def end_reason(self) -> str:
        """Say why the keeper closed the connection, if it did so without EXIT."""
        why = why_closed(self.tunnel) if self.tunnel is not None else None
        if why is None:
            return f"the keeper of session {self.name} has ended"
        return f"lost the connection to session {self.name}, which keeps running: {why.message}"

    @classmethod
    def _connect(cls, paths: SessionPaths, hello: bytes) -> KeeperClient:
        try:
            with ExitStack() as on_error:
                sock = on_error.enter_context(_reach(paths))
                client = cls(sock, paths.name, hello)
                on_error.pop_all()
                return client
        except (FileNotFoundError, ConnectionRefusedError):
            raise _NoSocket from None
        except (EOFError, ConnectionError):
            raise _Closed from None
        except OSError as error:
            raise unreachable(paths, error) from error

    def _greet(self, hello: bytes) -> None:
        self._sock.sendall(hello + ClientConnection.ask_status())
        first = self._next_of(wire.WelcomeReceived, wire.StatusReceived)
        if isinstance(first, wire.WelcomeReceived):
            self.welcome = first.document
            self._next_of(wire.StatusReceived)
        else:
            self._connection.expect_heimdall()

    @property
    def other_version(self) -> str | None:
        """The keeper's version if it differs from ours, else None. Both keep working for what both know."""
        theirs = (self.welcome or {}).get("keeper_version")
        return str(theirs) if theirs is not None and theirs != __version__ else None

    @property
    def speaks_ours(self) -> bool:
        return self.welcome is not None and self.welcome.get("version") == PROTOCOL_VERSION

    # ── asking ──

    def status(self) -> Status:
        """Return the short status that every supervisor gives, also Heimdall's."""
        self._sock.sendall(ClientConnection.ask_status())
        answer = self._next_of(wire.StatusReceived)
        assert isinstance(answer, wire.StatusReceived)
        return answer.status

    def request(self, op: str, **args: Any) -> dict[str, Any]:
        """Send a request and return its result.

        Raises the error that the keeper reports, and `SessionUnreachable` if the keeper ends or is silent.
        """
        try:
            return self._request(op, args)
        except (EOFError, ConnectionError) as error:
            raise SessionUnreachable(f"the keeper of '{self.name}' has ended") from error

    def ask_end(self, grace: float | None) -> float | None:
        """Ask for the end, which `wait_exit` waits for. Return the grace period if the keeper says it."""
        if grace is not None:
            grace = check_seconds("grace", grace)
        try:
            self.send(ClientConnection.subscribe())
            if self.speaks_ours:
                return float(self._request("kill", {"grace": grace})["grace"])
            self.send(ClientConnection.kill())
        except (EOFError, ConnectionError):
            self.has_ended = True
        return None

    def _request(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if not self.speaks_ours:
            raise SessionUnreachable(
                f"session '{self.name}' is run by another program or version, which does not support this"
            )
        request_id = next(self._numbers)
        self._sock.sendall(ClientConnection.request(request_id, op, args))
        return result_of(self._response(request_id).document)

    def describe(self, *, explain: bool = False) -> dict[str, Any]:
        """Return the status of the session; of a Heimdall session, what its status byte says."""
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

    def _response(self, request_id: int) -> wire.ResponseReceived:
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while True:
            event = self._next_of(wire.ResponseReceived, deadline=deadline)
            if isinstance(event, wire.ResponseReceived) and event.id == request_id:
                return event

    def _next_of(self, *kinds: type, deadline: float | None = None) -> ClientEvent:
        """Return the next event of these kinds; others are kept for `receive`."""
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
        """Send frames of `ClientConnection`. Raises `OSError` if the keeper does not take them in time."""
        self._sock.sendall(data)

    def send_some(self, data: bytes | bytearray | memoryview) -> int:
        """Send what the socket takes at once, and return how many bytes that was."""
        try:
            return os.write(self._sock.fileno(), data)  # a socket with a timeout never blocks by itself
        except BlockingIOError:
            return 0

    def receive(self, timeout: float | None = 0.0) -> Iterator[ClientEvent]:
        """Yield the events that have arrived, waiting up to `timeout` seconds for the first.

        None waits without a limit. Raises `EOFError` when the keeper closes the connection.
        """
        deadline = None if timeout is None else time.monotonic() + clamp_seconds(timeout)
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
        """Read what has arrived, for `take`. Blocks if nothing has. Returns b"" at the end."""
        try:
            # `recv` would ask the kernel once more whether there is anything.
            return os.read(self._sock.fileno(), _READ_BYTES)
        except ConnectionResetError:
            return b""  # also within a frame: a killed keeper may stop anywhere

    @property
    def has_waiting(self) -> bool:
        """Whether events wait that came with an answer. The socket says nothing of them."""
        return bool(self._waiting)

    @property
    def between_frames(self) -> bool:
        """True if no event and no part of a frame is pending."""
        return not self._waiting and self._connection.between_frames

    def take(self, data: bytes | None = None) -> Iterator[ClientEvent]:
        """Yield the events in `data`, which `read` returned.

        Without `data`, reads by itself and raises `EOFError` at the end.
        """
        if data is None and not (data := self.read()):
            raise EOFError
        self._waiting.extend(self._connection.receive(data))
        while self._waiting:
            yield self._waiting.popleft()

    def take_tail(self, timeout: float) -> Iterator[ClientEvent]:
        """Yield what a Heimdall supervisor sends after its EXIT, until it closes the connection."""
        deadline = time.monotonic() + check_seconds("timeout", timeout)
        while is_readable(self._sock.fileno(), max(0.0, deadline - time.monotonic())):
            if not (data := self.read()):
                break
            yield from self.take(data)
        yield from self._connection.end()

    def wait_exit(self, timeout: float | None) -> int | None:
        """Wait for the end of a session that was subscribed to, and return its exit code.

        Returns None if the keeper ended without a report. Raises `WaitTimeout`.
        """
        deadline = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
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


def _reach(paths: SessionPaths) -> socket.socket:
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while (sock := connect_own(paths.socket)) is None:
        if time.monotonic() > deadline:
            raise SessionUnreachable(f"the keeper of '{paths.name}' does not answer")
        time.sleep(RETRY_INTERVAL)
    sock.settimeout(ANSWER_TIMEOUT)
    return sock


def unreachable(paths: SessionPaths, error: OSError) -> SessionUnreachable:
    return SessionUnreachable(f"cannot reach session '{paths.name}': {error.strerror or error}")


def wait_for_end(paths: SessionPaths) -> None:
    """Wait a moment for the end of a keeper that closes connections."""
    from remuda.process_table import Process
    from remuda.proctree import is_alive, start_ticks

    if not (holder := read_holder(paths)) or not (started := start_ticks(holder.keeper_pid)):
        return
    keeper, deadline = Process(holder.keeper_pid, started), time.monotonic() + _END_LIMIT
    while (left := deadline - time.monotonic()) > 0 and is_alive(keeper.pid):
        if start_ticks(keeper.pid) != started:
            return
        keeper.wait(left)


def absent(paths: SessionPaths) -> SessionNotFound | SessionDead | SessionUnreachable:
    """Return the error that says why nothing answers at that socket."""
    name = paths.name
    if holder := read_holder(paths):
        return SessionUnreachable(
            f"session '{name}' has no socket, but its keeper is running (pid {holder.keeper_pid})",
            hint="it is starting, or the file of its socket was removed: try again; "
            f"'remuda kill {name}' ends it",
        )
    record = SessionRecord.load(paths.record)
    if record is None:
        near, hint = did_you_mean(name, known_names(paths.folder)), "'remuda ls --all' lists all"
        return SessionNotFound(f"session '{name}' not found", hint=f"{near} {hint}" if near else hint)
    how = f" with exit code {record.exit_code}" if record.exit_code is not None else ": its keeper was killed"
    return SessionDead(f"session '{name}' has ended{how}", hint=dead_hint(record))


def check_delivers(paths: SessionPaths, message: str) -> None:
    """Raise `SessionDead` for a message that waits for an agent that failed while starting.

    It stays in the inbox, but waiting for it makes no sense: the agent would fail again.
    """
    if read_holder(paths) is None and (record := SessionRecord.load(paths.record)) and not record.came_up:
        raise SessionDead(
            f"message {message} waits in the inbox: session '{paths.name}' has ended;"
            " it failed while starting",
            hint=f"'remuda logs {paths.name}' prints its output, 'remuda cancel {message}' cancels it",
        )


def dead_hint(record: SessionRecord) -> str:
    """Say what to do about a session that has ended. One that died at its start would do so again."""
    if record.came_up:
        return f"'remuda start {record.name} --resume' brings it back"
    return f"it failed while starting; 'remuda logs {record.name}' prints its output"
