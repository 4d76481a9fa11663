"""Bring back sessions that were alive and are wanted: after a reboot, a logout, or a crash.

What is wanted is in their records. How often each was tried is in one file in the same folder, written
before each try. They are started in the order in which they were started before, a few at a time.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from remuda.config import Config
from remuda.durable import read_regular, replace_file
from remuda.errors import FolderUnusable, InvalidOptions, RemudaError, SessionDead, SessionExists
from remuda.frozen import replaced
from remuda.lockfile import FileLock
from remuda.paths import SessionPaths, known_names
from remuda.untrusted import finite, parse_json

from .claim import Claim, read_holder
from .coming_up import has_died
from .compose import compose
from .listing import dead_records
from .record import SessionRecord
from .restart import RestartRule, Tries, comes_back, current_tries, due_at, is_left_alone, next_try
from .spec import DEFAULT_COLS, DEFAULT_ROWS
from .start import start_session
from .survivors import end_survivors

log = logging.getLogger("remuda.keeper.resume")

_START_TIMEOUT = 60.0
_COMING_UP_LIMIT = 20.0
_MOST_BYTES = 4 << 20


class ResumeOutcome(StrEnum):
    RESUMED = "resumed"
    RUNNING = "running"
    """Another process was faster."""
    UNWANTED = "unwanted"
    """A user ended it in the meantime."""
    FAILED = "failed"


class Resumed(NamedTuple):
    record: SessionRecord
    outcome: ResumeOutcome
    error: RemudaError | None = None


class Round(NamedTuple):
    """What one pass over the ended sessions did."""

    done: list[Resumed]
    left_alone: list[tuple[SessionRecord, Tries]]
    next_at: float | None
    """When the next try is due; None if none is planned."""


# ── how often each was tried ──


class TriesFile:
    """The tries of all sessions of a folder. A file that cannot be read counts as empty."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".restarts.json"
        self._folder = folder

    def all(self) -> dict[str, Tries]:
        try:
            document: Any = parse_json(read_regular(self._path, _MOST_BYTES))
        except (OSError, ValueError):
            return {}
        items = document.items() if isinstance(document, dict) else ()
        return {str(name): Tries.read(one) for name, one in items}

    def set(self, name: str, tries: Tries | None) -> None:
        """Save the tries of one session; None forgets them. Raises `FolderUnusable`."""
        try:
            with FileLock(str(self._path.with_suffix(".lock")), _open_private):
                known = known_names(self._folder)
                before = {one: tries for one, tries in self.all().items() if one in known}
                after = _without(before, name) | ({name: tries} if tries is not None else {})
                if after != before:
                    text = json.dumps({one: kept.document() for one, kept in after.items()})
                    replace_file(self._path, text.encode())
        except OSError as error:
            raise FolderUnusable(f"cannot write {self._path}: {error.strerror}") from error


def _open_private(path: str, how: int) -> int:
    return os.open(path, how | os.O_CLOEXEC, 0o600)


def _without(tries: dict[str, Tries], name: str) -> dict[str, Tries]:
    return {one: value for one, value in tries.items() if one != name}


# ── one session ──


def bring_back(
    record: SessionRecord,
    folder: Path,
    config: Config,
    *,
    unless_killed: bool = False,
    coming_up_limit: float = _COMING_UP_LIMIT,
) -> bool:
    """Start an ended session with its conversation. Return False if its agent died while it came up.

    Raises why it cannot be started; with `unless_killed` `SessionDead` if a user has ended it by now. Values
    of `--env` are not saved: a session that had some is refused.
    """
    size = record.cols or DEFAULT_COLS, record.rows or DEFAULT_ROWS
    composed = compose(record.name, (), folder, {"resume": True}, config, size=size)
    if composed.forgotten:
        names = " ".join(f"--env {name}=…" for name in composed.forgotten)
        raise InvalidOptions(
            f"'{record.name}' was started with --env, and these values are not saved: "
            f"{', '.join(composed.forgotten)}",
            hint=f"start it yourself: remuda start {record.name} --resume {names}",
        )
    start_session(replaced(composed.spec, unless_killed=unless_killed), _START_TIMEOUT)
    return not has_died(SessionPaths(folder, record.name), coming_up_limit)


def give_up_restart(paths: SessionPaths) -> bool:
    """Note that an ended session is not wanted any more. Return whether it was wanted.

    Raises `SessionExists` if it is being started now.
    """
    record = SessionRecord.load(paths.record)
    if record is None or not comes_back(record):
        return False
    claim = Claim.take(paths)  # nothing starts it while we write
    try:
        record = SessionRecord.load(paths.record)
        if record is None or not comes_back(record):
            return False
        replaced(record, killed=True).save(paths.record)
    except OSError as error:
        raise FolderUnusable(f"cannot write {paths.record}: {error.strerror}") from error
    finally:
        claim.release()
    return True


# ── all wanted sessions ──


