"""The steps in the life of one warm session, as far as one session matters: open, serve, come to rest.

Each step is bounded, also where a backend does not keep to its own bound.
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

from .call import Call
from .events import LOG
from .observe import Observer
from .options import Settings
from .permission import decider
from .policy import Member, Reason, State, worn
from .session import WarmSession
from .types import Answered, Request, RunResult, SessionEvent

GRACE = 2.0
"""What a backend may take beyond its bound before it counts as broken."""
USAGE_TIMEOUT = 5.0
DETAIL_CHARACTERS = 2000

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Seat(Member):
    """A place in the pool, and who sits there."""

    session: WarmSession
    call: Call | None = None
    turn: asyncio.Task[Turn] | None = None
    task: asyncio.Task[None] | None = None
    """The step that it is in."""
    waiter: int | None = None
    """For whom it is being started."""
    wished: bool = False
    ready: int = 0
    """Orders it against calls: who came first."""
    dead: str | None = None
    """Its last words, once its process has ended by itself, or is about to."""

    @property
    def is_warm(self) -> bool:
        """Whether a process stands behind it between two requests."""
        return self.session.backend != "print"


class End(Enum):
    ANSWERED = auto()
    FAILED = auto()
    """The agent said so, and stands ready."""
    STOPPED = auto()
    UNTOUCHED = auto()
    """The agent was told nothing: the call was stopped, or the session lost, before that."""
    CRASHED = auto()
    DOUBT = auto()


@dataclass(frozen=True, slots=True)
class Turn:
    end: End
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a session is not used again."""

    reason: Reason
    detail: str | None = None


async def bounded(step: Awaitable[_T], timeout: float) -> _T:
    async with asyncio.timeout(timeout + GRACE):
        return await step


# ── open ──


async def open_session(session: WarmSession, timeout: float) -> None:
    """Whatever goes wrong is a `RemudaError`."""
    try:
        await bounded(session.open(timeout), timeout)
    except RemudaError:
        raise
    except TimeoutError:
        raise SpawnTimeout(f"worker {session.id} was not ready within {timeout:g} s") from None
    except Exception as error:
        LOG.exception("cannot start worker %s", session.id)
        raise SpawnFailed(f"cannot start worker {session.id}: {error}") from error


async def warm_up(seat: Seat, settings: Settings) -> None:
    """Run the warm-up prompt, and forget it."""
    assert settings.warmup_prompt is not None
    decide = decider("deny", settings.permission_timeout, lambda: None)
    request = Request(f"w_{seat.id}", settings.warmup_prompt, decide)
    try:
        async with asyncio.timeout(settings.default_timeout), _events(seat.session, request) as events:
            async for event in events:
                if isinstance(event, Answered):
                    break
        await bounded(seat.session.renew(settings.clear_timeout), settings.clear_timeout)
    except RemudaError:
        raise
    except TimeoutError:
        raise SpawnTimeout(f"worker {seat.id} did not answer the warm-up prompt in time") from None
    except Exception as error:
        LOG.exception("the warm-up prompt failed on worker %s", seat.id)
        raise SpawnFailed(f"worker {seat.id} failed on the warm-up prompt: {error}") from error


def check_alive(seat: Seat) -> None:
    if seat.dead is not None:
        raise SpawnFailed(f"worker {seat.id} exited right after its start: {_short(seat.dead)}")


# ── serve ──


@asynccontextmanager
async def _events(session: WarmSession, request: Request) -> AsyncIterator[AsyncIterator[SessionEvent]]:
    """A generator that is left early is closed here, not when it is found by the garbage collector."""
    events = session.run(request)
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def follow(seat: Seat, call: Call) -> Turn:
    """One turn. The call has ended when this returns, unless the session was lost before it was told."""
    if seat.dead is not None:
        return Turn(End.UNTOUCHED)
    try:
        async with _events(seat.session, call.request) as events:
            async for event in events:
                if isinstance(event, Answered):
                    _will_be_cleared(seat)
                    call.answer(_result(call, seat.session, event))
                    return Turn(End.ANSWERED)
                call.push(event)
        raise SessionDirty("the turn ended without an answer")
    except asyncio.CancelledError:
        return Turn(End.STOPPED)
    except Exception as error:  # noqa: BLE001  # whatever a backend raises ends its own request and no more
        return _broken(seat, call, error)


def stop(seat: Seat) -> None:
    """Leave the turn. What becomes of the session is seen behind that."""
    if seat.state is State.BUSY:
        seat.state = State.STOPPING
    if seat.turn is not None:
        seat.turn.cancel()


def _will_be_cleared(seat: Seat) -> None:
    """Before the caller hears of the end: his next request must find that this session comes."""
    if seat.state is State.BUSY:
        seat.state = State.CLEARING


def _broken(seat: Seat, call: Call, error: Exception) -> Turn:
    turn, told = _judged(seat.session, error)
    if turn.end is End.FAILED:
        _will_be_cleared(seat)
    call.let_go = _nothing  # the turn is over by itself
    call.fail(told)
    return turn


