"""One request, from the caller to its end, and who decides its permission requests.

A request ends once, with an answer or with an error, and its caller gets that at once. What is then left to
do on its worker (stop the turn, clear the conversation) is done by the pool; no caller waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

from remuda.errors import (
    Aborted,
    BudgetExceeded,
    PoolExhausted,
    RemudaError,
    SessionCrashed,
    SpawnFailed,
    WaitTimeout,
)

from .events import LOG, PoolObserver
from .options import ClientSettings, RequestSettings
from .scheduler import Waiter
from .types import (
    Allow,
    Answered,
    Decision,
    Deny,
    Done,
    Failed,
    PermissionHandler,
    PermissionRequest,
    Permissions,
    Raw,
    Request,
    RunResult,
    SessionEvent,
    Spent,
    StreamEvent,
    ToolResult,
    ToolUse,
    Usage,
)
from .worker import Profile

REFUSED = Deny("Permission was not granted: no one is available to decide.")


class PoolRequest:
    """Iterate over it for its events. `quiet`: only for the last one."""

    def __init__(
        self,
        request_id: str,
        prompt: str,
        profile: Profile,
        options: RequestSettings,
        observer: PoolObserver,
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
        self._most_tokens, self._most_cost = options.max_output_tokens, options.max_cost
        self.for_worker = Request(request_id, prompt, decide, raw, counted=self._most_tokens is not None)
        self.on_early_end: Callable[[], object] = _nothing
        """Called when the request fails: takes it out of the queue, or stops its turn."""
        self.on_answer: Callable[[RunResult], object] = _nothing
        self._observer, self._quiet = observer, quiet
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_at(self.since + options.timeout, self._expire)
        self._watch = self._watching(options.signal) if options.signal is not None else None
        self._items: deque[StreamEvent | Raw] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._worker_id: str | None = None
        self._tools: dict[str, str] = {}
        self._waited = 0.0
        self._warm = False

    # ── on its way ──

    def handed_over(self, worker_id: str, *, warm: bool) -> float:
        """Note which worker got it. Return how many seconds that took."""
        self._worker_id, self._warm = worker_id, warm
        self._waited = self._loop.time() - self.since
        return self._waited

    def returned(self) -> None:
        """Note that its worker was lost before it got the request."""
        self._worker_id = None

    def push(self, event: SessionEvent) -> None:
        if isinstance(event, Spent):
            if (over := self._over(event.usage, None)) is not None:
                self.fail(over)
            return
        if self.ended.done() or self._quiet or isinstance(event, Answered):
            return
        if isinstance(event, Raw) and not self.for_worker.raw:
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
        if (over := self._over(result.usage, result.total_cost_usd)) is not None:
            self.on_early_end = _nothing  # its turn has ended
            self.fail(over)
            return
        result.duration = self._loop.time() - self.since
        result.queue_wait, result.warm = self._waited, self._warm
        self.result = result
        self.on_answer(result)
        self._end(Done(result))
        self._observer.done(result)

    def _over(self, usage: Usage | None, cost: float | None) -> BudgetExceeded | None:
        """Return why it used too much. What is not known does not count."""
        if self._most_tokens is not None and usage is not None and usage.output_tokens > self._most_tokens:
            used = f"{usage.output_tokens} output tokens used, and max_output_tokens is {self._most_tokens}"
            return BudgetExceeded(used)
        if self._most_cost is not None and cost is not None and cost > self._most_cost:
            return BudgetExceeded(f"{cost:g} USD used, and max_cost is {self._most_cost:g}")
        return None

    def fail(self, error: RemudaError) -> bool:
        """End with an error. Return False if the request had ended before."""
        if self.ended.done():
            return False
        if error.request_id is not None:  # another request failed with the same error
            error = copy(error)
        error.request_id = self.id
        self.error = error
        self._end(Failed(error))
        self._observer.failed(self.id, self._worker_id, error, self._loop.time() - self.since)
        self.on_early_end()
        return True

    def abort(self, why: str = "the request was aborted") -> bool:
        return self.fail(Aborted(why))

    def crash(self, detail: str) -> bool:
        return self.fail(
            SessionCrashed(f"worker {self._worker_id or ''} exited during the request", detail=detail)
        )

    def _expire(self) -> None:
        where = "(waiting for a worker)" if self._worker_id is None else f"from worker {self._worker_id}"
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

    # ── its reader ──

    def _put(self, item: StreamEvent | Raw) -> None:
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> PoolRequest:
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


def _nothing(*_: object) -> None:
    pass


# ── permissions ──


def decider(permissions: Permissions, timeout: float, on_always: Callable[[], None]) -> PermissionHandler:
    """Return a handler that never raises: if the caller's fails, is late or returns nonsense, it denies."""

    async def decide(request: PermissionRequest) -> Decision:
        if permissions == "deny":
            return REFUSED
        decision = Allow() if permissions == "allow" else await _call(permissions, request, timeout)
        if isinstance(decision, Allow) and decision.always:
            on_always()
        return decision

    return decide


