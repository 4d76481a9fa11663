"""The pool's workers on a stream: one process for many conversations, or one for each request.

`StreamWorker` clears its conversation with `/clear`. The conversation is fresh when the CLI has reported the
reset and then a turn in a conversation with another id. Opening ends with such a clear, so all conversations
begin alike: MCP servers are connected, and the surroundings are known before a request can change them.

`PrintWorker` runs a new `claude -p` for every request: nothing is warm, and nothing can carry over. The
prompt goes through standard input. If permissions are asked for, the input is a stream of messages, so that
they can be answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import ClassVar, Literal
from uuid import uuid4

from remuda.agents.claude.files import entrypoint
from remuda.agents.claude.launch import clean_environment
from remuda.agents.claude.warm import arguments
from remuda.agents.warm import ExitListeners, Request, SessionEvent, Usage, WorkerProfile
from remuda.errors import (
    CommandNotFound,
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.supervised.child_process import outliving

from . import stream_protocol
from .prompt_progress import PromptProgress
from .stream_client import StreamClient
from .stream_events import STATE_EVENTS
from .stream_turn import StreamTurn

LOG = logging.getLogger("remuda.pool")
_FLAGS = ("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
_INPUT = ("--input-format", "stream-json")
_ASKS = ("--permission-prompt-tool", "stdio")
_STRAYED = "the agent started a turn on its own"
_HELPER_TIMEOUT = 0.5
"""Seconds that a helper of the turn, a hook for example, has to end by itself."""
_EXIT_TIMEOUT = 2.0
"""Seconds that a process has to exit by itself after its answer."""


class StreamWorker:
    backend: ClassVar[Literal["stream"]] = "stream"

    def __init__(self, session_id: str, profile: WorkerProfile) -> None:
        self.id = session_id
        self.profile = profile
        self._client = StreamClient(self._strayed, self._exited)
        self._fresh = False
        self._own: frozenset[int] = frozenset()
        """The processes that ran before the first request."""
        self._entrypoint: str | None = None
        self._exits = ExitListeners()

    # ── starting ──

    async def open(self, timeout: float) -> None:
        step = "it has not answered 'initialize'"
        _start(self._client, self.profile, *_INPUT, *(_ASKS if self.profile.asks else ()))
        try:
            async with asyncio.timeout(timeout):
                reply = await self._client.ask(stream_protocol.initialize)
                if reply.error is not None:
                    raise SpawnFailed(f"the agent does not speak stream-json: {reply.error}")
                step = "it has not confirmed '/clear'"
                await self._clear()
                self._check_carry_over()
        except TimeoutError:
            complaint = self._client.process.complaint()
            words = f"; stderr: {complaint}" if complaint else ""
            raise SpawnTimeout(f"the agent was not ready within {timeout:g} s: {step}{words}") from None
        except SessionDirty as error:
            raise SpawnFailed(f"the agent cannot be reused: {error.message}") from None
        except SessionCrashed as crash:
            raise SpawnFailed(f"the agent exited before it was ready: {crash.detail}") from None
        self._own = frozenset(self._client.process.descendants())
        self._entrypoint = entrypoint(self.profile.env, reply.payload.get("pid"))
        self._fresh = True

    async def _clear(self) -> None:
        before = self._client.conversation_id
        progress = PromptProgress(str(uuid4()))
        self._client.begin(progress, stream_protocol.clear(progress.id))
        await self._client.until(lambda: progress.over)
        if progress.dropped or progress.error() is not None:
            raise SessionDirty("the agent did not clear the conversation")
        now = progress.last.conversation_id
        if not self._client.was_reset or now == before or now != self._client.conversation_id:
            raise SessionDirty("the agent did not confirm a new conversation")

    # ── a request ──

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        stream_protocol.check_prompt(request.prompt)
        self._client.check_running()
        if not self._fresh:
            raise SessionDirty("the conversation was not cleared")
        self._fresh = False
        progress = PromptProgress(str(uuid4()))
        turn = StreamTurn(self._client, progress, request, lambda: self._entrypoint)
        async with aclosing(turn.events(stream_protocol.prompt(request.prompt, progress.id))) as events:
            async for event in events:
                yield event

    async def interrupt(self, timeout: float) -> bool:
        progress = self._client.progress
        if self._client.process.ended or progress is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._stop(progress)
        except (TimeoutError, SessionCrashed):
            return False
        return progress.over

    async def _stop(self, progress: PromptProgress) -> None:
        while not progress.over and not progress.awaits_tasks:
            # Once is enough if the CLI can cancel a prompt that has not begun; else again when it begins.
            turns = self._client.turns
            await self._client.ask(stream_protocol.interrupt)
            await self._client.until(partial(self._stopped_or_begun, progress, turns))

    def _stopped_or_begun(self, progress: PromptProgress, turns: int) -> bool:
        return progress.over or progress.awaits_tasks or self._client.turns != turns

    async def usage(self, timeout: float) -> Usage | None:
        return _usage(self._client)

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
        self._check_carry_over()  # it may have been woken while its processes were checked
        self._fresh = True

    async def _check_clean(self) -> None:
        self._client.check_running()
        if self._client.progress is not None and not self._client.progress.over:
            raise SessionDirty("the agent did not confirm that the turn stopped")
        self._check_carry_over()
        started = set(self._client.process.descendants()) - self._own
        if started and (left := await outliving(started, _HELPER_TIMEOUT)):
            raise SessionDirty(f"carry-over: {len(left)} running processes, such as pid {left[0]}")

    def _check_carry_over(self) -> None:
        if self._client.carry_over.reasons:
            raise SessionDirty("carry-over: " + ", ".join(self._client.carry_over.reasons))

    def _strayed(self) -> None:
        """End an idle worker that began a turn. It counts as ended at once: no request may get it."""
        if self._fresh:
            self._fresh = False
            LOG.warning("ending worker %s: %s", self.id, _STRAYED)
            self._client.process.end()
            self._exits.report(_STRAYED)

    # ── the end ──

    def on_exit(self, listener: Callable[[str], None]) -> None:
        self._exits.add(listener)

    def _exited(self) -> None:
        self._fresh = False
        self._exits.report(self._client.process.detail())

    async def close(self, timeout: float) -> None:
        self._exits.silence()
        await self._client.process.close(timeout)


class PrintWorker:
    backend: ClassVar[Literal["print"]] = "print"

    def __init__(self, session_id: str, profile: WorkerProfile) -> None:
        self.id = session_id
        self.profile = profile
        self._client: StreamClient | None = None

    async def open(self, timeout: float) -> None:
        """Start nothing, but raise what every request would."""
        arguments(self.profile)
        if not _is_program(self.profile.binary):
            raise CommandNotFound(f"cannot find the program {self.profile.binary}")

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        stream_protocol.check_prompt(request.prompt)
        asks = self.profile.asks
        client = self._client = StreamClient(_ignore, _ignore)
        _start(client, self.profile, *((*_INPUT, *_ASKS) if asks else ()))
        progress = PromptProgress(str(uuid4()), until_exit=not asks)
        data = stream_protocol.prompt(request.prompt, progress.id) if asks else request.prompt.encode()
        turn = StreamTurn(client, progress, request, partial(self._entrypoint, client))
        async with aclosing(turn.events(data, last=not asks)) as events:
            async for event in events:
                yield event

    def _entrypoint(self, client: StreamClient) -> str | None:
        return entrypoint(self.profile.env, next(iter(client.process.descendants()), None))

    async def interrupt(self, timeout: float) -> bool:
        """End the process: nothing less proves that it stopped, and nothing more is lost."""
        await self.close(timeout)
        return self._client is None or self._client.process.ended

    async def usage(self, timeout: float) -> Usage | None:
        return None if self._client is None else _usage(self._client)

    async def renew(self, timeout: float) -> None:
        """Wait for its exit: it ends by itself after its answer, and what it started ends with it."""
        if self._client is not None:
            self._client.process.close_input()
            if not await self._client.process.wait_ended(min(timeout, _EXIT_TIMEOUT)):
                await self.close(timeout)

    async def close(self, timeout: float) -> None:
        if self._client is not None:
            await self._client.process.close(timeout)

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Do nothing: no process runs between two requests."""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _start(client: StreamClient, profile: WorkerProfile, *flags: str) -> None:
    # With its state reported, we know whether a subagent in the background will wake it again.
    env = {STATE_EVENTS: "1", **clean_environment(profile.env)}
    client.start([*profile.program, *_FLAGS, *flags, *arguments(profile)], profile.cwd, env)


def _usage(client: StreamClient) -> Usage | None:
    progress = client.progress
    return Usage(**progress.usage()) if progress is not None and progress.results else None


def _ignore() -> None:
    pass
