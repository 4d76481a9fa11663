"""Counters of a pool, and their text for Prometheus (exposition format 0.0.4). Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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
            lines += _head(name, "histogram", about)
            lines += _histogram(f"{_PREFIX}{name}", self._histograms[name])
        return "\n".join(lines) + "\n"


_PREFIX = "remuda_pool_"
_LABELLED = frozenset(["spawn_failures", "evictions", "requests"])


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {about}"
    yield f"# TYPE {_PREFIX}{name} {kind}"


def _family(name: str, kind: str, about: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _head(name, kind, about)
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
