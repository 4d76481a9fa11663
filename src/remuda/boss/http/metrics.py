"""What Prometheus reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from remuda.boss.attention.model import Reason, State
from remuda.boss.evidence.limits import limits
from remuda.boss.ports import Boss
from remuda.paths import accounts_folder

from .route import Call, Reply, Route

MEDIA = "text/plain; version=0.0.4; charset=utf-8"


async def get_metrics(boss: Boss, _call: Call) -> Reply:
    return Reply(text="\n".join(_lines(boss)) + "\n")


def _lines(boss: Boss) -> Iterable[str]:
    desk = boss.desk
    shown = desk.queue()
    now = desk.clock()
    waiting = Counter(str(item.reason) for item in shown)
    states = Counter(str(session.state) for session in desk.sessions() if session.ended is None)
    yield from _family("queue_items", "gauge", "What waits for a human.", "reason", _all(Reason, waiting))
    oldest = max((now - item.since for item in shown), default=0.0)
    yield from _one("queue_oldest_seconds", "gauge", "How long the first of the queue has waited.", oldest)
    hidden = len(desk.queue(hidden=True)) - len(shown)
    yield from _one("queue_hidden_items", "gauge", "What was skipped or snoozed.", hidden)
    yield from _family("sessions", "gauge", "Sessions that are there.", "state", _all(State, states))
    yield from _one(
        "approvals_open", "gauge", "Requests for leave without an answer.", len(desk.open_approvals())
    )
    limited = len(limits(accounts_folder(), now))
    yield from _one("accounts_limited", "gauge", "Accounts at a limit: their messages wait.", limited)
    yield from _one("events_total", "counter", "Events that were taken.", desk.taken)
    yield from _one("events_repeated_total", "counter", "Of those, known or too late.", desk.repeated)
    yield from _one("watchers", "gauge", "Streams of changes that are open.", desk.feed.streams)
    up = {source.name: float(source.state == "running") for source in boss.sources}
    yield from _family("source_up", "gauge", "Whether a source of events runs.", "source", up)
    yield from _one("uptime_seconds", "gauge", "Since the boss was started.", now - desk.started_at)
    yield from _one("cpu_seconds_total", "counter", "Processor time of the boss.", time.process_time())


def _all(kinds: Iterable[str], found: Mapping[str, int]) -> dict[str, float]:
    return {str(kind): float(found.get(str(kind), 0)) for kind in kinds}


def _one(name: str, kind: str, text: str, value: float) -> Iterable[str]:
    yield from _head(name, kind, text)
    yield f"remuda_boss_{name} {value:.17g}"


def _family(name: str, kind: str, text: str, label: str, values: Mapping[str, float]) -> Iterable[str]:
    yield from _head(name, kind, text)
    for key, value in values.items():
        escaped = key.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'remuda_boss_{name}{{{label}="{escaped}"}} {value:.17g}'


def _head(name: str, kind: str, text: str) -> Iterable[str]:
    yield f"# HELP remuda_boss_{name} {text}"
    yield f"# TYPE remuda_boss_{name} {kind}"


ROUTES = (Route("GET", "/metrics", get_metrics, "Figures for Prometheus.", media=MEDIA),)
