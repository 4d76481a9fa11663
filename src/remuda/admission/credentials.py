"""How a server recognises a client: by the user of a loopback TCP connection, and by a token in a file."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from pathlib import Path

from remuda.durable import open_new, sync_folder
from remuda.errors import FolderUnusable, InvalidOptions

# From linux/netlink.h, sock_diag.h and inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY = 0xFFFFFFFF
_ESTABLISHED = 1
NO_ONE = -1
_HEADER = struct.Struct("=IHHII")
_ANSWER_BYTES = 1024
_UID_AT = _HEADER.size + 64


def is_own_peer(sock: socket.socket) -> bool | None:
    """Return whether the peer is a process of this user or of root; None if unknown, as on macOS.

    One that has closed its end is not: a request that no one waits for can come from anyone.
    """
    uid = tcp_peer_uid(sock)
    return None if uid is None else uid in (os.getuid(), 0)


def tcp_peer_uid(sock: socket.socket) -> int | None:
    """Return the user of the peer, `NO_ONE` if it has closed its end; None where the kernel does not say.

    This is one query about one connection, about 40 microseconds: /proc/net/tcp lists those of all users, and
    another user could make that list long.
    """
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.setblocking(False)  # it answers within the call
            kernel.send(_question(sock))
            uid = _read(kernel.recv(_ANSWER_BYTES))
    except OSError:
        uid = None
    return NO_ONE if uid is None and _is_over(sock) else uid


def _is_over(sock: socket.socket) -> bool:
    """Whether the peer has reset or closed the connection: the kernel may have forgotten its end."""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
    except OSError:
        return True


def _question(sock: socket.socket) -> bytes:
    (peer, peer_port), (own, own_port) = sock.getpeername()[:2], sock.getsockname()[:2]
    peer_address, own_address = (socket.inet_pton(sock.family, one).ljust(16, b"\0") for one in (peer, own))
    body = struct.pack("=BBBBI", sock.family, socket.IPPROTO_TCP, 0, 0, _ANY)
    body += struct.pack("!HH", peer_port, own_port) + peer_address + own_address
    body += struct.pack("=III", 0, _ANY, _ANY)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body


def _read(answer: bytes) -> int | None:
    """Read the answer. A socket that its process has closed is listed as root's."""
    if len(answer) < _UID_AT + 8 or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    uid, inode = struct.unpack_from("=II", answer, _UID_AT)
    return int(uid) if answer[_HEADER.size + 1] == _ESTABLISHED and inode else NO_ONE


# ── the token ──


def load_token(path: Path) -> str:
    """Return the token in that file. A missing file is created, readable by this user only."""
    try:
        try:
            return _read_token(path)
        except FileNotFoundError:
            _make_token(path)
            return _read_token(path)
    except OSError as error:
        raise FolderUnusable(f"cannot use the token file {path}: {error.strerror}") from error


def _read_token(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidOptions(f"the token file {path} is not a file")
        if status.st_uid not in (os.getuid(), 0) or stat.S_IMODE(status.st_mode) & 0o077:
            raise InvalidOptions(f"other users can read the token file {path}", hint=f"chmod 600 {path}")
        token = os.read(fd, 4096).decode("latin-1").strip()
    finally:
        os.close(fd)
    if not re.fullmatch(r"[!-~]{16,1024}", token):
        raise InvalidOptions(
            f"{path} has no valid token (one line of 16 or more letters, digits and punctuation)",
            hint="remove it to get a new one",
        )
    return token


def _make_token(path: Path) -> None:
    import secrets  # loads OpenSSL: 3 MB, and every keeper imports this module

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = open_new(temporary)
    try:
        try:
            os.write(fd, secrets.token_urlsafe(32).encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(temporary, path)  # complete, and never over one that another process has just made
        except FileExistsError:
            pass
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
