"""A warm session as the pool sees it. Every backend and the fake of `testing` pass one conformance suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import ClassVar, Protocol

from remuda.errors import SessionDirty as SessionDirty

from .profile import Profile
from .types import BackendName, Request, SessionEvent, Usage


class WarmSession(Protocol):
    """One agent process. The pool calls `open` once, then `run` and `renew` in turn, and `close` in any case.

    Nothing here waits without a bound. What a call leaves running when it raises, `close` ends.
    """

    backend: ClassVar[BackendName]
    id: str
    """`s_` and twelve hex digits."""
    profile: Profile

    async def open(self, timeout: float) -> None:
        """Until the agent stands ready with a fresh conversation. Raises `SpawnTimeout`, `SpawnFailed`,
        `CommandNotFound`, `InvalidOptions`."""

    def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        """One turn; `Answered` is the last event. Raises `AgentError`, and `SessionCrashed` at once when the
        process ends. The pool bounds it in time: when it stops iterating early it calls `interrupt`."""

    async def interrupt(self, timeout: float) -> bool:
        """Stop the turn that runs. True when the agent proved that it stopped, so that `renew` may follow."""

    async def usage(self, timeout: float) -> Usage | None:
        """Of the turn that ended last, where the answer came before it was known. Before `renew`."""

    async def renew(self, timeout: float) -> None:
        """A fresh conversation, confirmed by the agent. Raises `SessionDirty` when something of the old one
        survives, `SessionCrashed`, or `WaitTimeout`."""

    async def close(self, timeout: float) -> None:
        """End the agent and all that it started. Idempotent; safe at any moment; never raises."""

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Called once with its last output when the process ends by itself, also between two requests. When
        something happens between two after which nobody may be given it: in that moment, with what it is."""


SessionFactory = Callable[[str, Profile], WarmSession]
"""Makes a session of that id, not yet opened."""
