"""One connection to `remuda pool serve`, blocking, without asyncio: what the commands use.

Nobody there, or somebody who is ending and has begun nothing, is `PoolNotServed`. Somebody there who talks
nonsense, says nothing for too long, hangs up, or speaks another version is `PoolBroken`. Only the first may
be answered with a cold run.
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

from .protocol import Conversation, Message, encode, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any, Self

SILENCE_TIMEOUT = 20.0
"""A server that works says so four times in this."""
FULL_PAUSE = 0.01
"""Before a server whose backlog is full is tried again."""
_READ_BYTES = 1 << 16
_DETAIL_CHARACTERS = 200
_WAIT = "it may be suspended or out of memory; 'remuda pool status' tries again"


def default_socket() -> str:
    from remuda.paths import home

    return str(home() / "pool.sock")


class Line:
    """Use as a context manager, or `close` it; either cancels a request that runs."""

    def __init__(self, path: str, *, silence_timeout: float = SILENCE_TIMEOUT) -> None:
        """Raises `PoolNotServed`, `PoolBroken`, `PermissionRefused` or `FolderUnusable`."""
        self.path = path
        self.greeting: Message = {}
        """What the server said of itself; known when something was asked."""
        self.deadline = float("inf")
        """When the answer must be there, however often the server says that it lives; monotonic. To be set
        when something was asked."""
        self._silence = silence_timeout
        self._conversation = Conversation(server=False)
        self._waiting: deque[Message] = deque()
        self._told = False
        self._sock = connect(path, silence_timeout)

    def send(self, *messages: Message) -> None:
        """What cannot be sent because the other end hung up is told when it is read: it may have said why."""
        data = b"".join(encode(message) for message in messages)
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise silent(self.path, self._silence) from None
        except (BrokenPipeError, ConnectionResetError):
            pass

    def ask(self, request: Message) -> None:
        """Say hello and what is wanted in one breath, and hear the greeting."""
        self.deadline = time.monotonic() + self._silence
        self.send(hello(client_version=__version__), request)
        first = self.next()
        self.deadline = float("inf")
        if first["type"] == "error":
            raise refused(first)
        self.greeting = first

    def next(self) -> Message:
        """The next message but for signs of life."""
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if message["type"] != "alive":
                    self._told = check_begun(message, told=self._told)
                    return message
            if time.monotonic() > self.deadline:
                raise late(self.path)
            self._receive()

    def messages(self) -> Iterator[Message]:
        """All up to the last that there can be."""
        while True:
            yield self.next()
            if self._conversation.is_over and not self._waiting:
                return

    def _receive(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except TimeoutError:
            raise silent(self.path, self._silence) from None
        except ConnectionResetError:
            data = b""
        if not data:
            raise hung_up(self.path, self._conversation)
        try:
            for message in self._conversation.receive(data):
                self._waiting.append(message)
        except RemoteProtocolError as error:
            raise broken(self.path, error) from None

    def wait_for_end(self, timeout: float) -> bool:
        """Until the server closes the connection, which is the last that it does."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            try:
                if not self._sock.recv(_READ_BYTES):
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# ── what can be wrong with who serves ──


def silent(path: str, timeout: float) -> PoolBroken:
    return PoolBroken(f"the pool server at {path} has not responded for {timeout:g} s", hint=_WAIT)


def late(path: str) -> PoolBroken:
    return PoolBroken(f"the pool server at {path} is running but did not answer in time")


def hung_up(path: str, conversation: Conversation) -> PoolBroken:
    when = "before it answered" if conversation.state == "new" else "during the request"
    return PoolBroken(f"the pool server at {path} closed the connection {when}")


def full(path: str) -> PoolBroken:
    return PoolBroken(f"the pool server at {path} accepts no connections", hint=_WAIT)


def broken(path: str, error: RemoteProtocolError) -> PoolBroken:
    return PoolBroken(
        f"the server at {path} does not speak the pool protocol: {error.message}", hint=error.hint
    )


def refused(message: Message) -> RemudaError:
    """An error that the server said. One that is ending takes nothing any more: it is as good as gone."""
    error = from_code(message["code"], message["message"], message.get("hint"))
    if isinstance(error, ClientClosed):
        return PoolNotServed(f"{error.message}; the request was not started")
    return error


def check_begun(message: Message, *, told: bool) -> bool:
    """Whether something of the request was told, now or before. Raises `PoolNotServed` when the server ends
    and has not begun it."""
    if message.get("begun") is False and message.get("code") == ClientClosed.code and not told:
        raise refused(message)
    return told or message["type"] != "hello"


# ── the way there ──


def connect(path: str, timeout: float) -> socket.socket:
    """A connection to somebody of this user. See `Line` for what it raises."""
    deadline = time.monotonic() + timeout
    while (sock := try_connect(path)) is None:
        if time.monotonic() > deadline:
            raise full(path)
        time.sleep(FULL_PAUSE)
    sock.settimeout(timeout)
    return sock


def try_connect(path: str) -> socket.socket | None:
    """Never waits. None when so many wait to be heard there that one more cannot."""
    from pathlib import Path

    from remuda.paths import SocketAddress

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with SocketAddress(Path(path)) as address:
            sock.connect(address)
        _check_owner(sock, path)
    except BlockingIOError:
        sock.close()
        return None
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        sock.close()
        raise _absent(path) from None
    except OSError as error:
        sock.close()
        raise FolderUnusable(f"cannot reach the pool at {path}: {error.strerror or error}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _absent(path: str) -> RemudaError:
    try:
        is_other = not stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        is_other = False
    if is_other:
        return FolderUnusable(f"{path} is not a socket")
    return PoolNotServed(f"no pool is served at {path}", hint="start one with 'remuda pool serve'")


def _check_owner(sock: socket.socket, path: str) -> None:
    """Before a word is said: prompt and environment are for our own user alone."""
    from remuda.paths import peer_uid

    if peer_uid(sock) != os.getuid():
        raise PermissionRefused(f"the pool at {path} belongs to another user")


def request(path: str, message: dict[str, Any], *, silence_timeout: float = SILENCE_TIMEOUT) -> Message:
    """One question and its answer. Raises what the server answers with, if that is an error."""
    with Line(path, silence_timeout=silence_timeout) as line:
        line.ask(message)
        answer = line.next()
    if answer["type"] == "error":
        raise refused(answer)
    return answer


def told_error(message: Message) -> RemudaError:
    """What a server says is wrong, in a line: with how an agent ended, where that is it."""
    text, detail = message["message"], str(message.get("detail") or "").partition("\n")[0]
    return from_code(
        message["code"], f"{text}: {detail[:_DETAIL_CHARACTERS]}" if detail else text, message.get("hint")
    )
