"""One message in flight, from the moment it was handed over to its end.

The agent's own events decide first. If they do not come, its state, its screen and the clock decide. This
module finds out how a turn ended; `policy` decides what that means for the message.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.agents.base import PasteTransport
from remuda.agents.events import AgentEvent, TurnFailed, TurnInterrupted, TurnStopped
from remuda.agents.prompting import ComposerKind, PromptProtocol
from remuda.agents.state import RESTING, WAITING, WORKING, State
from remuda.inbox.consumer import Leased

from .interruption import SETTLE, Interruption, wipe
from .message_policy import Rules
from .preparation import Preparation
from .readiness import Step
from .turn import End, Fact, Outcome, Turn
from .turn_terminal import TurnTerminal

log = logging.getLogger("remuda.turns")

SUBMIT_TIMEOUT = 10.0
_SUBMIT_BYTES_PER_SECOND = 100_000
# If a prompt that was read and drawn is still in the composer after this time, its Enter was lost. On 2.1.240
# that happens to the Enter of the first paste.
_ENTER_PATIENCE = 1.0
_DRAWN = 0.5
# The agent rests and reported no end: the prompt went back into the composer, or a hook refused it.
_SILENT_REST = 2.0
# The transcript is written a moment after the hooks run. Its facts belong in the receipt.
_TRANSCRIPT_PATIENCE = 1.0
# Wait longer if records are missing that every turn has, but not without limit: it may not be kept at all.
_RECORDS_PATIENCE = 3.0
# Background work that goes on after a stop may wake the agent again. A shell may be a server that never ends.
_BACKGROUND_PATIENCE = 600.0
_SHELL_PATIENCE = 60.0
# Background work that ended before the stop wakes the agent at once.
_NOTICE_PATIENCE = 5.0
# After a stop, this long until it is known whether the next prompt has started.
_NEXT_TURN_TOLD = 0.5
# How long an interrupted turn may take to show that it rests, and where its prompt went.
_TIDY_TIMEOUT = 3.0
# How long a prompt that a hook refused may take to come back into the composer.
_BACK_TIMEOUT = 10.0

Wait = Callable[[float | None], Awaitable[None]]
Note = Callable[[Leased, list[Fact]], Awaitable[None]]


class InFlight:
    """Follows one message.

    `wait` returns when something may have changed, or after that many seconds. `note` writes steps of the
    receipt. `paste` is how the prompt was typed; None if it was called. `interrupt` asks the agent to stop.
    """

    def __init__(
        self,
        leased: Leased,
        turn: Turn,
        *,
        terminal: TurnTerminal,
        prompts: PromptProtocol,
        paste: PasteTransport | None,
        interrupt: Callable[[], None],
        preparation: Preparation,
        rules: Rules,
        wait: Wait,
        note: Note,
        as_argument: bool = False,
    ) -> None:
        self.leased = leased
        self.turn = turn
        self._terminal = terminal
        self._prompts = prompts
        self._paste = paste
        self._interrupt = interrupt
        self._preparation = preparation
        self._rules = rules
        self._wait = wait
        self._note = note
        self._as_argument = as_argument
        self._answering = False
        """Whether the agent was seen to ask, use a tool or write: then no hook refused the prompt."""
        self._interruption = Interruption(terminal, interrupt)
        self._unwritten: deque[Fact] = deque()
        """Steps of the receipt that are not on the disk yet."""
        self._interrupt_heard = False
        """Whether the transcript reported an interrupt after the turn was over."""
        self._since = time.time()
        self._typed_at = self._alive_at = terminal.now()
        self._was_alone = not preparation.has_stash()
        self._rested_at: float | None = None
        self._stopped_at: float | None = None
        """When a stop was last reported."""
        self._overtaken_at: float | None = None
        self._said_at: float | None = None
        """Since when the transcript has the agent's last text."""

    # ── events ──

    def alive(self) -> None:
        self._alive_at = self._terminal.now()

    def hear(self, event: AgentEvent) -> TurnStopped | TurnFailed | None:
        """Decide at once what an event means; steps of the receipt are written later.

        Returns the event if it says that the turn of this message stopped.
        """
        turn = self.turn
        if isinstance(event, TurnStopped):
            self._stopped_at = self._terminal.now()
        elif isinstance(event, TurnInterrupted) and turn.outcome is not None:
            self._interrupt_heard = True
        stops = turn.stops
        self._unwritten.extend(turn.take(event))
        if turn.submitted:
            self._terminal.release_typing()  # users' keys do not wait for the disk
        return event if isinstance(event, TurnStopped | TurnFailed) and turn.stops > stops else None

    def called(self, turn_id: str, *, merged: bool) -> None:
        """Note the answer to the call of this prompt."""
        self._unwritten.extend(self.turn.called(turn_id, merged=merged))
        self._terminal.release_typing()

    def interrupt(self, how: str = "on request") -> None:
        """Cancel the message. Its turn is stopped as soon as the agent works on it."""
        self._interruption.wanted = True
        self.turn.interrupter = how

    @property
    def unwanted(self) -> bool:
        return self._interruption.wanted

    def refuses(self, event: AgentEvent) -> bool:
        """Return whether the agent is about to take our prompt together with other text."""
        if self.turn.submitted or self.turn.outcome is not None:
            return False
        prompt = getattr(event, "prompt", None)
        ours = self.turn.expected
        return (
            isinstance(prompt, str)
            and not self._prompts.same(prompt, ours)
            and self._prompts.holds(prompt, ours)
        )

    def document(self) -> dict[str, Any]:
        return {
            "id": self.leased.id,
            "attempt": self.leased.attempt,
            "stage": str(self.turn.stage),
            "since": round(self._since, 3),
        }

    def heard_all(self) -> Outcome | None:
        """Return the outcome by the events so far: the session has ended."""
        self.turn.rest()
        return self.turn.outcome

    # ── to its end ──

    async def to_its_end(self) -> Outcome:
        turn = self.turn
        try:
            await self._until_submitted()
            self._terminal.release_typing()
            self._judge()  # it may be over by now, and then no event follows
            while turn.outcome is None:
                if self._may_press():
                    self._interruption.press()
                await self._wait(self._patience())
                await self._write_steps()
                self._judge()
            await self._write_steps()
            if self._paste is None:
                pass  # nothing was typed, and nothing comes back
            elif self._interruption.pressed and turn.outcome.end is End.INTERRUPTED:
                await self._tidy(self._paste, _TIDY_TIMEOUT, self._is_settled)
            elif turn.outcome.end is End.REFUSED and turn.outcome.submitted:
                await self._tidy(self._paste, _BACK_TIMEOUT, self._is_back)
        finally:
            self._terminal.release_typing()
        return turn.outcome

    def _may_press(self) -> bool:
        """Return whether an interrupt would hit our turn, and not the one after it.

        The next turn shows on the screen a moment before it is reported. An agent that a user's hook made
        continue shows work too, and nothing reports that.
        """
        turn = self.turn
        if turn.may_be_over:
            return False
        if not turn.ending or turn.background:
            return True
        return self._terminal.now() >= (self._stopped_at or 0.0) + _NEXT_TURN_TOLD

    async def _tidy(self, paste: PasteTransport, seconds: float, shown: Callable[[], bool]) -> None:
        """Remove our prompt from the composer: its turn was interrupted, or a hook refused it."""
        deadline = self._terminal.now() + seconds
        while not shown() and self._terminal.now() < deadline:
            await self._wait(self._interruption.patience or SETTLE)
        await wipe(
            self._terminal,
            self._prompts,
            paste,
            self.turn.expected,
            self._typed_at,
            self._wait,
            alone=self._was_alone,
        )

    def _is_settled(self) -> bool:
        """Return whether it is known where an interrupted prompt went.

        Either the transcript has the interrupt, or the prompt is back in the composer, perhaps a while later.
        """
        known = self.turn.interruption_recorded or self._interrupt_heard or self._preparation.has_draft()
        return known and self._interruption.proven

    def _is_back(self) -> bool:
        """Return whether the agent rests and the prompt is in the composer again."""
        terminal = self._terminal
        quiet = terminal.now() - terminal.output_at >= SETTLE
        return terminal.state in RESTING and terminal.agreed and quiet and self._preparation.has_draft()

    async def _until_submitted(self) -> None:
        turn, terminal = self.turn, self._terminal
        size = len(self.leased.text.encode(errors="replace"))
        deadline = terminal.now() + SUBMIT_TIMEOUT + size / _SUBMIT_BYTES_PER_SECOND
        pressed = False
        while turn.outcome is None:
            await self._write_steps()
            if turn.submitted:
                return
            if self._as_argument and await self._preparation.trusted():
                continue
            if self._as_argument and self._preparation.readiness().step is not Step.TYPE:
                # The agent takes it when it is ready: after its start, and after a dialog that comes first.
                deadline = terminal.now() + SUBMIT_TIMEOUT
            if terminal.state in WAITING and not self._as_argument:
                # The prompt opened a dialog for users: their keys must reach it.
                terminal.release_typing()
                await self._note(self.leased, turn.opened_dialog())
            if turn.mixed:
                turn.finish(End.MIXED, "a draft was in the composer with it; the agent got neither")
            elif terminal.now() >= deadline and (
                terminal.state in WORKING or terminal.output_at < self._typed_at
            ):
                # The agent may work on ours: hooks of the user run before ours reports it. Or the agent is
                # suspended and reads the prompt later: so no other prompt is typed. From here on users may
                # type, and a draft may be theirs.
                terminal.release_typing()
                pressed, deadline = True, terminal.now() + SUBMIT_TIMEOUT
            elif self._lost_enter(pressed, overdue=(overdue := terminal.now() >= deadline)):
                log.info("Enter had no effect; pressing it again%s", " after the timeout" if overdue else "")
                terminal.type(self._prompts.enter)
                pressed, deadline = True, terminal.now() + SUBMIT_TIMEOUT
            elif terminal.now() >= deadline and terminal.state not in WAITING:
                turn.finish(End.UNSUBMITTED, "typed, but the agent never confirmed it")
                return
            else:
                left = deadline - terminal.now()
                await self._wait(min(_DRAWN, max(0.01, left)) if left > 0 else 1.0)

    def _lost_enter(self, pressed: bool, *, overdue: bool) -> bool:
        """Return whether our prompt is in the composer of an idle agent, so that Enter is needed again.

        Before the timeout the agent must also have read and drawn everything. Else it may still read the
        first Enter, which submits the prompt, and a second one might answer a dialog.
        """
        terminal, now = self._terminal, self._terminal.now()
        if pressed or (self._as_argument and not overdue) or not self._still_typed():
            return False
        drawn = terminal.output_at > self._typed_at and now - terminal.output_at >= _DRAWN
        waited = now - self._typed_at >= _ENTER_PATIENCE
        return overdue or (waited and drawn and terminal.agreed and terminal.has_read_all())

    def _still_typed(self) -> bool:
        lines = self._terminal.lines()
        if self._terminal.typed_at > self._typed_at:  # the draft may be a user's
            return False
        if lines is None or self._terminal.state not in RESTING or self._prompts.dialog(lines):
            return False
        return self._prompts.composer(lines, self._terminal.styled).kind is ComposerKind.DRAFT

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
        """Return whether the agent worked on it and now rests, but no event and no user ended the turn."""
        return (
            self._rules.stop_timeout > 0
            and self.turn.recorded
            and self.turn.said is None
            and self._terminal.state is not State.INTERRUPTED
            and not self._is_in_composer()
        )

    def _judge(self) -> None:
        """Set the outcome if the turn has ended."""
        terminal, turn, now = self._terminal, self.turn, self._terminal.now()
        if self._interruption.wanted and self._judge_interruption():
            return
        waits = not turn.may_be_over and (turn.background or turn.awaits_notice)
        if turn.ending and not waits and (turn.written_down or self._shows_rest()):
            turn.rest()  # the last record is written when no hook can make it continue
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
        """Return whether the turn stopped on request. A stop that the agent reported before counts first."""
        turn = self.turn
        if turn.ending and not turn.background:
            return False
        if turn.background and self._terminal.state in RESTING:
            waited = "while it waited for work in the background"
            turn.finish(End.INTERRUPTED, f"interrupted {turn.interrupter} {waited}")
        elif self._interruption.proven:
            turn.finish(End.INTERRUPTED, f"interrupted {turn.interrupter}")
        return turn.outcome is not None

    def _judge_overtaken(self, now: float) -> None:
        """Wait for the last records of this turn: the next one runs already."""
        self._rested_at = None
        if self._overtaken_at is None:
            self._overtaken_at = now
        if now - self._overtaken_at >= _RECORDS_PATIENCE:
            self.turn.rest()

    def _shows_rest(self) -> bool:
        """Return whether a caller that waits may have its answer: it is recorded, and the agent rests.

        The last record of the turn comes a tenth of a second later.
        """
        return (
            self._rules.once
            and self.turn.said is not None
            and self._stopped_at is not None
            and self._terminal.shows_rest_since(self._stopped_at)
        )

    def _judge_last_word(self, now: float) -> None:
        """Check the Stop hook: it is due as soon as the transcript has the answer."""
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
        if terminal.state in WAITING or terminal.state is State.TOOL_USE:  # however long that takes
            self._alive_at = now
        elif limit and now - self._alive_at >= limit and not self.turn.may_be_over:
            self._interrupt()
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

    def _is_in_composer(self) -> bool:
        """Return whether the prompt went back into the composer. A called prompt never does."""
        return self._paste is not None and self._preparation.has_draft()

    def _silent_end(self) -> None:
        """End a turn that the agent took and said nothing about."""
        turn = self.turn
        if self._is_in_composer():
            turn.finish(End.INTERRUPTED, "interrupted by a human: the prompt is back in the composer")
        elif turn.recorded or self._answering:  # without a transcript nothing is recorded
            turn.finish(End.INTERRUPTED, "interrupted before the agent had answered")
        else:
            turn.finish(End.REFUSED, "refused by a hook of the agent's settings")
