"""Drives one session's inbox: the only code that hands a prompt to an agent.

One message at a time: wait until the session is proven ready, lease the message, check once more, type it or
call the agent, and then follow the agent's own events to the end. Attached users may type all the time. Their
keys are held back only while a prompt is handed over, so that the two never mix.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from remuda.agents.base import PasteTransport
from remuda.agents.events import (
    AgentEvent,
    Failure,
    MessageRecorded,
    PromptSubmitted,
    TurnFailed,
    TurnStopped,
)
from remuda.agents.prompting import Carried, Past, PromptProtocol
from remuda.agents.state import RESTING, WAITING, WORKING, State
from remuda.errors import InboxBusy, InputError, NotSafe, RemudaError
from remuda.inbox.consumer import Ahead, Consumer, Leased
from remuda.inbox.stop_hook import UNWANTED, InboxError
from remuda.tasks import TaskSet

from .account import Account
from .argument import lease_argument
from .calling import Calling
from .following import InFlight
from .holds import Holds
from .interruption import AGAIN_INTERVAL, Interruption
from .message_policy import MessageAction, MessageDecision, Rules, decide, decide_once, decide_unwanted
from .preparation import Preparation
from .readiness import Readiness, Step
from .turn import IN_CONVERSATION, End, Fact, Outcome, Turn, past_outcome, stop_document
from .turn_terminal import SessionChannel, TurnTerminal, Waker

log = logging.getLogger("remuda.turns")

T = TypeVar("T")

_BUSY_INTERVAL = 2.0
# Messages are due by the wall clock. That can be set, and it goes on while a laptop sleeps: so check often.
_CLOCK_INTERVAL = 30.0


class Driver:
    def __init__(
        self,
        terminal: TurnTerminal,
        prompts: PromptProtocol,
        consumer: Consumer,
        account: Account,
        rules: Rules,
        caller: SessionChannel | None = None,
        holds: Holds | None = None,
        waker: Waker | None = None,
    ) -> None:
        """`caller` is required if the transport of `prompts` is `call`.

        Without a `waker` the session is never asleep.
        """
        self._terminal = terminal
        self._prompts = prompts
        self._consumer = consumer
        self._account = account
        self._rules = rules
        transport = prompts.transport
        self._paste: PasteTransport | None = transport if transport.kind == "paste" else None
        self._waker = waker
        self._woken = False
        """Whether the session was woken for the next message."""
        self._waking = False
        """Whether no agent runs that could get the message in flight."""
        assert (self._paste is None) is (caller is not None)
        self._calling = (
            Calling(caller, self.hear, terminal.release_typing, self._hold) if caller is not None else None
        )
        self._preparation = Preparation(terminal, prompts, account, rules, self._wait, caller, holds)
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "inbox")
        self._in_flight: InFlight | None = None
        self._opened = self._closing = False
        self._running: frozenset[str] = frozenset()
        self._last_document: dict[str, Any] = {}
        self._ahead: Ahead | None = None
        self._looked_at = 0.0
        self._inbox_changes = 0
        self._unwanted: set[str] = set()
        self._tasks = TaskSet()
        self._announced_stop = ("", "")
        self._limited = False
        """Whether the agent's last prompt was a message that hit a usage limit and went back to the inbox."""
        self.held = ""
        """Why nothing is being delivered; empty if no message waits or one is in flight."""

    # ── changes and requests from outside ──

    def start(self, first: tuple[Leased, Turn] | None = None) -> None:
        if first is not None:
            self._follow(*first, as_argument=True)
        self._tasks.start(self._run())

    def nudge(self) -> None:
        """Check again: the state, the screen or the account may have changed."""
        self._changed.set()

    def inbox_changed(self) -> None:
        self._ahead = None
        self._inbox_changes += 1
        self._changed.set()

    def alive(self) -> None:
        """Extend the lease of the message in flight: the agent has reported something."""
        self._preparation.begun = True
        if self._in_flight is not None:
            self._in_flight.alive()

    def hear(self, event: AgentEvent) -> None:
        if self._calling is not None and self._calling.keeps(event):
            return
        if isinstance(event, PromptSubmitted) and not event.continues:
            self._limited = False
        if isinstance(event, TurnStopped):
            self._running = frozenset(task.id for task in event.background)
        if self._in_flight is not None:
            stop = self._in_flight.hear(event)
            if stop is not None:
                self._announce_stop(self._in_flight, stop)
            if self._rules.single_try and isinstance(event, MessageRecorded):
                used = self._in_flight.turn.used()
                self._terminal.announce("usage", {"id": self._in_flight.leased.id, "usage": used})
        self._changed.set()

    def _announce_stop(self, flight: InFlight, stop: TurnStopped | TurnFailed) -> None:
        begun = flight.turn.begun_of(stop.background) if isinstance(stop, TurnStopped) else ()
        alone = self._terminal.last_word() and not flight.turn.launched
        document = stop_document(stop, begun, last_word=alone)
        self._announced_stop = flight.leased.id, stop.text
        self._terminal.announce("stopped", {"id": flight.leased.id, **document})

    def interrupt(self, message: str) -> bool:
        """Cancel a message: drop it if it waits, else stop its turn. Returns whether it is in flight.

        The outcome is announced later; nothing is announced for an unknown message.
        """
        flight = self._in_flight
        if flight is not None and flight.leased.id == message:
            self._interrupt(flight)
            return True
        self._unwanted.add(message)
        self._tasks.start(self._drop(message))
        return False

    def interrupt_turn(self, how: str = "on request") -> str | None:
        """Stop the running turn, also one that a user started. Returns the id of its message, if it has one.

        `how` follows "interrupted" in the receipt.

        Raises `NotSafe` if no turn runs, or if a dialog is open that the key might close.
        """
        if self._in_flight is not None:
            self._interrupt(self._in_flight, how)
            return self._in_flight.leased.id
        state = self._terminal.state
        if state not in WORKING and state is not State.WAITING_PERMISSION:
            why = "a dialog is open; attach and answer it" if state in WAITING else f"it is {state}"
            raise NotSafe(f"no turn was interrupted: {why}")
        self._tasks.start(self._press(Interruption(self._terminal, lambda: self._stop_turn(None))))
        return None

    def _stop_turn(self, turn_id: str | None) -> None:
        """Ask the agent once to stop: by a call, or by its interrupt key."""
        if self._calling is not None:
            self._calling.channel.interrupt(turn_id)
        elif self._paste is not None:
            self._terminal.type(self._paste.interrupt)

    def _interrupt(self, flight: InFlight, how: str = "on request") -> None:
        if not flight.unwanted:
            flight.interrupt(how)
            if self._calling is not None and self._calling.is_waiting:  # the agent has it already
                self._stop_turn(flight.leased.id)
            self._tasks.start(self._do(self._consumer.note_unwanted, flight.leased))
            self._changed.set()

    async def _press(self, interruption: Interruption) -> None:
        """Press until the agent rests. Stop if a message is handed over: that turn was not meant."""
        interruption.wanted = True
        while self._in_flight is None and self._terminal.state not in RESTING and not interruption.exhausted:
            interruption.press()
            await asyncio.sleep(AGAIN_INTERVAL)

    async def _drop(self, message: str) -> None:
        """Drop a waiting message. It may have been leased by now; then its turn is stopped."""
        found = await self._do(self._consumer.cancel, message, UNWANTED)
        if found != "in flight":
            self._unwanted.discard(message)
        if found == "dropped":
            self._announce_end(message, str(End.CANCELLED), str(MessageAction.DROP), UNWANTED, {})
        flight = self._in_flight
        if flight is not None and flight.leased.id == message:
            self._interrupt(flight)
        self.inbox_changed()

    def _announce_end(
        self, message: str, end: str, action: str, reason: str, facts: Mapping[str, Any]
    ) -> None:
        document = {"id": message, "end": end, "action": action, "reason": reason, **facts}
        self._terminal.announce("ended", document)

    def refuses(self, event: AgentEvent) -> bool:
        """Return whether the agent is about to take our prompt together with other text."""
        return self._in_flight is not None and self._in_flight.refuses(event)

    def repeats(self, event: PromptSubmitted) -> bool:
        """Return whether the agent resumes a message by itself that will be delivered again."""
        return self._limited and event.continues

    def unready(self) -> str | None:
        """Return why a message would have to wait now; None if it would not."""
        if self._in_flight is not None:
            return "a message is in flight"
        found = self._preparation.readiness()
        return None if found.step is Step.TYPE else found.reason

    @property
    def waits(self) -> str:
        """Say which message the agent must stay for; empty if none waits."""
        if self._in_flight is not None:
            return "a message is in flight"
        # Unknown counts as one. A message that is due later wakes the session then.
        is_empty = self._ahead is not None and not self._ahead.ready
        return "" if is_empty else self.held or "a message waits"

    def restarted(self) -> None:
        """Note that the agent runs in a new process, which has seen nothing yet."""
        self._preparation.restarted()
        self._running, self._limited = frozenset(), False
        self._changed.set()

    def not_woken(self, why: str) -> None:
        """Put back the message that the agent was started with: it ended before it was ready."""
        if self._in_flight is not None:
            self._in_flight.turn.end(Outcome(End.UNSTARTED, why, submitted=False))
        self._changed.set()

    def document(self) -> dict[str, Any]:
        flight = self._in_flight
        return {"held": self.held or None, "in_flight": None if flight is None else flight.document()}

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
                await asyncio.sleep(_BUSY_INTERVAL)  # no event reports that another process unlocked

    async def _do(self, call: Callable[..., T], *args: Any, **facts: Any) -> T:
        """Run `call` in the thread that may wait for the disk. Disk errors are retried."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._thread, lambda: self._call(call, *args, **facts))
            except (InboxBusy, InputError):
                raise
            except (OSError, RemudaError, InboxError) as error:
                self.held = f"the inbox cannot be used: {error}"
                log.error("%s", self.held)
                if self._closing:
                    raise
                await asyncio.sleep(_BUSY_INTERVAL)

    def _call(self, call: Callable[..., T], *args: Any, **facts: Any) -> T:
        try:
            return call(*args, **facts)
        finally:
            while self._consumer.notices:
                log.warning("%s", self._consumer.notices.pop(0))

    def _tell(self) -> None:
        """Report to watching clients what is held, what is in flight, and its stage."""
        document = self.document()
        if document != self._last_document:
            self._last_document = document
            self._terminal.tell(document)

    async def _wait(self, seconds: float | None) -> None:
        self._tell()
        try:
            # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the event.
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _hold(self, why: str, seconds: float | None) -> None:
        self.held = why
        await self._wait(seconds)

    # ── a message ──

    async def _next(self) -> None:
        if await self._preparation.trusted():
            return
        # If the session is ready, lease without looking ahead: the sender may be waiting for the answer.
        if self._ahead is None and self._preparation.readiness().step is Step.TYPE and await self._lease():
            return
        ahead = await self._look_ahead()
        if not ahead.ready:
            due = None if ahead.next_due is None else max(0.05, ahead.next_due - time.time())
            await self._hold("", due if due is None else min(due, _CLOCK_INTERVAL))
            return
        ready = self._preparation.readiness()
        if ready.step is not Step.TYPE:
            await self._make_ready(ready)
            return
        await self._lease()

    async def _lease(self) -> bool:
        """Hand over the next message that is due. Returns whether there was one."""
        self._ahead = None
        transport = self._prompts.transport.kind
        facts = self._conversation("transcript_bytes") | ({"woken": True} if self._woken else {})
        leased = await self._do(self._consumer.lease, transport, **facts)
        self._woken = False
        if leased is not None:
            await self._hand_over(leased)
        return leased is not None

    async def _look_ahead(self) -> Ahead:
        """Return what the inbox has next. Its files are read only if they changed or a message is due."""
        known, now, running = self._ahead, time.time(), asyncio.get_running_loop().time()
        if known is not None and min(known.next_due or now + 1, known.expires or now + 1) > now:
            is_timed = known.next_due is not None or known.expires is not None
            if not is_timed or running - self._looked_at < _CLOCK_INTERVAL:
                return known
        self._looked_at = running
        changes = self._inbox_changes
        found = await self._do(self._consumer.ahead)
        if found.expires is not None and found.expires <= time.time():  # it wakes no session
            await self._do(self._consumer.expire)
            found = await self._do(self._consumer.ahead)
        self._ahead = found if changes == self._inbox_changes else None
        return found

    def _conversation(self, *more: str) -> dict[str, Any]:
        known = self._terminal.conversation
        return {key: known[key] for key in ("session_id", "transcript_path", *more) if key in known}

    async def _make_ready(self, ready: Readiness) -> None:
        self.held = ready.reason
        if ready.step is Step.WAKE and self._waker is not None:
            await self._wake(self._waker)
            return
        if not self._preparation.begun and self._preparation.trust_choice() is not None:
            self.held = (
                "the agent asks whether this folder is trusted: attach and answer, or start with --trust"
            )
        if ready.step is Step.STASH and self._paste is not None:
            if not await self._preparation.stash(self._paste.stash):
                await self._hold("a draft in the composer could not be stashed", _BUSY_INTERVAL)
            return
        expires = self._ahead.expires if self._ahead is not None else None
        waits = [ready.look_again, None if expires is None else max(1.0, expires - time.time())]
        until = min((one for one in waits if one is not None), default=None)
        await self._wait(until if until is None else min(until, _CLOCK_INTERVAL))

    async def _wake(self, waker: Waker) -> None:
        """Wake the session for the next message, which becomes an argument of its agent if it can."""
        pause = waker.pause()
        if pause != 0:
            await self._hold(f"the session could not be woken: {waker.error}", pause)
            return
        self.held, self._ahead = "the session is being woken", None
        facts = {**self._conversation("transcript_bytes"), "woken": True}
        found = (
            await self._do(lease_argument, self._consumer, self._prompts, **facts)
            if waker.takes_argument
            else None
        )
        if found is not None:
            self._follow(found[0], found[1], as_argument=True)  # before its first report
        why = "others woke the session first"
        flight, self._waking = self._in_flight, True
        try:
            is_woken = await waker.wake(None if found is None else found[2])
        except RemudaError as error:
            is_woken, why = False, f"the session could not be woken: {error}"
        self._waking = False
        if is_woken:
            self._woken = found is None
        elif flight is not None:
            self._in_flight = None
            await self._put_back(flight, why)

    async def _put_back(self, flight: InFlight, why: str) -> None:
        """Undo the lease of a message that no agent got."""
        if flight.unwanted or flight.leased.id in self._unwanted:
            await self._settle(flight.leased, Outcome(End.CANCELLED, UNWANTED, submitted=False))
        else:
            await self._do(self._consumer.put_back, flight.leased, why)

    async def _hand_over(self, leased: Leased) -> None:
        if leased.id in self._unwanted:
            await self._settle(leased, Outcome(End.CANCELLED, UNWANTED, submitted=False))
            return
        try:
            self._prompts.check(leased.text, command=leased.command, literal=leased.literal)
        except InputError as error:
            await self._settle(leased, Outcome(End.REFUSED, f"refused: {error.message}", submitted=False))
            return
        carried = (
            Carried(b"", leased.text)
            if self._paste is None
            else self._paste.paste(leased.text, command=leased.command)
        )
        self._terminal.hold_typing()  # released below, or when the prompt is submitted
        if self._preparation.readiness().step is not Step.TYPE:
            self._terminal.release_typing()
            await self._do(self._consumer.put_back, leased)
            return
        # No await between this check and the keys or the call: nothing can change in between.
        if self._paste is not None:
            self._terminal.type(carried.data)
        self._terminal.handed_over()
        turn = Turn(leased.text, carried, self._prompts, command=leased.command, running=self._running)
        self._follow(leased, turn)
        if self._calling is not None and self._in_flight is not None:
            await self._calling.call(self._in_flight)

    def _follow(self, leased: Leased, turn: Turn, *, as_argument: bool = False) -> None:
        self.held = ""
        self._in_flight = InFlight(
            leased,
            turn,
            terminal=self._terminal,
            prompts=self._prompts,
            paste=self._paste,
            interrupt=lambda: self._stop_turn(turn.prompt_id),
            preparation=self._preparation,
            rules=self._rules,
            wait=self._wait,
            note=self._note,
            as_argument=as_argument,
        )
        log.info("message %s was delivered, attempt %d", leased.id, leased.attempt)

    async def _note(self, leased: Leased, facts: list[Fact]) -> None:
        for fact in facts:
            log.info("message %s: %s", leased.id, fact.stage)
            # A prompt passed as an argument was leased before the conversation had an id.
            where = self._conversation() if fact.stage == "submitted" else {}
            await self._do(self._consumer.note, leased, fact.stage, **{**where, **fact.facts})

    async def _to_its_end(self, flight: InFlight) -> None:
        outcome = await flight.to_its_end()
        self._in_flight = None
        if outcome.end is End.UNSTARTED and (past := await self._past(flight.leased)).submitted:
            outcome = past_outcome(past, flight.leased, outcome.text)
        if outcome.end in (End.ANSWERED, End.UNSUBMITTED) and not self._rules.once:
            self._terminal.turn_ended()
        await self._settle(flight.leased, outcome, unwanted=flight.unwanted)
        self._ahead = None

    # ── afterwards ──

    async def _settle(self, leased: Leased, outcome: Outcome, *, unwanted: bool = False) -> None:
        if outcome.failure is Failure.RATE_LIMITED and outcome.retry_after is None:
            outcome = replace(outcome, retry_after=self._prompts.limited_for(outcome.text, time.time()))
        if outcome.unanswered and self._prompts.keeps_unanswered:
            outcome = replace(outcome, facts={**outcome.facts, **IN_CONVERSATION})
        decision = (
            decide_once(outcome)
            if self._rules.once
            else decide(outcome, leased.attempt, self._rules.on_orphan, random.random())  # noqa: S311
        )
        if unwanted or leased.unwanted or leased.id in self._unwanted:
            decision = decide_unwanted(decision, outcome)
        self._rules = replace(self._rules, once=self._rules.single_try)
        log.info("message %s ended: %s, %s", leased.id, outcome.end, decision.action)
        if decision.account_waits:
            self._limited = decision.action is MessageAction.NACK
            self._limit_account(decision)
        await self._do(self._carry_out, leased, outcome, decision)
        self._unwanted.discard(leased.id)
        facts = {"attempt": leased.attempt, **outcome.facts}
        if outcome.failure is not None:
            facts["failure"] = str(outcome.failure)
        if outcome.end is End.ANSWERED and self._announced_stop != (leased.id, outcome.text):
            facts["text"] = outcome.text  # no hook had it
        self._announce_end(leased.id, str(outcome.end), str(decision.action), decision.reason, facts)
        await self._do(self._consumer.tidy)

    def _limit_account(self, decision: MessageDecision) -> None:
        try:
            self._account.limit(time.time() + decision.delay, decision.reason)
        except (OSError, RemudaError) as error:  # other keepers will hit the limit themselves
            log.error("cannot save the account's rate limit: %s", error)

    def _carry_out(self, leased: Leased, outcome: Outcome, decision: MessageDecision) -> None:
        facts = {"end": str(outcome.end), **outcome.facts}
        consumer = self._consumer
        if outcome.failure is not None:
            facts["failure"] = str(outcome.failure)
        consumer.note(leased, "ended", **facts)
        if decision.action is MessageAction.ACK:
            consumer.acknowledge(leased, outcome.text, **outcome.facts)
        elif decision.action is MessageAction.NACK:
            consumer.give_back(leased, decision.delay, decision.reason, counts=decision.counts)
        elif decision.action is MessageAction.DROP:
            consumer.drop(leased, decision.reason)
        else:
            consumer.bury(leased, decision.reason)

    async def _recover(self) -> None:
        """Settle the message that was in flight when the session's last keeper died.

        The transcript, or the agent's server, says what became of it.
        """
        if self._in_flight is not None:
            return
        orphan = await self._do(self._consumer.orphan)
        if orphan is None:
            return
        if self._calling is None:
            await self._recover_one(orphan, "its session died")
        else:
            past = await self._calling.search(orphan)
            await self._settle(orphan, past_outcome(past, orphan, "its session died"))

    async def _recover_one(self, leased: Leased, how: str) -> None:
        past = await self._past(leased)
        is_known = past.submitted or leased.submitted
        if self._calling is not None and not is_known and not self._rules.once:
            # Its server is gone and never answered whether it took the prompt. The next server is searched.
            log.warning("message %s is left to recovery: %s before it was submitted", leased.id, how)
            return
        await self._settle(leased, past_outcome(past, leased, how))

    async def _past(self, leased: Leased) -> Past:
        return await self._do(self._terminal.past, leased.text, leased.leased_at, leased.facts)

    async def close(self, how: str) -> None:
        """Stop, because the session has ended. Settle the message in flight by its transcript."""
        self._closing = True
        await self._tasks.aclose()
        flight, self._in_flight = self._in_flight, None
        try:
            if self._opened:
                await self._decide_now(flight, how)
        except (OSError, RemudaError, InboxError) as error:
            log.error("the message in flight is left to recovery: %s", error)
        self._consumer.close()
        self._thread.shutdown(wait=False)

    async def _decide_now(self, flight: InFlight | None, how: str) -> None:
        if self._waking and flight is not None:
            await self._put_back(flight, f"{how} before it was woken")
            return
        outcome = None if flight is None else flight.heard_all()
        if flight is not None and outcome is not None:
            await self._settle(flight.leased, outcome, unwanted=flight.unwanted)
            return
        submitted = flight is not None and flight.turn.submitted
        orphan = await self._do(self._consumer.orphan)
        if orphan is not None:
            unwanted = {"unwanted": True} if flight is not None and flight.unwanted else {}
            known = replace(
                orphan, submitted=orphan.submitted or submitted, facts={**orphan.facts, **unwanted}
            )
            await self._recover_one(known, how)
