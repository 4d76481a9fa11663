"""One boss per user. The lock says that one is alive, not the number in the file."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from remuda.errors import BossExists, WaitTimeout
from remuda.proctree import is_alive
from remuda.untrusted import dump_json, parse_object

_LOOK_INTERVAL = 0.02
_LOOKERS_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class BossHolder:
    pid: int
    port: int = 0


class Lock:
    """Held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def acquire(cls, path: Path) -> Lock:
        """Raises `BossExists`."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if not _lock_patiently(fd):
                holder = _read(fd)
                os.close(fd)
                pid = f" (pid {holder.pid})" if holder else ""
                raise BossExists(f"the boss is already running{pid}", hint="'remuda down' stops it")
            if _is_at(path, fd):
                return cls(path, fd)
            os.close(fd)  # the one before us has just taken its file away

    def tell(self, holder: BossHolder) -> None:
        text = dump_json({"pid": holder.pid, "port": holder.port}) + "\n"
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def find_holder(path: Path) -> BossHolder | None:
    """The boss that is alive; None when there is none. One that has just begun has pid 0."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd) or BossHolder(0)
    finally:
        os.close(fd)
    return None


def wait_until_free(path: Path, timeout: float) -> None:
    """Raises `WaitTimeout` when a boss still lives then."""
    deadline = time.monotonic() + timeout
    while find_holder(path) is not None:
        if time.monotonic() > deadline:
            raise WaitTimeout(f"the boss did not end within {timeout:g} s")
        time.sleep(_LOOK_INTERVAL)


def _lock_patiently(fd: int) -> bool:
    """Lock it, unless a boss has it. Somebody who only looks has it for a moment, and is waited for."""
    deadline = time.monotonic() + _LOOKERS_PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            holder = _read(fd)
            if (holder is not None and is_alive(holder.pid)) or time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_INTERVAL)


def _read(fd: int) -> BossHolder | None:
    try:
        found = parse_object(os.pread(fd, 4096, 0))
        return BossHolder(int(found["pid"]), int(found["port"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
