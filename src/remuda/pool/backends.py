"""Backends by name. A backend is loaded when a client first needs it; none ever stands in for another."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol, cast

from remuda.agents.warm import find_warm
from remuda.errors import InvalidOptions

from .profile import Profile
from .types import BackendName
from .worker import Worker, WorkerFactory

_WHERE: dict[BackendName, tuple[str, str]] = {
    "terminal": ("terminal_worker", "TerminalWorker"),
    "stream": ("stream", "StreamSession"),
    "print": ("oneshot_session", "OneshotSession"),
}


class _Backend(Protocol):
    def __call__(self, session_id: str, profile: Profile, folder: Path) -> Worker: ...


def backend_factory(name: BackendName, folder: Path) -> WorkerFactory:
    """Sessions of that backend, whose files lie in `folder`."""
    module, kind = _WHERE[name]
    make = cast(_Backend, getattr(importlib.import_module(f"remuda.pool.{module}"), kind))
    return lambda session_id, profile: make(session_id, profile, folder)


def check_profile(profile: Profile, backend: BackendName) -> None:
    """What no session of that backend could be raises `InvalidOptions`."""
    agent = find_warm(profile.agent)
    if refusals := agent.refusals(profile, terminal=backend == "terminal"):
        raise InvalidOptions("; ".join(refusals))
    agent.arguments(profile)
