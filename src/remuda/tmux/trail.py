"""Where a client was before it was taken elsewhere: one small file a client.

A trail begins where the client stood at the first jump, and keeps that origin as long as each next jump
starts where the last one ended. Whoever walks away by hand has begun something else: the next jump begins a
new trail. So one `return` leads back to the work that was interrupted, however many panes were visited.
"""

from __future__ import annotations

import os
from binascii import crc32
from typing import Final, NamedTuple

from .address import Address
from .clients import Client

_FORM: Final = "remuda-trail-1"


class Trail(NamedTuple):
    """`target` is the pane of the last jump, all else the place before the first."""

    server_pid: int
    client_pid: int
    session_id: str
    window_id: str
    pane_id: str
    is_zoomed: bool
    target: str


def next_trail(known: Trail | None, client: Client, server_pid: int, target: str) -> Trail:
    if known is not None and client.pane_id == known.target:
        return known._replace(target=target)
    return Trail(
        server_pid, client.pid, client.session_id, client.window_id, client.pane_id, client.is_zoomed, target
    )


class TrailFile:
    """The trail of one client. Its folder is the caller's to make."""

    def __init__(self, folder: str | os.PathLike[str], address: Address, client: str) -> None:
        safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in client).strip("-")[-60:]
        number = crc32(f"{address.path}\0{client}".encode("utf-8", "surrogateescape"))
        self._path = os.path.join(folder, f"{safe}.{number:08x}")

    def read(self, server_pid: int, client_pid: int) -> Trail | None:
        """None also for what an earlier server or an earlier client of the same name has left."""
        try:
            with open(self._path, encoding="utf-8") as file:
                form, *lines = file.read(4096).split("\n")
        except (OSError, ValueError):
            return None
        if form != _FORM or len(lines) != 8 or lines[-1]:  # torn, or foreign
            return None
        found = Trail(_int(lines[0]), _int(lines[1]), lines[2], lines[3], lines[4], lines[5] == "1", lines[6])
        return found if (found.server_pid, found.client_pid) == (server_pid, client_pid) else None

    def write(self, trail: Trail | None) -> None:
        """None: there is none any more."""
        if trail is None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
            return
        values = [str(int(value)) if isinstance(value, int) else value for value in trail]
        temporary = f"{self._path}.{os.getpid()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, "\n".join([_FORM, *values, ""]).encode())
        finally:
            os.close(fd)
        os.replace(temporary, self._path)


def _int(text: str) -> int:
    return int(text) if text.isdecimal() else -1
