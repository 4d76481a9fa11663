"""Background agents that a service of their own keeps: what their folders say, looked at in each cycle.

While one lives its registry file, hooks and transcript tell of it as of any other session. Here is what only
its folder tells: that it waits though its process is not there, and that it was stopped or removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from remuda.agents.claude.jobs import Job, ended_event, read_job, rests_event
from remuda.durable import read_regular
from remuda.untrusted import BadJson, parse_object

from ..attention.model import Event, Session

_FILE = "state.json"


class _Known(NamedTuple):
    seen: tuple[int, int]
    job: Job


class Jobs:
    """All jobs in some folders. Files are read when they have changed."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._known: dict[Path, _Known] = {}
        self._changed: dict[Path, Job] = {}

    def add_folder(self, folder: Path) -> None:
        """Also one that does not exist yet."""
        self._folders.add(folder)

    def news(
        self, now: float, known: Callable[[str], Session | None], lives: Callable[[str], bool]
    ) -> list[Event]:
        """What they tell since the last time. `known` is None for a session that we never heard of."""
        self._scan()
        changed, self._changed = list(self._changed.values()), {}
        removed = [self._known.pop(path).job for path in list(self._known) if not path.parent.exists()]
        events = [_told(job, known(job.session_id), lives=lives(job.session_id)) for job in changed]
        events += [
            ended_event(job, now, "it was removed") for job in removed if _is_here(known(job.session_id))
        ]
        return [event for event in events if event is not None]

    def of(self, session_id: str) -> Job | None:
        """What is so now."""
        self._scan()
        found = (path for path, known in self._known.items() if known.job.session_id == session_id)
        return next((self._known[path].job for path in found if path.exists()), None)

    def _scan(self) -> None:
        for folder in self._folders:
            for name in sorted(_listed(folder)):
                self._read(folder / name / _FILE)

    def _read(self, path: Path) -> None:
        """What is half written is read again."""
        try:
            found = os.stat(path)
            seen = (found.st_ino, found.st_mtime_ns)
            if path in self._known and self._known[path].seen == seen:
                return
            job = read_job(parse_object(read_regular(path, own=True)))
        except (OSError, BadJson):
            return
        if job is not None:
            self._known[path] = _Known(seen, job)
            self._changed[path] = job


def _told(job: Job, session: Session | None, *, lives: bool) -> Event | None:
    """Nothing of one that is done and whose process is gone: the agents' own list does not show it either."""
    if job.state == "stopped":
        return ended_event(job, job.at, "it was stopped") if _is_here(session) else None
    if session is None and job.state == "blocked" and not lives:
        return come_to_rest(job)
    return None


def _is_here(session: Session | None) -> bool:
    return session is not None and session.ended is None


def come_to_rest(job: Job) -> Event:
    """Its transcript says more, where there is one."""
    return rests_event(job, message=not (job.transcript and os.path.exists(job.transcript)))


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
