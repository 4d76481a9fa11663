"""Send requests to the boss over its Unix socket. Blocking, with a timeout on every wait, and quick to
import.

Written by hand: importing the client of the standard library takes longer than a complete request.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping

from remuda.errors import (
    BossDown,
    InvalidOptions,
    NotInQueue,
    PermissionRefused,
    RemoteProtocolError,
    WaitTimeout,
    from_code,
)
from remuda.paths import SocketAddress, peer_uid
from remuda.untrusted import OWN_DEPTH, BadJson, bounded, dump_json, parse_json

from .folder import BossFolder

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any, Self

ANSWER_TIMEOUT = 10.0
_UNQUOTED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
_MARGIN = 5.0
_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 256 << 20
_BRIEF = 4000
_LONGEST_REQUEST = 120.0
"""No host works longer on a request of another one."""


class BossClient:
    """Opens a connection for each request: the boss may restart between two of them."""

    def __init__(self, folder: BossFolder | None = None, *, timeout: float = ANSWER_TIMEOUT) -> None:
        self.folder = folder or BossFolder.default()
        self._timeout = timeout

    def get(self, *parts: str, **query: Any) -> Any:
        """`get("queue", "next")` requests `/v1/queue/next`. Raises `BossDown`, or the error of the boss."""
        parameters = {name: _text(value) for name, value in query.items() if value is not None}
        pairs = "&".join(f"{name}={_quoted(value)}" for name, value in parameters.items())
        return self.ask("GET", _path(parts) + (f"?{pairs}" if pairs else ""), None, self._timeout)

    def get_brief(self, *parts: str, **query: Any) -> Any:
        """As `get`, for a list of sessions, items or requests: with the beginning of each long text.

        `cut` of each has the names of the fields that are longer; `get` it by its id to have all.
        """
        try:
            return self.get(*parts, cut=_BRIEF, **query)
        except InvalidOptions:  # a boss before 0.3 sends everything, of this machine only
            return self.get(*parts, **{name: value for name, value in query.items() if name != "hosts"})

    def post(self, *parts: str, body: Mapping[str, Any] | None = None, timeout: float | None = None) -> Any:
        return self.ask("POST", _path(parts), body or {}, timeout or self._timeout)

    def changes(self) -> ChangeStream:
        """Open a stream that reports changes from now on. Raises `BossDown`."""
        sock = self._connect(self._timeout)
        try:
            sock.sendall(self._head("GET", "/v1/events", b""))
            status, _, rest = _receive_head(sock)
            self._check(status)
            if status != 200:
                raise RemoteProtocolError(f"the boss refused the stream of events (status {status})")
        except (TimeoutError, EOFError, ConnectionError):
            sock.close()
            raise BossDown("the boss ended while it was answering") from None
        except BaseException:
            sock.close()
            raise
        return ChangeStream(sock, is_waiting=b"data:" in rest)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        """Send a request. `path` is complete and quoted."""
        data = b"" if body is None else dump_json(body).encode()
        sock = self._connect(timeout)
        doubt = "" if method == "GET" else ", so it is not known whether it was done"
        try:
            sock.sendall(self._head(method, path, data) + data)
            status, answer = _receive(sock)
        except (TimeoutError, BlockingIOError):  # the latter with a timeout of zero
            raise WaitTimeout(f"the boss did not answer within {timeout:g} s{doubt}") from None
        except (EOFError, ConnectionError):
            raise BossDown(f"the boss ended while it was answering{doubt}") from None
        finally:
            sock.close()
        self._check(status)
        return _answered(status, answer)

    def _check(self, status: int) -> None:
        """Raises `PermissionRefused` if the boss refuses our token."""
        if status == 401:
            raise PermissionRefused(
                f"the boss refuses the token in {self.folder.token}",
                hint="restart the boss: 'remuda boss down', then 'remuda boss up --detach'",
            )

    def _connect(self, timeout: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            with SocketAddress(self.folder.socket) as address:
                sock.connect(address)
            if peer_uid(sock) != os.getuid():
                raise PermissionRefused(f"{self.folder.socket} belongs to another user")
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            raise BossDown(
                "the boss is not running", hint="start it with 'remuda boss up --detach'"
            ) from None
        except (TimeoutError, BlockingIOError):
            sock.close()
            raise WaitTimeout(f"the boss did not answer within {timeout:g} s") from None
        except OSError as error:
            sock.close()
            raise BossDown(f"cannot reach the boss: {error.strerror or error}") from error
        except BaseException:
            sock.close()
            raise
        return sock

    def _head(self, method: str, path: str, body: bytes) -> bytes:
        try:
            token = self.folder.token.read_text().strip()
        except OSError as error:
            raise BossDown(f"cannot read {self.folder.token}: {error.strerror}") from error
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
        if method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


class RemoteBoss(BossClient):
    """The boss of another host, through ours, which has the connection to the hub.

    Raises what any boss raises, and `HubUnreachable` and `HostUnreachable`. It has no stream of changes.
    """

    def __init__(
        self, host: str, folder: BossFolder | None = None, *, timeout: float = ANSWER_TIMEOUT
    ) -> None:
        super().__init__(folder, timeout=timeout)
        self.host = host

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        timeout = min(timeout, _LONGEST_REQUEST)
        whole = {"method": method, "path": path, "body": body, "timeout": timeout}
        way = _path(("fleet", "hosts", self.host, "request"))
        return super().ask("POST", way, whole, timeout + _MARGIN)["answer"]


class ChangeStream:
    """Says that something has changed; ask the boss what."""

    def __init__(self, sock: socket.socket, *, is_waiting: bool = False) -> None:
        self._sock = sock
        self._is_waiting = is_waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def fileno(self) -> int:
        """For `select`. What arrived with the head of the answer is older than anything you request now."""
        return self._sock.fileno()

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether a change came within `timeout`. Raises `BossDown` when the boss ends."""
        if self._is_waiting:
            self._is_waiting = False
            return True
        self._sock.settimeout(timeout)
        try:
            return bool(_some(self._sock))
        except (TimeoutError, BlockingIOError):
            return False
        except (EOFError, ConnectionError):
            raise BossDown("the boss has ended") from None


