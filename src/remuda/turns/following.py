"""One message in flight, from the moment it was handed over to its end.

The agent's own signals lead; where they fail to come, the state, the screen and the clock decide. Everything
that can end a message is judged here, and nothing of what becomes of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.agents.events import AgentEvent, TurnFailed, TurnInterrupted, TurnStopped
from remuda.agents.speech import ComposerKind, Speech
from remuda.agents.state import RESTING, WAITING, WORKING, State
from remuda.inbox.consumer import Leased

from .approach import Approach
from .interruption import SETTLE, Interruption, wipe
from .policy import Rules
from .readiness import Step
from .terminal import Terminal
from .turn import End, Fact, Outcome, Turn

SUBMIT_TIMEOUT = 10.0
_SUBMIT_BYTES_PER_SECOND = 100_000
# A prompt that stands in the composer for so long, all read and drawn, was not submitted: its Enter was lost,
# as that of the first paste is on 2.1.240.
_ENTER_PATIENCE = 1.0
_DRAWN = 0.5
# Rest without a word about the end: the prompt went back into the composer, or a hook refused it.
_SILENT_REST = 2.0
# The transcript is a moment behind the hooks: what it has to tell belongs into the receipt.
_TRANSCRIPT_PATIENCE = 1.0
# Longer where what it always has is not there yet; not for ever, as it may not be kept at all.
_RECORDS_PATIENCE = 3.0
# What runs on behind a stop may wake the agent again. A shell may also be a server that never ends.
_BACKGROUND_PATIENCE = 600.0
_SHELL_PATIENCE = 60.0
# What ended before the stop wakes it at once.
_NOTICE_PATIENCE = 5.0
# How long behind a stop it is known whether somebody's next prompt has begun.
_NEXT_TURN_TOLD = 0.5
# How long an interrupted turn may take to show that it rests, and what became of its prompt.
_TIDY_TIMEOUT = 3.0
# How long a prompt that a hook refused may take to come back into the composer.
_BACK_TIMEOUT = 10.0

Wait = Callable[[float | None], Awaitable[None]]
Note = Callable[[Leased, list[Fact]], Awaitable[None]]


class InFlight:
    """`wait` returns when something may have changed, or after so many seconds; `note` writes steps down."""

    def __init__(
        self,
        leased: Leased,
        turn: Turn,
        *,
        terminal: Terminal,
        speech: Speech,
        approach: Approach,
        rules: Rules,
        wait: Wait,
        note: Note,
        as_argument: bool = False,
    ) -> None:
        self.leased = leased
        self.turn = turn
        self._terminal = terminal
        self._speech = speech
        self._approach = approach
        self._rules = rules
        self._wait = wait
        self._note = note
        self._as_argument = as_argument
        self._answering = False
        """Whether it was seen to ask, to use a tool or to write: then no hook has refused the prompt."""
        self._interruption = Interruption(terminal, speech)
        self._unwritten: deque[Fact] = deque()
        """Steps of the receipt that are known and not on the disk yet."""
        self._interrupt_heard = False
        """Whether the transcript had the interrupt after the turn was known to be over."""
        self._since = time.time()
        self._typed_at = self._alive_at = terminal.now()
        self._was_alone = not approach.has_stash()
        self._rested_at: float | None = None
        self._stopped_at: float | None = None
        """When it was last heard that it stopped."""
        self._overtaken_at: float | None = None
        self._said_at: float | None = None
        """Since when the transcript has what the agent said last."""

    # ── being told ──

    def alive(self) -> None:
        self._alive_at = self._terminal.now()

    def hear(self, event: AgentEvent) -> TurnStopped | TurnFailed | None:
        """Decide at once what it means; the steps are written afterwards.

        Returns the event itself, when it says that this message's turn stopped.
        """
        turn = self.turn
        if isinstance(event, TurnStopped):
            self._stopped_at = self._terminal.now()
        elif isinstance(event, TurnInterrupted) and turn.outcome is not None:
            self._interrupt_heard = True
        stops = turn.stops
        self._unwritten.extend(turn.take(event))
        if turn.submitted:
            self._terminal.release_typing()  # no one's keys wait for the disk
        return event if isinstance(event, TurnStopped | TurnFailed) and turn.stops > stops else None

    def interrupt(self) -> None:
        """It is no longer wanted. Its turn is stopped as soon as the agent is at it."""
        self._interruption.wanted = True
        self.turn.interrupter = "on request"

    @property
    def unwanted(self) -> bool:
        return self._interruption.wanted

    def refuses(self, event: AgentEvent) -> bool:
        """Whether the agent is about to take our prompt together with something that is not ours."""
        if self.turn.submitted or self.turn.outcome is not None:
            return False
        prompt = getattr(event, "prompt", None)
        ours = self.turn.expected
        return (
            isinstance(prompt, str)
            and not self._speech.same(prompt, ours)
            and self._speech.holds(prompt, ours)
        )

    def document(self) -> dict[str, Any]:
        return {
            "id": self.leased.id,
            "attempt": self.leased.attempt,
            "stage": str(self.turn.stage),
            "since": round(self._since, 3),
        }

    def heard_all(self) -> Outcome | None:
        """The session has ended: what is known of the end by what was heard so far."""
        self.turn.rest()
        return self.turn.outcome

    # ── to its end ──

    async def to_its_end(self) -> Outcome:
        turn = self.turn
        try:
            await self._until_submitted()
            self._terminal.release_typing()
            self._judge()  # all may be over by now, and then nothing more is told
            while turn.outcome is None:
                if self._may_press():
                    self._interruption.press()
                await self._wait(self._patience())
                await self._write_steps()
                self._judge()
            await self._write_steps()
            if self._interruption.pressed and turn.outcome.end is End.INTERRUPTED:
                await self._tidy(_TIDY_TIMEOUT, self._is_settled)
            elif turn.outcome.end is End.REFUSED and turn.outcome.submitted:
                await self._tidy(_BACK_TIMEOUT, self._is_back)
        finally:
            self._terminal.release_typing()
        return turn.outcome

    def _may_press(self) -> bool:
        """Not into what may be the turn behind ours: that is told of a moment after it shows.

        An agent that a hook of the user's has sent on shows work too, and nobody tells of that.
        """
        turn = self.turn
        if turn.may_be_over:
            return False
        if not turn.ending or turn.background:
            return True
        return self._terminal.now() >= (self._stopped_at or 0.0) + _NEXT_TURN_TOLD

    async def _tidy(self, seconds: float, shown: Callable[[], bool]) -> None:
        """TurnInterrupted on request, or refused by a hook: no prompt of ours stays in the composer."""
        deadline = self._terminal.now() + seconds
        while not shown() and self._terminal.now() < deadline:
            await self._wait(self._interruption.patience or SETTLE)
        await wipe(
            self._terminal,
            self._speech,
            self.turn.expected,
            self._typed_at,
            self._wait,
            alone=self._was_alone,
        )

    def _is_settled(self) -> bool:
        """It is known what became of an interrupted prompt: the transcript has it as such, or it is back in
        the composer, which may be drawn a while later."""
        known = self.turn.interruption_recorded or self._interrupt_heard or self._approach.has_draft()
        return known and self._interruption.proven

    def _is_back(self) -> bool:
        """The agent rests, and what it was given stands in the composer again."""
        terminal = self._terminal
        quiet = terminal.now() - terminal.output_at >= SETTLE
        return terminal.state in RESTING and terminal.agreed and quiet and self._approach.has_draft()

    async def _until_submitted(self) -> None:
        turn, terminal = self.turn, self._terminal
        size = len(self.leased.text.encode(errors="replace"))
        deadline = terminal.now() + SUBMIT_TIMEOUT + size / _SUBMIT_BYTES_PER_SECOND
        pressed = False
        while turn.outcome is None:
            await self._write_steps()
            if turn.submitted:
                return
            if self._as_argument and await self._approach.trusted():
                continue
            if self._as_argument and self._approach.readiness().step is not Step.TYPE:
                # It is taken when the agent is ready for it: after its start, after a dialog before that.
                deadline = terminal.now() + SUBMIT_TIMEOUT
            if terminal.state in WAITING and not self._as_argument:
                # What the prompt opened is for people to answer: their keys must reach it.
                terminal.release_typing()
                await self._note(self.leased, turn.opened_dialog())
            if turn.mixed:
                turn.finish(End.MIXED, "a draft was in the composer with it; the agent got neither")
            elif terminal.now() >= deadline and (
                terminal.state in WORKING or terminal.output_at < self._typed_at
            ):
                # At ours, it may be: its own hooks come before ours is told of. Or it is stopped, and reads
                # it when it goes on: the next one is not typed behind it. From here on people may type, and
                # what stands in the composer may be theirs.
                terminal.release_typing()
                pressed, deadline = True, terminal.now() + SUBMIT_TIMEOUT
            elif self._lost_enter(pressed, overdue=terminal.now() >= deadline):
                terminal.type(self._speech.enter)
                pressed, deadline = True, terminal.now() + SUBMIT_TIMEOUT
            elif terminal.now() >= deadline and terminal.state not in WAITING:
                turn.finish(End.UNSUBMITTED, "typed, but the agent never confirmed it")
                return
            else:
                left = deadline - terminal.now()
                await self._wait(min(_DRAWN, max(0.01, left)) if left > 0 else 1.0)

    def _lost_enter(self, pressed: bool, *, overdue: bool) -> bool:
        """Whether the text is there and the agent is idle.

        Before its time is over, also whether the agent has read all that was typed, and drawn it: an Enter
        that it had still to read would submit the prompt, and ours might answer what that opens.
        """
        terminal, now = self._terminal, self._terminal.now()
        if pressed or (self._as_argument and not overdue) or not self._still_typed():
            return False
        drawn = terminal.output_at > self._typed_at and now - terminal.output_at >= _DRAWN
        waited = now - self._typed_at >= _ENTER_PATIENCE
        return overdue or (waited and drawn and terminal.agreed and terminal.has_read_all())

    def _still_typed(self) -> bool:
        lines = self._terminal.lines()
        if self._terminal.typed_at > self._typed_at:  # what stands there may be somebody's
            return False
        if lines is None or self._terminal.state not in RESTING or self._speech.dialog(lines):
            return False
        return self._speech.composer(lines, self._terminal.styled).kind is ComposerKind.DRAFT

    async def _write_steps(self) -> None:
        while self._unwritten:
            await self._note(self.leased, [self._unwritten.popleft()])

    def _patience(self) -> float | None:
        waits = []
        if self._overtaken_at is not None:
            waits.append(max(0.01, self._overtaken_at + _RECORDS_PATIENCE - self._terminal.now()))
        if self._rested_at is not None:
            waits.append(max(0.01, self._rested_at + self._rest_needed() - self._terminal.now()))
        if self._rules.turn_timeout:
            waits.append(max(0.01, self._alive_at + self._rules.turn_timeout - self._terminal.now()))
        if self._rules.stop_timeout and not self.turn.ending and self._said_at is not None:
            waits.append(max(0.01, self._said_at + self._rules.stop_timeout - self._terminal.now()))
        if self._interruption.patience is not None:
            waits.append(self._interruption.patience)
        return min(waits, default=None)

    def _rest_needed(self) -> float:
        if self.turn.background:
            shells = all(task.is_shell for task in self.turn.background)
            return _SHELL_PATIENCE if shells else _BACKGROUND_PATIENCE
        if self.turn.ending and self.turn.awaits_notice:
            return _NOTICE_PATIENCE
        if not self.turn.ending:
            return self._rules.stop_timeout if self._is_missing_its_end() else _SILENT_REST
        if self.turn.written_down:
            return 0.0
        return _RECORDS_PATIENCE if self.turn.is_missing_records else _TRANSCRIPT_PATIENCE

    def _is_missing_its_end(self) -> bool:
        """Whether the agent worked on it and rests, and neither it nor anybody who sits there said how."""
        return (
            self._rules.stop_timeout > 0
            and self.turn.recorded
            and self.turn.said is None
            and self._terminal.state is not State.INTERRUPTED
            and not self._approach.has_draft()
        )

    def _judge(self) -> None:
        """Whether it has ended."""
        terminal, turn, now = self._terminal, self.turn, self._terminal.now()
        if self._interruption.wanted and self._judge_interruption():
            return
        waits = not turn.may_be_over and (turn.background or turn.awaits_notice)
        if turn.ending and not waits and (turn.written_down or self._shows_rest()):
            turn.rest()  # its last record is written when no hook can send the agent on any more
            return
        if turn.overtaken:
            self._judge_overtaken(now)
            return
        self._judge_last_word(now)
        if terminal.state not in RESTING or not terminal.agreed:
            self._rested_at = None
            self._judge_silence(now)
            return
        if self._rested_at is None:
            self._rested_at = now
        if now - self._rested_at >= self._rest_needed():
            self._judge_rest()

    def _judge_interruption(self) -> bool:
        """Whether the turn stopped because it was asked for. A stop of its own, heard before, comes first."""
        turn = self.turn
        if turn.ending and not turn.background:
            return False
        if turn.background and self._terminal.state in RESTING:
            turn.finish(End.INTERRUPTED, "interrupted on request while it waited for work in the background")
        elif self._interruption.proven:
            turn.finish(End.INTERRUPTED, "interrupted on request")
        return turn.outcome is not None

    def _judge_overtaken(self, now: float) -> None:
        """The next turn runs: all that can still come is what the transcript has of this one."""
        self._rested_at = None
        if self._overtaken_at is None:
            self._overtaken_at = now
        if now - self._overtaken_at >= _RECORDS_PATIENCE:
            self.turn.rest()

    def _shows_rest(self) -> bool:
        """For somebody who waits: what it said last is written down, and it shows itself that it rests.

        Its last record comes a tenth of a second later.
        """
        return (
            self._rules.once
            and self.turn.said is not None
            and self._stopped_at is not None
            and self._terminal.shows_rest_since(self._stopped_at)
        )

    def _judge_last_word(self, now: float) -> None:
        """The transcript has the answer: the hook that tells of its end is due at once."""
        turn, limit = self.turn, self._rules.stop_timeout
        if turn.said is None or turn.ending:
            self._said_at = None
        elif self._said_at is None:
            self._said_at = now
        elif limit and now - self._said_at >= limit:
            self._miss_its_end()

    def _judge_silence(self, now: float) -> None:
        terminal, limit = self._terminal, self._rules.turn_timeout
        self._answering |= terminal.state in WAITING or terminal.state in (State.TOOL_USE, State.STREAMING)
        if terminal.state in WAITING or terminal.state is State.TOOL_USE:  # as long as that takes
            self._alive_at = now
        elif limit and now - self._alive_at >= limit and not self.turn.may_be_over:
            terminal.type(self._speech.interrupt)
            self.turn.finish(End.TIMEOUT, f"no sign of life for {limit:g} s")

    def _judge_rest(self) -> None:
        turn = self.turn
        if turn.ending:
            turn.rest()
        elif turn.said is not None:
            turn.answered_by_transcript()
        elif turn.was_absorbed:
            turn.answered_by_others()
        elif self._terminal.state is State.INTERRUPTED:
            turn.finish(End.INTERRUPTED, "interrupted by a human")
        elif self._is_missing_its_end():
            self._miss_its_end()
        else:
            self._silent_end()

    def _miss_its_end(self) -> None:
        self.turn.finish(
            End.TIMEOUT, f"the turn has ended, but no Stop hook came within {self._rules.stop_timeout:g} s"
        )

    def _silent_end(self) -> None:
        """It was taken, and the agent rests without having said a word about it."""
        turn = self.turn
        if self._approach.has_draft():
            turn.finish(End.INTERRUPTED, "interrupted by a human: the prompt is back in the composer")
        elif turn.recorded or self._answering:  # without a transcript nothing is recorded
            turn.finish(End.INTERRUPTED, "interrupted before the agent had answered")
        else:
            turn.finish(End.REFUSED, "refused by a hook of the agent's settings")