class Restarter:
    """Brings back all sessions that are wanted. `stop` ends a round after the starts that have begun.

    `at_once` are started at the same time: as many as the machine has processors, but 2 to 8. The next one is
    started when an agent has come up, or is still starting after `coming_up_limit` seconds.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        *,
        at_once: int | None = None,
        coming_up_limit: float = _COMING_UP_LIMIT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._config = config
        self._rule = RestartRule(config.restart_tries, config.restart_pause)
        self._tries = TriesFile(folder)
        self.at_once = at_once or max(2, min(8, os.cpu_count() or 2))
        self._coming_up_limit = coming_up_limit
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, int], bool]] = {}
        self.stop = threading.Event()

    def round(self, on_done: Callable[[Resumed], None] = lambda _: None) -> Round:
        """Start what is due now, in order, and return when it is up. Blocks.

        `on_done` is called for each session, in any thread.
        """
        due: list[tuple[SessionRecord, Tries]] = []
        left: list[tuple[SessionRecord, Tries]] = []
        later: list[float] = []
        wanted = sorted(self._wanted(), key=lambda one: (finite(one.started_at), one.name))
        tries = self._tries.all() if wanted else {}
        now = self._clock()
        for record in wanted:
            counted = current_tries(record, tries.get(record.name, Tries()))
            if is_left_alone(counted, self._rule):
                left.append((record, counted))
            elif (at := due_at(counted, self._rule, now)) > now:
                later.append(at)
            else:
                due.append((record, counted))

        def start(one: tuple[SessionRecord, Tries]) -> Resumed | None:
            done = None if self.stop.is_set() else self._start(*one)
            if done is not None:
                on_done(done)
            return done

        with ThreadPoolExecutor(self.at_once, "restart") as pool:
            done = [one for one in pool.map(start, due) if one is not None]
        # One that failed gets its next try after a pause; so may one that runs now.
        soon = (
            [self._clock() + self._rule.pause]
            if any(one.outcome is ResumeOutcome.FAILED for one in done)
            else []
        )
        return Round(done, left, min([*later, *soon], default=None))

    def _wanted(self) -> Iterator[SessionRecord]:
        """Yield the records of sessions to bring back. A record is read again only when it has changed."""
        seen, self._seen = self._seen, {}
        for name in known_names(self._folder):
            paths = SessionPaths(self._folder, name)
            try:
                status = os.stat(paths.record)
            except OSError:
                continue
            sign = status.st_mtime_ns, status.st_ino
            if name not in seen or seen[name][0] != sign:
                record = SessionRecord.load(paths.record)
                seen[name] = sign, record is not None and comes_back(record)
            self._seen[name] = seen[name]
            # Read again when it is known to be dead: its last words may be that a user ended it.
            if seen[name][1] and read_holder(paths) is None:
                record = SessionRecord.load(paths.record)
                if record is not None and record.name == name and comes_back(record):
                    yield record

    def _start(self, record: SessionRecord, tries: Tries) -> Resumed:
        paths = SessionPaths(self._folder, record.name)
        attempt = next_try(record, tries, self._clock())
        try:
            self._tries.set(record.name, attempt)
            log.info("bringing back '%s', try %d of %d", record.name, attempt.count, self._rule.tries)
            if self._bring_back(record, paths):
                return Resumed(record, ResumeOutcome.RESUMED)
            hint = f"'remuda logs {record.name}' prints its output"
            return Resumed(
                record, ResumeOutcome.FAILED, SessionDead("it ended before it was ready", hint=hint)
            )
        except RemudaError as error:
            if isinstance(error, SessionExists) and read_holder(paths) is not None:
                return Resumed(record, ResumeOutcome.RUNNING)
            if isinstance(error, SessionDead):
                return Resumed(record, ResumeOutcome.UNWANTED)
            log.warning("cannot bring back '%s': %s", record.name, error)
            self._note_error(record.name, attempt, error)
            return Resumed(record, ResumeOutcome.FAILED, error)

    def _bring_back(self, record: SessionRecord, paths: SessionPaths) -> bool:
        """Do as `bring_back`. An agent that outlived its keeper is ended first: it has lost its terminal."""

        def start() -> bool:
            limit = self._coming_up_limit
            return bring_back(record, self._folder, self._config, unless_killed=True, coming_up_limit=limit)

        try:
            return start()
        except SessionExists:
            if read_holder(paths) is not None or not end_survivors(paths, self._config.kill_grace)[0]:
                raise
            return start()

    def _note_error(self, name: str, tries: Tries, error: RemudaError) -> None:
        try:
            # Nothing changes by itself: no further try.
            count = self._rule.tries if isinstance(error, InvalidOptions) else tries.count
            self._tries.set(name, replace(tries, count=count, error=str(error)))
        except FolderUnusable as more:
            log.warning("%s", more)


def unwanted_ended(folder: Path, living: set[str]) -> list[str]:
    """Return ended sessions that were killed with their machine, but are not to be restarted."""
    return [
        record.name
        for record in dead_records(folder, living)
        if record.ended_at is None and not comes_back(record) and not record.ephemeral and not record.killed
    ]
