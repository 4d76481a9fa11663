"""Figures over a day, a week or a month, of what the database holds. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from .answers.decided import outcome_of, who_decided
from .records.figures import QUARTER

RANGES = {"day": (86400.0, 900.0), "week": (7 * 86400.0, 3600.0), "month": (30 * 86400.0, 4 * 3600.0)}
"""The length of each range, and of a step of its curves, in seconds."""
_TOOLS = 100
_CHANNELS = {
    "policy": "rule",
    "page": "human",
    "link": "human",
    "notice": "human",
    "cli": "human",
    "api": "human",
}
_COUNTED = ("rule", "human", "terminal", "timeout", "open")


def begin_of(until: float, length: float, step: float) -> float:
    """Return where a range begins: at a multiple of its step, so that a curve does not jump."""
    return math.floor((until - length) / step) * step


def states_over_time(
    times: Iterable[tuple[int, str, float]], since: float, until: float, step: float
) -> list[dict[str, Any]]:
    """Return how many agents were in each state on average, for each step in which any was."""
    sums: dict[float, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for quarter, state, seconds in times:
        began = float(quarter * QUARTER)
        if since <= began < until:
            sums[since + (began - since) // step * step][state] += seconds
    made = []
    for at in sorted(sums):
        length = max(1.0, min(step, until - at))
        agents = {state: round(seconds / length, 6) for state, seconds in sums[at].items()}
        made.append({"at": at, "agents": agents})
    return made


def waits(rows: Iterable[tuple[str, float, float, str]], since: float, step: float) -> dict[str, Any]:
    """Return how long agents waited for a human. `rows` are reason, since, resolved_at, resolution."""
    everything: list[float] = []
    by_reason: dict[str, list[float]] = defaultdict(list)
    by_time: dict[float, list[float]] = defaultdict(list)
    for reason, began, resolved, _ in rows:
        waited = max(0.0, resolved - began)
        everything.append(waited)
        by_reason[reason].append(waited)
        by_time[since + (resolved - since) // step * step].append(waited)
    return {
        **spread(everything),
        "reasons": [{"reason": reason, **spread(one)} for reason, one in sorted(by_reason.items())],
        "over_time": [{"at": at, **spread(one)} for at, one in sorted(by_time.items())],
    }


def spread(values: list[float]) -> dict[str, Any]:
    """Return the number of values, their median and the value that nine of ten do not exceed."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "median": round(_quantile(ordered, 0.5), 3) if ordered else None,
        "p90": round(_quantile(ordered, 0.9), 3) if ordered else None,
    }


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def permissions(rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return requests by tool. `rows` are tool, state, by, behavior, expires_at, at, proof."""
    tools: dict[str, dict[str, int]] = {}
    for tool, state, by, behavior, expires_at, at, proof in rows:
        proof = proof if isinstance(proof, dict) else {}
        counts = tools.setdefault(
            str(tool)[:100], dict.fromkeys((*_COUNTED, "count", "allowed", "denied"), 0)
        )
        channel, _ = who_decided(str(state), by, expires_at, at, proof)
        channel = _CHANNELS.get(channel, channel)
        counts["count"] += 1
        if channel in _COUNTED:
            counts[channel] += 1
        outcome = outcome_of(proof)
        if behavior == "allow" or (behavior is None and outcome in ("ran", "failed")):
            counts["allowed"] += 1
        elif behavior == "deny" or outcome == "denied":
            counts["denied"] += 1
    ordered = sorted(tools.items(), key=lambda one: (-one[1]["count"], one[0]))
    return [{"tool": tool, **counts} for tool, counts in ordered[:_TOOLS]]
