"""A connection to `remuda pool serve`, blocking and without asyncio, for the commands.

`PoolNotServed`: no server there, or one that is shutting down and has not started the request. `PoolBroken`:
a server that breaks the protocol, is silent for too long, closes the connection or has another version. Only
after the first may a command run the request without the pool.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from collections import deque

from remuda._version import __version__
from remuda.errors import (
    ClientClosed,
    FolderUnusable,
    PermissionRefused,
    PoolBroken,
    PoolNotServed,
    RemoteProtocolError,
    RemudaError,
    from_code,
)

from .protocol import Message, PoolProtocol, encode, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

SILENCE_TIMEOUT = 20.0
"""A working server sends something four times in this time."""
RETRY_INTERVAL = 0.01
"""Seconds between two attempts to connect to a server whose backlog is full."""
READ_BYTES = 1 << 16
_DETAIL_CHARACTERS = 200
_NOT_RESPONDING = "it may be suspended or out of memory; 'remuda pool status' tries again"


def default_socket() -> str:
    from remuda.paths import home

    return str(home() / "pool.sock")


class PoolReplies:
    """The messages of one server, as they arrive."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._protocol = PoolProtocol(server=False)
        self._received: deque[Message] = deque()
        self._begun = False

    @property
    def is_over(self) -> bool:
        """Whether the last message was taken."""
        return self._protocol.is_over and not self._received

    def feed(self, data: bytes) -> None:
        """Take what was read; nothing means that the server closed the connection. Raises `PoolBroken`."""
        if not data:
            when = "before it answered" if self._protocol.state == "new" else "during the request"
            raise PoolBroken(f"the pool server at {self.path} closed the connection {when}")
        try:
            for message in self._protocol.receive(data):  # those before an error are kept
                self._received.append(message)
        except RemoteProtocolError as error:
            raise PoolBroken(
                f"the server at {self.path} does not speak the pool protocol: {error.message}",
                hint=error.hint,
            ) from None

    def next(self) -> Message | None:
        """Return the next message other than `alive`; None if there is none yet.

        Raises `PoolNotServed` if the server is shutting down and has not started the request.
        """
        while self._received:
            message = self._received.popleft()
            if message["type"] == "alive":
                continue
            if not self._begun and message.get("begun") is False and message.get("code") == ClientClosed.code:
                raise server_error(message)
            self._begun = self._begun or message["type"] != "hello"
            return message
        return None


class PoolConnection:
    """Use as a context manager, or `close` it; either cancels a running request."""

    def __init__(self, path: str, *, silence_timeout: float = SILENCE_TIMEOUT) -> None:
        """Raises `PoolNotServed`, `PoolBroken`, `PermissionRefused` or `FolderUnusable`."""
        self.path = path
        self.greeting: Message = {}
        """The hello of the server; known after `ask`."""
        self.deadline = float("inf")
        """When the answer must be there (monotonic), however often the server says it is alive.

        Set it after `ask`.
        """
        self._silence = silence_timeout
        self._replies = PoolReplies(path)
        self._sock = connect(path, silence_timeout)

    def send(self, *messages: Message) -> None:
        """Send messages. If the server has closed, the next read raises, since it may have sent a reason."""
        data = b"".join(encode(message) for message in messages)
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise silent(self.path, self._silence) from None
        except (BrokenPipeError, ConnectionResetError):
            pass

    def ask(self, request: Message) -> None:
        """Send a hello and the request together, and wait for the hello of the server."""
        self.deadline = time.monotonic() + self._silence
        self.send(hello(client_version=__version__), request)
        first = self.next()
        self.deadline = float("inf")
        if first["type"] == "error":
            raise server_error(first)
        self.greeting = first

    def next(self) -> Message:
        """Wait for the next message other than `alive`."""
        while (message := self._replies.next()) is None:
            if time.monotonic() > self.deadline:
                raise late(self.path)
            self._replies.feed(self._read())
        return message

    def messages(self) -> Iterator[Message]:
        """Yield all messages up to the last one that the protocol allows."""
        while not self._replies.is_over:
            yield self.next()

    def _read(self) -> bytes:
        try:
            return self._sock.recv(READ_BYTES)
        except TimeoutError:
            raise silent(self.path, self._silence) from None
        except ConnectionResetError:
            return b""

    def wait_for_end(self, timeout: float) -> bool:
        """Wait until the server closes the connection, which is the last thing it does."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            try:
                if not self._sock.recv(READ_BYTES):
                    return True
            except TimeoutError:
                break
            except ConnectionResetError:
                return True
        return False

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# ── errors ──


def silent(path: str, timeout: float) -> PoolBroken:
    return PoolBroken(f"the pool server at {path} has not responded for {timeout:g} s", hint=_NOT_RESPONDING)


def late(path: str) -> PoolBroken:
    return PoolBroken(f"the pool server at {path} is running but did not answer in time")


def backlog_full(path: str) -> PoolBroken:
    return PoolBroken(f"the pool server at {path} accepts no connections", hint=_NOT_RESPONDING)


def server_error(message: Message) -> RemudaError:
    """Return the error of an error message; `PoolNotServed` if the server is shutting down."""
    error = from_code(message["code"], message["message"], message.get("hint"))
    if isinstance(error, ClientClosed):
        return PoolNotServed(f"{error.message}; the request was not started")
    return error


def one_line_error(message: Message) -> RemudaError:
    """Return the error of an error message on one line, with the start of its detail."""
    text, detail = message["message"], str(message.get("detail") or "").partition("\n")[0]
    return from_code(
        message["code"], f"{text}: {detail[:_DETAIL_CHARACTERS]}" if detail else text, message.get("hint")
    )


# ── connecting ──


def connect(path: str, timeout: float) -> socket.socket:
    """Connect to a server of this user. Raises what `PoolConnection` raises."""
    deadline = time.monotonic() + timeout
    while (sock := try_connect(path)) is None:
        if time.monotonic() > deadline:
            raise backlog_full(path)
        time.sleep(RETRY_INTERVAL)
    sock.settimeout(timeout)
    return sock


def try_connect(path: str) -> socket.socket | None:
    """Connect without waiting. Return None if the backlog of the server is full."""
    from pathlib import Path

    from remuda.paths import OtherUser, connect_own

    try:
        return connect_own(Path(path))
    except OtherUser:  # prompt and environment are for this user's server only
        raise PermissionRefused(f"the pool at {path} belongs to another user") from None
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise _absent(path) from None
    except OSError as error:
        raise FolderUnusable(f"cannot reach the pool at {path}: {error.strerror or error}") from error


def _absent(path: str) -> RemudaError:
    try:
        is_other = not stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        is_other = False
    if is_other:
        return FolderUnusable(f"{path} is not a socket")
    return PoolNotServed(f"no pool is served at {path}", hint="start one with 'remuda pool serve'")


def request(path: str, message: dict[str, Any], *, silence_timeout: float = SILENCE_TIMEOUT) -> Message:
    """Send one request and return its answer. Raises the error that the server answers with."""
    with PoolConnection(path, silence_timeout=silence_timeout) as connection:
        connection.ask(message)
        answer = connection.next()
    if answer["type"] == "error":
        raise server_error(answer)
    return answer
