"""A session's name on disk: who holds it, its socket and its pid file.

The pid file is locked by the keeper for as long as it lives; the lock, not the number in the file, says
that a session is alive, so that a stale, empty or garbled file is simply replaced. The socket is bound
under another name and renamed when it listens: whoever sees it can connect to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from remuda.duration import show_duration
from remuda.errors import FolderUnusable, SessionExists
from remuda.frozen import frozen
from remuda.paths import SessionPaths, SocketAddress, private_folder
from remuda.proctree import is_alive

_BACKLOG = 128
_LOOKERS_PATIENCE = 2.0


@frozen
class Holder:
    """Who holds a session's name. The numbers are 0 where the file does not tell."""

    keeper_pid: int
    child_pid: int
    since: float  # wall clock

    @property
    def uptime(self) -> float:
        return max(0.0, time.time() - self.since)


def read_holder(paths: SessionPaths) -> Holder | None:
    """The live keeper of that name, or None. Looks at the lock; changes nothing."""
    try:
        fd = os.open(paths.pid, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _lock(fd, fcntl.LOCK_SH):  # shared: those who only look do not disturb each other
            return None
        keeper, child = _parse_pids(os.pread(fd, 64, 0))
        return Holder(keeper, child, os.fstat(fd).st_mtime)
    finally:
        os.close(fd)


def _lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _lock_patiently(fd: int) -> bool:
    """Lock it, unless a keeper has it. Somebody who only looks has it for a moment, and is waited for."""
    deadline = time.monotonic() + _LOOKERS_PATIENCE
    while not _lock(fd):
        keeper, _ = _parse_pids(os.pread(fd, 64, 0))
        if is_alive(keeper) or time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _parse_pids(data: bytes) -> tuple[int, int]:
    numbers = [int(line) for line in data.split() if line.isdigit()][:2]
    keeper, child = [*numbers, 0, 0][:2]
    return keeper, child


def live_names(folder: Path) -> Iterator[str]:
    """Names with a live keeper, in order. Files of dead ones are removed, as Heimdall's `ls` does."""
    try:
        found = sorted(entry[: -len(".sock")] for entry in os.listdir(folder) if entry.endswith(".sock"))
    except FileNotFoundError:
        return
    for name in found:
        paths = SessionPaths(folder, name)
        if name.startswith("."):
            continue
        if read_holder(paths) is not None:
            yield name
        else:
            sweep_stale(paths)


def sweep_stale(paths: SessionPaths) -> bool:
    """Remove the socket and pid file of a dead keeper. The lock is taken first, so none is swept alive.

    A socket without a pid file is nobody's we know; one that answers is alive, whatever its files say.
    """
    try:
        fd = os.open(paths.pid, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not _lock(fd) or not _is_at(fd, paths.pid):
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


def _is_at(fd: int, path: Path) -> bool:
    """Is the open file still the one at `path`? Between open and lock its last owner may have removed it."""
    here = os.fstat(fd)
    return _identity(path) == (here.st_dev, here.st_ino)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class Claim:
    """Sole right to a session's name, until `release` or the end of the process."""

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
        while True:
            try:
                fd = os.open(paths.pid, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise FolderUnusable(f"cannot write {paths.pid}: {error.strerror}") from error
            if not _lock_patiently(fd):
                os.close(fd)
                raise already_running(paths)
            if _is_at(fd, paths.pid):
                os.fchmod(fd, 0o600)
                return cls(paths, fd)
            os.close(fd)

    def listen(self) -> socket.socket:
        """The session's socket, which can be connected to from the moment it can be seen."""
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
            made = os.stat(self.paths.socket)
        except OSError as error:
            listener.close()
            hidden.unlink(missing_ok=True)
            raise FolderUnusable(f"cannot listen on {self.paths.socket}: {error.strerror}") from error
        finally:
            os.umask(before)
        self._socket_id = (made.st_dev, made.st_ino)
        return listener

    def write_pids(self, keeper_pid: int, child_pid: int) -> None:
        """Readable at any moment, also in the middle of this."""
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
        if not _is_at(self._fd, self.paths.pid):
            taken = Claim.take(self.paths)
            since = os.fstat(self._fd).st_mtime_ns
            os.close(self._fd)
            self._fd = taken._fd
            self.write_pids(*self._pids)
            os.utime(self._fd, ns=(since, since))  # it says how long the session has run
        elif _identity(self.paths.socket) == self._socket_id:
            return None
        self._listener = self._bind()
        return self._listener

    def release(self) -> None:
        """Remove our files, and only ours: the name may have been taken over if somebody deleted them."""
        if self._fd < 0:
            return
        try:
            self._remove_files()
        finally:
            os.close(self._fd)
            self._fd = -1

    def _remove_files(self) -> None:
        if self._socket_id is not None and _identity(self.paths.socket) == self._socket_id:
            self.paths.socket.unlink(missing_ok=True)
        if _is_at(self._fd, self.paths.pid):
            self.paths.pid.unlink(missing_ok=True)


def already_running(paths: SessionPaths) -> SessionExists:
    holder = read_holder(paths)
    who = f" (pid {holder.keeper_pid}, up {show_duration(holder.uptime)})" if holder else ""
    return SessionExists(
        f"session '{paths.name}' is already running{who}",
        hint=f"attach to it with 'remuda attach {paths.name}', or end it with 'remuda kill {paths.name}'",
    )