def _path(parts: tuple[str, ...]) -> str:
    """Raises `NotInQueue` for a word that can be neither a name nor an id."""
    for part in parts:
        if not part or "/" in part:
            raise NotInQueue(f"'{part}' not found", hint="'remuda ls' and 'remuda queue' list names and ids")
    return "/v1/" + "/".join(map(_quoted, parts))


def _quoted(text: str) -> str:
    """Quote a word for an address: `urllib` takes 3 ms to load."""
    characters = text.encode(errors="surrogateescape")
    return "".join(chr(one) if one in _UNQUOTED else f"%{one:02X}" for one in characters)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _receive(sock: socket.socket) -> tuple[int, bytes]:
    status, headers, data = _receive_head(sock)
    length = headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
        raise RemoteProtocolError("the answer of the boss has no length")
    while len(data) < int(length):
        data += _some(sock)
    return status, bytes(data)


def _receive_head(sock: socket.socket) -> tuple[int, dict[str, str], bytearray]:
    """Return the head, and the part of the body that has arrived."""
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > _MAX_HEAD_BYTES:
            raise RemoteProtocolError("the answer of the boss has no end of its headers")
        data += _some(sock)
    head = data[:end].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    del data[: end + 4]
    status = head[0].split()[1:2]
    if not status or not status[0].isdecimal():
        raise RemoteProtocolError("the answer of the boss has no status")
    return int(status[0]), headers, data


def _some(sock: socket.socket) -> bytes:
    if not (part := sock.recv(1 << 16)):
        raise EOFError
    return part


def _answered(status: int, body: bytes) -> Any:
    try:
        document = _read(body)
    except (ValueError, RecursionError):
        raise RemoteProtocolError(f"the answer of the boss is not JSON (status {status})") from None
    if status < 400:
        return document
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        raise from_code(str(error.get("code")), str(error.get("message")), error.get("hint"))
    raise RemoteProtocolError(f"the boss answered with {status}: {error}")


def _read(body: bytes) -> Any:
    """Parse JSON. A boss before 0.2 sends numbers that JSON does not have."""
    try:
        return parse_json(body, depth=OWN_DEPTH)
    except BadJson:
        return bounded(json.loads(body))
