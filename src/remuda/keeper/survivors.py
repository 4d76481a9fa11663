"""Find and end what still runs of a session whose keeper was killed.

A process belongs to a session if it was started with the session's name and folder in its environment, if it
is the program that the record names or its server, if it is in the process session of one of those, if it has
the lost terminal of the session open, or if it descends from any of them. Processes of a living keeper never
count. A daemon that cleared its environment, left its parents and closed its terminal is not found.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from remuda.errors import SessionExists
from remuda.paths import FOLDER_VARIABLE, SessionPaths, home, known_names
from remuda.process_table import (
    Process,
    ProcessEntry,
    locked_files,
    open_files,
    read_table,
    read_variables,
    with_descendants,
)
from remuda.proctree import command_lines

from .claim import read_holder, sweep_stale
from .record import SessionRecord

_NAME_VARIABLE = "REMUDA_SESSION"
_KEEPER = ["-P", "-m", "remuda.keeper"]
"""The words of a keeper's command after the interpreter: see `start`."""
_FORKED = ["-P", "-m", "remuda.keeper.fork_server"]
"""… and of one that could not change the command of its fork server: /proc may be read-only."""
LOOK_INTERVAL = 0.05
_BEFORE_HANGUP = 0.5
KILL_LIMIT = 5.0
_HANGUP_LIMIT = 10.0


def find_survivors(folder: Path) -> dict[str, list[Process]]:
    """Return the survivors by session, of all sessions in `folder` whose record has no end.

    What a session left when it ended in order stays.
    """
    return _search(folder, _open_records(folder))


def _search(folder: Path, records: Mapping[str, SessionRecord]) -> dict[str, list[Process]]:
    if not records:
        return {}
    # In this order: a program that is seen here has a keeper that is seen below, if it has one.
    marked = _marked(folder, records)
    table = read_table()
    spared = with_descendants(_keepers(folder, records), table) | {os.getpid()}
    survivors = {}
    for name, record in sorted(records.items()):
        seeds = {pid for pid in marked.get(name, ()) if pid in table and _is_younger(table[pid], record)}
        seeds |= _of_record(record, table)
        if left := with_kin(seeds - spared, table) - spared:
            survivors[name] = [Process(pid, table[pid].started) for pid in sorted(left)]
    return survivors


def survivors_of(paths: SessionPaths, *, unrecorded: bool = False) -> list[Process]:
    """Return the survivors of one session.

    `unrecorded`: also without a record; for a name that no other session had.
    """
    records = _open_records(paths.folder, paths.name)
    if unrecorded and not paths.record.exists():
        records[paths.name] = SessionRecord(paths.name, "", [], "", 0.0)
    return _search(paths.folder, records).get(paths.name, [])


def _open_records(folder: Path, only: str | None = None) -> dict[str, SessionRecord]:
    """Return the records without an end: their keepers live, or were killed."""
    names = {only} if only else known_names(folder)
    records = (SessionRecord.load(SessionPaths(folder, name).record) for name in names)
    return {one.name: one for one in records if one is not None and one.ended_at is None}


def _marked(folder: Path, names: Collection[str]) -> dict[str, set[int]]:
    pids_by_session: dict[str, set[int]] = {}
    where = os.path.realpath(folder)
    others = (FOLDER_VARIABLE, "REMUDA_HOME", "XDG_STATE_HOME", "HOME")
    for pid, environ in read_variables(_NAME_VARIABLE, others):
        name = environ[_NAME_VARIABLE]
        if name in names and os.path.realpath(_folder_of(environ)) == where:
            pids_by_session.setdefault(name, set()).add(pid)
    return pids_by_session


def _folder_of(environ: Mapping[str, str]) -> Path:
    """Return whether the folder fits: another may have a session of the same name.

    Older versions set only the name.
    """
    named = environ.get(FOLDER_VARIABLE)
    return Path(named) if named else home(environ) / "sessions"


def _is_younger(entry: ProcessEntry, record: SessionRecord) -> bool:
    """Return whether it started with the session's program or later: an earlier session may have had the
    name.
    """
    begun = record.child_started
    return not (begun.isdecimal() and entry.started.isdecimal()) or int(entry.started) >= int(begun)


