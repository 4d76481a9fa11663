"""The socket on disk where a pool is served, and the lock on it.

Next to `pool.sock` is `pool.sock.pid`. The server holds a lock on it for as long as it lives, as a keeper
does: the lock shows who serves, and a socket without one is replaced.
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

from .pool_connection import connect

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
