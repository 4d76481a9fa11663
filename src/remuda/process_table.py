"""All visible processes at one moment: parents, process sessions, start times, some variables.

A pid alone does not identify a process, because pids are reused. Here a process is identified by its pid and
its start time, and is signalled by a descriptor where the system has such.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator

from .frozen import frozen
from .proctree import _output_of_ps, _stat, _variables, all_pids, is_alive, start_ticks
from .readable import is_readable

_LINUX = sys.platform.startswith("linux")
_DELETED = " (deleted)"
_POLL_INTERVAL = 0.05


@frozen
class Process:
    """A process that lives, or lived: no other has its pid and start time."""

    pid: int
    started: str

    def signal(self, signal_number: int) -> None:
        """Send a signal. Does nothing if the process has ended, or is another user's."""
        fd = _open(self.pid)
        try:
            if start_ticks(self.pid) != self.started:
                return
            if fd is None:
                os.kill(self.pid, signal_number)
            else:
                import signal  # slow to load, and rarely needed

                signal.pidfd_send_signal(fd, signal_number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            if fd is not None:
                os.close(fd)

    def wait(self, timeout: float) -> None:
        """Return when it has ended, or after `timeout` seconds; without pidfd after a moment at most."""
        fd = _open(self.pid)
        if fd is None:
            time.sleep(min(timeout, _POLL_INTERVAL))
            return
        try:
            if start_ticks(self.pid) == self.started:
                is_readable(fd, timeout)
        finally:
            os.close(fd)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # no such thing here, no such process, or no descriptor left
        return None


@frozen
class ProcessEntry:
    parent: int
    session: int
    started: str


def read_table() -> dict[int, ProcessEntry]:
    """Return all living processes by their pids, without zombies."""
    return dict(_read_proc() if _LINUX else _read_ps())


def _read_proc() -> Iterator[tuple[int, ProcessEntry]]:
    for pid in all_pids():
        if (fields := _stat(pid)) and fields[0] not in ("Z", "X"):
            yield pid, ProcessEntry(int(fields[1]), int(fields[3]), fields[19])


def _read_ps() -> Iterator[tuple[int, ProcessEntry]]:
    for line in _output_of_ps("-axo", "pid=,ppid=,sess=,stat=,lstart=").splitlines():
        pid, parent, _, state, started = line.split(None, 4)
        if not state.startswith("Z"):
            yield int(pid), ProcessEntry(int(parent), _session_of(int(pid)), started.strip())


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def with_descendants(pids: Iterable[int], table: dict[int, ProcessEntry]) -> set[int]:
    """Return those of `pids` that are in the table, and their descendants."""
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    family: set[int] = set()
    queue = [pid for pid in pids if pid in table]
    while queue:
        if (pid := queue.pop()) not in family:
            family.add(pid)
            queue += children.get(pid, [])
    return family


def read_variables(first: str, others: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Return the values of `first` and `others` for each process that was started with `first`."""
    for pid, words in _environments(first):
        pairs = (word.partition("=") for word in words)
        variables = {name: value for name, _, value in pairs if name == first or name in others}
        if first in variables:
            yield pid, variables


def with_variable(name: str, value: str) -> Iterator[int]:
    """Yield living processes but this one with that in their environment, whatever their ancestors."""
    for pid, variables in read_variables(name, ()):
        if variables[name] == value and pid != os.getpid() and is_alive(pid):
            yield pid


def _environments(first: str) -> Iterator[tuple[int, Iterable[str]]]:
    if _LINUX:
        mark = f"{first}=".encode()
        for pid in all_pids():
            variables = _variables(pid)
            if any(one.startswith(mark) for one in variables):
                yield pid, map(os.fsdecode, variables)
        return
    for line in _output_of_ps("axeww", "-o", "pid=,command=").splitlines():
        number, *words = line.split()
        yield int(number), words


def open_files(pid: int) -> Iterator[tuple[int, str, bool]]:
    """Yield each descriptor of a process: its number, the file's path, and whether that was removed.

    Linux only.
    """
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for fd in numbers:
        try:
            path = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        yield int(fd), path.removesuffix(_DELETED), path.endswith(_DELETED)


def locked_files(pid: int, suffix: str) -> Iterator[tuple[str, bool]]:
    """Yield each file with this suffix that the process itself has locked (flock): its path, and whether it
    was removed. Linux only.
    """
    for fd, path, removed in open_files(pid):
        if path.endswith(suffix) and _has_locked(pid, fd):
            yield path, removed


def _has_locked(pid: int, fd: int) -> bool:
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}") as file:
            return any(_is_lock_of(pid, line.split()) for line in file)
    except OSError:
        return False


def _is_lock_of(pid: int, words: list[str]) -> bool:
    """Read a line such as `lock: 1: FLOCK ADVISORY WRITE 2103 fe:00:2146632 0 EOF`.

    A forked process has the same line.
    """
    return words[:1] == ["lock:"] and words[2:6] == ["FLOCK", "ADVISORY", "WRITE", str(pid)]


def lock_holders(suffix: str, but: Collection[str] = ()) -> Iterator[tuple[Process, str, bool]]:
    """Yield each process with its `locked_files`. Linux only.

    `but`: files by their `lock_name`; a process that has locked one of them is not searched.
    """
    for pid in _lockers(but) if _LINUX else ():
        for path, removed in locked_files(pid, suffix):
            if started := start_ticks(pid):
                yield Process(pid, started), path, removed


def lock_name(device: int, inode: int) -> str:
    """Return how the kernel names a locked file. Some file systems have another device in `stat`."""
    return f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"


def _lockers(but: Collection[str]) -> Iterable[int]:
    """Return the processes that have a file locked. The kernel lists them: that is much quicker than to look
    at every file of every process.
    """
    try:
        with open("/proc/locks") as file:
            lines = [line.split() for line in file]
    except OSError:  # not every kernel has this list
        return all_pids()
    # `->` is before a process that waits for a lock.
    kind = ["FLOCK", "ADVISORY", "WRITE"]
    locks = [words[4:6] for words in lines if words[1:4] == kind and words[4].isdecimal()]
    return {int(pid) for pid, _ in locks} - {int(pid) for pid, name in locks if name in but}
