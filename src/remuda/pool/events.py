"""What a pool reports, all in one place: events for listeners, the log and the counters.

The log is `remuda.pool`. Each line is `event key=value …`, and has the same data as `extra` (`record.event`,
`record.fields`), so that a JSON formatter need not parse it. It has no prompt, answer or environment.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from remuda.errors import InvalidOptions, RemudaError

from .metrics import Metrics
from .scheduler import Reason
from .types import BackendName, RunResult, Usage

LOG = logging.getLogger("remuda.pool")
LOG.addHandler(logging.NullHandler())  # a library prints nothing by itself

EventName = Literal["session.spawned", "session.evicted", "request.done", "request.error"]


@dataclass(frozen=True, slots=True)
class SessionSpawned:
    """A worker has started and is ready."""

    session_id: str
    backend: BackendName
    profile: str
    """Key of its profile: the same for workers that can serve the same requests."""
    name: ClassVar[EventName] = "session.spawned"


@dataclass(frozen=True, slots=True)
class SessionEvicted:
    """A worker was ended, or exited on its own."""

    session_id: str
    reason: Reason
    detail: str | None = None
    name: ClassVar[EventName] = "session.evicted"


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A request was answered."""

    request_id: str
    session_id: str
    duration: float
    usage: Usage | None = None
    name: ClassVar[EventName] = "request.done"


@dataclass(frozen=True, slots=True)
class RequestError:
    """A request failed. `code` is that of its error."""

    request_id: str
    code: str
    name: ClassVar[EventName] = "request.error"


Event = SessionSpawned | SessionEvicted | RequestDone | RequestError
Listener = Callable[[Any], object]

NAMES: tuple[EventName, ...] = ("session.spawned", "session.evicted", "request.done", "request.error")


class Listeners:
    """The listeners of each event. They are called one after the other, in the loop of the pool."""

    def __init__(self) -> None:
        self._by_name: dict[EventName, list[Listener]] = {name: [] for name in NAMES}

    def add(self, name: EventName, listener: Listener) -> None:
        if inspect.iscoroutinefunction(listener) or not callable(listener):
            raise InvalidOptions(f"the listener for {name} must be a plain function, not async")
        self._of(name).append(listener)

    def remove(self, name: EventName, listener: Listener) -> None:
        """Do nothing if it was not added."""
        if listener in self._of(name):
            self._of(name).remove(listener)

    def notify(self, event: Event) -> None:
        for listener in list(self._by_name[event.name]):
            try:
                listener(event)
            except Exception:
                LOG.exception("the listener for %s failed", event.name)

    def _of(self, name: EventName) -> list[Listener]:
        if name not in self._by_name:
            raise InvalidOptions(f"unknown event {name!r}", hint=f"known events: {', '.join(NAMES)}")
        return self._by_name[name]


# ── log, counters and listeners together ──

_LIMITS = frozenset(["max_requests", "max_age", "max_idle"])
_WARNED = frozenset(["crashed", "dirty"])


class PoolObserver:
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
        self.listeners.notify(SessionSpawned(session_id, backend, profile))

    def spawn_failed(self, profile: str, error: RemudaError) -> None:
        self.metrics.count("spawn_failures", code=error.code)
        _log(logging.WARNING, "session.failed", profile=profile, code=error.code, detail=str(error))

    def evicted(self, session_id: str, reason: Reason, detail: str | None) -> None:
        self.metrics.count("evictions", reason=reason)
        if reason in _LIMITS:
            self.metrics.count("recycles")
        if reason == "crashed":
            self.metrics.count("crashes")
        level = logging.WARNING if reason in _WARNED else logging.INFO
        _log(level, "session.evicted", session_id=session_id, reason=reason, detail=detail)
        self.listeners.notify(SessionEvicted(session_id, reason, detail))

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
        self.listeners.notify(
            RequestDone(result.request_id, result.session_id, result.duration, result.usage)
        )

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
        self.listeners.notify(RequestError(request_id, error.code))


def _log(level: int, event: str, **fields: object) -> None:
    if LOG.isEnabledFor(level):
        known = {key: value for key, value in fields.items() if value is not None}
        LOG.log(level, "%s", _line(event, known), extra={"event": event, "fields": known})


def _line(event: str, fields: dict[str, object]) -> str:
    return " ".join([event, *(f"{key}={_logged(value)}" for key, value in fields.items())])


def _logged(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