def _judged(session: WarmSession, error: Exception) -> tuple[Turn, RemudaError]:
    match error:
        case SessionCrashed():
            return Turn(End.CRASHED, error.detail or error.message), error
        case AgentError() | InvalidOptions() | Aborted():  # the last by a denial that ended the turn
            return Turn(End.FAILED, error.message), error
        case RemudaError():
            return Turn(End.DOUBT, error.message), error
        case _:
            LOG.error("the request failed on worker %s", session.id, exc_info=error)
            told = RemudaError(f"worker {session.id} failed: {error}")
            told.__cause__ = error
            return Turn(End.DOUBT, str(error)), told


def _result(call: Call, session: WarmSession, answered: Answered) -> RunResult:
    return RunResult(
        request_id=call.id,
        text=answered.text,
        session_id=session.id,
        backend=session.backend,
        usage=answered.usage,
        conversation_id=answered.conversation_id,
        entrypoint=answered.entrypoint,
        model=answered.model,
        num_turns=answered.num_turns,
        permission_denials=[dict(denial) for denial in answered.permission_denials],
        total_cost_usd=answered.total_cost_usd,
    )


def _nothing() -> None:
    pass


# ── come to rest ──


async def turn_of(seat: Seat, call: Call, settings: Settings) -> Turn:
    """How the turn ended. A turn that was stopped must let go soon, or it is in doubt."""
    assert seat.turn is not None
    either: list[asyncio.Future[Any]] = [call.ended, seat.turn]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([seat.turn], timeout=settings.interrupt_timeout)
    if not seat.turn.done():
        return Turn(End.DOUBT, "the turn did not stop in time")
    if seat.turn.cancelled():  # before its first step: else it says how it ended
        return Turn(End.UNTOUCHED)
    return seat.turn.result()


async def rest(seat: Seat, call: Call, turn: Turn, settings: Settings, now: float) -> Verdict | None:
    """All that must be true before its next conversation, but for the clearing itself. None: clear it."""
    if turn.end is End.CRASHED:
        return Verdict("crashed", _short(turn.detail))
    if (crash := _crash_of(seat)) is not None:
        return crash
    if turn.end is End.DOUBT:
        return Verdict("dirty", _short(turn.detail))
    if (reason := worn(seat, settings.limits, now)) is not None:
        return Verdict(reason)
    if call.always:
        return Verdict("dirty", "carry-over: a permission for the rest of the conversation")
    if turn.end is End.STOPPED and not await _interrupted(seat, settings):
        return _crash_of(seat) or Verdict("dirty", "the agent did not confirm that the turn stopped")
    return None


def _crash_of(seat: Seat) -> Verdict | None:
    return None if seat.dead is None else Verdict("crashed", _short(seat.dead))


async def _interrupted(seat: Seat, settings: Settings) -> bool:
    try:
        return await bounded(seat.session.interrupt(settings.interrupt_timeout), settings.interrupt_timeout)
    except Exception:  # noqa: BLE001  # then it was not proven stopped
        LOG.warning("cannot interrupt worker %s", seat.id, exc_info=True)
        return False


async def learn_usage(seat: Seat, result: RunResult) -> None:
    """Where the answer came before it was known."""
    if result.usage is not None:
        return
    try:
        result.usage = await bounded(seat.session.usage(USAGE_TIMEOUT), USAGE_TIMEOUT)
    except Exception:  # noqa: BLE001  # the answer itself is there
        LOG.warning("cannot read the usage of request %s", result.request_id, exc_info=True)


async def clear(seat: Seat, settings: Settings, observer: Observer) -> Verdict | None:
    """A fresh conversation, or why not."""
    loop = asyncio.get_running_loop()
    began, seat.state = loop.time(), State.CLEARING
    try:
        await bounded(seat.session.renew(settings.clear_timeout), settings.clear_timeout)
    except SessionDirty as error:
        return Verdict("dirty", _short(error.message))
    except SessionCrashed as error:
        return Verdict("crashed", _short(error.detail or error.message))
    except (WaitTimeout, TimeoutError):
        return Verdict("dirty", "the conversation was not cleared in time")
    except Exception as error:  # noqa: BLE001  # then it was not cleared
        LOG.exception("cannot clear the conversation of worker %s", seat.id)
        return Verdict("dirty", _short(str(error)))
    if (crash := _crash_of(seat)) is not None:
        return crash
    observer.cleared(seat.id, loop.time() - began)
    return None


def _short(detail: str) -> str:
    """Its beginning tells how it ended, its end what was said last."""
    if len(detail) <= DETAIL_CHARACTERS:
        return detail
    half = DETAIL_CHARACTERS // 2
    return f"{detail[:half]}…{detail[1 - half :]}"


# ── end ──


async def close(seat: Seat, steps: list[asyncio.Task[Any]], timeout: float) -> None:
    """`steps` were told to stop, and go first: no two speak with one session at a time."""
    running = [step for step in steps if not step.done()]
    try:
        if running:
            await asyncio.wait(running, timeout=GRACE)
        await bounded(seat.session.close(timeout), timeout)
    except Exception:  # noqa: BLE001  # nothing else is left to be done for it
        LOG.exception("cannot end worker %s", seat.id)
