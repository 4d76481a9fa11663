"""The print backend: a fresh `claude -p` for every request. Nothing is warm, and nothing can be left over.

The prompt goes through standard input. Where permissions are asked for, the input is a stream of messages, so
that they can be answered.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from remuda.agents.claude import stream
from remuda.agents.claude.command import Command
from remuda.agents.claude.profile import arguments
from remuda.errors import CommandNotFound

from .exchange import Exchange
from .profile import Profile
from .stream import ASKS, INPUT, command_line, entrypoint, environment
from .talk import Talk
from .types import BackendName, Request, SessionEvent, Usage

_LAST_BREATH = 2.0


class OneshotSession:
    backend: ClassVar[BackendName] = "print"

    def __init__(self, session_id: str, profile: Profile, folder: Path | None = None) -> None:
        self.id = session_id
        self.profile = profile
        self._talk: Talk | None = None

    async def open(self, timeout: float) -> None:
        """Nothing is started. Raises what every request would."""
        arguments(self.profile)
        if not _is_program(self.profile.binary):
            raise CommandNotFound(f"cannot find the program {self.profile.binary}")

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        stream.check_prompt(request.prompt)
        asks = self.profile.asks
        talk = self._talk = Talk(_nothing, _nothing)
        talk.start(
            command_line(self.profile, *((*INPUT, *ASKS) if asks else ())),
            self.profile.cwd,
            environment(self.profile),
        )
        command = Command(str(uuid4()), to_the_end=not asks)
        data = stream.prompt(request.prompt, command.id) if asks else request.prompt.encode()
        exchange = Exchange(talk, command, request, self._entrypoint)
        async with aclosing(exchange.events(data, last=not asks)) as events:
            async for event in events:
                yield event

    def _entrypoint(self) -> str | None:
        assert self._talk is not None
        return entrypoint(self.profile, next(iter(self._talk.process.descendants()), None))

    async def interrupt(self, timeout: float) -> bool:
        """Ends the process: nothing less proves it, and nothing more is lost."""
        await self.close(timeout)
        return self._talk is None or self._talk.process.ended

    async def usage(self, timeout: float) -> Usage | None:
        command = self._talk.command if self._talk is not None else None
        return Usage(**command.usage()) if command is not None and command.results else None

    async def renew(self, timeout: float) -> None:
        """It ends by itself behind its answer; what it started ends with it."""
        if self._talk is not None:
            self._talk.process.close_input()
            if not await self._talk.process.wait_ended(min(timeout, _LAST_BREATH)):
                await self.close(timeout)

    async def close(self, timeout: float) -> None:
        if self._talk is not None:
            await self._talk.process.close(timeout)

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Between two requests there is no process that could end."""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _nothing() -> None:
    pass
