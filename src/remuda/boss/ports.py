"""The parts of the boss that can be exchanged: sources of events, and how decisions and replies are
delivered."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .attention.model import Approval, Session
from .notices.links import Links
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
    "remuda.boss.evidence.kept:Kept",
    "remuda.boss.evidence.reconcile:Reconcile",
    "remuda.boss.evidence.detector:Detector",
    "remuda.boss.evidence.silence:Silence",
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
    async def reply(self, session: Session, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Hand a prompt to the session; returns its receipt. Raises `NotSafe` if nothing was typed."""


class Answerer(Protocol):
    async def answer(self, approval_id: str, answer: Mapping[str, Any], by: str) -> Approval:
        """Decide a permission request. Raises `AlreadyAnswered` for all but the first decision."""


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
    sources: list[SourceStatus] = field(default_factory=list)
