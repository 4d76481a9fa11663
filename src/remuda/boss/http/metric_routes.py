"""Metrics for Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from remuda.agents.state import State as AgentState
from remuda.boss.attention.model import Activity, Reason
from remuda.boss.evidence.limits import limits
from remuda.boss.ports import BossParts
from remuda.paths import accounts_folder

from .route import ApiRequest, ApiResponse, Route

MEDIA = "text/plain; version=0.0.4; charset=utf-8"


async def get_metrics(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return ApiResponse(text="\n".join(_lines(boss)) + "\n")


def _lines(boss: BossParts) -> Iterable[str]:
    service = boss.service
    shown = service.queue()
    now = service.clock()
    waiting = Counter(str(item.reason) for item in shown)
    sessions = [session for session in service.sessions() if session.ended is None]
    states = Counter(str(session.state) for session in sessions)
    doing = Counter(str(service.agent_state(session)) for session in sessions)
    yield from _family(
        "queue_items", "gauge", "Agents that wait for a human, by reason.", "reason", _all(Reason, waiting)
    )
    oldest = max((now - item.since for item in shown), default=0.0)
    yield from _one(
        "queue_oldest_seconds", "gauge", "Seconds that the first agent of the queue has waited.", oldest
    )
    hidden = len(service.queue(hidden=True)) - len(shown)
    yield from _one("queue_hidden_items", "gauge", "Queue items that are hidden: skipped or snoozed.", hidden)
    yield from _family("agents", "gauge", "Agents, by state.", "state", _all(AgentState, doing))
    older = "Agents, by the older state words of the boss."
    yield from _family("sessions", "gauge", older, "state", _all(Activity, states))
    yield from _one(
        "approvals_open", "gauge", "Permission requests without a decision.", len(service.open_approvals())
    )
    limited = len(limits(accounts_folder(), now))
    yield from _one("accounts_limited", "gauge", "Accounts at a limit; their messages are held.", limited)
    tokens = service.tokens()
    yield from _family("tokens_total", "counter", "Tokens that agents report, by kind.", "kind", tokens)
    yield from _one("events_total", "counter", "Events received.", service.taken)
    yield from _one(
        "events_repeated_total", "counter", "Events that were duplicates or too late.", service.repeated
    )
    yield from _one("watchers", "gauge", "Open streams of changes.", service.feed.streams)
    up = {source.name: float(source.state == "running") for source in boss.sources}
    yield from _family("source_up", "gauge", "1 if the source of events is running.", "source", up)
    yield from _one("uptime_seconds", "gauge", "Seconds since the boss started.", now - service.started_at)
    yield from _one(
        "cpu_seconds_total", "counter", "Processor time of the boss, in seconds.", time.process_time()
    )


def _all(kinds: Iterable[str], counts: Mapping[str, int]) -> dict[str, float]:
    return {str(kind): float(counts.get(str(kind), 0)) for kind in kinds}


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


ROUTES = (Route("GET", "/metrics", get_metrics, "Metrics for Prometheus.", media=MEDIA),)
