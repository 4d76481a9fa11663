"""Count what the messages of one file of records used: each message once, whatever its records repeat. Pure.

Several records can report one message, and the last one counts. So the messages seen last are remembered,
with what was counted of each. A file that was replaced is read again from its start; what is dated up to the
last record that was counted is then skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from remuda.agents.conversation import MessageUsage, Tokens, TurnBegun
from remuda.untrusted import dump_json, finite, parse_object

from .records.figures import HOUR, UsageDelta, UsageKey

_REMEMBERED = 32
_LONGEST = 200
_MOST_TOKENS = 1 << 40
_MOST_COST = 1e9
Counted = tuple[UsageKey, Tokens, float | None]


@dataclass(slots=True)
class FileAccount:
    """How far one file is counted. `skip_until`: it is being read again, up to records of that date."""

    session_id: str
    inode: int = 0
    offset: int = 0
    turn: str = ""
    counted_until: float = 0.0
    skip_until: float = 0.0
    recent: dict[str, Counted] = field(default_factory=dict)

    def save(self) -> str:
        recent = [
            [message, key.turn, key.model, key.hour, tokens.input, tokens.output, tokens.cache_read,
             tokens.cache_write, cost]
            for message, (key, tokens, cost) in self.recent.items()
        ]  # fmt: skip
        return dump_json(
            {
                "inode": self.inode,
                "offset": self.offset,
                "turn": self.turn,
                "counted_until": self.counted_until,
                "skip_until": self.skip_until,
                "recent": recent,
            }
        )

    @classmethod
    def load(cls, session_id: str, text: str) -> FileAccount:
        """Raises `ValueError`, `TypeError` or `KeyError` for what `save` did not write."""
        document = parse_object(text)
        recent = {
            str(message): (UsageKey(session_id, turn, model, hour), Tokens(*tokens), cost)
            for message, turn, model, hour, *tokens, cost in document["recent"]
        }
        return cls(
            session_id,
            int(document["inode"]),
            int(document["offset"]),
            str(document["turn"]),
            finite(document["counted_until"]),
            finite(document["skip_until"]),
            recent,
        )

    def copy(self) -> FileAccount:
        return replace(self, recent=dict(self.recent))


@dataclass(frozen=True, slots=True)
class Owner:
    """What usage is counted for."""

    agent: str
    folder: str | None = None
    account: str | None = None


def count(
    account: FileAccount, reports: Iterable[MessageUsage | TurnBegun], owner: Owner, now: float
) -> list[UsageDelta]:
    """Count what was read, in order; returns what to add. A message without a date counts as of now."""
    deltas = []
    for one in reports:
        at = one.at if one.at is not None and 0 < one.at < now + HOUR else now
        if at <= account.skip_until:
            continue
        account.counted_until = max(account.counted_until, at)
        if isinstance(one, TurnBegun):
            account.turn = one.id[:_LONGEST]
            continue
        one = _credible(one)
        before = account.recent.pop(one.id, None)
        key = before[0] if before else _key(account, one, at)
        account.recent[one.id] = (key, one.tokens, one.cost)
        if len(account.recent) > _REMEMBERED:
            del account.recent[next(iter(account.recent))]
        if (delta := _delta(key, one, before, owner, at)) is not None:
            deltas.append(delta)
    return deltas


def _credible(usage: MessageUsage) -> MessageUsage:
    """Return it without numbers that no message can have: their sum is none that the database can hold."""
    counts = (usage.tokens.input, usage.tokens.output, usage.tokens.cache_read, usage.tokens.cache_write)
    if all(one is None or 0 <= one < _MOST_TOKENS for one in counts) and (usage.cost or 0.0) < _MOST_COST:
        return usage
    kept = [one if one is not None and 0 <= one < _MOST_TOKENS else None for one in counts]
    return replace(usage, tokens=Tokens(*kept), cost=usage.cost if (usage.cost or 0.0) < _MOST_COST else None)


def _key(account: FileAccount, usage: MessageUsage, at: float) -> UsageKey:
    # A message before any prompt that we saw: its own turn. An empty one means turns that were summed up.
    return UsageKey(
        account.session_id, account.turn or usage.id[:_LONGEST], usage.model[:_LONGEST], int(at) // HOUR
    )


def _delta(
    key: UsageKey, usage: MessageUsage, before: Counted | None, owner: Owner, at: float
) -> UsageDelta | None:
    old, old_cost = (before[1], before[2]) if before else (Tokens(), None)
    added = {
        one.name: _difference(getattr(usage.tokens, one.name), getattr(old, one.name))
        for one in fields(Tokens)
    }
    cost = _difference(usage.cost, old_cost)
    if before is not None and not any(added.values()) and not cost:
        return None
    parts: dict[str, Any] = {**added, "cost": cost}
    return UsageDelta(key, owner.agent, owner.folder, owner.account, at, messages=0 if before else 1, **parts)


def _difference(new: Any, old: Any) -> Any:
    return None if new is None else new - (old or 0)
