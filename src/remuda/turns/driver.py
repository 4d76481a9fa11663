"""Drives one session's inbox: the only code that hands a prompt to an agent.

One message at a time: wait until the session is proven ready, lease, look once more, type, and then follow
the agent's own signals to the end. Whoever attaches may type all the while; what they type is held back only
for the moment in which a prompt is being handed over, so that the two never mix.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from remuda.agents.speech import ComposerKind, Past, Signal, Speech, Stopped
from remuda.agents.state import RESTING, WAITING, WORKING, State
from remuda.errors import InboxBusy, InputError, RemudaError
from remuda.inbox.consumer import Ahead, Consumer, Leased
from remuda.inbox.stop_hook import InboxError

from .account import Account
from .approach import Approach
from .policy import Action, Decision, Rules, decide, decide_once
from .readiness import Readiness, Step
from .terminal import Terminal
from .turn import End, Fact, Outcome, Turn

log = logging.getLogger("remuda.turns")

T = TypeVar("T")

_SUBMIT_TIMEOUT = 10.0
_SUBMIT_BYTES_PER_SECOND = 100_000
# Rest without a word about the end: the prompt went back into the composer, or a hook refused it.
_SILENT_REST = 2.0
# The transcript is a moment behind the hooks: what it has to tell belongs into the receipt.
_TRANSCRIPT_PATIENCE = 1.0
_BUSY_INTERVAL = 2.0
# What runs on behind a stop may wake the agent again. A shell may also be a server that never ends.
_BACKGROUND_PATIENCE = 600.0
_SHELL_PATIENCE = 60.0


@dataclass(slots=True)
class InFlight:
    leased: Leased
    turn: Turn
    since: float
    typed_at: float
    alive_at: float
    rested_at: float | None = None
    stopped_at: float | None = None
    """When it was last heard that it stopped."""
    said_at: float | None = None
    """Since when the transcript has what the agent said last."""
    as_argument: bool = False


class Driver:
    def __init__(
        self, terminal: Terminal, speech: Speech, consumer: Consumer, account: Account, rules: Rules
    ) -> None:
        self._terminal = terminal
        self._speech = speech
        self._consumer = consumer
        self._account = account
        self._rules = rules
        self._approach = Approach(terminal, speech, account, rules, self._wait)
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "inbox")
        self._signals: deque[Signal] = deque()
        self._in_flight: InFlight | None = None
        self._task: asyncio.Task[None] | None = None
        self._opened = self._closing = False
        self._running: frozenset[str] = frozenset()
        self._told: dict[str, Any] = {}
        self._ahead: Ahead | None = None
        self._inbox_changes = 0
        self.held = ""
        """Why nothing is being delivered; empty when nothing waits or something is under way."""

    # ── being told ──

    def start(self, first: tuple[Leased, Turn] | None = None) -> None:
        if first is not None:
            self._follow(*first, as_argument=True)
        self._task = asyncio.create_task(self._run())

    def nudge(self) -> None:
        """Something may have changed: a state, the screen, the account."""
        self._changed.set()

    def inbox_changed(self) -> None:
        self._ahead = None
        self._inbox_changes += 1
        self._changed.set()

    def alive(self) -> None:
        """The agent has told something, whatever it was: the lease of its message begins anew."""
        self._approach.begun = True
        if self._in_flight is not None:
            self._in_flight.alive_at = self._terminal.now()

    def hear(self, signal: Signal) -> None:
        if isinstance(signal, Stopped):
            self._running = frozenset(task.id for task in signal.background)
        if self._in_flight is not None:
            if isinstance(signal, Stopped):
                self._in_flight.stopped_at = self._terminal.now()
            self._signals.append(signal)
        self._changed.set()

    def refuses(self, signal: Signal) -> bool:
        """Whether the agent is about to take our prompt together with something that is not ours."""
        flight = self._in_flight
        if flight is None or flight.turn.submitted or flight.turn.outcome is not None:
            return False
        prompt = getattr(signal, "prompt", None)
        ours = flight.turn.expected
        return (
            isinstance(prompt, str)
            and not self._speech.same(prompt, ours)
            and self._speech.holds(prompt, ours)
        )

    def document(self) -> dict[str, Any]:
        flight = self._in_flight
        current = None
        if flight is not None:
            current = {
                "id": flight.leased.id,
                "attempt": flight.leased.attempt,
                "stage": str(flight.turn.stage),
                "since": round(flight.since, 3),
            }
        return {"held": self.held or None, "in_flight": current}

    # ── the loop ──

    async def _run(self) -> None:
        try:
            await self._open()
            await self._recover()
            while True:
                if self._in_flight is None:
                    await self._next()
                else:
                    await self._to_its_end(self._in_flight)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("delivery has stopped")
            self.held = "delivery has stopped; the keeper's log says why"

    async def _open(self) -> None:
        while True:
            try:
                await self._do(self._consumer.open)
                self._opened, self.held = True, ""
                return
            except InboxBusy as error:
                self.held = error.message
                await asyncio.sleep(_BUSY_INTERVAL)  # a lock of another process: nothing tells of its end

    async def _do(self, call: Callable[..., T], *args: Any, **facts: Any) -> T:
        """In the thread that may wait for the disk. What the disk refuses is tried again."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._thread, lambda: call(*args, **facts))
            except (InboxBusy, InputError):
                raise
            except (OSError, RemudaError, InboxError) as error:
                self.held = f"the inbox cannot be used: {error}"
                log.error("%s", self.held)
                if self._closing:
                    raise
                await asyncio.sleep(_BUSY_INTERVAL)

    def _tell(self) -> None:
        """Whoever watches the session hears what is held, what is in flight, and how far it is."""
        document = self.document()
        if document != self._told:
            self._told = document
            self._terminal.tell(document)

    async def _wait(self, seconds: float | None) -> None:
        self._tell()
        if not self._changed.is_set():
            try:
                await asyncio.wait_for(self._changed.wait(), seconds)
            except TimeoutError:
                return
        self._changed.clear()

    # ── a message ──

    async def _next(self) -> None:
        self._drop_signals()
        if await self._approach.trusted():
            return
        ahead = await self._look_ahead()
        if not ahead.ready:
            self.held = ""
            due = None if ahead.next_due is None else max(0.05, ahead.next_due - time.time())
            await self._wait(due)
            return
        ready = self._approach.readiness()
        if ready.step is not Step.TYPE:
            await self._make_ready(ready)
            return
        self._ahead = None
        leased = await self._do(self._consumer.lease, "paste", **self._conversation("transcript_bytes"))
        if leased is not None:
            await self._hand_over(leased)

    async def _look_ahead(self) -> Ahead:
        """What the inbox has for us. The files are read again only when they changed, or something is due."""
        known, now = self._ahead, time.time()
        if known is not None and min(known.next_due or now + 1, known.expires or now + 1) > now:
            return known
        changes = self._inbox_changes
        if known is not None and known.expires is not None and known.expires <= now:
            await self._do(self._consumer.expire)
        found = await self._do(self._consumer.ahead)
        self._ahead = found if changes == self._inbox_changes else None
        return found

    def _drop_signals(self) -> None:
        self._signals.clear()

    def _conversation(self, *more: str) -> dict[str, Any]:
        known = self._terminal.conversation
        return {key: known[key] for key in ("session_id", "transcript_path", *more) if key in known}

    async def _make_ready(self, ready: Readiness) -> None:
        self.held = ready.reason
        if not self._approach.begun and self._approach.trust_choice() is not None:
            self.held = (
                "the agent asks whether this folder is trusted: attach and answer, or start with --trust"
            )
        if ready.step is Step.STASH:
            if not await self._approach.stash():
                self.held = "a draft in the composer could not be laid aside"
                await self._wait(_BUSY_INTERVAL)
            return
        expires = self._ahead.expires if self._ahead is not None else None
        waits = [ready.look_again, None if expires is None else max(1.0, expires - time.time())]
        await self._wait(min((one for one in waits if one is not None), default=None))

    async def _hand_over(self, leased: Leased) -> None:
        try:
            self._speech.check(leased.text, command=leased.command, literal=leased.literal)
        except InputError as error:
            await self._settle(leased, Outcome(End.REFUSED, f"refused: {error.message}", submitted=False))
            return
        carried = self._speech.paste(leased.text, command=leased.command)
        self._terminal.hold_typing()  # released in any case: below, or when it is submitted
        if self._approach.readiness().step is not Step.TYPE:
            self._terminal.release_typing()
            await self._do(self._consumer.put_back, leased)
            return
        # Nothing can come between the look and the keys: there is no wait between the two.
        self._drop_signals()
        self._terminal.type(carried.data)
        turn = Turn(leased.text, carried, self._speech, command=leased.command, running=self._running)
        self._follow(leased, turn)

    def _follow(self, leased: Leased, turn: Turn, *, as_argument: bool = False) -> None:
        self.held = ""
        now = self._terminal.now()
        self._in_flight = InFlight(leased, turn, time.time(), now, now, as_argument=as_argument)
        log.info("message %s was handed over, attempt %d", leased.id, leased.attempt)

    # ── to its end ──

    async def _to_its_end(self, flight: InFlight) -> None:
        turn = flight.turn
        try:
            await self._until_submitted(flight)
            self._terminal.release_typing()
            self._judge(flight)  # all may be over by now, and then nothing more is told
            while turn.outcome is None:
                await self._wait(self._patience(flight))
                await self._take_signals(flight)
                self._judge(flight)
        finally:
            self._terminal.release_typing()
        self._in_flight = None
        await self._settle(flight.leased, turn.outcome)
        self._ahead = None

    async def _until_submitted(self, flight: InFlight) -> None:
        turn, terminal = flight.turn, self._terminal
        size = len(flight.leased.text)
        deadline = terminal.now() + _SUBMIT_TIMEOUT + size / _SUBMIT_BYTES_PER_SECOND
        pressed = False
        while turn.outcome is None:
            await self._take_signals(flight)
            if turn.submitted:
                return
            if flight.as_argument and await self._approach.trusted():
                continue
            if flight.as_argument and self._approach.readiness().step is not Step.TYPE:
                # It is taken when the agent is ready for it: after its start, after a dialog before that.
                deadline = terminal.now() + _SUBMIT_TIMEOUT
            if terminal.state in WAITING and not flight.as_argument:
                # What the prompt opened is for people to answer: their keys must reach it.
                terminal.release_typing()
                await self._note(flight, turn.opened_dialog())
            if turn.mixed:
                turn.finish(End.MIXED, "it met a draft in the composer; the agent was given neither")
            elif terminal.now() >= deadline and (
                terminal.state in WORKING or terminal.output_at < flight.typed_at
            ):
                # At ours, it may be: its own hooks come before ours is told of. Or it is stopped, and reads
                # it when it goes on: the next one is not typed behind it. From here on people may type, and
                # what stands in the composer may be theirs.
                terminal.release_typing()
                pressed, deadline = True, terminal.now() + _SUBMIT_TIMEOUT
            elif terminal.now() >= deadline and terminal.state not in WAITING:
                if pressed or not self._still_typed(turn):
                    turn.finish(End.UNSUBMITTED, "typed, and the agent never said that it took it")
                    return
                # The text is there and the agent is idle: its Enter was lost.
                terminal.type(self._speech.enter)
                pressed, deadline = True, terminal.now() + _SUBMIT_TIMEOUT
            else:
                await self._wait(min(1.0, max(0.01, deadline - terminal.now())))

    def _still_typed(self, turn: Turn) -> bool:
        lines = self._terminal.lines()
        if lines is None or self._terminal.state not in RESTING or self._speech.dialog(lines):
            return False
        return self._speech.composer(lines, self._terminal.styled).kind is ComposerKind.DRAFT

    async def _take_signals(self, flight: InFlight) -> None:
        while self._signals:
            await self._note(flight, flight.turn.take(self._signals.popleft()))

    async def _note(self, flight: InFlight, facts: list[Fact]) -> None:
        for fact in facts:
            log.info("message %s: %s", flight.leased.id, fact.stage)
            # An argument was leased before the conversation had a name.
            where = self._conversation() if fact.stage == "submitted" else {}
            await self._do(self._consumer.note, flight.leased, fact.stage, **{**where, **fact.facts})

    def _patience(self, flight: InFlight) -> float | None:
        waits = []
        if flight.rested_at is not None:
            waits.append(max(0.01, flight.rested_at + self._rest_needed(flight) - self._terminal.now()))
        if self._rules.turn_timeout:
            waits.append(max(0.01, flight.alive_at + self._rules.turn_timeout - self._terminal.now()))
        if self._rules.stop_timeout and not flight.turn.ending and flight.said_at is not None:
            waits.append(max(0.01, flight.said_at + self._rules.stop_timeout - self._terminal.now()))
        return min(waits, default=None)

    def _rest_needed(self, flight: InFlight) -> float:
        if flight.turn.background:
            shells = all(task.is_shell for task in flight.turn.background)
            return _SHELL_PATIENCE if shells else _BACKGROUND_PATIENCE
        if not flight.turn.ending:
            return self._rules.stop_timeout if self._is_missing_its_end(flight.turn) else _SILENT_REST
        return 0.0 if flight.turn.written_down else _TRANSCRIPT_PATIENCE

    def _is_missing_its_end(self, turn: Turn) -> bool:
        """Whether the agent worked on it and rests, and neither it nor anybody who sits there said how."""
        return (
            self._rules.stop_timeout > 0
            and turn.recorded
            and turn.said is None
            and self._terminal.state is not State.INTERRUPTED
            and not self._approach.has_draft()
        )

    def _judge(self, flight: InFlight) -> None:
        """Whether it has ended."""
        terminal, turn, now = self._terminal, flight.turn, self._terminal.now()
        if turn.ending and not turn.background and (turn.written_down or self._shows_rest(flight)):
            turn.rest()  # its last record is written when no hook can send the agent on any more
            return
        self._judge_last_word(flight, now)
        if terminal.state not in RESTING or not terminal.agreed:
            flight.rested_at = None
            self._judge_silence(flight, now)
            return
        if flight.rested_at is None:
            flight.rested_at = now
        if now - flight.rested_at >= self._rest_needed(flight):
            self._judge_rest(turn)

    def _shows_rest(self, flight: InFlight) -> bool:
        """For somebody who waits: what it said last is written down, and it shows itself that it rests.

        Its last record comes a tenth of a second later.
        """
        return (
            self._rules.once
            and flight.turn.said is not None
            and flight.stopped_at is not None
            and self._terminal.shows_rest_since(flight.stopped_at)
        )

    def _judge_last_word(self, flight: InFlight, now: float) -> None:
        """The transcript has the answer: the hook that tells of its end is due at once."""
        turn, limit = flight.turn, self._rules.stop_timeout
        if turn.said is None or turn.ending:
            flight.said_at = None
        elif flight.said_at is None:
            flight.said_at = now
        elif limit and now - flight.said_at >= limit:
            self._miss_its_end(turn)

    def _judge_silence(self, flight: InFlight, now: float) -> None:
        terminal, limit = self._terminal, self._rules.turn_timeout
        if terminal.state in WAITING or terminal.state is State.TOOL_USE:  # as long as that takes
            flight.alive_at = now
        elif limit and now - flight.alive_at >= limit:
            terminal.type(self._speech.interrupt)
            flight.turn.finish(End.TIMEOUT, f"no sign of life for {limit:g} s")

    def _judge_rest(self, turn: Turn) -> None:
        if turn.ending:
            turn.rest()
        elif turn.said is not None:
            turn.answered_by_transcript()
        elif self._terminal.state is State.INTERRUPTED:
            turn.finish(End.INTERRUPTED, "interrupted by a human")
        elif self._is_missing_its_end(turn):
            self._miss_its_end(turn)
        else:
            self._silent_end(turn)

    def _miss_its_end(self, turn: Turn) -> None:
        turn.finish(
            End.TIMEOUT, f"the turn is over, and no Stop hook came within {self._rules.stop_timeout:g} s"
        )

    def _silent_end(self, turn: Turn) -> None:
        """It was taken, and the agent rests without having said a word about it."""
        if self._approach.has_draft():
            turn.finish(End.INTERRUPTED, "interrupted by a human: it is back in the composer")
        elif turn.recorded:
            turn.finish(End.INTERRUPTED, "interrupted before the agent had answered")
        else:
            turn.finish(End.REFUSED, "refused by a hook of the agent's settings")

    # ── afterwards ──

    async def _settle(self, leased: Leased, outcome: Outcome | None) -> None:
        assert outcome is not None
        decision = (
            decide_once(outcome)
            if self._rules.once
            else decide(outcome, leased.attempt, self._rules.on_orphan, random.random())  # noqa: S311
        )
        self._rules = replace(self._rules, once=False)
        log.info("message %s ended: %s, %s", leased.id, outcome.end, decision.action)
        if decision.account_waits:
            self._limit_account(decision)
        await self._do(self._carry_out, leased, outcome, decision)
        await self._do(self._consumer.tidy)

    def _limit_account(self, decision: Decision) -> None:
        try:
            self._account.limit(time.time() + decision.delay, decision.reason)
        except (OSError, RemudaError) as error:  # the others find out by themselves
            log.error("the limit of the account could not be written down: %s", error)

    def _carry_out(self, leased: Leased, outcome: Outcome, decision: Decision) -> None:
        facts = {"end": str(outcome.end), **outcome.facts}
        consumer = self._consumer
        if outcome.failure is not None:
            facts["failure"] = str(outcome.failure)
        consumer.note(leased, "ended", **facts)
        if decision.action is Action.ACK:
            consumer.acknowledge(leased, outcome.text, **outcome.facts)
        elif decision.action is Action.NACK:
            consumer.give_back(leased, decision.delay, decision.reason, counts=decision.counts)
        elif decision.action is Action.DROP:
            consumer.drop(leased, decision.reason)
        else:
            consumer.bury(leased, decision.reason)

    async def _recover(self) -> None:
        """What was in flight when this session's last keeper died. The transcript decides."""
        if self._in_flight is not None:
            return
        orphan = await self._do(self._consumer.orphan)
        if orphan is not None:
            await self._recover_one(orphan, "its session died")

    async def _recover_one(self, leased: Leased, how: str) -> None:
        past = await self._do(self._terminal.past, leased.text, leased.leased_at, leased.facts)
        await self._settle(leased, past_outcome(past, leased, how))

    async def close(self, how: str) -> None:
        """The session has ended. What was in flight is decided on now, as far as its transcript tells."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        flight, self._in_flight = self._in_flight, None
        try:
            if self._opened:
                await self._decide_now(flight, how)
        except (OSError, RemudaError, InboxError) as error:
            log.error("what was in flight is left to recovery: %s", error)
        self._consumer.close()
        self._thread.shutdown(wait=False)

    async def _decide_now(self, flight: InFlight | None, how: str) -> None:
        submitted = False
        if flight is not None:
            turn = flight.turn
            while self._signals:
                turn.take(self._signals.popleft())
            submitted = turn.submitted
            turn.rest()
            if turn.outcome is not None:
                await self._settle(flight.leased, turn.outcome)
                return
        orphan = await self._do(self._consumer.orphan)
        if orphan is not None:
            await self._recover_one(replace(orphan, submitted=orphan.submitted or submitted), how)


def past_outcome(past: Past, leased: Leased, how: str) -> Outcome:
    """What is known of a turn that nobody saw the end of."""
    if past.answered:
        return Outcome(End.ANSWERED, past.text, facts={"recovered": True, "prompt_id": past.prompt_id})
    if past.interrupted:
        return Outcome(End.INTERRUPTED, "interrupted by a human")
    submitted = past.submitted or leased.submitted
    text = f"{how} before it was answered" if submitted else f"{how} before it was submitted"
    return Outcome(End.DIED, text, submitted=submitted)
