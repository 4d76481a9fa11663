"""Usage in groups, with money where a price is known. Pure.

Money comes from the agent itself, or from the prices that the user has configured. Without either it is
unknown, and a sum of known and unknown ones is called partial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .records.figures import UsageSum

KINDS = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices for a million tokens, by model. A name that ends with `*` is the beginning of a model's name."""

    currency: str = "USD"
    models: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of(self, model: str) -> Mapping[str, float] | None:
        if (exact := self.models.get(model)) is not None:
            return exact
        begins = [one for one in self.models if one.endswith("*") and model.startswith(one[:-1])]
        return self.models[max(begins, key=len)] if begins else None

    def cost(self, row: UsageSum) -> float | None:
        """Return what a row cost; None if that is not known."""
        if row.cost is not None and row.costed >= row.messages and self.currency == "USD":
            return row.cost
        prices = self.of(row.model)
        if prices is None:
            return None
        total = 0.0
        for kind in KINDS:
            count, price = getattr(row, kind), prices.get(kind)
            if count is None or (price is None and count):
                return None
            total += count * (price or 0.0) / 1e6
        return total


@dataclass(slots=True)
class Group:
    """Rows of usage, added up."""

    prices: Prices
    first: float | None = None
    last: float | None = None
    messages: int = 0
    turns: set[tuple[str, str]] = field(default_factory=set)
    more_turns: int = 0
    counts: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(KINDS))
    cost: float | None = None
    has_unknown_cost: bool = False
    row: UsageSum | None = None

    def add(self, row: UsageSum) -> None:
        self.row = row
        self.first = row.first if self.first is None else min(self.first, row.first)
        self.last = row.last if self.last is None else max(self.last, row.last)
        self.messages += row.messages
        if row.turn:
            self.turns.add((row.session_id, row.turn))
        self.more_turns += row.turns
        for kind in KINDS:
            if (count := getattr(row, kind)) is not None:
                self.counts[kind] = (self.counts[kind] or 0) + count
        if (cost := self.prices.cost(row)) is None:
            self.has_unknown_cost = True
        else:
            self.cost = (self.cost or 0.0) + cost

    @property
    def tokens(self) -> int:
        return sum(count or 0 for count in self.counts.values())

    def document(self, by: str | None, key: str | None) -> dict[str, Any]:
        row = self.row
        one_session = by in ("session", "turn")
        return {
            "key": key,
            "session_id": row.session_id if row is not None and one_session else None,
            "label": None,
            "agent": row.agent if row is not None and by in ("session", "turn", "model") else None,
            "folder": row.folder if row is not None and by in ("session", "turn", "folder") else None,
            "model": row.model if row is not None and by in ("model", "turn") else None,
            "from": self.first,
            "to": self.last,
            "messages": self.messages,
            "turns": len(self.turns) + self.more_turns,
            "tokens": dict(self.counts),
            "cost": None if self.cost is None else round(self.cost, 6),
            "cost_partial": self.cost is not None and self.has_unknown_cost,
        }


def local_day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


_KEYS: dict[str, Callable[[UsageSum], str | None]] = {
    "session": lambda row: row.session_id,
    "folder": lambda row: row.folder,
    "model": lambda row: row.model,
    "day": lambda row: local_day(row.first),
    "account": lambda row: row.account,
    "turn": lambda row: row.turn or None,
}


def group_usage(
    rows: Iterable[UsageSum], by: str, prices: Prices, limit: int
) -> tuple[list[dict[str, Any]], dict[str, Any], bool]:
    """Return the groups, the total, and whether groups were left out. The largest, or newest, are first."""
    groups: dict[str | None, Group] = {}
    total = Group(prices)
    for row in rows:
        total.add(row)
        key = _KEYS[by](row)
        if key not in groups:
            groups[key] = Group(prices)
        groups[key].add(row)
    if by == "day":
        ordered = sorted(groups.items(), key=lambda one: one[0] or "", reverse=True)
    elif by == "turn":
        ordered = sorted(groups.items(), key=lambda one: one[1].first or 0.0, reverse=True)
    else:
        ordered = sorted(groups.items(), key=lambda one: (-one[1].tokens, one[0] or ""))
    shown = [group.document(by, key) for key, group in ordered[:limit]]
    return shown, total.document(None, None), len(ordered) > limit


def usage_over_time(
    rows: Iterable[UsageSum], prices: Prices, since: float, step: float
) -> list[dict[str, Any]]:
    points: dict[float, Group] = {}
    for row in rows:
        at = since + (max(row.first, since) - since) // step * step
        points.setdefault(at, Group(prices)).add(row)
    made = []
    for at in sorted(points):
        document = points[at].document(None, None)
        made.append({"at": at, "tokens": document["tokens"], "cost": document["cost"]})
    return made
