"""The pool: carries out what the policy decides.

Nothing is polled. `_act` asks the policy whenever something has changed: a call came or went, a session came
up, came to rest or is gone, a limit was reached. Each step in a session's life is one task. All of it runs in
one loop, and deciding awaits nothing, so that no two decisions are made on the same state.
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

from . import life
from .call import Call
from .life import End, Seat, Verdict
from .observe import Observer
from .options import Settings
from .policy import Evict, HandOver, Reason, Spawn, State, decide, next_look
from .profile import Profile
from .queue import Queue, Waiting
from .session import SessionFactory
from .types import RunResult
from .wishes import Wishes

CRASH_GRACE = 1.0
"""A backend says by itself that its process is gone; if not, the pool does so after this."""

_ENDED_EARLY = "it exited before its first request"
_MOST_TROUBLES = 256


class Pool:
    def __init__(self, make: SessionFactory, settings: Settings, observer: Observer) -> None:
        self._make, self._settings, self._observer = make, settings, observer
        self.loop = asyncio.get_running_loop()
        self._limits = settings.limits
        self._seats: dict[str, Seat] = {}
        self._trouble: dict[str, str] = {}
        """What agents of a profile fail with, while none of them has come up since."""
        self._queue = Queue(settings, self._why_none)
        self._calls: set[Call] = set()
        self._late: dict[int, tuple[RunResult, asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._order = count(1)
        self._acting = self._again = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self.wishes = Wishes(settings, self._act, self._standing, self._why_none)

    # ── what the client asks ──

    def check_loop(self) -> None:
        if self.loop.is_closed():
            raise ClientClosed("the event loop of the client is closed")
        if asyncio.get_running_loop() is not self.loop:
            raise InvalidOptions(
                "the client belongs to another event loop", hint="create one client per event loop"
            )

    def submit(self, call: Call) -> None:
        """The call has its session, and its end, in a bounded time from here."""
        self._calls.add(call)
        call.ended.add_done_callback(lambda _: self._calls.discard(call))
        call.on_answer = self._answered
        self._queue.add(next(self._order), call)
        self._act()

    async def complete(self, result: RunResult) -> None:
        """Until its usage is known, or will not be."""
        _, late = self._late.get(id(result), (result, None))
        if late is not None:
            await asyncio.wait([late], timeout=life.USAGE_TIMEOUT + life.GRACE)

    def states(self) -> Counter[str]:
        return Counter(seat.state.value for seat in self._seats.values())

    def document(self) -> list[dict[str, object]]:
        now = self.loop.time()
        return [
            {
                "session_id": seat.id,
                "profile": seat.profile,
                "backend": seat.session.backend,
                "state": seat.state.value,
                "served": seat.served,
                "age": now - seat.born,
                "request_id": seat.call.id if seat.call and seat.state is State.BUSY else None,
            }
            for seat in self._seats.values()
        ]

    @property
    def waiting(self) -> int:
        return len(self._queue)

    # ── decide, then do ──

    def _act(self) -> None:
        if self._acting:  # a listener did something
            self._again = True
            return
        self._acting = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._decide()
        finally:
            self._acting = False
        self._claim_starts()
        self._set_timer()

    def _decide(self) -> None:
        actions = decide(
            self._seats.values(),
            self._queue.all.values(),
            self._queue.of_profile,
            self.wishes.all,
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
                    self._evict(self._seats[action.session], action.reason)

    def _hand_over(self, action: HandOver) -> None:
        seat, waiting = self._seats[action.session], self._queue.find(action.waiter)
        if waiting is None or seat.state is not State.IDLE:  # changed by a listener just now
            self._again = True
            return
        for older in action.passed:
            if (other := self._queue.find(older)) is not None:
                other.passed += 1
        self._queue.take(waiting.id)
        self._give(seat, waiting, warm=seat.is_warm and seat.ready < waiting.id)

    def _give(self, seat: Seat, waiting: Waiting, *, warm: bool) -> None:
        call, reused = waiting.call, seat.is_warm and seat.served > 0
        seat.state, seat.call = State.BUSY, call
        seat.served += 1
        seat.turn = self.loop.create_task(life.follow(seat, call))
        call.let_go = partial(life.stop, seat)
        seat.task = self._run(self._serve(seat, waiting))
        waited = call.handed(seat.id, warm=warm)
        self._observer.handed(call.id, seat.id, waited, warm=warm, reused=reused)

    def _spawn(self, action: Spawn) -> None:
        waiting, kept = self._queue.find(action.waiter), self.wishes.all.get(action.profile)
        if waiting is not None:
            self._queue.has_start(waiting)
            self._start(action, waiting.call.profile)
        elif action.waiter is None and kept is not None:
            self._start(action, kept.profile)
        else:  # changed by a listener just now
            self._again = True

    def _start(self, action: Spawn, profile: Profile) -> None:
        now = self.loop.time()
        try:
            session = self._make(f"s_{os.urandom(6).hex()}", profile)
        except Exception as error:  # noqa: BLE001  # a factory may be the caller's
            self._unmade(action, error)
            return
        seat = Seat(
            id=session.id,
            profile=action.profile,
            born=now,
            used=now,
            session=session,
            waiter=action.waiter,
            wished=action.waiter is None,
        )
        self._seats[seat.id] = seat
        session.on_exit(partial(self._exited, seat))
        seat.task = self._run(self._open(seat))

    def _claim_starts(self) -> None:
        """A start whose waiter was served otherwise, or left, or that nobody asked for, is the next one's."""
        for seat in self._seats.values():
            if seat.state is not State.SPAWNING or self._queue.find(seat.waiter) is not None:
                continue
            heir = self._queue.oldest_without_start(seat.profile)
            seat.waiter = None if heir is None else heir.id
            if heir is not None:
                self._queue.has_start(heir)

    def _unmade(self, action: Spawn, error: Exception) -> None:
        told = error if isinstance(error, RemudaError) else SpawnFailed(f"cannot create a worker: {error}")
        self._start_failed(action.profile, action.waiter, told, wished=action.waiter is None)
        self._again = True

    def _start_failed(self, profile: str, waiter: int | None, error: RemudaError, *, wished: bool) -> None:
        """Whose start it was is told; who else waits has a session started of its own."""
        self._observer.spawn_failed(profile, error)
        self._note_trouble(profile, error.message)
        if wished:
            self.wishes.failed(profile, error)
        if (waiting := self._queue.find(waiter)) is not None:
            waiting.call.fail(error)

    def _why_none(self, profile: str) -> str | None:
        """What agents of this profile fail with, or that none has come up so far; None when they work."""
        if (known := self._trouble.get(profile)) is not None:
            return known
        begun = [seat.born for seat in self._seats.values() if seat.state is State.SPAWNING]
        if not begun or len(begun) < len(self._seats):
            return None
        return f"it has been starting for {self.loop.time() - min(begun):.0f} s and is not ready"

    def _note_trouble(self, profile: str, words: str) -> None:
        self._trouble.pop(profile, None)
        self._trouble[profile] = words
        if len(self._trouble) > _MOST_TROUBLES:
            del self._trouble[next(iter(self._trouble))]

    def _evict(self, seat: Seat, reason: Reason, detail: str | None = None) -> None:
        if seat.state is State.CLOSING:
            return
        seat.state = State.CLOSING
        # At once: a step that went on would take it for its own.
        steps = [
            step for step in (seat.turn, seat.task) if step is not None and step is not asyncio.current_task()
        ]
        for step in steps:
            step.cancel()
        seat.task = self._run(self._close(seat, steps))
        if seat.ready:
            self._observer.evicted(seat.id, reason, detail)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = next_look(self._seats.values(), self.wishes.all, self._limits, self.loop.time())
        if when is not None and not self._closing:
            self._timer = self.loop.call_at(when, self._act)

    # ── steps of a session's life ──

    def _run(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(step)
        self._tasks.add(task)  # the loop itself holds no task for sure
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self, seat: Seat) -> None:
        try:
            await life.open_session(seat.session, self._settings.spawn_timeout)
            self._opened(seat)
            if seat.wished and self._settings.warmup_prompt is not None:
                await life.warm_up(seat, self._settings)
            life.check_alive(seat)
        except RemudaError as error:
            self._not_opened(seat, error)
        else:
            self._rests(seat)

    def _opened(self, seat: Seat) -> None:
        seat.ready = next(self._order)
        took = self.loop.time() - seat.born
        self._observer.spawned(seat.id, seat.session.backend, seat.profile, took)

    def _not_opened(self, seat: Seat, error: RemudaError) -> None:
        self._evict(seat, "dirty" if seat.dead is None else "crashed", seat.dead or error.message)
        self._start_failed(seat.profile, seat.waiter, error, wished=seat.wished)
        self._act()

    def _rests(self, seat: Seat) -> None:
        """It stands ready, with a fresh conversation."""
        seat.state, seat.used, seat.call, seat.turn = State.IDLE, self.loop.time(), None, None
        if (waiting := self._queue.find(seat.waiter)) is not None:
            self._queue.has_no_start(waiting)  # who came first gets it, and that may be another
        seat.waiter = None
        self._trouble.pop(seat.profile, None)
        self.wishes.stands(seat.profile)
        self._act()

    async def _serve(self, seat: Seat, waiting: Waiting) -> None:
        try:
            verdict = await self._after(seat, waiting)
        finally:
            self._settled(waiting.call)
        if verdict is None:
            self._rests(seat)
        else:
            self._evict(seat, verdict.reason, verdict.detail)
            self._act()

    async def _after(self, seat: Seat, waiting: Waiting) -> Verdict | None:
        call = waiting.call
        turn = await life.turn_of(seat, call, self._settings)
        if turn.end is End.UNTOUCHED:
            seat.served -= 1
            return None if seat.dead is None else self._lost(seat, waiting)
        if turn.end is End.ANSWERED and call.result is not None:
            self.wishes.worked(seat.profile)
            await life.learn_usage(seat, call.result)
            self._settled(call)
        verdict = await life.rest(seat, call, turn, self._settings, self.loop.time())
        if verdict is None and self._closing and not self._queue:
            verdict = Verdict("closed")
        return verdict or await life.clear(seat, self._settings, self._observer)

    def _lost(self, seat: Seat, waiting: Waiting) -> Verdict:
        """Before it was told anything: its call waits for another, in its old place."""
        self._note_trouble(seat.profile, f"{_ENDED_EARLY}: {seat.dead}")
        if not seat.served:
            self.wishes.stumbled(seat.profile)
        if not waiting.call.ended.done():
            seat.call = None
            waiting.call.given_back()
            self._queue.put_back(waiting)
        return Verdict("crashed", seat.dead)

    def _answered(self, result: RunResult) -> None:
        if result.usage is None:
            self._late[id(result)] = (result, self.loop.create_future())

    def _settled(self, call: Call) -> None:
        _, late = self._late.pop(id(call.result), (None, None))
        if late is not None:
            late.set_result(None)

    def _exited(self, seat: Seat, last_words: str) -> None:
        """Its process ended by itself, or must. In other states the step that it is in finds out."""
        seat.dead = last_words or "it exited without output"
        if seat.state is State.IDLE:
            self._evict(seat, "crashed", seat.dead)
            if not seat.served:
                self._note_trouble(seat.profile, f"{_ENDED_EARLY}: {seat.dead}")
                self.wishes.stumbled(seat.profile)
            self._act()
        elif seat.state is State.BUSY and seat.call is not None:
            self.loop.call_later(CRASH_GRACE, self._crash, seat, seat.call)

    @staticmethod
    def _crash(seat: Seat, call: Call) -> None:
        if seat.call is call:
            call.crash(seat.dead or "")

    async def _close(self, seat: Seat, steps: list[asyncio.Task[Any]]) -> None:
        """It counts until its process is gone."""
        try:
            await life.close(seat, steps, self._settings.end_timeout)
        finally:
            del self._seats[seat.id]
        self._act()

    def _standing(self, profile: str) -> int:
        coming_or_going = (State.SPAWNING, State.CLOSING)
        return sum(
            seat.profile == profile and seat.state not in coming_or_going for seat in self._seats.values()
        )

    # ── the end ──

    async def aclose(self) -> None:
        """Calls that run may end within `close_timeout`; then all of it ends, within `end_timeout`."""
        self._closing = True
        self.wishes.close()
        if running := [call.ended for call in self._calls]:
            await asyncio.wait(running, timeout=self._settings.close_timeout)
        for call in list(self._calls):
            call.fail(ClientClosed("the client was closed during the request"))
        for seat in list(self._seats.values()):
            self._evict(seat, "closed")
        if self._timer is not None:
            self._timer.cancel()
        if ends := [seat.task for seat in self._seats.values() if seat.task is not None]:
            await asyncio.wait(ends, timeout=self._settings.end_timeout + 3 * life.GRACE)

    def abandon(self) -> None:
        """Nobody holds the client any more: end what it had. From any thread, at any moment."""
        try:
            self.loop.call_soon_threadsafe(self._abandoned)
        except RuntimeError:  # the loop is closed, and its descriptors with it
            pass

    def _abandoned(self) -> None:
        for call in list(self._calls):
            call.abort("the client was dropped without being closed")
        self._run(self.aclose())
