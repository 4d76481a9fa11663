"""What a pool reports, all in one place: events for listeners, the log and the counters.

The log is `remuda.pool`. Each line is `event key=value …`, and has the same data as `extra` (`record.event`,
`record.fields`), so that a JSON formatter need not parse it. It has no prompt, answer or environment.
"""

from __future__ import annotations

import inspect
import json
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from remuda.errors import InvalidOptions, RemudaError

from .scheduler import Reason
from .types import BackendName, RunResult, Usage

# ── counters ──

Labels = tuple[tuple[str, str], ...]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

COUNTERS = {
    "spawns": "Workers that started and became ready.",
    "spawn_failures": "Workers that did not become ready, by error code.",
    "reuses": "Requests given to a worker that had served before.",
    "recycles": "Workers ended at one of their limits.",
    "evictions": "Workers that were ended, by reason.",
    "requests": "Requests that ended, by outcome: done, or an error code.",
    "timeouts": "Requests that ended with TIMEOUT.",
    "aborts": "Requests that ended with ABORTED.",
    "crashes": "Workers that exited on their own.",
    "handovers": "Requests that were given a worker.",
    "warm_hits": "Requests that found a worker ready when they arrived.",
}
HISTOGRAMS = {
    "queue_wait_seconds": "From the arrival of a request until it had a worker.",
    "request_duration_seconds": "From the arrival of a request until its end.",
    "spawn_duration_seconds": "From the start of a worker until it was ready.",
    "clear_duration_seconds": "Time to start a new conversation on a worker.",
}
GAUGES = {
    "sessions": "Workers, by state.",
    "waiting": "Requests that wait for a worker.",
    "size": "Maximum number of workers.",
    "warm_hit_ratio": "Share of the requests with a worker that found one ready.",
}


@dataclass(slots=True)
class Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value

    def document(self) -> dict[str, float]:
        return {"count": self.count, "sum": self.total}


class Metrics:
    def __init__(self) -> None:
        self._counters: dict[str, Counter[Labels]] = {name: Counter() for name in COUNTERS}
        self._histograms = {name: Histogram() for name in HISTOGRAMS}

    def count(self, name: str, **labels: str) -> None:
        self._counters[name][tuple(sorted(labels.items()))] += 1

    def time(self, name: str, seconds: float) -> None:
        self._histograms[name].add(seconds)

    def total(self, name: str) -> int:
        return self._counters[name].total()

    @property
    def warm_hit_ratio(self) -> float:
        handed = self.total("handovers")
        return self.total("warm_hits") / handed if handed else 0.0

    def document(self) -> dict[str, object]:
        counted: dict[str, object] = {}
        for name, counter in self._counters.items():
            by_label = {labels[0][1]: n for labels, n in sorted(counter.items()) if labels}
            counted[name] = by_label if name in _LABELLED else counter.total()
        return {
            **counted,
            "warm_hit_ratio": self.warm_hit_ratio,
            **{name: histogram.document() for name, histogram in self._histograms.items()},
        }

    def text(self, sessions: Mapping[str, int], waiting: int, size: int) -> str:
        gauges: dict[str, list[tuple[Labels, float]]] = {
            "sessions": [((("state", state),), n) for state, n in sorted(sessions.items())],
            "waiting": [((), waiting)],
            "size": [((), size)],
            "warm_hit_ratio": [((), self.warm_hit_ratio)],
        }
        lines: list[str] = []
        for name, about in COUNTERS.items():
            values = sorted(self._counters[name].items())
            empty: list[tuple[Labels, int]] = [] if name in _LABELLED else [((), 0)]
            lines += _family(f"{name}_total", "counter", about, values or empty)
        for name, about in GAUGES.items():
            lines += _family(name, "gauge", about, gauges[name])
        for name, about in HISTOGRAMS.items():
            lines += _family_head(name, "histogram", about)
            lines += _histogram(f"{_PREFIX}{name}", self._histograms[name])
        return "\n".join(lines) + "\n"


_PREFIX = "remuda_pool_"
_LABELLED = frozenset(["spawn_failures", "evictions", "requests"])


def _family_head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {about}"
    yield f"# TYPE {_PREFIX}{name} {kind}"


def _family(name: str, kind: str, about: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _family_head(name, kind, about)
    for labels, value in values:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        yield f"{_PREFIX}{name}{{{shown}}} {value}" if shown else f"{_PREFIX}{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _histogram(name: str, histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip(BUCKETS, histogram.counts, strict=False):
        below += count
        yield f'{name}_bucket{{le="{bound}"}} {below}'
    yield f'{name}_bucket{{le="+Inf"}} {histogram.count}'
    yield f"{name}_sum {histogram.total}"
    yield f"{name}_count {histogram.count}"


# ── events ──

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
