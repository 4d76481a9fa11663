"""Background agents that a service of their own keeps: what their folders say, read at each poll.

While one runs, its registry file, hooks and transcript report it like any other session. Only its folder says
that it waits though its process is gone, and that it was stopped or removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.agents.sources import AgentSources, BackgroundJob
from remuda.durable import read_regular
from remuda.untrusted import BadJson, parse_object

from ..attention.model import BossSession, Event, EventKind, Source


class Jobs:
    """All background jobs of some registries. A file is read when it has changed."""

    def __init__(self) -> None:
        self._registries: dict[Path, AgentSources] = {}
        self._known: dict[Path, BackgroundJob] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._changed: dict[Path, BackgroundJob] = {}

    def add_registry(self, folder: Path, sources: AgentSources) -> None:
        """Watch a folder, also one that does not exist yet."""
        self._registries[folder] = sources

    def poll(
        self, now: float, find_session: Callable[[str], BossSession | None], runs: Callable[[str], bool]
    ) -> list[Event]:
        """Return what has changed since the last poll. `find_session` returns None for an unknown session."""
        self._scan()
        changed, self._changed = list(self._changed.values()), {}
        removed = [self._known.pop(path) for path in list(self._known) if not path.parent.exists()]
        events = [_event(job, find_session(job.session_id), runs=runs(job.session_id)) for job in changed]
        events += [
            ended_event(job, now, "it was removed")
            for job in removed
            if _has_not_ended(find_session(job.session_id))
        ]
        return [event for event in events if event is not None]

    def of_session(self, session_id: str) -> BackgroundJob | None:
        """Return its state now."""
        self._scan()
        paths = (path for path, job in self._known.items() if job.session_id == session_id)
        return next((self._known[path] for path in paths if path.exists()), None)

    def _scan(self) -> None:
        for registry, sources in self._registries.items():
            for path in sources.job_files(registry):
                self._read(path, sources)

    def _read(self, path: Path, sources: AgentSources) -> None:
        """Read the state of a job. A half-written file is read again at the next poll."""
        try:
            status = os.stat(path)
            seen = (status.st_ino, status.st_mtime_ns)
            if path in self._known and self._seen.get(path) == seen:
                return
            job = sources.read_job(parse_object(read_regular(path, own=True)))
        except (OSError, BadJson):
            return
        if job is not None:
            self._seen[path] = seen
            self._known[path] = self._changed[path] = job


def _event(job: BackgroundJob, session: BossSession | None, *, runs: bool) -> Event | None:
    """Return the event of a job; None if there is nothing to report.

    A job that is done and whose process is gone is left out, as the agent's own list does.
    """
    if job.state == "stopped":
        return ended_event(job, job.at, "it was stopped") if _has_not_ended(session) else None
    if session is None and job.state == "blocked" and not runs:
        return rests_event(job)
    return None


def _has_not_ended(session: BossSession | None) -> bool:
    return session is not None and session.ended is None


def rests_event(job: BackgroundJob) -> Event:
    """Make the event that the job waits. Its last words are in its transcript; if it has one."""
    facts: dict[str, Any] = {"agent": job.agent, "origin": "background", "cwd": job.cwd, "title": job.title}
    facts["transcript_path"] = job.transcript
    if not (job.transcript and os.path.exists(job.transcript)):
        facts["message"] = job.needs or job.state
    facts = {name: value for name, value in facts.items() if value is not None}
    return _event_of(EventKind.STOPPED, job, facts, job.at)


def ended_event(job: BackgroundJob, at: float, why: str) -> Event:
    """Make the event that the job will not go on."""
    return _event_of(EventKind.ENDED, job, {"origin": "background", "why": why}, at)


def _event_of(kind: EventKind, job: BackgroundJob, facts: dict[str, Any], at: float) -> Event:
    return Event(kind, job.session_id, at, Source.REGISTRY, f"job:{job.session_id}:{kind}:{at}", facts)
