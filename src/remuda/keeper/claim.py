"""A session's name on disk: its owner, its socket and its pid file.

The keeper locks the pid file for its lifetime. The lock, not the number in the file, says that a session is
alive, so a stale, empty or garbled file is simply replaced. The socket is bound under another name and
renamed once it listens: a client that sees it can connect to it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from remuda import lockfile
from remuda.duration import show_duration
from remuda.errors import FolderUnusable, SessionExists
from remuda.frozen import frozen
from remuda.paths import SessionPaths, SocketAddress, private_folder
from remuda.proctree import is_alive

_BACKLOG = 128


@frozen
class LiveKeeper:
    """The processes that own a session's name. A pid is 0 if the file does not contain it."""

    keeper_pid: int
    child_pid: int
    since: float  # wall clock

    @property
    def uptime(self) -> float:
        return max(0.0, time.time() - self.since)


def read_holder(paths: SessionPaths) -> LiveKeeper | None:
    """Return the live keeper of that name, or None. Probes the lock; changes nothing."""
    try:
        fd = os.open(paths.pid, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not lockfile.is_locked(fd):
            return None
        keeper, child = _parse_pids(os.pread(fd, 64, 0))
        return LiveKeeper(keeper, child, os.fstat(fd).st_mtime)
    finally:
        os.close(fd)


def _has_live_keeper(fd: int) -> bool:
    return is_alive(_parse_pids(os.pread(fd, 64, 0))[0])


def _parse_pids(data: bytes) -> tuple[int, int]:
    numbers = [int(line) for line in data.split() if line.isdigit()][:2]
    keeper, child = [*numbers, 0, 0][:2]
    return keeper, child


def live_names(folder: Path) -> Iterator[str]:
    """Yield names with a live keeper, in order. Removes files of dead ones, as Heimdall's `ls` does."""
    try:
        names = sorted(entry[: -len(".sock")] for entry in os.listdir(folder) if entry.endswith(".sock"))
    except FileNotFoundError:
        return
    for name in names:
        paths = SessionPaths(folder, name)
        if name.startswith("."):
            continue
        if read_holder(paths) is not None:
            yield name
        else:
            sweep_stale(paths)


def sweep_stale(paths: SessionPaths) -> bool:
    """Remove the socket and pid file of a dead keeper. Returns whether they were removed.

    It takes the lock first, so a live keeper keeps its files. A socket without a pid file stays, since its
    owner is unknown; so does a socket that accepts connections.
    """
    try:
        fd = os.open(paths.pid, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not lockfile.try_lock(fd) or not lockfile.is_at(fd, paths.pid):
            return False
        if _answers(paths.socket):
            return False
        paths.socket.unlink(missing_ok=True)
        paths.pid.unlink(missing_ok=True)
        return True
    finally:
        os.close(fd)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, SocketAddress(path) as address:
        return probe.connect_ex(address) == 0


class Claim:
    """Sole ownership of a session's name, until `release` or the end of the process."""

    def __init__(self, paths: SessionPaths, fd: int) -> None:
        self.paths = paths
        self._fd = fd
        self._socket_id: tuple[int, int] | None = None
        self._listener: socket.socket | None = None
        self._pids = (0, 0)

    @classmethod
    def take(cls, paths: SessionPaths) -> Claim:
        """Raise `SessionExists` when a live keeper has the name."""
        private_folder(paths.folder)
        try:
            fd = lockfile.acquire(paths.pid, _has_live_keeper)
        except OSError as error:
            raise FolderUnusable(f"cannot write {paths.pid}: {error.strerror}") from error
        if fd is None:
            raise already_running(paths)
        os.fchmod(fd, 0o600)
        return cls(paths, fd)

    def listen(self) -> socket.socket:
        """Return the session's socket. Clients can connect to it from the moment it is visible."""
        if self._listener is None:
            self._listener = self._bind()
        return self._listener

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        hidden = self.paths.socket.with_name(f".{self.paths.name}.{os.getpid()}.sock")
        before = os.umask(0o177)
        try:
            hidden.unlink(missing_ok=True)
            with SocketAddress(hidden) as address:
                listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            os.rename(hidden, self.paths.socket)
            created = os.stat(self.paths.socket)
        except OSError as error:
            listener.close()
            hidden.unlink(missing_ok=True)
            raise FolderUnusable(f"cannot listen on {self.paths.socket}: {error.strerror}") from error
        finally:
            os.umask(before)
        self._socket_id = (created.st_dev, created.st_ino)
        return listener

    def write_pids(self, keeper_pid: int, child_pid: int) -> None:
        """Write both pids. A reader gets a valid file at any moment."""
        self._pids = keeper_pid, child_pid
        text = f"{keeper_pid}\n{child_pid}".encode()
        os.pwrite(self._fd, text + b"\n", 0)
        os.ftruncate(self._fd, len(text))

    def restore(self) -> socket.socket | None:
        """Put back the pid file and the socket if they were removed. Returns the new socket.

        Raises `SessionExists` when another keeper has the name by now.
        """
        if self._fd < 0:
            return None
        if not lockfile.is_at(self._fd, self.paths.pid):
            taken = Claim.take(self.paths)
            since = os.fstat(self._fd).st_mtime_ns
            os.close(self._fd)
            self._fd = taken._fd
            self.write_pids(*self._pids)
            os.utime(self._fd, ns=(since, since))  # the uptime is read from it
        elif lockfile.file_identity(self.paths.socket) == self._socket_id:
            return None
        self._listener = self._bind()
        return self._listener

    def release(self) -> None:
        """Remove our files, and only ours: after a deletion another keeper may have taken the name."""
        if self._fd < 0:
            return
        try:
            self._remove_files()
        finally:
            os.close(self._fd)
            self._fd = -1

    def _remove_files(self) -> None:
        if self._socket_id is not None and lockfile.file_identity(self.paths.socket) == self._socket_id:
            self.paths.socket.unlink(missing_ok=True)
        if lockfile.is_at(self._fd, self.paths.pid):
            self.paths.pid.unlink(missing_ok=True)


def already_running(paths: SessionPaths) -> SessionExists:
    owner = read_holder(paths)
    who = f" (keeper pid {owner.keeper_pid}, up {show_duration(owner.uptime)})" if owner else ""
    return SessionExists(
        f"session '{paths.name}' is already running{who}",
        hint=f"attach to it with 'remuda attach {paths.name}', or end it with 'remuda kill {paths.name}'",
    )
