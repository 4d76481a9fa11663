"""A warm agent as the pool sees it, and the backends by name.

Every backend and the fake in `testing` pass one conformance suite. A backend is imported when a client first
needs it. None replaces another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import ClassVar, Protocol, cast

from remuda.agents import find_headless
from remuda.errors import SessionDirty as SessionDirty

from .profile import Profile
from .types import BackendName, Request, SessionEvent, Usage


class Worker(Protocol):
    """One agent process. The pool calls `open` once, then `run` and `renew` in turn, and `close` in any case.

    Every wait here is bounded. Whatever a method leaves running when it raises, `close` ends.
    """

    backend: ClassVar[BackendName]
    id: str
    """`s_` and twelve hex digits."""
    profile: Profile

    async def open(self, timeout: float) -> None:
        """Start the agent and return when it is ready with a new conversation.

        Raises `SpawnTimeout`, `SpawnFailed`, `CommandNotFound` or `InvalidOptions`.
        """

    def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        """Run one turn and yield its events; `Answered` is the last.

        Raises `AgentError`, and `SessionCrashed` as soon as the process ends. The pool limits the time. If it
        stops iterating early, it calls `interrupt`.
        """

    async def interrupt(self, timeout: float) -> bool:
        """Stop the running turn. Return whether the agent confirmed that, so that `renew` may follow."""

    async def usage(self, timeout: float) -> Usage | None:
        """Return the usage of the last turn, if the answer came before it was known. Before `renew`."""

    async def renew(self, timeout: float) -> None:
        """Start a new conversation and return when the agent has confirmed it.

        Raises `SessionDirty` if something of the old conversation survives; `SessionCrashed`; `WaitTimeout`.
        """

    async def close(self, timeout: float) -> None:
        """End the agent and all processes it started. May be called at any time, repeatedly; never raises."""

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Call `listener` once when the worker can no longer be used, also between two requests.

        That is when its process exits by itself, with its last output, or when something happens between two
        requests that makes it unusable, with the reason. It is called at that moment.
        """


WorkerFactory = Callable[[str, Profile], Worker]
"""Makes a worker with that id, not yet opened."""


# ── backends ──


def backend_factory(name: BackendName, folder: Path) -> WorkerFactory:
    """Return what makes workers of that backend, with their files in `folder`."""
    if name == "terminal":
        from .terminal_worker import TerminalWorker

        return lambda session_id, profile: TerminalWorker(session_id, profile, folder)

    def make(session_id: str, profile: Profile) -> Worker:
        headless = find_headless(profile.agent)
        worker = headless.stream_worker if name == "stream" else headless.print_worker
        return cast(Worker, worker(session_id, profile))

    return make