async def _call(handler: PermissionHandler, request: PermissionRequest, timeout: float) -> Decision:
    try:
        async with asyncio.timeout(timeout):
            decision: object = handler(request)
            if inspect.isawaitable(decision):
                decision = await decision
    except TimeoutError:
        return Deny(f"Permission was not granted: no decision within {timeout:g} seconds.")
    except Exception:  # noqa: BLE001  # it is the caller's code
        LOG.exception("the permission handler failed on %s", request.tool)
        return Deny("Permission was not granted: the permission handler failed.")
    if isinstance(decision, Allow | Deny):
        return decision
    LOG.error("the permission handler returned %s, not Allow or Deny", type(decision).__name__)
    return Deny("Permission was not granted: the permission handler made no decision.")


# ── the queue ──


@dataclass(slots=True, kw_only=True)
class QueuedRequest(Waiter):
    """Time in which a worker is being started for it does not count as waiting."""

    request: PoolRequest
    time_left: float
    resumed_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class RequestQueue:
    """A request fails when it has waited for `acquire_timeout`. Its `on_early_end` removes it from here.

    `start_error` returns why workers of a profile fail to start; None if they work.
    """

    def __init__(self, settings: ClientSettings, start_error: Callable[[str], str | None]) -> None:
        self._settings = settings
        self._start_error = start_error
        self._loop = asyncio.get_running_loop()
        self.all: dict[int, QueuedRequest] = {}
        self.of_profile: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.all)

    def add(self, position: int, request: PoolRequest) -> None:
        """`position` grows from request to request."""
        queued = QueuedRequest(
            id=position,
            profile=request.profile.key,
            since=self._loop.time(),
            request=request,
            time_left=self._settings.acquire_timeout,
        )
        self.all[position] = queued
        self._enter(queued)

    def _enter(self, queued: QueuedRequest) -> None:
        self.of_profile[queued.profile] += 1
        queued.request.on_early_end = lambda: self.take(queued.id)
        self._resume(queued)

    def put_back(self, queued: QueuedRequest) -> None:
        """Return a request to its old place. The time since it was taken does not count."""
        queued.spawning = False
        self.all = dict(sorted([*self.all.items(), (queued.id, queued)]))
        self._enter(queued)

    def find(self, position: int | None) -> QueuedRequest | None:
        return None if position is None else self.all.get(position)

    def take(self, position: int) -> None:
        queued = self.all.pop(position, None)
        if queued is None:
            return
        self._pause(queued)
        self.of_profile[queued.profile] -= 1
        if not self.of_profile[queued.profile]:
            del self.of_profile[queued.profile]

    def oldest_without_start(self, profile: str) -> QueuedRequest | None:
        waiting = (one for one in self.all.values() if one.profile == profile and not one.spawning)
        return next(waiting, None) if self.of_profile[profile] else None

    def has_start(self, queued: QueuedRequest) -> None:
        queued.spawning = True
        self._pause(queued)

    def has_no_start(self, queued: QueuedRequest) -> None:
        queued.spawning = False
        self._resume(queued)

    def _pause(self, queued: QueuedRequest) -> None:
        if queued.timer is not None:
            queued.timer.cancel()
            queued.timer = None
            queued.time_left = max(0.0, queued.time_left - (self._loop.time() - queued.resumed_at))

    def _resume(self, queued: QueuedRequest) -> None:
        queued.resumed_at = self._loop.time()
        queued.timer = self._loop.call_later(queued.time_left, self._expire, queued)

    def _expire(self, queued: QueuedRequest) -> None:
        limit = self._settings.acquire_timeout
        if error := self._start_error(queued.profile):  # more workers would not help
            queued.request.fail(SpawnFailed(f"no worker started within {limit:g} s; last error: {error}"))
            return
        queued.request.fail(
            PoolExhausted(
                f"no worker was free within {limit:g} s",
                hint="use a larger pool_size or a longer acquire_timeout",
                waited=self._loop.time() - queued.since,
                size=self._settings.pool_size,
            )
        )
