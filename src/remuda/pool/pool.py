"""The pool: carries out what the policy decides.

Nothing is polled. `_act` asks the policy whenever something has changed: a request came or went, a worker is
ready, free or gone, a limit was reached. Each step of a worker is one task. Everything runs in one loop, and
deciding awaits nothing, so no two decisions are made on the same state.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from itertools import count
from typing import Any

from remuda.errors import ClientClosed, InvalidOptions, RemudaError, SpawnFailed
from remuda.tasks import TaskSet

from .events import PoolObserver
from .options import ClientSettings
from .pool_request import PoolRequest, QueuedRequest, RequestQueue
from .prewarm import PrewarmTargets
from .scheduler import Evict, HandOver, Reason, Spawn, WorkerState, decide, next_decision_at
from .slot import GRACE, USAGE_TIMEOUT, Eviction, Slot, WorkerTurnEnd
from .types import RunResult
from .worker import Profile, WorkerFactory

CRASH_GRACE = 1.0
"""Seconds that a backend has to report the crash of its process itself; then the pool fails the request."""

_EXITED_EARLY = "it exited before its first request"
_MAX_START_ERRORS = 256


class Pool:
    def __init__(self, make: WorkerFactory, settings: ClientSettings, observer: PoolObserver) -> None:
        self._make, self._settings, self._observer = make, settings, observer
        self.loop = asyncio.get_running_loop()
        self._limits = settings.limits
        self._slots: dict[str, Slot] = {}
        self._start_errors: dict[str, str] = {}
        """Why workers of a profile fail, while none of them has become ready since."""
        self._queue = RequestQueue(settings, self._start_error)
        self._requests: set[PoolRequest] = set()
        self._missing_usage: dict[int, tuple[RunResult, asyncio.Future[None]]] = {}
        self._tasks = TaskSet()
        self._order = count(1)
        self._acting = self._act_again = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self.targets = PrewarmTargets(settings, self._act, self._count_ready, self._start_error)

    # ── for the client ──

    def check_loop(self) -> None:
        if self.loop.is_closed():
            raise ClientClosed("the event loop of the client is closed")
        if asyncio.get_running_loop() is not self.loop:
            raise InvalidOptions(
                "the client belongs to another event loop", hint="create one client per event loop"
            )

    def submit(self, request: PoolRequest) -> None:
        """Queue a request. It gets a worker, and ends, in a bounded time from here."""
        self._requests.add(request)
        request.ended.add_done_callback(lambda _: self._requests.discard(request))
        request.on_answer = self._answered
        self._queue.add(next(self._order), request)
        self._act()

    async def complete(self, result: RunResult) -> None:
        """Wait until the usage of a result is known, or will stay unknown."""
        _, missing = self._missing_usage.get(id(result), (result, None))
        if missing is not None:
            await asyncio.wait([missing], timeout=USAGE_TIMEOUT + GRACE)

    def states(self) -> Counter[str]:
        return Counter(slot.state.value for slot in self._slots.values())

    def document(self) -> list[dict[str, object]]:
        now = self.loop.time()
        return [
            {
                "session_id": slot.id,
                "profile": slot.profile,
                "request_profile": slot.worker.profile.request_key,
                "backend": slot.worker.backend,
                "state": slot.state.value,
                "served": slot.served,
                "age": now - slot.born,
                "request_id": slot.request.id if slot.request and slot.state is WorkerState.BUSY else None,
            }
            for slot in self._slots.values()
        ]

    @property
    def waiting(self) -> int:
        return len(self._queue)

    # ── decide, then act ──

    def _act(self) -> None:
        if self._acting:  # called by a listener
            self._act_again = True
            return
        self._acting = True
        try:
            self._act_again = True
            while self._act_again:
                self._act_again = False
                self._decide()
        finally:
            self._acting = False
        self._assign_starts()
        self._set_timer()

    def _decide(self) -> None:
        actions = decide(
            self._slots.values(),
            self._queue.all.values(),
            self._queue.of_profile,
            self.targets.all,
            self._limits,
            self.loop.time(),
        )
        for action in actions:
            match action:
                case HandOver():
                    self._hand_over(action)
                case Spawn():
                    self._spawn(action)
                case Evict():
                    self._evict(self._slots[action.worker], action.reason)

    def _hand_over(self, action: HandOver) -> None:
        slot, queued = self._slots[action.worker], self._queue.find(action.waiter)
        if queued is None or slot.state is not WorkerState.IDLE:  # changed by a listener just now
            self._act_again = True
            return
        for older in action.passed:
            if (other := self._queue.find(older)) is not None:
                other.passed += 1
        self._queue.take(queued.id)
        self._begin_turn(slot, queued)

    def _begin_turn(self, slot: Slot, queued: QueuedRequest) -> None:
        request, reused = queued.request, slot.is_warm and slot.served > 0
        warm = slot.is_warm and slot.ready < queued.id
        slot.state, slot.request = WorkerState.BUSY, request
        slot.served += 1
        slot.turn = self.loop.create_task(slot.follow(request))
        request.on_early_end = slot.stop
        slot.step = self._run(self._serve(slot, queued))
        waited = request.handed_over(slot.id, warm=warm)
        self._observer.handed(request.id, slot.id, waited, warm=warm, reused=reused)

    def _spawn(self, action: Spawn) -> None:
        queued, target = self._queue.find(action.waiter), self.targets.all.get(action.profile)
        if queued is not None:
            self._queue.has_start(queued)
            self._start(action, queued.request.profile)
        elif action.waiter is None and target is not None:
            self._start(action, target.profile)
        else:  # changed by a listener just now
            self._act_again = True

    def _start(self, action: Spawn, profile: Profile) -> None:
        now, prewarmed = self.loop.time(), action.waiter is None
        try:
            worker = self._make(f"s_{os.urandom(6).hex()}", profile)
        except Exception as failure:  # noqa: BLE001  # a factory may be the caller's
            error = (
                failure
                if isinstance(failure, RemudaError)
                else SpawnFailed(f"cannot create a worker: {failure}")
            )
            self._start_failed(action.profile, action.waiter, error, prewarmed=prewarmed)
            self._act_again = True
            return
        slot = Slot(
            id=worker.id,
            profile=action.profile,
            born=now,
            used=now,
            worker=worker,
            settings=self._settings,
            observer=self._observer,
            waiter=action.waiter,
            prewarmed=prewarmed,
        )
        self._slots[slot.id] = slot
        worker.on_exit(partial(self._exited, slot))
        slot.step = self._run(self._open(slot))

    def _assign_starts(self) -> None:
        """Assign starts that no request waits for any more to the oldest request that has none."""
        for slot in self._slots.values():
            if slot.state is not WorkerState.SPAWNING or self._queue.find(slot.waiter) is not None:
                continue
            oldest = self._queue.oldest_without_start(slot.profile)
            slot.waiter = None if oldest is None else oldest.id
            if oldest is not None:
                self._queue.has_start(oldest)

    def _start_failed(self, profile: str, waiter: int | None, error: RemudaError, *, prewarmed: bool) -> None:
        """Fail the request that the start was for. Other requests that wait get a start of their own."""
        self._observer.spawn_failed(profile, error)
        self._note_start_error(profile, error.message)
        if prewarmed:
            self.targets.start_failed(profile, error)
        if (queued := self._queue.find(waiter)) is not None:
            queued.request.fail(error)

    def _start_error(self, profile: str) -> str | None:
        """Return why no worker of this profile is ready; None if they work."""
        if (known := self._start_errors.get(profile)) is not None:
            return known
        begun = [slot.born for slot in self._slots.values() if slot.state is WorkerState.SPAWNING]
        if not begun or len(begun) < len(self._slots):
            return None
        return f"it has been starting for {self.loop.time() - min(begun):.0f} s and is not ready"

    def _note_start_error(self, profile: str, text: str) -> None:
        self._start_errors.pop(profile, None)
        self._start_errors[profile] = text
        if len(self._start_errors) > _MAX_START_ERRORS:
            del self._start_errors[next(iter(self._start_errors))]

    def _evict(self, slot: Slot, reason: Reason, detail: str | None = None) -> None:
        if slot.state is WorkerState.CLOSING:
            return
        slot.state = WorkerState.CLOSING
        # Cancelled at once: a step that went on would still use the worker.
        steps = [
            step for step in (slot.turn, slot.step) if step is not None and step is not asyncio.current_task()
        ]
        for step in steps:
            step.cancel()
        slot.step = self._run(self._close(slot, steps))
        if slot.ready:
            self._observer.evicted(slot.id, reason, detail)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = next_decision_at(self._slots.values(), self.targets.all, self._limits, self.loop.time())
        if when is not None and not self._closing:
            self._timer = self.loop.call_at(when, self._act)

    # ── steps of a worker ──

    def _run(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(step)
        self._tasks.add(task)
        return task

    async def _open(self, slot: Slot) -> None:
        try:
            await slot.open()
            slot.ready = next(self._order)
            took = self.loop.time() - slot.born
            self._observer.spawned(slot.id, slot.worker.backend, slot.profile, took)
            if slot.prewarmed and self._settings.warmup_prompt is not None:
                await slot.warm_up()
            slot.check_alive()
        except RemudaError as error:
            self._evict(slot, "dirty" if slot.exited is None else "crashed", slot.exited or error.message)
            self._start_failed(slot.profile, slot.waiter, error, prewarmed=slot.prewarmed)
            self._act()
        else:
            self._is_ready(slot)

    def _is_ready(self, slot: Slot) -> None:
        """The worker is ready, with a new conversation."""
        slot.state, slot.used, slot.request, slot.turn = WorkerState.IDLE, self.loop.time(), None, None
        if (queued := self._queue.find(slot.waiter)) is not None:
            self._queue.has_no_start(queued)  # the oldest request gets it, which may be another one
        slot.waiter = None
        self._start_errors.pop(slot.profile, None)
        self.targets.worker_ready(slot.profile)
        self._act()

    async def _serve(self, slot: Slot, queued: QueuedRequest) -> None:
        try:
            eviction = await self._finish_turn(slot, queued)
        finally:
            self._usage_settled(queued.request)
        if eviction is None:
            self._is_ready(slot)
        else:
            self._evict(slot, eviction.reason, eviction.detail)
            self._act()

    async def _finish_turn(self, slot: Slot, queued: QueuedRequest) -> Eviction | None:
        request = queued.request
        report = await slot.turn_report(request)
        if report.end is WorkerTurnEnd.UNTOUCHED:
            slot.served -= 1
            return None if slot.exited is None else self._lost(slot, queued)
        if report.end is WorkerTurnEnd.ANSWERED and request.result is not None:
            self.targets.request_served(slot.profile)
            await slot.learn_usage(request.result)
            self._usage_settled(request)
        eviction = await slot.settle(request, report, self.loop.time())
        if eviction is None and self._closing and not self._queue:
            eviction = Eviction("closed")
        return eviction or await slot.clear()

    def _lost(self, slot: Slot, queued: QueuedRequest) -> Eviction:
        """The worker was lost before it got the request, which goes back to its old place in the queue."""
        self._exited_early(slot)
        if not queued.request.ended.done():
            slot.request = None
            queued.request.returned()
            self._queue.put_back(queued)
        return Eviction("crashed", slot.exited)

    def _exited_early(self, slot: Slot) -> None:
        self._note_start_error(slot.profile, f"{_EXITED_EARLY}: {slot.exited}")
        if not slot.served:
            self.targets.exited_unused(slot.profile)

    def _answered(self, result: RunResult) -> None:
        if result.usage is None:
            self._missing_usage[id(result)] = (result, self.loop.create_future())

    def _usage_settled(self, request: PoolRequest) -> None:
        _, missing = self._missing_usage.pop(id(request.result), (None, None))
        if missing is not None:
            missing.set_result(None)

    def _exited(self, slot: Slot, last_output: str) -> None:
        """The process exited by itself, or must be ended. In other states the current step notices it."""
        slot.exited = last_output or "it exited without output"
        if slot.state is WorkerState.IDLE:
            self._evict(slot, "crashed", slot.exited)
            if not slot.served:
                self._exited_early(slot)
            self._act()
        elif slot.state is WorkerState.BUSY and slot.request is not None:
            self.loop.call_later(CRASH_GRACE, self._crash, slot, slot.request)

    @staticmethod
    def _crash(slot: Slot, request: PoolRequest) -> None:
        if slot.request is request:
            request.crash(slot.exited or "")

    async def _close(self, slot: Slot, steps: list[asyncio.Task[Any]]) -> None:
        """Close a worker. It counts as one of the pool until its process is gone."""
        try:
            await slot.close(steps)
        finally:
            del self._slots[slot.id]
        self._act()

    def _count_ready(self, profile: str) -> int:
        """Return how many workers of a profile are up, at work or not."""
        coming_or_going = (WorkerState.SPAWNING, WorkerState.CLOSING)
        return sum(
            slot.profile == profile and slot.state not in coming_or_going for slot in self._slots.values()
        )

    # ── the end ──

    async def aclose(self) -> None:
        """Let running requests end within `close_timeout`, then end everything within `end_timeout`."""
        self._closing = True
        self.targets.close()
        if running := [request.ended for request in self._requests]:
            await asyncio.wait(running, timeout=self._settings.close_timeout)
        for request in list(self._requests):
            request.fail(ClientClosed("the client was closed during the request"))
        for slot in list(self._slots.values()):
            self._evict(slot, "closed")
        if self._timer is not None:
            self._timer.cancel()
        if ends := [slot.step for slot in self._slots.values() if slot.step is not None]:
            await asyncio.wait(ends, timeout=self._settings.end_timeout + 3 * GRACE)

    def abandon(self) -> None:
        """End everything, because nothing refers to the client any more. May be called in any thread."""
        try:
            self.loop.call_soon_threadsafe(self._abandoned)
        except RuntimeError:  # the loop is closed, and with it the descriptors that keep agents alive
            pass

    def _abandoned(self) -> None:
        for request in list(self._requests):
            request.abort("the client was dropped without being closed")
        self._run(self.aclose())