def _keepers(folder: Path, names: Iterable[str]) -> Iterator[int]:
    """Return keepers that run by their own command, and those that a call of `print` forked, which hold the
    name.
    """
    yield from (pid for pid, words in command_lines() if _is_keeper(pid, words))
    for name in names:
        if holder := read_holder(SessionPaths(folder, name)):
            yield holder.keeper_pid


def _is_keeper(pid: int, words: list[str]) -> bool:
    """Return keepers by their command.

    A keeper with a program holds a lock. Without /proc, a path with blanks is several words.
    """
    if not sys.platform.startswith("linux"):
        return f" {' '.join(_KEEPER)} " in " ".join(words)
    return words[1:4] in (_KEEPER, _FORKED) and any(locked_files(pid, ".pid"))


def _of_record(record: SessionRecord, table: dict[int, ProcessEntry]) -> set[int]:
    """Return the program itself, and processes that have its terminal open: its number is not reused while
    they do.
    """
    processes = {record.child_pid: record.child_started, record.companion_pid: record.companion_started}
    pids = {pid for pid, started in processes.items() if pid in table and table[pid].started == started}
    if record.terminal and not os.path.exists(record.terminal):  # its master is gone
        pids |= {pid for pid in table if _has_open(pid, record)}
    return pids


def _has_open(pid: int, record: SessionRecord) -> bool:
    for fd, path, removed in open_files(pid):
        if removed and path == record.terminal:
            try:
                created_at = os.stat(f"/proc/{pid}/fd/{fd}").st_ctime_ns
            except OSError:
                continue
            if created_at == record.terminal_made:
                return True
    return False


def with_kin(seeds: set[int], table: dict[int, ProcessEntry]) -> set[int]:
    """Add their descendants, and all in process sessions that one of them leads or whose leader has ended."""
    family = with_descendants(seeds, table)
    sessions = {table[pid].session for pid in family}
    own = {one for one in sessions if one > 1 and (one in family or one not in table)}
    return with_descendants([*family, *(pid for pid, entry in table.items() if entry.session in own)], table)


def end_survivors(paths: SessionPaths, grace: float) -> tuple[int, list[Process]]:
    """End what is left of a session: TERM, then HUP, then KILL after `grace` seconds.

    Returns how many there were, and those that even SIGKILL did not end.
    """
    begun = time.monotonic()
    sent: dict[Process, int] = {}
    left: list[Process] = []
    while (now := time.monotonic() - begun) < grace + KILL_LIMIT and (left := survivors_of(paths)):
        signal_all(left, now, grace, sent)
        time.sleep(LOOK_INTERVAL)
    return len(sent), left


def remove_leftovers(paths: SessionPaths) -> None:
    """Remove the files that a keeper has only while it lives. Its record and inbox stay."""
    import shutil

    sweep_stale(paths)
    if read_holder(paths) is None:
        shutil.rmtree(paths.scratch, ignore_errors=True)


def signal_all(processes: Iterable[Process], now: float, grace: float, sent: dict[Process, int]) -> None:
    """Send each process its next signal, `now` seconds after the beginning. `sent` has their last ones."""
    for process in processes:
        signal_number = signal_for(now, grace, sent.get(process))
        if signal_number is not None:
            process.signal(signal_number)
            process.signal(signal.SIGCONT)  # a stopped process takes its TERM only when it runs
            sent[process] = signal_number


def signal_for(now: float, grace: float, before: int | None) -> int | None:
    """Return the next signal for a process that got `before`, `now` seconds after the beginning; None for
    none.
    """
    if now >= grace:
        return signal.SIGKILL
    if before is None:
        return signal.SIGTERM
    # Interactive shells ignore TERM and obey HUP.
    return signal.SIGHUP if before == signal.SIGTERM and now >= _BEFORE_HANGUP else None


def check_survivors(paths: SessionPaths) -> None:
    """Raise `SessionExists` when processes are left of a session of that name whose keeper was killed.

    An agent whose terminal is gone ends by itself, on a busy machine within seconds: we wait for that.
    """
    deadline = time.monotonic() + _HANGUP_LIMIT
    while (left := survivors_of(paths)) and (remaining := deadline - time.monotonic()) > 0:
        left[0].wait(remaining)
    if left:
        pids = ", ".join(str(one.pid) for one in left[:5]) + (", …" if len(left) > 5 else "")
        raise SessionExists(
            f"the keeper of '{paths.name}' was killed, and {len(left)} of its processes still run ({pids})",
            hint=f"'remuda kill {paths.name}' ends them",
        )
