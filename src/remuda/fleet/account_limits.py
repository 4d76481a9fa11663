"""Limits of accounts, shared by all hosts: one that a host meets pauses the same account on all.

Keepers write limits to files (`turns/account`), by a digest that means something on one machine only. A
second digest, of the credential itself, is the same everywhere. A limit is on the hub under that one, until
it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import NamedTuple

from remuda.durable import read_regular
from remuda.errors import RemoteProtocolError, RemudaError
from remuda.turns.account import Account
from remuda.untrusted import finite, one_line

from . import subjects
from .hub import Hub
from .hub_types import Stored
from .subjects import ACCOUNTS

log = logging.getLogger("remuda.fleet.account_limits")

_LOOK_INTERVAL = 1.0
_SAME = 1.0
"""Two ends of a limit that differ by less, in seconds, are one."""
_REASON = 500


class _Limit(NamedTuple):
    until: float
    """By the hub's clock."""
    reason: str
    host: str


class AccountLimits:
    """Use from the boss's loop; `run` for each connection."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._accounts: dict[str, tuple[str, Account]] = {}
        """By the name here: the name that all hosts know, and the account."""

    async def run(self, hub: Hub) -> None:
        """Report limits and apply those of others, until the connection ends. Raises `HubUnreachable`."""
        elsewhere: dict[str, _Limit] = {}
        reported: dict[str, float] = {}

        def take(stored: Stored) -> None:
            try:
                account, limit = read_limit(stored)
            except RemoteProtocolError:
                return
            known = elsewhere.get(account)
            if limit.host != hub.member.name and (known is None or known.until < limit.until):
                elsewhere[account] = limit

        changed = asyncio.Event()
        changed.set()
        async with hub.watching("$KV.accounts.*.*", lambda _subject, _revision: changed.set()):
            while True:
                if changed.is_set():
                    changed.clear()
                    for stored in await hub.load_all(ACCOUNTS, "$KV.accounts.*.*"):
                        take(stored)
                self._find_accounts()
                self._apply(elsewhere, hub.ahead)
                await self._report(hub, elsewhere, reported)
                await asyncio.sleep(_LOOK_INTERVAL)

    def _find_accounts(self) -> None:
        try:
            names = [path.stem for path in self._folder.iterdir() if path.suffix == ".shared"]
        except OSError:
            return
        for name in names:
            if name not in self._accounts:
                account = Account(self._folder, name)
                try:
                    shared = read_regular(account.shared_path).decode("ascii", "replace").strip()
                except OSError:
                    continue
                self._accounts[name] = shared, account

    def _apply(self, elsewhere: dict[str, _Limit], ahead: float) -> None:
        now = time.time()
        for shared, account in self._accounts.values():
            limit = elsewhere.get(shared)
            if limit is None or limit.until - ahead <= max(now, account.limited_until(now) or 0.0) + _SAME:
                continue
            try:
                account.limit(limit.until - ahead, f"{limit.reason} (met on {limit.host})")
            except (OSError, RemudaError) as error:
                log.warning("cannot save a limit that %s met: %s", limit.host, error)

    async def _report(self, hub: Hub, elsewhere: dict[str, _Limit], reported: dict[str, float]) -> None:
        now = time.time()
        for shared, account in self._accounts.values():
            until = account.limited_until(now)
            if until is None:
                continue
            known = elsewhere[shared].until if shared in elsewhere else 0.0
            if until + hub.ahead > max(known, reported.get(shared, 0.0)) + _SAME:
                subject = subjects.account_subject(hub.member.name, shared)
                document = {"until": until + hub.ahead, "reason": account.reason[:_REASON]}
                await hub.store(subject, subjects.write(document), "a limit", ttl=until - now)
                reported[shared] = until + hub.ahead


def read_limit(stored: Stored) -> tuple[str, _Limit]:
    """Return the account and its limit. Raises `RemoteProtocolError`, also for one that was removed."""
    words = stored.subject.split(".")
    if len(words) != 4 or not stored.data:
        raise RemoteProtocolError(f"{stored.subject[:200]!r} has no limit")
    document = subjects.read(stored.data)
    reason = one_line(str(document.get("reason"))[:_REASON])
    return subjects.decode(words[3]), _Limit(finite(document.get("until")), reason, words[2])
