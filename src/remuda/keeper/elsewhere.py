"""Reach the keeper of another host, through the boss here, which has the connection to the hub.

The boss offers a socket (`fleet/tunnel_socket`). After one line each way it is as the socket of a keeper, so
that the clients of this package work on it unchanged. Also: which host HOST/SESSION means.
"""

from __future__ import annotations

import re
import socket
import time

from remuda.errors import BossDown, HostUnreachable, NotInFleet, RemudaError, WaitTimeout, from_code
from remuda.frozen import frozen
from remuda.paths import connect_own, home
from remuda.patterns import pattern
from remuda.untrusted import BadJson, dump_json, parse_object

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

TUNNEL_SOCKET = "tunnel.sock"
OPEN_TIMEOUT = 20.0
_LINE_BYTES = 64 << 10
_RETRY_INTERVAL = 0.02
_HOST = pattern(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)


def own_host() -> str | None:
    """Return the name of this machine in its fleet; None if it has joined none."""
    name = _member().get("name")
    return name if isinstance(name, str) else None


def only_watches() -> bool:
    """Return whether the key of this machine may see sessions of other hosts, and not type into them."""
    roles = _member().get("roles")
    return isinstance(roles, list) and "viewer" in roles and "operator" not in roles


def _member() -> dict[str, Any]:
    try:
        return parse_object((home() / "fleet" / "member.json").read_bytes())
    except (OSError, ValueError):
        return {}


def split_host(word: str) -> tuple[str | None, str]:
    """Return the host and the rest of HOST/SESSION; None as the host for a word of this machine.

    Raises `NotInFleet` if this machine has joined no fleet.
    """
    host, slash, rest = word.partition("/")
    if not slash or not rest or not _HOST.fullmatch(host):
        return None, word
    own = own_host()
    if own is None:
        raise NotInFleet(
            f"'{word}' names a session of host '{host}', and this machine has joined no fleet",
            hint="see 'remuda help fleet'",
        )
    return (None, rest) if host == own else (host, rest)


@frozen
class Tunnel:
    sock: socket.socket
    id: str
    session: str
    """The name of the session there."""


def open_tunnel(
    host: str, session: str, what: str = "attach", *, types: bool = False, **options: Any
) -> Tunnel:
    """Open a stream to `what` of a session there. `types`: with the right to type.

    Raises the error of the other host, `HostUnreachable`, `HubUnreachable`, `BossDown`, `PermissionRefused`.
    """
    sock, answer = _ask({"host": host, "session": session, "what": what, "types": types, **options})
    return Tunnel(sock, str(answer.get("id")), str(answer.get("session")))


def why_closed(tunnel: Tunnel) -> RemudaError | None:
    """Return why a tunnel was closed; None if the program at its other end closed it."""
    try:
        sock, _ = _ask({"why": tunnel.id})
        sock.close()
    except RemudaError as error:
        return error
    return None


def _ask(document: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
    sock = _connect()
    try:
        sock.settimeout(OPEN_TIMEOUT)
        sock.sendall(dump_json(document).encode() + b"\n")
        answer = parse_object(_line(sock))
        error = answer.get("error")
        if isinstance(error, dict):
            raise from_code(str(error.get("code")), str(error.get("message")), error.get("hint"))
    except TimeoutError:
        sock.close()
        raise WaitTimeout(f"the boss did not answer within {OPEN_TIMEOUT:g} s") from None
    except (EOFError, OSError):
        sock.close()
        raise BossDown("the boss ended while it was answering") from None
    except BadJson:
        sock.close()
        raise HostUnreachable("the boss sent an answer that cannot be read") from None
    except BaseException:
        sock.close()
        raise
    return sock, answer


def _connect() -> socket.socket:
    path = home() / "fleet" / TUNNEL_SOCKET
    deadline = time.monotonic() + OPEN_TIMEOUT
    try:
        while (sock := connect_own(path)) is None:
            if time.monotonic() > deadline:
                raise WaitTimeout("the boss does not take connections")
            time.sleep(_RETRY_INTERVAL)
        return sock
    except (FileNotFoundError, ConnectionRefusedError):
        if not (path.parent / "member.json").exists():
            raise NotInFleet("this machine has joined no fleet", hint="see 'remuda help fleet'") from None
        raise BossDown("the boss is not running", hint="start it with 'remuda boss up --detach'") from None
    except OSError as error:
        raise BossDown(f"cannot reach the boss: {error.strerror or error}") from error


def _line(sock: socket.socket) -> bytes:
    """Read one line, and not a byte more: what follows is of the session."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (part := sock.recv(1)) or len(line) > _LINE_BYTES:
            raise EOFError
        line += part
    return bytes(line)
