"""Ends the agent of an idle session, and starts it again when it is needed.

The keeper stays, with the last screen, the history and the inbox. One timer waits until the session has been
idle for long enough; what it waits for then comes as an event. What wakes it is a message, a key, or a client
that asks for it. A session that cannot be woken stays asleep with its messages, and says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from remuda.agents.state import WAITING, State
from remuda.errors import NotSafe, RemudaError, SpawnFailed

from .session import Session
from .sleep import SleepLook, WakeTries, why_awake

log = logging.getLogger("remuda.keeper.sleep")

# After a reason that an event may have ended: how long until the next look, so that a flood of events costs
# nothing.
_LOOK_INTERVAL = 1.0
# An agent shows that it is ready within a second, on a busy machine within some. If it does not, its user
# must be able to type at what it shows.
_KEYS_PATIENCE = 15.0
_HOLDER = "sleep"


class Phase(StrEnum):
    AWAKE = "awake"
    FALLING = "falling"
    ASLEEP = "asleep"
    WAKING = "waking"


class KeptProgram(Protocol):
    """What the sleeper needs of the keeper: the program and what watches it."""

    def sleep_look(self) -> SleepLook:
        """Return the session as it is now. Reads the beginning of a file."""

    def note_sleep(self) -> None:
        """Note on disk that the program is being ended for a sleep."""

    async def forget_program(self) -> None:
        """Stop watching the program, which has ended."""

    def begin_program(self, prompt: str | None) -> None:
        """Start it again with its conversation. Raises why that is not possible."""

    def not_woken(self, why: str) -> None:
        """Note that it has ended before it was ready."""


class Sleeper:
    """Implements `turns.turn_terminal.Waker`. `after` 0: it sleeps only on request."""

    def __init__(self, session: Session, program: KeptProgram, after: float, *, takes_argument: bool) -> None:
        self._session = session
        self._program = program
        self._after = after
        self.takes_argument = takes_argument
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._phase = Phase.AWAKE
        self._quiet_since = session.now()
        self._why = ""
        self._tries = WakeTries()
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._prompt: str | None = None
        self._is_for_message = False
        self._ending: asyncio.Task[None] | None = None
        session.on_tell = self._on_event
        session.on_exit = self._program_ended
        self.nudge()

    # ── when to sleep ──

    def _on_event(self, document: Mapping[str, Any]) -> None:
        """Take an event for clients. When one comes or goes, the time is counted from there."""
        if document.get("event") == "clients":
            self._quiet_since = self._session.now()
        self.nudge()

    def nudge(self) -> None:
        """Look again: something may have changed. Cheap: it is called for every event."""
        if self._phase is Phase.WAKING:
            self._judge_wake()
        if self._after and self._phase is Phase.AWAKE and self._timer is None:
            if (due := self._due_in()) > _LOOK_INTERVAL:
                self._why = ""
            self._timer = self._loop.call_later(max(_LOOK_INTERVAL, due), self._look)

    def _due_in(self) -> float:
        session = self._session
        quiet = max(self._quiet_since, session.evidence.verdict.since, session.keyboard.typed_at)
        return quiet + self._after - session.now()

    def _look(self) -> None:
        self._timer = None
        if self._phase is not Phase.AWAKE or self._session.is_ending:
            return
        if self._due_in() > 0:
            self.nudge()
            return
        why = why_awake(self._program.sleep_look())
        if why and why != self._why:
            log.info("it stays awake: %s", why)
        self._why = why
        if not why:
            self._fall_asleep(f"idle for {self._after:g} s")

    def sleep_now(self) -> None:
        """End the program at once. Raises `NotSafe` with the reason if it must stay."""
        if self._phase in (Phase.FALLING, Phase.ASLEEP):
            return
        if why := why_awake(self._program.sleep_look()):
            raise NotSafe(f"session '{self._session.spec.name}' stays awake: {why}")
        self._fall_asleep("on request")

    def _fall_asleep(self, why: str) -> None:
        """Begin to end the program. From here on nothing is typed: the state says so at once."""
        session = self._session
        self._phase, self._why = Phase.FALLING, ""
        self._stop_timer()
        session.keyboard.hold(_HOLDER)
        session.keyboard.on_held = self.rouse
        session.is_silent = True
        self._program.note_sleep()
        session.become(State.ASLEEP, why)
        self._ending = self._loop.create_task(session.child.end(session.spec.kill_grace))

    # ── the end of a program ──

    async def _program_ended(self, code: int) -> bool:
        """Return when another program runs (True), or when the session is to end."""
        session = self._session
        if self._phase is Phase.FALLING:
            assert self._ending is not None
            await self._ending  # everything that it had started has ended too
        elif self._phase is Phase.WAKING and not session.came_up:
            await session.child.end(0.0)
            self._stop_timer()
            self._phase = Phase.FALLING  # who wants to wake it now has to wait
            self._fail(SpawnFailed(f"the agent ended with exit code {code} before it was ready"))
            self._program.not_woken(f"the session could not be woken: {self.error}")
        else:
            return False
        await self._program.forget_program()
        session.child.close()
        if session.end_asked.is_set():
            return False
        self._phase = Phase.ASLEEP
        log.info("asleep")
        return await self._until_woken()

    async def _until_woken(self) -> bool:
        session = self._session
        ending = self._loop.create_task(session.end_asked.wait())
        try:
            while not session.end_asked.is_set():
                wanted = self._loop.create_task(self._wanted.wait())
                await asyncio.wait([wanted, ending], return_when=asyncio.FIRST_COMPLETED)
                wanted.cancel()
                if self._wanted.is_set() and not session.end_asked.is_set():
                    if self._begin():
                        return True
                    await self._program.forget_program()  # as far as it was made
            return False
        finally:
            ending.cancel()
            self._answer(SpawnFailed("the session was ended"))

    # ── waking ──

    def rouse(self) -> None:
        """Wake it, if it sleeps. Its state says how that ends."""
        if self._phase in (Phase.FALLING, Phase.ASLEEP):
            self._wanted.set()

    async def wake(self, prompt: str | None = None) -> bool:
        if self._phase not in (Phase.FALLING, Phase.ASLEEP):
            return False
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(done)
        self._prompt = prompt
        self.rouse()
        await done
        return True

    def _begin(self) -> bool:
        session, prompt = self._session, self._prompt
        self._wanted.clear()
        self._prompt = None
        self._is_for_message = bool(self._waiting)
        self._phase = Phase.WAKING
        try:
            self._program.begin_program(prompt)
        except Exception as error:  # whatever it is, the session and its messages stay
            if not isinstance(error, RemudaError | OSError):
                log.exception("waking failed")
            self._phase = Phase.ASLEEP
            is_final = isinstance(error, NotSafe)
            self._fail(
                error if isinstance(error, RemudaError) else SpawnFailed(_words(error)), is_final=is_final
            )
            return False
        log.info("woken, pid %d", session.child.pid)
        self._timer = self._loop.call_later(_KEYS_PATIENCE, self._is_late)
        self._answer(None)
        return True

    def _fail(self, error: RemudaError, *, is_final: bool = False) -> None:
        session = self._session
        self._tries = self._tries.failed(session.now(), str(error), is_final=is_final)
        log.warning("cannot be woken, try %d: %s", self._tries.count, error)
        session.keyboard.drop()
        session.keyboard.hold(_HOLDER)
        session.keyboard.on_held = self.rouse
        if self.pause() is None or not self._is_for_message:
            session.wake_error = f"it could not be woken: {error}"
        session.become(State.ASLEEP, session.wake_error or f"woken in vain: {error}")
        self._answer(error)

    def _answer(self, error: RemudaError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.done():
                continue
            if error is None:
                one.set_result(None)
            else:
                one.set_exception(error)

    def _judge_wake(self) -> None:
        """Pass on the keys that woke it as soon as they can be meant, and count from here on."""
        session = self._session
        if not session.came_up or session.child.exited.done():
            return
        self._stop_timer()
        self._phase, self._tries = Phase.AWAKE, WakeTries()
        self._quiet_since = session.now()
        evidence = session.evidence  # a guess may be a dialog
        self._pass_keys(are_meant=not evidence.is_guess and evidence.verdict.state not in WAITING)

    def _pass_keys(self, *, are_meant: bool) -> None:
        """Let users type. Keys that came before are dropped if they were not typed at what is there now."""
        keyboard = self._session.keyboard
        keyboard.on_held = None
        if not are_meant:
            keyboard.drop()
        keyboard.release(_HOLDER)

    def _is_late(self) -> None:
        """Let users type, after some time in which the agent has not shown that it is ready."""
        self._timer = None
        if self._phase is Phase.WAKING:
            self._pass_keys(are_meant=False)

    def pause(self) -> float | None:
        return self._tries.pause(self._session.now())

    @property
    def error(self) -> str:
        return self._tries.error

    # ── what is shown ──

    def document(self) -> dict[str, Any]:
        """Return what `show` says about sleep."""
        return {
            "after": self._after or None,
            "phase": str(self._phase),
            "awake_because": self._why or None,
            "wake_tries": self._tries.count,
            "wake_error": self._tries.error or None,
        }

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._stop_timer()


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
