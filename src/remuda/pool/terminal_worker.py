"""The terminal backend: one agent on a terminal that the user may attach to, for many conversations.

A prompt is handed to the worker's keeper, which types it as it types every message. A conversation is cleared
by a command of the agent, and is new when the agent has reported the new one. A worker is not used again if
a user typed into it, or if something of its conversation would carry over.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from remuda.agents import find_agent, find_headless, find_warm
from remuda.agents.state import WORKING
from remuda.agents.warm import ExitListeners
from remuda.errors import (
    InvalidOptions,
    RemudaError,
    SessionCrashed,
    SessionDead,
    SessionDirty,
    SessionNotFound,
    SessionUnreachable,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.inbox.message import new_id
from remuda.keeper.environment import session_environment
from remuda.keeper.spec import SessionSpec
from remuda.supervised.child_process import outliving

from .events import LOG
from .keeper_session import KeeperSession
from .terminal_turn import TerminalTurn
from .types import BackendName, Raw, Request, SessionEvent, Usage
from .worker import Profile

Document = dict[str, Any]
_COLS, _ROWS = 100, 30
_SCREEN_TIMEOUT = 1.0
_STRAYED = "the agent started a turn on its own"
_HELPER_TIMEOUT = 0.5
"""Seconds that a helper of the turn, a hook for example, has to end by itself."""


class TerminalWorker:
    backend: ClassVar[BackendName] = "terminal"

    def __init__(self, session_id: str, profile: Profile, folder: Path) -> None:
        self.id = session_id
        self.profile = profile
        self.name = f"pool-{session_id.removeprefix('s_')}"
        """Its name for `remuda attach`."""
        self._agent = find_warm(profile.agent)
        spec = make_spec(self.name, profile, folder)
        self._keeper = KeeperSession(spec, self._on_event, self._exited)
        self._fresh = False
        self._ready: asyncio.Future[None] | None = None
        self._turn: TerminalTurn | None = None
        self._conversation: str | None = None
        self._entrypoint: str | None = None
        self._model: str | None = None
        self._exits = ExitListeners()
        self._killing: asyncio.Task[Document] | None = None
        self._prompted = False
        """Whether it got a prompt in this conversation: ours, or one that woke it."""

    @property
    def agent_pid(self) -> int:
        return self._keeper.pid

    # ── starting ──

    async def open(self, timeout: float) -> None:
        why = "the agent has not started"
        try:
            async with asyncio.timeout(timeout):
                status = await self._keeper.start(timeout)
                if not status.get("hooks_expected", True):
                    raise InvalidOptions(
                        f"the terminal backend needs the agent's hooks: {'; '.join(status['degraded'])}"
                    )
                why = "the agent is not ready for a prompt"
                await self._until_ready()
                self._note(await self._keeper.request("status"))
        except TimeoutError:
            raise SpawnTimeout(f"{why} after {timeout:g} s: {await self._screen_text()}") from None
        except SessionCrashed as crash:
            raise SpawnFailed(f"the agent exited before it was ready: {crash.detail}") from None
        except (SessionDead, SessionNotFound, SessionUnreachable) as error:
            raise SpawnFailed(f"the keeper exited before the agent was ready: {error.message}") from None
        self._entrypoint = self._agent.entrypoint(self.profile.env, self._keeper.pid)
        self._fresh = True

    async def _until_ready(self) -> None:
        """Wait until a prompt would be typed at once."""
        while True:
            self._ready = asyncio.get_running_loop().create_future()
            reply = await self._keeper.request("ready")
            if reply["ready"]:
                return
            await self._ready

    async def _screen_text(self) -> str:
        """Return what its screen shows, such as a question that no one can answer."""
        try:
            lines = (await self._keeper.request("screen", within=_SCREEN_TIMEOUT))["lines"]
        except RemudaError:
            return "its screen is not available"
        return " / ".join(line.strip() for line in lines if line.strip())[-1000:] or "its screen is empty"

    def _note(self, status: Document) -> None:
        conversation = status.get("conversation") or {}
        self._conversation = conversation.get("session_id")
        self._model = conversation.get("model")

    # ── a request ──

    def _new_turn(self, request: Request) -> TerminalTurn:
        turn = TerminalTurn(new_id(time.time()), request, self._keeper.request, self._agent.is_denial)
        self._turn = turn
        return turn

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        self._agent.check_prompt(request.prompt)
        if self._keeper.detail is not None:
            raise self._keeper.crashed()
        if not self._fresh:
            raise SessionDirty("the conversation was not cleared")
        self._fresh = False
        turn = self._new_turn(request)
        turn.submitted = asyncio.ensure_future(self._keeper.submit(request.prompt, turn.id))
        turn.submitted.add_done_callback(_retrieve_error)
        began = time.monotonic()
        await asyncio.shield(turn.submitted)
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event
        if request.raw:
            for message in await self._messages(turn, time.monotonic() - began):
                yield message
        answer = turn.answer()
        if self._model is None:  # the agent had not reported it when the keeper was asked
            await self._learn_model()
        yield replace(answer, entrypoint=self._entrypoint, model=self._model)

    async def _learn_model(self) -> None:
        try:
            status = await self._keeper.request("status")
        except RemudaError:  # it exited after its answer, which counts
            return
        self._model = (status.get("conversation") or {}).get("model")

    async def _messages(self, turn: TerminalTurn, seconds: float) -> list[Raw]:
        conversation = (await self._keeper.request("status")).get("conversation") or {}
        path = conversation.get("transcript_path")
        prompt_id = (turn.stopped or turn.ended or {}).get("prompt_id")
        if turn.end not in ("answered", "failed") or not path:
            return []
        messages = await asyncio.to_thread(
            find_headless(self.profile.agent).turn_messages,
            Path(path),
            prompt_id,
            turn.text,
            failed=turn.end == "failed",
            model=self._model,
            seconds=seconds,
        )
        return [Raw(message) for message in messages]

    async def interrupt(self, timeout: float) -> bool:
        turn = self._turn
        if turn is None or self._keeper.detail is not None:
            return False
        try:
            async with asyncio.timeout(timeout):
                if turn.submitted is not None:
                    await asyncio.shield(turn.submitted)
                if turn.ended is None:
                    await self._keeper.request("interrupt", id=turn.id)
                await turn.until(lambda: turn.ended is not None)
        except (TimeoutError, RemudaError):
            return False
        return turn.proven

    async def usage(self, timeout: float) -> Usage | None:
        turn = self._turn
        if turn is None:
            return None
        try:
            async with asyncio.timeout(timeout):
                await turn.until(lambda: turn.ended is not None)
        except (TimeoutError, SessionCrashed):
            return None
        return turn.usage()

    # ── between two requests ──

    async def renew(self, timeout: float) -> None:
        self._fresh = False
        try:
            async with asyncio.timeout(timeout):
                await self._end_turn()
                await self._clear()
                await self._check_clean()
        except TimeoutError:
            why = await self._why_not_ready()
            raise WaitTimeout(f"the conversation was not cleared within {timeout:g} s{why}") from None
        if self._prompted:
            raise SessionDirty(_STRAYED)
        self._turn, self._fresh = None, True

    async def _why_not_ready(self) -> str:
        try:
            why = (await self._keeper.request("ready", within=_SCREEN_TIMEOUT))["why"]
        except RemudaError:  # it does not answer
            return ""
        return f": {why}" if why else ""

    async def _end_turn(self) -> None:
        """Wait until an answered turn is recorded. One that was left must have been stopped."""
        turn = self._turn
        if self._keeper.detail is not None:
            raise self._keeper.crashed()
        if turn is None:
            return
        if turn.always:
            raise SessionDirty("carry-over: a permission for the rest of the conversation")
        if turn.ended is None and turn.stopped is None:
            raise SessionDirty("the agent did not confirm that the turn stopped")
        await self._check_clean()  # first: the end may wait for processes that it left running
        await turn.until(lambda: turn.ended is not None)
        if not turn.proven:
            raise SessionDirty(f"the outcome of the prompt is unknown: {turn.ended}")

    async def _clear(self) -> None:
        before = self._conversation
        command = self._agent.clear_command
        clear = self._new_turn(Request("", command, _undecided))
        await self._keeper.submit(command, clear.id, command=True)
        await clear.until(lambda: clear.ended is not None)
        ended = clear.ended or {}
        self._conversation = ended.get("session_id")
        if ended["end"] != "answered" or self._conversation in (None, before):
            raise SessionDirty(f"the agent did not confirm a new conversation: {ended.get('reason')}")
        self._prompted = False
        await self._until_ready()

    async def _check_clean(self) -> None:
        report = await self._keeper.request("cleanliness")
        if reasons := carry_over(report):
            raise SessionDirty("; ".join(reasons))
        started = [int(one["pid"]) for one in report["processes"]]
        if started and (left := await outliving(started, _HELPER_TIMEOUT)):
            command = next(one["command"] for one in report["processes"] if one["pid"] == left[0])
            raise SessionDirty(f"carry-over: {len(left)} running processes, such as {command or left[0]}")

    # ── events ──

    def _on_event(self, event: Document) -> None:
        kind = event["event"]
        if kind == "ready" and self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        elif kind == "typed" and self._fresh:
            self._spoil("a user typed into it")
        elif kind == "prompted":  # a state alone may come from another source, which saw the work first
            self._prompted = True
            if self._fresh:
                self._spoil(_STRAYED)
        elif kind == "state" and self._fresh and event["state"] in WORKING and event["source"] == "hook":
            self._spoil(_STRAYED)
        if self._turn is not None:
            self._turn.on_event(event)

    def _spoil(self, why: str) -> None:
        """End the worker between two requests. It counts as exited at once, so that no request gets it."""
        self._fresh = False
        LOG.warning("ending worker %s: %s", self.id, why)
        self._killing = asyncio.get_running_loop().create_task(self._keeper.request("kill"))
        self._killing.add_done_callback(_retrieve_error)
        self._exits.report(why)

    # ── the end ──

    def on_exit(self, listener: Callable[[str], None]) -> None:
        self._exits.add(listener)

    def _exited(self, detail: str) -> None:
        self._fresh = False
        self._fail_waits(detail)
        self._exits.report(detail)

    def _fail_waits(self, detail: str) -> None:
        crash = SessionCrashed("the agent exited", detail=detail)
        if self._turn is not None:
            self._turn.crash(crash)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(crash)
            self._ready.exception()  # retrieved, in case nothing waits for it

    async def close(self, timeout: float) -> None:
        self._fresh = False
        self._fail_waits(self._keeper.detail or "it was closed")
        await self._keeper.close(timeout)


def make_spec(name: str, profile: Profile, folder: Path) -> SessionSpec:
    agent = find_agent(profile.agent)
    flags = find_warm(profile.agent).terminal_arguments(
        profile, profile.env, Path(profile.cwd), asks=profile.asks
    )
    return SessionSpec(
        name=name,
        folder=os.fspath(folder),
        argv=[*profile.program, *flags],
        cwd=profile.cwd,
        env=session_environment(profile.env, name, "REMUDA_SESSION", {}),
        agent=profile.agent,
        classifier=agent.classifier,
        cols=_COLS,
        rows=_ROWS,
        trust=True,
        forget_trust=True,
        owned=True,
        ephemeral=True,
        single_try=True,
        deny_permissions=not profile.asks,
        asks=profile.asks,
        tools=True,
    )


def carry_over(report: Document) -> Sequence[str]:
    """Return what would carry over to the next conversation; not processes, which may be about to end."""
    reasons = [f"carry-over: {one}" for one in report["residue"]]
    if report["typed"]:
        reasons.append("a user typed into it")
    if report["composer"] == "draft" or report["stashed"]:
        reasons.append("a draft is left in the composer")
    if report["permission_mode"] != report["first_permission_mode"]:
        reasons.append(f"the permission mode changed to {report['permission_mode']}")
    return reasons


def _retrieve_error(done: asyncio.Future[Any]) -> None:
    """Avoid a warning of asyncio if nothing waits for it any more; a waiter still gets the error."""
    if not done.cancelled():
        done.exception()


async def _undecided(_: Any) -> Any:
    raise AssertionError("a command requests no permission")
