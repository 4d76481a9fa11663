"""Watch for processes that end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from remuda.proctree import is_alive, start_ticks


class Processes:
    """Calls `ended` with each pid, once. On a system without descriptors of processes, call `poll`."""

    def __init__(self, ended: Callable[[int], None], *, by_descriptor: bool = True) -> None:
        self._ended = ended
        self._by_descriptor = by_descriptor
        self._watched: dict[int, int] = {}
        """pid → descriptor; -1 without one."""

    def watch(self, pid: int) -> bool:
        """Return False if the process does not exist."""
        if pid in self._watched:
            return True
        if not is_alive(pid):
            return False
        try:
            fd = os.pidfd_open(pid) if self._by_descriptor else -1
        except ProcessLookupError:
            return False
        except (OSError, AttributeError):
            fd = -1
        self._watched[pid] = fd
        if fd >= 0:
            asyncio.get_running_loop().add_reader(fd, self._end, pid)
        return True

    def holds(self, pid: int) -> bool:
        """Whether the pid has meant the same process since it is watched."""
        return self._watched.get(pid, -1) >= 0

    def poll(self) -> None:
        """Check the processes that have no descriptor."""
        for pid in [pid for pid, fd in self._watched.items() if fd < 0 and not is_alive(pid)]:
            self._end(pid)

    def keep(self, wanted: set[int]) -> None:
        """Stop watching all others."""
        for pid in self._watched.keys() - wanted:
            self._forget(pid)

    def _end(self, pid: int) -> None:
        self._forget(pid)
        self._ended(pid)

    def _forget(self, pid: int) -> None:
        fd = self._watched.pop(pid, -1)
        if fd >= 0:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        self.keep(set())


def started_at(pid: int) -> float | None:
    """Return seconds since the epoch; None if the system does not say."""
    try:
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted + float(start_ticks(pid) or "x") / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
