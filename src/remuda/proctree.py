"""Processes: who descends from whom, when one started, signals to them, and the adoption of orphans.

The kernel forgets a process's ancestry when its parent dies. A keeper therefore makes itself the reaper
of its descendants' orphans, and the walk from the keeper finds every one of them, also those in process
sessions of their own (an agent's shell tool starts one) and daemons that forked twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")


def adopt_orphans() -> bool:
    """Become the reaper of all descendants' orphans. False where the system has no such thing."""
    if not _LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants(pid: int, *, surely: bool = False) -> list[int]:
    """All living descendants of `pid`, parents before children. Zombies are not living."""
    # The kernel's own lists are quick, but may miss one while others exit: that nobody is left is believed
    # only of a look at all, and so is that nobody is new (`surely`).
    return (not surely and _listed_descendants(pid)) or _searched_descendants(pid)


def _listed_descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue:
        kids = [kid for kid in _listed_children(queue.pop(0)) if is_alive(kid)]
        found += kids
        queue += kids
    return found


def _listed_children(pid: int) -> list[int]:
    kids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            kids += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:
        pass
    return kids


def _searched_descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in _living():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    queue = [pid]
    while queue:
        kids = children.get(queue.pop(0), [])
        found += kids
        queue += kids
    return found


def _living() -> Iterator[tuple[int, int]]:
    return _living_proc() if _LINUX else _living_ps()


def _living_proc() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and fields[0] not in ("Z", "X"):
            yield int(entry), int(fields[1])


def _living_ps() -> Iterator[tuple[int, int]]:
    import subprocess

    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=False)
    for line in listing.stdout.splitlines():
        pid, parent, state = line.split(None, 2)
        if not state.startswith("Z"):
            yield int(pid), int(parent)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the command before it may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    """Is there a process of that number that is not a zombie? Says nothing of whose it is."""
    if pid <= 0:
        return False
    if _LINUX:
        fields = _stat(pid)
        return fields is not None and fields[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_signal(pid: int, number: int) -> None:
    """To one that has ended, or is another user's, nothing happens."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def variable_of(pid: int, name: str) -> str | None:
    """What a process was started with under that name; None where it has none or the system does not tell."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    mark = f"{name}=".encode()
    found = next((one for one in variables if one.startswith(mark)), None)
    return None if found is None else os.fsdecode(found[len(mark) :])


def with_variable(name: str, value: str) -> Iterator[int]:
    """Living processes but this one with that in their environment, whatever became of their ancestors."""
    wanted = f"{name}={value}".encode()
    for entry in os.listdir("/proc") if _LINUX else ():
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in variables and is_alive(int(entry)):
                yield int(entry)


def start_ticks(pid: int) -> str | None:
    """When the process started, as the system counts it: tells a process from a later one of its number."""
    if _LINUX:
        fields = _stat(pid)
        return fields[19] if fields else None
    import subprocess

    listing = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout.strip() or None
