"""Where a pool is served: its socket on disk, and the sole right to it.

Beside `pool.sock` lies `pool.sock.pid`, locked for as long as the server lives, as a keeper's is: the lock
says who serves, and a socket that was left behind is replaced.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from remuda.duration import show_duration
from remuda.errors import FolderUnusable, PoolNotServed, SessionExists
from remuda.keeper.claim import Claim, read_holder
from remuda.paths import SessionPaths

from .line import connect

_PROBE_TIMEOUT = 5.0


class PoolPaths(SessionPaths):
    """`name` is the socket's own."""

    @property
    def socket(self) -> Path:
        return self.folder / self.name

    @property
    def pid(self) -> Path:
        return self.folder / f"{self.name}.pid"


class Door:
    """From `open` to `close`. Not for two threads."""

    def __init__(self, path: str) -> None:
        whole = Path(path).expanduser().absolute()
        self.path = str(whole)
        self._paths = PoolPaths(whole.parent, whole.name)
        self._claim: Claim | None = None
        self._made: tuple[int, int] | None = None

    def open(self) -> socket.socket:
        """Accepting from the moment it can be seen, by this user alone. Raises `SessionExists` when somebody
        serves there, and `FolderUnusable` where others could put something in its place."""
        try:
            self._claim = Claim.take(self._paths)
        except SessionExists:
            raise self._taken() from None
        try:
            self._look()
            self._claim.write_pids(os.getpid(), os.getpid())
            listener = self._claim.listen()
        except BaseException:
            self.close()
            raise
        self._made = self._there()
        return listener

    def _look(self) -> None:
        """Whoever answers without holding the lock is no server of ours, and still not ours to replace."""
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

    def _there(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def hide(self) -> None:
        """Who comes now finds nobody; those who have come are heard. Only what we made is removed."""
        if self._made is not None and self._there() == self._made:
            os.unlink(self.path)
        self._made = None

    def close(self) -> None:
        """Idempotent."""
        self.hide()
        if self._claim is not None:
            self._claim.release()
            self._claim = None
