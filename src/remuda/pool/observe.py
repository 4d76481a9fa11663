"""Everything that is told of a pool, in one place: log, counters, listeners.

The log is `remuda.pool`. Each line is `event key=value …`, and carries the same as `extra` (`record.event`,
`record.fields`), so that a JSON formatter need not parse it. No prompt, answer or environment is in it.
"""

from __future__ import annotations

import json
import logging

from remuda.errors import RemudaError

from .events import LOG, Listeners, RequestDone, RequestError, SessionEvicted, SessionSpawned
from .metrics import Metrics
from .policy import Reason
from .types import BackendName, RunResult

_LIMITS = frozenset(["max_requests", "max_age", "max_idle"])
_UNWANTED = frozenset(["crashed", "dirty"])


class Observer:
    def __init__(self) -> None:
        self.metrics = Metrics()
        self.listeners = Listeners()

    def spawned(self, session_id: str, backend: BackendName, profile: str, took: float) -> None:
        self.metrics.count("spawns")
        self.metrics.time("spawn_duration_seconds", took)
        _log(
            logging.INFO,
            "session.spawned",
            session_id=session_id,
            backend=backend,
            profile=profile,
            took=took,
        )
        self.listeners.tell(SessionSpawned(session_id, backend, profile))

    def spawn_failed(self, profile: str, error: RemudaError) -> None:
        self.metrics.count("spawn_failures", code=error.code)
        _log(logging.WARNING, "session.failed", profile=profile, code=error.code, detail=str(error))

    def evicted(self, session_id: str, reason: Reason, detail: str | None) -> None:
        self.metrics.count("evictions", reason=reason)
        if reason in _LIMITS:
            self.metrics.count("recycles")
        if reason == "crashed":
            self.metrics.count("crashes")
        level = logging.WARNING if reason in _UNWANTED else logging.INFO
        _log(level, "session.evicted", session_id=session_id, reason=reason, detail=detail)
        self.listeners.tell(SessionEvicted(session_id, reason, detail))

    def handed(self, request_id: str, session_id: str, waited: float, *, warm: bool, reused: bool) -> None:
        self.metrics.count("handovers")
        self.metrics.time("queue_wait_seconds", waited)
        if warm:
            self.metrics.count("warm_hits")
        if reused:
            self.metrics.count("reuses")
        _log(
            logging.DEBUG,
            "request.started",
            request_id=request_id,
            session_id=session_id,
            waited=waited,
            warm=warm,
        )

    def cleared(self, session_id: str, took: float) -> None:
        self.metrics.time("clear_duration_seconds", took)
        _log(logging.DEBUG, "session.cleared", session_id=session_id, took=took)

    def done(self, result: RunResult) -> None:
        self.metrics.count("requests", outcome="done")
        self.metrics.time("request_duration_seconds", result.duration)
        _log(
            logging.INFO,
            "request.done",
            request_id=result.request_id,
            session_id=result.session_id,
            duration=result.duration,
            waited=result.queue_wait,
            warm=result.warm,
        )
        self.listeners.tell(RequestDone(result.request_id, result.session_id, result.duration, result.usage))

    def failed(self, request_id: str, session_id: str | None, error: RemudaError, took: float) -> None:
        self.metrics.count("requests", outcome=error.code)
        self.metrics.time("request_duration_seconds", took)
        if error.code in ("TIMEOUT", "ABORTED"):
            self.metrics.count("timeouts" if error.code == "TIMEOUT" else "aborts")
        _log(
            logging.WARNING,
            "request.error",
            request_id=request_id,
            session_id=session_id,
            code=error.code,
            detail=error.message,
            duration=took,
        )
        self.listeners.tell(RequestError(request_id, error.code))


def _log(level: int, event: str, **fields: object) -> None:
    if LOG.isEnabledFor(level):
        told = {key: value for key, value in fields.items() if value is not None}
        LOG.log(level, "%s", _line(event, told), extra={"event": event, "fields": told})


def _line(event: str, fields: dict[str, object]) -> str:
    return " ".join([event, *(f"{key}={_shown(value)}" for key, value in fields.items())])


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
