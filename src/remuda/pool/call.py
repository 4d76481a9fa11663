"""One request, from the call to its end.

A call ends once, with an answer or with an error, and whoever waits for it is told in that moment. What the
ending leaves to be done on its session (stop the turn, clear) is the pool's, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import replace

from remuda.errors import Aborted, RemudaError, SessionCrashed, WaitTimeout

from .observe import Observer
from .options import RunSettings
from .permission import decider
from .profile import Profile
from .types import (
    Answered,
    Done,
    Failed,
    PermissionRequest,
    Raw,
    Request,
    RunResult,
    SessionEvent,
    StreamEvent,
    ToolResult,
    ToolUse,
)


class Call:
    """Iterate over it for its events. `quiet`: the last one only."""

    def __init__(
        self,
        request_id: str,
        prompt: str,
        profile: Profile,
        options: RunSettings,
        observer: Observer,
        *,
        permission_timeout: float,
        quiet: bool = False,
        raw: bool = False,
    ) -> None:
        self.id, self.profile = request_id, profile
        self.timeout = options.timeout
        self.result: RunResult | None = None
        self.error: RemudaError | None = None
        self.always = False
        """Whether a permission was given for the rest of the conversation."""
        decide = decider(options.permissions, permission_timeout, self._note_always)
        self.request = Request(request_id, prompt, decide, raw)
        self.let_go: Callable[[], object] = _nothing
        """What the pool does when the call ends early."""
        self.on_answer: Callable[[RunResult], object] = _nothing
        self._observer, self._quiet = observer, quiet
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_at(self.since + options.timeout, self._expire)
        self._watch = self._watching(options.signal) if options.signal is not None else None
        self._items: deque[StreamEvent | Raw] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._session_id: str | None = None
        self._tools: dict[str, str] = {}
        self._waited = 0.0
        self._warm = False

    # ── on its way ──

    def handed(self, session_id: str, *, warm: bool) -> float:
        """It has a session now. Returns how long that took."""
        self._session_id, self._warm = session_id, warm
        self._waited = self._loop.time() - self.since
        return self._waited

    def given_back(self) -> None:
        """That session was lost before it was told anything."""
        self._session_id = None

    def push(self, event: SessionEvent) -> None:
        if self.ended.done() or self._quiet or isinstance(event, Answered):
            return
        if isinstance(event, Raw) and not self.request.raw:
            return
        if isinstance(event, PermissionRequest) and not event.request_id:
            event = replace(event, request_id=self.id)
        elif isinstance(event, ToolUse):
            self._tools[event.id] = event.name
        elif isinstance(event, ToolResult) and not event.name:
            event = replace(event, name=self._tools.pop(event.id, ""))
        self._put(event)

    # ── its end ──

    def answer(self, result: RunResult) -> None:
        if self.ended.done():
            return
        result.duration = self._loop.time() - self.since
        result.queue_wait, result.warm = self._waited, self._warm
        self.result = result
        self.on_answer(result)
        self._end(Done(result))
        self._observer.done(result)

    def fail(self, error: RemudaError) -> bool:
        """False when it had ended before."""
        if self.ended.done():
            return False
        if error.request_id is not None:  # that of another request, which failed for the same reason
            error = copy(error)
        error.request_id = self.id
        self.error = error
        self._end(Failed(error))
        self._observer.failed(self.id, self._session_id, error, self._loop.time() - self.since)
        self.let_go()
        return True

    def abort(self, why: str = "the request was aborted") -> bool:
        return self.fail(Aborted(why))

    def crash(self, detail: str) -> bool:
        return self.fail(crashed(self._session_id or "", detail))

    def _expire(self) -> None:
        where = "(waiting for a worker)" if self._session_id is None else f"from worker {self._session_id}"
        self.fail(WaitTimeout(f"no answer within {self.timeout:g} s {where}"))

    def _end(self, last: Done | Failed) -> None:
        self.ended.set_result(None)
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        self._put(last)

    def _watching(self, signal: asyncio.Event) -> asyncio.Task[None]:
        async def watch() -> None:
            await signal.wait()
            self.abort()

        return self._loop.create_task(watch())

    def _note_always(self) -> None:
        self.always = True

    # ── who reads it ──

    def _put(self, item: StreamEvent | Raw) -> None:
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> StreamEvent | Raw:
        while not self._items:
            if self.error is not None:
                raise self.error
            if self.ended.done():
                raise StopAsyncIteration
            self._reader = self._loop.create_future()
            await self._reader
        return self._items.popleft()


def crashed(session_id: str, detail: str) -> SessionCrashed:
    return SessionCrashed(f"worker {session_id} exited during the request", detail=detail)


def _nothing(*_: object) -> None:
    pass
