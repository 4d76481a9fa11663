"""Processes: descendants, start times, signals, environments, and the adoption of orphans.

The kernel forgets a process's ancestry when its parent dies. A keeper therefore makes itself the reaper of
its descendants' orphans, and the walk from the keeper finds every one of them, also those in process sessions
of their own (an agent's shell tool starts one) and daemons that forked twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_DESCRIPTORS = 1024
_LINUX = sys.platform.startswith("linux")


def adopt_orphans() -> bool:
    """Become the reaper of all descendants' orphans. Returns False where the system does not support that."""
    if not _LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants(pid: int, *, surely: bool = False) -> list[int]:
    """Return all living descendants of `pid`, parents before children, without zombies."""
    # The kernel's own lists are quick, but may miss a process while others exit. So an empty result comes
    # only from a scan of all processes; with `surely`, every result does.
    return (not surely and _listed_descendants(pid)) or _searched_descendants(pid)


def children(pid: int) -> list[int]:
    """Return the living children of `pid`; none where the system has no list of them."""
    return [kid for kid in _listed_children(pid) if is_alive(kid)]


def _listed_descendants(pid: int) -> list[int]:
    pids: list[int] = []
    queue = [pid]
    while queue:
        kids = children(queue.pop(0))
        pids += kids
        queue += kids
    return pids


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
    pids: list[int] = []
    queue = [pid]
    while queue:
        kids = children.get(queue.pop(0), [])
        pids += kids
        queue += kids
    return pids


def all_pids() -> Iterator[int]:
    """Yield the pids of all visible processes, also of zombies. Linux only."""
    return map(int, filter(str.isdecimal, os.listdir("/proc")))


def _living() -> Iterator[tuple[int, int]]:
    return _living_proc() if _LINUX else _living_ps()


def _living_proc() -> Iterator[tuple[int, int]]:
    for pid in all_pids():
        if (fields := _stat(pid)) and fields[0] not in ("Z", "X"):
            yield pid, int(fields[1])


def _living_ps() -> Iterator[tuple[int, int]]:
    import subprocess

    words = ["ps", "-axo", "pid=,ppid=,stat="]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listing:
        for line in listing.communicate()[0].splitlines():
            pid, parent, state = line.split(None, 2)
            if not state.startswith("Z") and int(pid) != listing.pid:  # it is a child of ours itself
                yield int(pid), int(parent)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; the command before it may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    """Return whether a process with that pid exists and is not a zombie. Any user's process counts."""
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
        pass
    return not _asked_of_ps(pid, "stat").startswith("Z")


def ancestors(pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on. Linux; elsewhere by one call of ps for each."""
    seen = {pid}
    while True:
        if _LINUX:
            fields = _stat(pid)
            parent = fields[1] if fields else ""
        else:
            parent = _asked_of_ps(pid, "ppid").strip()
        pid = int(parent) if parent.isdigit() else 0
        if pid <= 0 or pid in seen:
            return
        seen.add(pid)
        yield pid


def send_signal(pid: int, signal_number: int) -> None:
    """Send a signal. Does nothing if the process has ended, or is another user's."""
    try:
        os.kill(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        pass


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """Yield the words of the commands of all visible processes; only the first of very many."""
    if not _LINUX:
        for line in _output_of_ps("-axww", "-o", "pid=,command=").splitlines():
            number, *words = line.split()
            yield int(number), words
        return
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                yield pid, file.read(4096).decode(errors="replace").split("\0")
        except OSError:
            continue


def command_of(pid: int) -> list[str]:
    """Return the words of the command of a process; empty if it has ended."""
    if not _LINUX:
        return _asked_of_ps(pid, "command").split()
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            text = file.read(4096).decode(errors="replace").removesuffix("\0")
    except OSError:
        return []
    return text.split("\0") if text else []


def folder_of(pid: int) -> str | None:
    """Return the working folder of a process; None if it is not known."""
    if _LINUX:
        try:
            return os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return None
    import subprocess

    command = ["lsof", "-a", "-p", str(pid), "-d", "cwd", "-Fn"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    except OSError:
        return None
    return next((line[1:] for line in lines.splitlines() if line.startswith("n")), None)


def variable_of(pid: int, name: str) -> str | None:
    """Return the value of a variable that a process was started with; None if missing or unknown."""
    if not _LINUX:
        # As `ps e` shows variables, after the words of the command: values without blanks.
        words = _output_of_ps("eww", "-o", "command=", "-p", str(pid)).split()
        values = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
        return values[-1] if values else None
    mark = f"{name}=".encode()
    variable = next((one for one in _variables(pid) if one.startswith(mark)), None)
    return None if variable is None else os.fsdecode(variable[len(mark) :])


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def start_ticks(pid: int) -> str | None:
    """Return when the process started, by the system's count: it distinguishes processes that reuse a pid."""
    if _LINUX:
        fields = _stat(pid)
        return fields[19] if fields else None
    return _asked_of_ps(pid, "lstart") or None


def _asked_of_ps(pid: int, column: str) -> str:
    """Return the start time by `ps`. Empty if the process does not exist."""
    return _output_of_ps("-o", f"{column}=", "-p", str(pid)).strip()


def _output_of_ps(*words: str) -> str:
    import subprocess

    # As Claude Code reads there when a process began (2.1.325), which it writes into its registry.
    env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", *words]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, errors="replace", check=False
    ).stdout


def close_all_but(*kept: int) -> None:
    """Close all descriptors but these and the standard streams.

    A caller may have left a lock or a pipe open.
    """
    try:
        descriptors = [int(entry) for entry in os.listdir("/dev/fd")]
    except OSError:  # this folder does not exist everywhere
        descriptors = list(range(_DESCRIPTORS))
    for fd in descriptors:
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:  # the descriptor that listed them
                pass
