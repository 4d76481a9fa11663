"""What plugs into the boss: where events come from, and who carries answers and replies."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .attention.model import Approval, Session
from .notices.links import Links
from .service import BossService


class EventSource(Protocol):
    """Something that tells the service of events, from `start` to `close`.

    `start` returns when it listens, and has told what happened while nobody did. `close` ends it, and takes
    a few seconds at most. An error of `start` is logged and costs the boss this source alone.
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
"""By module and class, in the order of their start: a command that only asks the boss loads none of them."""


def make_sources(service: BossService, names: tuple[str, ...] = SOURCES) -> list[EventSource]:
    return [_load(name)(service) for name in names]


def _load(name: str) -> Any:
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)


class Replier(Protocol):
    async def reply(self, session: Session, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Hand a prompt to the session; returns its receipt. Raises `NotSafe` when nothing was typed."""


class Answerer(Protocol):
    async def answer(self, approval_id: str, answer: Mapping[str, Any], by: str) -> Approval:
        """Give the answer to a request for leave. Raises `AlreadyAnswered` for all but the first."""


@dataclass(slots=True)
class SourceStatus:
    name: str
    state: str = "starting"
    error: str | None = None


@dataclass(slots=True)
class Boss:
    """The parts of a running boss, as its HTTP endpoint sees them."""

    service: BossService
    port: int = 0
    answers: Answerer | None = None
    """None: the service keeps the answer and does not deliver it."""
    replies: Replier | None = None
    links: Links | None = None
    sources: list[SourceStatus] = field(default_factory=list)
