"""Being told when processes end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from remuda.proctree import is_alive, start_ticks


class Processes:
    """`ended` hears the number of each, once. Where there are no descriptors of processes, ask `look`."""

    def __init__(self, ended: Callable[[int], None], *, by_descriptor: bool = True) -> None:
        self._ended = ended
        self._by_descriptor = by_descriptor
        self._watched: dict[int, int] = {}
        """pid → descriptor; -1 where there is none."""

    def watch(self, pid: int) -> bool:
        """False when there is no such process."""
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
            asyncio.get_running_loop().add_reader(fd, self._over, pid)
        return True

    def holds(self, pid: int) -> bool:
        """Whether the number has meant the same process ever since it is watched."""
        return self._watched.get(pid, -1) >= 0

    def look(self) -> None:
        """At those that have no descriptor to tell of their end."""
        for pid in [pid for pid, fd in self._watched.items() if fd < 0 and not is_alive(pid)]:
            self._over(pid)

    def keep(self, wanted: set[int]) -> None:
        """Watch no others any more."""
        for pid in self._watched.keys() - wanted:
            self._forget(pid)

    def _over(self, pid: int) -> None:
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
    """Seconds since the epoch; None where the system does not tell."""
    try:
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted + float(start_ticks(pid) or "x") / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
