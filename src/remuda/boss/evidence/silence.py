"""Find hung agents: at work, but without a hook or a line in their transcript.

No event reports that, so they are polled. Only time counts in which this machine was awake: neither a
suspended laptop nor a clock that is set makes an agent look hung. Tool calls and work in the background may
take long; for them the limit is `CALL_FACTOR` times as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from remuda.agents import PLAIN_AGENTS
from remuda.duration import parse_duration
from remuda.errors import RemudaError
from remuda.tasks import TaskSet

from ..attention.model import Activity, BossSession, Event, EventKind, Source
from ..service import BossService
from .watches import report

log = logging.getLogger("remuda.boss.evidence.silence")

VARIABLE = "REMUDA_HUNG_AFTER"
HUNG_AFTER = 600.0
CALL_FACTOR = 6
_LOOK_INTERVAL = 15.0
_AT_WORK = (Activity.WORKING, Activity.BACKGROUND, Activity.HUNG)
_REPORTS_NOTHING = (*PLAIN_AGENTS, "other")


def hung_after(env: Mapping[str, str]) -> float:
    """Return the limit in seconds; 0 means never. An invalid duration is ignored."""
    if env.get(VARIABLE) in ("0", "never"):
        return 0.0
    try:
        return parse_duration(env[VARIABLE])
    except (KeyError, ValueError, RemudaError):
        return HUNG_AFTER


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of a session: it is alive when this changes."""

    event: str
    transcript: tuple[int, int] | None


@dataclass(slots=True)
class SilentSession:
    sign: Sign
    since: float
    is_hung: bool = False

    def see(self, sign: Sign, now: float, limit: float) -> EventKind | None:
        """Compare with the last poll; returns what to report, or None."""
        if sign != self.sign:
            self.sign, self.since = sign, now
            was, self.is_hung = self.is_hung, False
            return EventKind.WORKING if was else None
        if self.is_hung or now - self.since < limit:
            return None
        self.is_hung = True
        return EventKind.HUNG


class Silence:
    name = "silence"

    def __init__(
        self,
        service: BossService,
        env: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        interval: float = _LOOK_INTERVAL,
    ) -> None:
        self._service = service
        self._limit = hung_after(env if env is not None else os.environ)
        self._clock = clock
        self._interval = min(interval, self._limit / 4) if self._limit else interval
        self._states: dict[str, SilentSession] = {}
        self._tasks = TaskSet()

    async def start(self) -> None:
        if self._limit:
            self._tasks.start(self._run())

    async def close(self) -> None:
        await self._tasks.aclose()

    async def _run(self) -> None:
        while True:
            try:
                await self.poll()
            except (OSError, RemudaError) as error:
                log.warning("check for hung agents failed: %s", error)
            await asyncio.sleep(self._interval)

    async def poll(self) -> None:
        now = self._clock()
        sessions = [one for one in self._service.sessions() if _may_hang(one)]
        self._states = {one.id: self._states[one.id] for one in sessions if one.id in self._states}
        for session in sessions:
            sign = Sign(self._service.last_event(session.id), _size(session.transcript_path))
            state = self._states.setdefault(
                session.id, SilentSession(sign, now, session.state is Activity.HUNG)
            )
            is_long = session.state is Activity.BACKGROUND or self._service.is_in_call(session.id)
            since = state.since
            kind = state.see(sign, now, self._limit * (CALL_FACTOR if is_long else 1))
            if kind is not None:
                await self._report(kind, session, now - since)
                # Our own report is not a sign of life.
                event = self._service.last_event(session.id)
                state.sign = Sign(event, sign.transcript)

    async def _report(self, kind: EventKind, session: BossSession, seconds: float) -> None:
        at = self._service.clock()
        facts = {"quiet": round(seconds), "evidence": "no hook, and no line in its transcript"}
        facts = facts if kind is EventKind.HUNG else {}
        log.info("session %s is %s", session.id, kind)
        event_id = f"silence:{kind}:{session.id}:{at}"
        await report(self._service, [Event(kind, session.id, at, Source.PROCESS, event_id, facts)])


def _may_hang(session: BossSession) -> bool:
    """Whether the session is running and its agent reports events."""
    is_there = session.ended is None and session.replaced_by is None
    return is_there and session.agent not in _REPORTS_NOTHING and session.state in _AT_WORK


def _size(transcript: str | None) -> tuple[int, int] | None:
    if transcript is None:
        return None
    try:
        status = os.stat(transcript)
    except OSError:
        return None
    return status.st_ino, status.st_size
