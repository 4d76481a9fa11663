"""The name of this machine on the hub: one machine at a time has it, even if two have its key."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

from remuda._version import __version__
from remuda.errors import HubRefused, RemoteProtocolError

from . import exchange, subjects
from .hub import Hub
from .hub_types import Outdated
from .subjects import HOSTS

RENEW_INTERVAL = 5.0
LEASE = 15.0
"""Seconds. A machine that was silent for longer is unreachable, and another one may take its name."""
_SAFE = 10.0
"""Seconds. One that could not renew for longer takes no message: it may have lost its name."""


class HeldName:
    """Use from the boss's loop. `claim` on each connection before anything else, then `renew_forever`."""

    def __init__(self) -> None:
        self._run_id = secrets.token_hex(8)
        self._revision = 0
        self._held_until = 0.0
        self.facts: dict[str, Any] = {}
        """What else this machine says of itself."""

    @property
    def is_held(self) -> bool:
        """Whether no other machine can have the name now."""
        return time.monotonic() < self._held_until

    async def claim(self, hub: Hub) -> None:
        """Take the name. Raises `HubRefused` if another machine has it."""
        found = await hub.load(HOSTS, subjects.name_subject(hub.member.name, hub.member.key.roles))
        self._revision = found.revision if found is not None else 0
        owner = _owner(found.data) if found is not None else ""
        if owner not in ("", hub.member.machine) and found is not None and hub.now() - found.at < LEASE:
            raise _taken_name(hub)
        try:
            await self._renew(hub)
        except Outdated:
            raise _taken_name(hub) from None

    async def renew_forever(self, hub: Hub) -> None:
        """Raises `HubRefused` when another machine has the name."""
        while True:
            await asyncio.sleep(RENEW_INTERVAL)
            try:
                await self._renew(hub)
            except Outdated:  # by another machine, or by a renewal of ours whose answer was lost
                await self.claim(hub)

    async def release(self, hub: Hub) -> None:
        await hub.remove(subjects.name_subject(hub.member.name, hub.member.key.roles))

    async def _renew(self, hub: Hub) -> None:
        begin = time.monotonic()
        subject = subjects.name_subject(hub.member.name, hub.member.key.roles)
        what = "the presence of this machine"
        self._revision = await hub.store(subject, self._presence(hub), what, revision=self._revision)
        self._held_until = begin + _SAFE

    def _presence(self, hub: Hub) -> bytes:
        return subjects.write(
            {
                "machine": hub.member.machine,
                "run": self._run_id,
                "version": __version__,
                "protocol": exchange.PROTOCOL,
                "offers": list(exchange.OFFERS),
                "ahead": hub.ahead,
                "roles": list(hub.member.key.roles),
                **self.facts,
            }
        )


def _owner(presence: bytes) -> str:
    """Return which machine has a name; None if what is there does not belong to a machine."""
    try:
        owner = subjects.read(presence).get("machine") if presence else None
    except RemoteProtocolError:
        owner = None
    return owner if isinstance(owner, str) else ""


def _taken_name(hub: Hub) -> HubRefused:
    return HubRefused(
        f"another machine is connected as '{hub.member.name}'",
        hint="each machine needs its own key: 'remuda fleet keys new NAME' on the hub",
    )
