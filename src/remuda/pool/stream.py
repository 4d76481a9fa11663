"""The stream backend: one Claude Code process for many conversations, in its stream-json protocol.

A conversation is cleared by `/clear`, and fresh when the CLI has told of the reset and then of a turn in a
conversation of another id. Opening ends with such a clear: all conversations begin alike, MCP servers are
connected, and what the surroundings are is known before anybody can change them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from remuda.agents.claude import stream
from remuda.agents.claude.command import Command
from remuda.agents.claude.environment import clean_environment
from remuda.agents.claude.files import registry_file
from remuda.agents.claude.profile import arguments
from remuda.agents.claude.stream_events import STATE_EVENTS
from remuda.durable import read_regular
from remuda.errors import (
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.untrusted import parse_json

from .events import LOG
from .exchange import Exchange
from .exits import outliving
from .profile import Profile
from .talk import Talk
from .types import BackendName, Request, SessionEvent, Usage

FLAGS = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
INPUT = ("--input-format", "stream-json")
ASKS = ("--permission-prompt-tool", "stdio")
_STRAYED = "the agent started a turn on its own"
_LAST_BREATH = 0.5
"""What a helper of the turn, a hook say, has to end by itself."""


class StreamSession:
    backend: ClassVar[BackendName] = "stream"

    def __init__(self, session_id: str, profile: Profile, folder: Path | None = None) -> None:
        self.id = session_id
        self.profile = profile
        self._talk = Talk(self._strayed, self._gone)
        self._fresh = False
        self._told = self._closing = False
        self._own: frozenset[int] = frozenset()
        """The processes that stood there before the first request."""
        self._entrypoint: str | None = None
        self._listeners: list[Callable[[str], None]] = []

    # ── coming up ──

    async def open(self, timeout: float) -> None:
        argv = command_line(self.profile, *INPUT, *(ASKS if self.profile.asks else ()))
        self._talk.start(argv, self.profile.cwd, environment(self.profile))
        step = "it has not answered 'initialize'"
        try:
            async with asyncio.timeout(timeout):
                reply = await self._talk.ask(stream.initialize)
                if reply.error is not None:
                    raise SpawnFailed(f"the agent does not speak stream-json: {reply.error}")
                step = "it has not confirmed '/clear'"
                await self._clear()
                self._check_residue()
        except TimeoutError:
            said = self._talk.process.complaint()
            words = f"; stderr: {said}" if said else ""
            raise SpawnTimeout(f"the agent was not ready within {timeout:g} s: {step}{words}") from None
        except SessionDirty as dirt:
            raise SpawnFailed(f"the agent cannot be reused: {dirt.message}") from None
        except SessionCrashed as crash:
            raise SpawnFailed(f"the agent exited before it was ready: {crash.detail}") from None
        self._own = frozenset(self._talk.process.descendants())
        self._entrypoint = entrypoint(self.profile, reply.payload.get("pid"))
        self._fresh = True

    async def _clear(self) -> None:
        before = self._talk.conversation_id
        command = Command(str(uuid4()))
        self._talk.begin(command, stream.clear(command.id))
        await self._talk.until(lambda: command.over)
        if command.dropped or command.error() is not None:
            raise SessionDirty("the agent did not clear the conversation")
        now = command.last.conversation_id
        if not self._talk.was_reset or now == before or now != self._talk.conversation_id:
            raise SessionDirty("the agent did not confirm a new conversation")

    # ── a request ──

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        stream.check_prompt(request.prompt)
        self._talk.check_running()
        if not self._fresh:
            raise SessionDirty("the conversation was not cleared")
        self._fresh = False
        command = Command(str(uuid4()))
        exchange = Exchange(self._talk, command, request, lambda: self._entrypoint)
        async with aclosing(exchange.events(stream.prompt(request.prompt, command.id))) as events:
            async for event in events:
                yield event

    async def interrupt(self, timeout: float) -> bool:
        command = self._talk.command
        if self._talk.process.ended or command is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._stop(command)
        except (TimeoutError, SessionCrashed):
            return False
        return command.over

    async def _stop(self, command: Command) -> None:
        while not command.over and not command.awaits_tasks:
            # Once is enough where the CLI can cancel a prompt that has not begun; else it is told again then.
            turns = self._talk.turns
            await self._talk.ask(stream.interrupt)
            await self._talk.until(partial(self._stopped_or_begun, command, turns))

    def _stopped_or_begun(self, command: Command, turns: int) -> bool:
        return command.over or command.awaits_tasks or self._talk.turns != turns

    async def usage(self, timeout: float) -> Usage | None:
        command = self._talk.command
        return Usage(**command.usage()) if command is not None and command.results else None

    # ── between two requests ──

    async def renew(self, timeout: float) -> None:
        self._fresh = False
        try:
            async with asyncio.timeout(timeout):
                await self._check_clean()
                await self._clear()
                await self._check_clean()
        except TimeoutError:
            raise WaitTimeout(f"the conversation was not cleared within {timeout:g} s") from None
        self._check_residue()  # it may have woken while its processes were looked at
        self._fresh = True

    async def _check_clean(self) -> None:
        self._talk.check_running()
        if self._talk.command is not None and not self._talk.command.over:
            raise SessionDirty("the agent did not confirm that the turn stopped")
        self._check_residue()
        strangers = set(self._talk.process.descendants()) - self._own
        if strangers and (left := await outliving(strangers, _LAST_BREATH)):
            raise SessionDirty(f"carry-over: {len(left)} running processes, such as pid {left[0]}")

    def _check_residue(self) -> None:
        if self._talk.residue.reasons:
            raise SessionDirty("carry-over: " + ", ".join(self._talk.residue.reasons))

    def _strayed(self) -> None:
        """While it waits for a request nobody may be given it: it counts as ended before it is."""
        if self._fresh:
            self._fresh = False
            LOG.warning("ending worker %s: %s", self.id, _STRAYED)
            self._talk.process.end()
            self._tell(_STRAYED)

    # ── the end ──

    def on_exit(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def _gone(self) -> None:
        self._fresh = False
        self._tell(self._talk.process.detail())

    def _tell(self, detail: str) -> None:
        if not self._told and not self._closing:
            self._told = True
            for listener in self._listeners:
                listener(detail)

    async def close(self, timeout: float) -> None:
        self._closing = True
        await self._talk.process.close(timeout)


def command_line(profile: Profile, *flags: str) -> list[str]:
    return [*profile.program, "-p", *FLAGS, *flags, *arguments(profile)]


def environment(profile: Profile) -> dict[str, str]:
    # Told of its rest, we know whether an agent in the background will wake it again.
    return {STATE_EVENTS: "1", **clean_environment(profile.env)}


def entrypoint(profile: Profile, pid: object) -> str | None:
    """What the agent calls itself. In the stream it does not say so, in its registry it does."""
    if not isinstance(pid, int):
        return None
    try:
        found = parse_json(read_regular(registry_file(profile.env, pid))).get("entrypoint")
    except (OSError, ValueError, AttributeError):  # it is rewritten in place
        return None
    return found if isinstance(found, str) else None
