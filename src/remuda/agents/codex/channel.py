"""The connection to the app-server of one session.

The terminal starts the conversation, and we join it. Before its first prompt a thread cannot be subscribed to
(0.166.0: "no rollout found"): until then the server reports only that it works.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.agents.events import Report
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.prompting import CallAddress, CallRefused, ChannelLost, Past, PromptCall
from remuda.tasks import TaskSet
from remuda.untrusted import as_object, as_objects, parse_object

from .deciding import decide
from .notices import Document, ThreadReader, find_turn, is_conversation, thread_of, turn_past
from .rpc import CallError, RpcPeer

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

log = logging.getLogger("remuda.agents.codex")

SCHEME = "unix://"
_MESSAGE_BYTES = 256 << 20
_TERMINAL_PATIENCE = 6.0
_TERMINAL_SETTLE = 0.5
_LOOK_INTERVAL = 0.02
_SUBSCRIBE_INTERVAL = 0.05
_SUBSCRIBE_TRIES = 200
# The list of turns has the end of a turn before its notice comes (0.166.0).
_END_PATIENCE = 1.0
_THREAD_PATIENCE = 10.0
_PROMPT_PATIENCE = 5.0
# An interrupt of a turn that has ended gets no answer at all (0.166.0).
_INTERRUPT_PATIENCE = 5.0
_PAGE = 20
_UNCLEAR_SECONDS = 5.0


class CodexChannel:
    """`reader` knows the conversation, also from the channel before this one."""

    def __init__(self, address: CallAddress, reader: ThreadReader) -> None:
        self._path = address.url.removeprefix(SCHEME)
        self._reader = reader
        self._socket: ClientConnection | None = None
        self._peer = RpcPeer(self._send)
        self._tasks = TaskSet()
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self._held: list[Document] | None = []
        """Notices that wait until it is known what happened before them."""
        self._others: set[str] = set()
        """Threads that are not the conversation."""
        self._left: set[str] = set()
        """Conversations that the terminal has left. It may come back to them."""
        self._subscribed = False
        self._subscribing = asyncio.Lock()
        self._is_new = False
        """Whether the conversation had no turn when we joined it."""

    # ── the connection ──

    async def connect(self, conversation: Mapping[str, Any]) -> None:
        from websockets.asyncio.client import unix_connect
        from websockets.exceptions import WebSocketException

        await _terminal_connected(self._path)
        try:
            self._socket = await unix_connect(
                self._path, uri="ws://localhost/", compression=None, max_size=_MESSAGE_BYTES
            )
        except (OSError, WebSocketException) as error:
            raise ChannelLost(f"{self._path}: {error}") from error
        self._tasks.start(self._read())
        try:
            await self._peer.begin()
            await self._join(self._reader.thread or conversation.get("session_id"))
        except CallError as error:
            raise ChannelLost(str(error)) from error
        self._release()

    async def _send(self, text: str) -> None:
        from websockets.exceptions import WebSocketException

        assert self._socket is not None
        try:
            await self._socket.send(text)
        except (OSError, WebSocketException) as error:
            raise ChannelLost(str(error) or "the app-server closed the connection") from error

    async def _read(self) -> None:
        from websockets.exceptions import WebSocketException

        assert self._socket is not None
        why = "the app-server closed the connection"
        try:
            async for data in self._socket:
                try:
                    message = parse_object(data)
                except ValueError as error:
                    log.warning("a message of the app-server was skipped: %s", error)
                    continue
                if self._peer.take(message):
                    continue
                if self._held is not None:
                    self._held.append(message)
                else:
                    self._take(message)
        except (OSError, WebSocketException) as error:
            why = str(error) or why
        finally:
            self._peer.lose(why)
            self._reports.put_nowait(None)

    async def reports(self) -> AsyncIterator[Report]:
        while (report := await self._reports.get()) is not None:
            yield report
        raise ChannelLost("the app-server closed the connection")

    async def aclose(self) -> None:
        await self._tasks.aclose()
        if self._socket is not None:
            with suppress(Exception):  # it may be gone in any way
                await self._socket.close()

    # ── notices ──

    def _take(self, message: Document) -> None:
        thread_id, reader = thread_of(message), self._reader
        params = as_object(message.get("params"))
        if message.get("method") == "thread/started":
            thread = as_object(params.get("thread"))
            if is_conversation(thread) and thread_id != reader.thread:
                self._enter(thread, "startup" if reader.thread is None else "clear", is_new=True)
            elif thread_id is not None and thread_id != reader.thread:
                self._others.add(thread_id)
            return
        if thread_id is not None and self._may_be_entered(thread_id, message):
            self._others.add(thread_id)
            self._tasks.start(self._look_at(thread_id, reader.thread))
        if thread_id == reader.thread and _is_active(message) and not self._subscribed:
            self._tasks.start(self._subscribe())
        self._report(reader.read(message))

    def _may_be_entered(self, thread_id: str, message: Document) -> bool:
        """Return whether the terminal may have gone to this thread. One that it left has late notices."""
        if thread_id == self._reader.thread or thread_id in self._others:
            return False
        return thread_id not in self._left or _is_opened(message)

    def _report(self, report: Report | None) -> None:
        if report is not None:
            self._reports.put_nowait(report)
        self._tasks.start(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for message in held:
            self._take(message)

    # ── the conversation ──

    async def _join(self, known: object) -> None:
        """Join the conversation that was known, else the one that the terminal has opened."""
        if isinstance(known, str):
            with suppress(CallError):
                await self._resume(known, announce=True)
                return
        loaded = (await self._peer.call("thread/loaded/list")).get("data")
        ids = [one for one in loaded if isinstance(one, str)] if isinstance(loaded, list) else []
        threads = [
            as_object((await self._peer.call("thread/read", threadId=one)).get("thread")) for one in ids
        ]
        found = [one for one in threads if is_conversation(one)]
        if found:
            newest = max(found, key=lambda one: (one.get("id") == known, str(one.get("id"))))
            self._enter(newest, "startup", is_new=not newest.get("preview"))
            with suppress(CallError):
                await self._resume(str(newest["id"]))

    def _enter(self, thread: Document, how: str, *, is_new: bool) -> None:
        self._subscribed, self._is_new = False, is_new
        if self._reader.thread is not None:
            self._left.add(self._reader.thread)
        self._left.discard(str(thread["id"]))
        self._report(self._reader.join(thread, how))

    async def _look_at(self, thread_id: str, before: str | None) -> None:
        """Find out whether the terminal went to this thread from the one before, as after its /resume."""
        with suppress(CallError, ChannelLost):
            thread = as_object((await self._peer.call("thread/read", threadId=thread_id)).get("thread"))
            if not is_conversation(thread):
                return
            self._others.discard(thread_id)
            if self._reader.thread == before:
                self._enter(thread, "resume", is_new=False)
                await self._subscribe()
            elif self._reader.thread != thread_id:  # it has gone on to another one
                self._left.add(thread_id)

    async def _subscribe(self) -> None:
        """Subscribe to the conversation as soon as the server can do that."""
        for _ in range(_SUBSCRIBE_TRIES):
            async with self._subscribing:
                thread = self._reader.thread
                if self._subscribed or thread is None:
                    return
                self._held = self._held or []
                try:
                    await self._resume(thread)
                    return
                except CallError as error:
                    log.debug("not subscribed yet: %s", error)
                except ChannelLost:
                    return
                finally:
                    self._release()
            await asyncio.sleep(_SUBSCRIBE_INTERVAL)
        log.warning("thread %s cannot be subscribed to: its turns are not seen", self._reader.thread)

    async def _resume(self, thread_id: str, *, announce: bool = False) -> None:
        """Subscribe to a thread, and report what happened there before."""
        answer = await self._peer.call("thread/resume", threadId=thread_id, excludeTurns=True)
        turns = await self._turns(thread_id)
        if announce:
            self._enter(as_object(answer.get("thread")), "resume", is_new=False)
        self._subscribed = True
        for report in self._reader.catch_up(turns[::-1], all_new=self._is_new, was_lost=announce):
            self._report(report)
        self._is_new = False
        if (turn := self._reader.listed_end) is not None:
            self._tasks.start(self._end_listed(turn))

    async def _end_listed(self, turn: Document) -> None:
        """End a turn that is listed as over if no notice does: it may have ended before we subscribed."""
        await asyncio.sleep(_END_PATIENCE)
        self._report(self._reader.end_listed(turn))

    async def _turns(self, thread_id: str) -> list[dict[str, Any]]:
        """Return the last turns, the newest first."""
        answer = await self._peer.call("thread/turns/list", threadId=thread_id, limit=_PAGE, itemsView="full")
        return as_objects(answer.get("data"))

    # ── calls ──

    async def submit(self, call: PromptCall) -> str:
        thread = await self._thread()
        if self._reader.running is not None:
            raise CallRefused("a turn is running, and codex would add the prompt to it")
        try:
            answer = await self._peer.call(
                "turn/start",
                threadId=thread,
                input=[{"type": "text", "text": call.prompt}],
                clientUserMessageId=call.id,
            )
        except CallError as error:
            raise CallRefused(str(error)) from error
        turn_id = as_object(answer.get("turn")).get("id")
        if not isinstance(turn_id, str):
            raise ChannelLost("the app-server named no turn")
        self._tasks.start(self._subscribe())
        # Only the prompt that is first in it says whose turn it is: a user may have been faster.
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROMPT_PATIENCE), self._changed:
                await self._changed.wait_for(lambda: turn_id in self._reader.first_messages)
        return turn_id

    async def _thread(self) -> str:
        try:
            async with asyncio.timeout(_THREAD_PATIENCE), self._changed:
                await self._changed.wait_for(lambda: self._reader.thread is not None)
        except TimeoutError:
            raise CallRefused("codex has not opened a conversation yet") from None
        assert self._reader.thread is not None
        return self._reader.thread

    async def find(self, call: PromptCall) -> Past:
        thread, cursor = call.conversation or self._reader.thread, None
        while thread is not None:
            try:
                page = await self._peer.call(
                    "thread/turns/list", threadId=thread, limit=_PAGE, itemsView="full", cursor=cursor
                )
            except CallError as error:
                if _has_no_turns(error):
                    break
                raise ChannelLost(str(error)) from error
            turns = as_objects(page.get("data"))
            if (turn := find_turn(turns, call.id)) is not None:
                return turn_past(turn)
            cursor = page.get("nextCursor")
            begun = [one.get("startedAt") for one in turns]
            is_older = any(isinstance(at, int) and at < call.since - _UNCLEAR_SECONDS for at in begun)
            if cursor is None or not turns or is_older:
                break
        return Past()

    async def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        await decide(self._peer, self._reader, request.tool_use_id or "", decision)

    async def interrupt(self, turn_id: str | None) -> None:
        running = self._reader.running
        if running is None or turn_id not in (None, running):
            return
        with suppress(CallError, TimeoutError):
            async with asyncio.timeout(_INTERRUPT_PATIENCE):
                await self._peer.call("turn/interrupt", threadId=self._reader.thread, turnId=running)


def _is_active(message: Document) -> bool:
    status = as_object(as_object(message.get("params")).get("status"))
    return message.get("method") == "thread/status/changed" and status.get("type") == "active"


def _is_opened(message: Document) -> bool:
    """Whether a client has opened a thread, or it works. Other notices, as of its title, may come late.

    The goal of a thread is reported when a client resumes it, also if it has none (0.166.0).
    """
    opened = ("thread/goal/cleared", "thread/goal/updated", "turn/started")
    return message.get("method") in opened or _is_active(message)


def _has_no_turns(error: CallError) -> bool:
    return any(words in str(error) for words in ("not materialized", "no rollout found", "not found"))


async def _terminal_connected(path: str) -> None:
    """Wait until the terminal is connected, for a while.

    The server reports itself to its service by the name of the client that was first. That is the terminal's,
    as without us.
    """
    deadline = asyncio.get_running_loop().time() + _TERMINAL_PATIENCE
    while asyncio.get_running_loop().time() < deadline and not _has_client(path):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_INTERVAL)
    await asyncio.sleep(_TERMINAL_SETTLE)  # it introduces itself as soon as it is connected


def _has_client(path: str) -> bool:
    """Return whether anyone is connected to a socket; True where the system does not say."""
    path = os.path.realpath(path)  # the server makes a link to its socket
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    except OSError:
        return True
    rows = [line.split() for line in lines]
    return any(row[-1] == path and row[5] == "03" for row in rows if len(row) == 8)
