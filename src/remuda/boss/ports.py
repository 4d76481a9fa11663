"""The parts of the boss that can be exchanged: sources of events, and how decisions and replies are
delivered."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from remuda.paths import home

from .attention.model import Approval, BossSession
from .folder import BossFolder
from .logins import Logins
from .notices.links import Links
from .notices.push import PushSubscriptions
from .service import BossService


class EventSource(Protocol):
    """Reports events to the service, from `start` to `close`.

    `start` returns when it listens and has reported what happened before. `close` ends it within a few
    seconds. If `start` fails, that is logged and the boss runs without this source.
    """

    name: str

    async def start(self) -> None: ...

    async def close(self) -> None: ...


SOURCES: tuple[str, ...] = (
    "remuda.boss.evidence.spool:Spool",
    "remuda.boss.evidence.kept:KeptSessions",
    "remuda.boss.evidence.reconcile:Reconcile",
    "remuda.boss.evidence.detector:Detector",
    "remuda.boss.evidence.silence:Silence",
    "remuda.boss.evidence.usage:UsageReader",
    "remuda.boss.evidence.spending:Spending",
    "remuda.boss.evidence.messages:Messages",
    "remuda.boss.evidence.plans:Plans",
    "remuda.boss.evidence.restarts:Restarts",
)
"""By module and class, in the order of their start.

A command that only asks the boss imports none of them.
"""


def make_sources(service: BossService, names: tuple[str, ...] = SOURCES) -> list[EventSource]:
    return [_load(name)(service) for name in names]


def _load(name: str) -> Any:
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)


class Replier(Protocol):
    async def reply(self, session: BossSession, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Hand a prompt to the session; returns its receipt. Raises `NotSafe` if nothing was typed."""


class Answerer(Protocol):
    async def answer(self, approval_id: str, answer: Mapping[str, Any], by: str) -> Approval:
        """Decide a permission request. Raises `AlreadyAnswered` for all but the first decision."""


class Fleet(Protocol):
    """Other hosts, over a hub. Every call but `status`, `sessions` and `close` raises why it is not possible:
    `HubUnreachable`, `HubRefused`, `HostUnreachable`, or the error of the other host."""

    def open(self) -> None: ...

    async def close(self, *, leaving: bool = False) -> None: ...

    async def status(self) -> dict[str, Any]: ...

    async def sessions(self, *, wait: bool = True, only_waiting: bool = False) -> dict[str, Any]:
        """Return the sessions of other hosts, with their queue items, and who can be reached.

        Waits a moment for a connection that is being made, unless `wait` is False. With `only_waiting` those
        that have an item.
        """

    def is_other(self, host: str) -> bool:
        """Whether this is the name of another host that is known."""

    requests: Any
    """Requests to any host: `listing`, `follow` and `cancel`."""

    async def run_anywhere(self, profile: str, payload: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request to any host with a free agent of that profile; returns its document."""

    async def events(self, after: int, wait: float, limit: int) -> dict[str, Any]:
        """Return the last events of other hosts after that position, in the order of each host."""

    async def request(
        self,
        host: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout: float,  # noqa: ASYNC109
    ) -> Any:
        """Ask the boss of another host."""

    async def send(
        self, host: str, session: str, prompt: str, options: Mapping[str, Any], sender: str | None
    ) -> dict[str, Any]:
        """Send a message to a session of another host; returns its receipt. `sender` is only kept here."""

    async def receipt(self, word: str, wait: float, steps: int) -> dict[str, Any]:
        """Return the receipt of a message that was sent from here, when it has more than `steps` steps."""

    async def sent_to(self, host: str, session: str) -> list[dict[str, Any]]:
        """Return receipts of messages that were sent from here, and that the host has not taken."""


FLEET = "remuda.fleet.member:FleetMember"


def load_fleet(boss: BossParts, folder: BossFolder) -> Fleet | None:
    """Return the fleet that this machine has joined. Without one, nothing of it is imported."""
    if not (home() / "fleet" / "member.json").exists():
        return None
    fleet: Fleet = _load(FLEET)(boss, folder)
    return fleet


@dataclass(slots=True)
class SourceStatus:
    name: str
    state: str = "starting"
    error: str | None = None


@dataclass(slots=True)
class BossParts:
    """The parts of a running boss, for its HTTP endpoint."""

    service: BossService
    port: int = 0
    answers: Answerer | None = None
    """None: the service stores a decision and does not deliver it."""
    replies: Replier | None = None
    links: Links | None = None
    logins: Logins | None = None
    push: PushSubscriptions | None = None
    urls: tuple[str, ...] = ()
    """How browsers reach it: on this machine first, then from elsewhere."""
    sources: list[SourceStatus] = field(default_factory=list)
    fleet: Fleet | None = None
    """None on a machine that has joined no fleet."""
    reload_fleet: Callable[[], Awaitable[None]] | None = None
    """Joins or leaves, as the file of the membership says now."""
