"""One boss per user. It is alive while the file is locked, whatever pid is in it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from remuda import lockfile
from remuda.errors import BossExists, WaitTimeout
from remuda.proctree import is_alive
from remuda.untrusted import dump_json, parse_object

_LOOK_INTERVAL = 0.02


@dataclass(frozen=True, slots=True)
class BossHolder:
    pid: int
    port: int = 0


class BossLock:
    """Held from `acquire` to `release`, or until the process ends."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def acquire(cls, path: Path) -> BossLock:
        """Raises `BossExists`."""
        fd = lockfile.acquire(path, _has_live_boss)
        if fd is None:
            holder = find_holder(path)
            pid = f" (pid {holder.pid})" if holder and holder.pid else ""
            raise BossExists(f"the boss is already running{pid}", hint="'remuda boss down' stops it")
        return cls(path, fd)

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
    """Return the running boss; None if there is none. One that has just started has pid 0."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return (_read(fd) or BossHolder(0)) if lockfile.is_locked(fd) else None
    finally:
        os.close(fd)


def wait_until_free(path: Path, timeout: float) -> None:
    """Raises `WaitTimeout` if a boss is still alive then."""
    deadline = time.monotonic() + timeout
    while find_holder(path) is not None:
        if time.monotonic() > deadline:
            raise WaitTimeout(f"the boss did not end within {timeout:g} s")
        time.sleep(_LOOK_INTERVAL)


def _has_live_boss(fd: int) -> bool:
    holder = _read(fd)
    return holder is not None and is_alive(holder.pid)


def _read(fd: int) -> BossHolder | None:
    try:
        holder = parse_object(os.pread(fd, 4096, 0))
        return BossHolder(int(holder["pid"]), int(holder["port"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
