"""Where the boss's events come from beside its HTTP endpoint: one line each, in the order of their start.

Each is named by module and class, so that a command that only asks the boss loads none of them. The class is
called with the desk, and is an `EventSource`.
"""

from __future__ import annotations

import importlib
from typing import Any

from .desk import Desk
from .ports import EventSource

SOURCES: tuple[str, ...] = (
    "remuda.boss.evidence.spool:Spool",
    "remuda.boss.evidence.kept:Kept",
    "remuda.boss.evidence.reconcile:Reconcile",
    "remuda.boss.evidence.detector:Detector",
    "remuda.boss.evidence.silence:Silence",
)


def make_sources(desk: Desk, names: tuple[str, ...] = SOURCES) -> list[EventSource]:
    return [_load(name)(desk) for name in names]


def _load(name: str) -> Any:
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)
