"""Backends by name. A backend is loaded when a client first needs it. None replaces another."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from remuda.agents import find_headless
from remuda.agents.warm import find_warm
from remuda.errors import InvalidOptions

from .profile import Profile
from .session import SessionFactory, WarmSession
from .types import BackendName


def backend_factory(name: BackendName, folder: Path) -> SessionFactory:
    """Return what makes workers of that backend, with their files in `folder`."""
    if name == "terminal":
        from .terminal import TerminalSession

        return lambda session_id, profile: TerminalSession(session_id, profile, folder)

    def make(session_id: str, profile: Profile) -> WarmSession:
        headless = find_headless(profile.agent)
        worker = headless.stream_worker if name == "stream" else headless.print_worker
        return cast(WarmSession, worker(session_id, profile))

    return make


def check_profile(profile: Profile, backend: BackendName) -> None:
    """What no session of that backend could be raises `InvalidOptions`."""
    agent = find_warm(profile.agent)
    if refusals := agent.refusals(profile, terminal=backend == "terminal"):
        raise InvalidOptions("; ".join(refusals))
    agent.arguments(profile)
