"""One place in the pool, with its worker: open, serve a request, stop, clear, close.

Every step is bounded in time, also if a backend does not keep its own limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from remuda.errors import (
    Aborted,
    AgentError,
    InvalidOptions,
    RemudaError,
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)

from .events import LOG, PoolObserver
from .options import ClientSettings
from .pool_request import PoolRequest, decider
from .scheduler import Member, Reason, WorkerState, expired_limit
from .types import Answered, Request, RunResult, SessionEvent
from .worker import Worker

GRACE = 2.0
"""Seconds that a backend may take beyond its limit before the worker counts as broken."""
USAGE_TIMEOUT = 5.0
DETAIL_CHARACTERS = 2000

_T = TypeVar("_T")


class WorkerTurnEnd(Enum):
    ANSWERED = auto()
    FAILED = auto()
    """The agent reported an error and is ready again."""
    STOPPED = auto()
    UNTOUCHED = auto()
    """The agent got nothing: the request was stopped, or the worker lost, before that."""
    CRASHED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class TurnReport:
    end: WorkerTurnEnd
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a worker is not used again."""

    reason: Reason
    detail: str | None = None


@dataclass(slots=True, kw_only=True)
class Slot(Member):
    worker: Worker
    settings: ClientSettings
    observer: PoolObserver
    request: PoolRequest | None = None
    turn: asyncio.Task[TurnReport] | None = None
    step: asyncio.Task[None] | None = None
    """The task of the step that it is in."""
    waiter: int | None = None
    """The queued request that it is being started for."""
    prewarmed: bool = False
    """Whether it was started to keep a worker ready, and not for a request."""
    ready: int = 0
    """When it became ready, as a number in the order of arriving requests."""
    exited: str | None = None
    """The last output of its process, once that has exited by itself or must be ended."""

    @property
    def is_warm(self) -> bool:
        """Whether it has a process between two requests."""
        return self.worker.backend != "print"

    # ── opening ──

    async def open(self) -> None:
        """Open the worker. Every failure is a `RemudaError`."""
        timeout = self.settings.spawn_timeout
        try:
            await _bounded(self.worker.open(timeout), timeout)
        except RemudaError:
            raise
        except TimeoutError:
            raise SpawnTimeout(f"worker {self.id} was not ready within {timeout:g} s") from None
        except Exception as error:
            LOG.exception("cannot start worker %s", self.id)
            raise SpawnFailed(f"cannot start worker {self.id}: {error}") from error

    async def warm_up(self) -> None:
        """Run the warm-up prompt and clear the conversation. Every failure is a `RemudaError`."""
        settings = self.settings
        assert settings.warmup_prompt is not None
        decide = decider("deny", settings.permission_timeout, lambda: None)
        request = Request(f"w_{self.id}", settings.warmup_prompt, decide)
        try:
            async with asyncio.timeout(settings.default_timeout), self._events(request) as events:
                async for event in events:
                    if isinstance(event, Answered):
                        break
            await _bounded(self.worker.renew(settings.clear_timeout), settings.clear_timeout)
        except RemudaError:
            raise
        except TimeoutError:
            raise SpawnTimeout(f"worker {self.id} did not answer the warm-up prompt in time") from None
        except Exception as error:
            LOG.exception("the warm-up prompt failed on worker %s", self.id)
            raise SpawnFailed(f"worker {self.id} failed on the warm-up prompt: {error}") from error

    def check_alive(self) -> None:
        if self.exited is not None:
            raise SpawnFailed(f"worker {self.id} exited right after its start: {_short(self.exited)}")

    # ── serving ──

    @asynccontextmanager
    async def _events(self, request: Request) -> AsyncIterator[AsyncIterator[SessionEvent]]:
        """Iterate over a turn. The generator is closed here, and not later by the garbage collector."""
        events = self.worker.run(request)
        try:
            yield events
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def follow(self, request: PoolRequest) -> TurnReport:
        """Run one turn. The request has ended then, unless the worker was lost before it began."""
        if self.exited is not None:
            return TurnReport(WorkerTurnEnd.UNTOUCHED)
        try:
            async with self._events(request.for_worker) as events:
                async for event in events:
                    if isinstance(event, Answered):
                        self._will_be_cleared()
                        request.answer(self._result(request, event))
                        return TurnReport(WorkerTurnEnd.ANSWERED)
                    request.push(event)
            raise SessionDirty("the turn ended without an answer")
        except asyncio.CancelledError:
            return TurnReport(WorkerTurnEnd.STOPPED)
        except Exception as error:  # noqa: BLE001  # an error of a backend ends its own request and no more
            return self._failed(request, error)

    def stop(self) -> None:
        """Stop following the turn. The step that waits for it decides what becomes of the worker."""
        if self.state is WorkerState.BUSY:
            self.state = WorkerState.STOPPING
        if self.turn is not None:
            self.turn.cancel()

    def _will_be_cleared(self) -> None:
        """Called before the caller gets the answer: the next request must see that this worker is coming."""
        if self.state is WorkerState.BUSY:
            self.state = WorkerState.CLEARING

    def _failed(self, request: PoolRequest, error: Exception) -> TurnReport:
        report, raised = self._classify(error)
        if report.end is WorkerTurnEnd.FAILED:
            self._will_be_cleared()
        request.on_early_end = _nothing  # the turn has ended by itself
        request.fail(raised)
        return report

    def _classify(self, error: Exception) -> tuple[TurnReport, RemudaError]:
        match error:
            case SessionCrashed():
                return TurnReport(WorkerTurnEnd.CRASHED, error.detail or error.message), error
            case AgentError() | InvalidOptions() | Aborted():  # the last by a denial that ended the turn
                return TurnReport(WorkerTurnEnd.FAILED, error.message), error
            case RemudaError():
                return TurnReport(WorkerTurnEnd.UNKNOWN, error.message), error
            case _:
                LOG.error("the request failed on worker %s", self.id, exc_info=error)
                raised = RemudaError(f"worker {self.id} failed: {error}")
                raised.__cause__ = error
                return TurnReport(WorkerTurnEnd.UNKNOWN, str(error)), raised

    def _result(self, request: PoolRequest, answered: Answered) -> RunResult:
        return RunResult(
            request_id=request.id,
            text=answered.text,
            session_id=self.id,
            backend=self.worker.backend,
            usage=answered.usage,
            conversation_id=answered.conversation_id,
            entrypoint=answered.entrypoint,
            model=answered.model,
            num_turns=answered.num_turns,
            permission_denials=[dict(denial) for denial in answered.permission_denials],
            total_cost_usd=answered.total_cost_usd,
        )

    # ── after the turn ──

    async def turn_report(self, request: PoolRequest) -> TurnReport:
        """Wait for the end of the turn. If a stopped turn does not end in time, its end is unknown."""
        assert self.turn is not None
        either: list[asyncio.Future[Any]] = [request.ended, self.turn]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([self.turn], timeout=self.settings.interrupt_timeout)
        if not self.turn.done():
            return TurnReport(WorkerTurnEnd.UNKNOWN, "the turn did not stop in time")
        if self.turn.cancelled():  # before its first step; later it returns how it ended
            return TurnReport(WorkerTurnEnd.UNTOUCHED)
        return self.turn.result()

    async def learn_usage(self, result: RunResult) -> None:
        """Fill in the usage, if the answer came before it was known."""
        if result.usage is not None:
            return
        try:
            result.usage = await _bounded(self.worker.usage(USAGE_TIMEOUT), USAGE_TIMEOUT)
        except Exception:  # noqa: BLE001  # the answer itself is there
            LOG.warning("cannot read the usage of request %s", result.request_id, exc_info=True)

    async def settle(self, request: PoolRequest, report: TurnReport, now: float) -> Eviction | None:
        """Stop a turn that was left, and check whether another request may follow. None: `clear` it."""
        if report.end is WorkerTurnEnd.CRASHED:
            return Eviction("crashed", _short(report.detail))
        if (crash := self._crash()) is not None:
            return crash
        if report.end is WorkerTurnEnd.UNKNOWN:
            return Eviction("dirty", _short(report.detail))
        if (reason := expired_limit(self, self.settings.limits, now)) is not None:
            return Eviction(reason)
        if request.always:
            return Eviction("dirty", "carry-over: a permission for the rest of the conversation")
        if report.end is WorkerTurnEnd.STOPPED and not await self._interrupt():
            return self._crash() or Eviction("dirty", "the agent did not confirm that the turn stopped")
        return None

    def _crash(self) -> Eviction | None:
        return None if self.exited is None else Eviction("crashed", _short(self.exited))

    async def _interrupt(self) -> bool:
        timeout = self.settings.interrupt_timeout
        try:
            return await _bounded(self.worker.interrupt(timeout), timeout)
        except Exception:  # noqa: BLE001  # then nothing proves that it stopped
            LOG.warning("cannot interrupt worker %s", self.id, exc_info=True)
            return False

    async def clear(self) -> Eviction | None:
        """Start a new conversation. Return why the worker cannot be used again, or None."""
        loop, timeout = asyncio.get_running_loop(), self.settings.clear_timeout
        began, self.state = loop.time(), WorkerState.CLEARING
        try:
            await _bounded(self.worker.renew(timeout), timeout)
        except (SessionDirty, WaitTimeout) as error:
            return Eviction("dirty", _short(error.message))
        except SessionCrashed as error:
            return Eviction("crashed", _short(error.detail or error.message))
        except TimeoutError:
            return Eviction("dirty", "the conversation was not cleared in time")
        except Exception as error:  # noqa: BLE001  # then it was not cleared
            LOG.exception("cannot clear the conversation of worker %s", self.id)
            return Eviction("dirty", _short(str(error)))
        if (crash := self._crash()) is not None:
            return crash
        self.observer.cleared(self.id, loop.time() - began)
        return None

    # ── the end ──

    async def close(self, steps: list[asyncio.Task[Any]]) -> None:
        """Close the worker. The cancelled `steps` end first: no two tasks use one worker at a time."""
        running, timeout = [step for step in steps if not step.done()], self.settings.end_timeout
        try:
            if running:
                await asyncio.wait(running, timeout=GRACE)
            await _bounded(self.worker.close(timeout), timeout)
        except Exception:  # noqa: BLE001  # nothing else can be done for it
            LOG.exception("cannot end worker %s", self.id)


async def _bounded(step: Awaitable[_T], timeout: float) -> _T:
    async with asyncio.timeout(timeout + GRACE):
        return await step


def _short(detail: str) -> str:
    """Shorten a detail in its middle: its beginning says how it ended, its end has the last output."""
    if len(detail) <= DETAIL_CHARACTERS:
        return detail
    half = DETAIL_CHARACTERS // 2
    return f"{detail[:half]}…{detail[1 - half :]}"


def _nothing() -> None:
    pass
