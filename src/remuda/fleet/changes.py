"""Report changes of other hosts to those who watch this boss, so that a page shows all hosts as they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from remuda.boss.feed import Feed
from remuda.boss.http.elsewhere import shown

from .remote import RemoteHosts

Document = dict[str, Any]
Key = tuple[str, str]
"""The host and the id of a session."""

_INTERVAL = 2.0
"""How often hosts are looked at that may have become unreachable."""
_COALESCE = 0.1


class FleetChanges:
    def __init__(self, feed: Feed, remote: RemoteHosts, own: str) -> None:
        self._feed = feed
        self._remote = remote
        self._own = own
        self._known: dict[Key, tuple[bytes, bool]] = {}
        """What was reported last: the value on the hub, and whether the host can be reached."""

    async def run(self) -> None:
        """Publish until cancelled. What changes while no one watches is in the lists."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._remote.changed.wait()
            await asyncio.sleep(_COALESCE)
            self._remote.changed.clear()
            before, self._known = self._known, self._remote.signatures(self._own)
            if self._feed.streams:
                self._publish(before)

    def _publish(self, before: Mapping[Key, tuple[bytes, bool]]) -> None:
        for key in before.keys() | self._known.keys():
            old, new = before.get(key), self._known.get(key)
            if old == new:
                continue
            then = self._remote.session(*key, old[0]) if old is not None else None
            now = self._remote.session(*key, new[0]) if new is not None else None
            if one := now or then:
                self._publish_one(shown(then)[1] if then else None, *shown(one), is_gone=now is None)

    def _publish_one(
        self, old: Document | None, session: Document, item: Document | None, *, is_gone: bool
    ) -> None:
        if is_gone:
            session, item = {**session, "agent_state": "dead", "ended": time.time()}, None
        self._feed.publish("host_session", session)
        if old is not None and (item is None or item["id"] != old["id"]):
            done = {"resolved_at": time.time(), "resolution": "elsewhere"}
            self._feed.publish("host_item", {**old, **done})
        if item is not None:
            self._feed.publish("host_item", item)
