"""Accounts that have reached a limit, as the keepers record it: nothing is sent until it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from remuda.errors import RemudaError
from remuda.inbox.journal import Inbox
from remuda.keeper.claim import live_names
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths
from remuda.turns.account import Account


@dataclass(slots=True)
class Limit:
    account: str
    """Its name: not a secret, and without meaning to people."""
    until: float
    """When deliveries resume."""
    reason: str
    sessions: list[str] = field(default_factory=list)
    """Kept sessions with messages that wait for this."""
    messages: int = 0

    @property
    def document(self) -> dict[str, object]:
        return {
            "account": self.account[:8],
            "until": self.until,
            "reason": self.reason,
            "sessions": self.sessions,
            "messages": self.messages,
        }


def limits(accounts: Path, now: float) -> list[Limit]:
    """Return the current limits, the longest last."""
    try:
        names = sorted(path.stem for path in accounts.iterdir() if path.suffix == ".json")
    except OSError:
        return []
    known = [Account(accounts, name) for name in names]
    current = [Limit(one.name, until, one.reason) for one in known if (until := one.limited_until(now))]
    return sorted(current, key=lambda one: one.until)


async def limits_and_held(accounts: Path, sessions: Path, now: float) -> list[dict[str, object]]:
    """Return them with what waits for their end.

    Inboxes are read in a thread, and only if there is a limit.
    """
    current = limits(accounts, now)
    if current:
        await asyncio.to_thread(_add_held, current, sessions)
    return [one.document for one in current]


def _add_held(limits: list[Limit], folder: Path) -> None:
    by_account = {limit.account: limit for limit in limits}
    for name in sorted(live_names(folder)):
        paths = SessionPaths(folder, name)
        record = SessionRecord.load(paths.record)
        limit = by_account.get(record.account) if record is not None else None
        if limit is not None and (count := _waiting(paths.inbox)):
            limit.sessions.append(name)
            limit.messages += count


def _waiting(inbox: Path) -> int:
    try:
        return Inbox(inbox).overview().waiting
    except (OSError, RemudaError):  # commands that open the inbox report why
        return 0
