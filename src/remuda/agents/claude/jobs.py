"""Background agents of Claude Code (`claude --bg`), by their files. Pure.

Facts this rests on (2.1.325): `claude agents --json` prints what two small files hold, and no more: the
registry file of each that lives, and the state in `jobs/<id>/state.json`. A background agent outlives its
process. Its service ends the process of one that has been at rest for long, and starts one again that died;
the agent is over when it was stopped (`claude stop`) or its folder removed (`claude rm`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from remuda.agents.attention import Event, EventKind
from remuda.agents.state import Source

_SETTLED = ("done", "failed", "stopped")
_AT_WORK = ("working", "running")


@dataclass(frozen=True, slots=True)
class Job:
    """One background agent. `state` is what `claude agents` calls it."""

    session_id: str
    state: str
    """working, blocked, done, failed, stopped."""
    rests: bool
    """It has come to an end of its turn, whether or not its process is there."""
    at: float
    """When it was last told."""
    cwd: str | None = None
    title: str | None = None
    transcript: str | None = None
    needs: str = ""
    """What it waits for, in its service's words."""


def read_job(document: Mapping[str, Any]) -> Job | None:
    """What a `state.json` says; None if it is not one."""
    session_id, told, at = document.get("sessionId"), document.get("state"), _epoch(document.get("updatedAt"))
    if not isinstance(session_id, str) or not session_id or not isinstance(told, str) or at is None:
        return None
    tempo = document.get("tempo")
    blocked = told == "blocked" or (tempo == "blocked" and told not in _SETTLED)
    return Job(
        session_id=session_id,
        state=told if told in _SETTLED else "blocked" if blocked else "working",
        rests=told in ("done", "failed", "blocked") or (told in _AT_WORK and tempo == "idle"),
        at=at,
        cwd=_text(document, "cwd"),
        title=_text(document, "name"),
        transcript=_text(document, "linkScanPath"),
        needs=_text(document, "needs") or _text(document, "detail") or "",
    )


def rests_event(job: Job, *, message: bool) -> Event:
    """That it has come to rest. What it said is in its transcript: `message` where there is none."""
    facts: dict[str, Any] = {"agent": "claude", "origin": "background", "cwd": job.cwd, "title": job.title}
    facts |= {"transcript_path": job.transcript}
    facts |= {"message": job.needs or job.state} if message else {}
    return _event(EventKind.STOPPED, job, {name: value for name, value in facts.items() if value is not None})


def ended_event(job: Job, at: float, why: str) -> Event:
    """That nobody will go on with it."""
    return _event(EventKind.ENDED, job, {"origin": "background", "why": why}, at)


def _event(kind: EventKind, job: Job, facts: dict[str, Any], at: float | None = None) -> Event:
    at = job.at if at is None else at
    return Event(kind, job.session_id, at, Source.REGISTRY, f"job:{job.session_id}:{kind}:{at}", facts)


def _epoch(stamp: object) -> float | None:
    try:
        at = datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) and value else None
