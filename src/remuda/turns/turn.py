"""One prompt and its turn: what the agent's own events prove of it. Pure.

    WRITTEN ──PromptSubmitted──▶ SUBMITTED ──PromptRecorded──▶ RECORDED
       │                       │                       │
       └───────────────────────┴── TurnInterrupted, or TurnStopped, TurnFailed and then rest ──▶ ENDED

A stop is an end only if the agent then rests: a hook of the user may make it continue, and background work
may wake it. So the last of these events is kept, and `rest` turns it into the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from remuda.agents.events import (
    AgentEvent,
    BackgroundStarted,
    CommandRun,
    CommandUnknown,
    Failure,
    MessageRecorded,
    PromptRecorded,
    PromptRefused,
    PromptSubmitted,
    Task,
    TurnFailed,
    TurnHalted,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.prompting import Carried, Past, PromptProtocol

if TYPE_CHECKING:
    from remuda.inbox.consumer import Leased

IN_CONVERSATION = {"in_conversation": True}
"""The model sees the prompt again with the next one."""
_SHOWN_CHARACTERS = 65_536
_USAGE_UNKNOWN = "usage unknown: the record of this turn does not have it"


_Stop = TurnStopped | TurnFailed | TurnHalted


class TurnStage(StrEnum):
    WRITTEN = "written"
    SUBMITTED = "submitted"
    RECORDED = "recorded"
    ENDED = "ended"


class End(StrEnum):
    """How a turn ended; each has its own policy."""

    ANSWERED = "answered"
    REFUSED = "refused"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    """The message was cancelled before the agent got it."""
    UNSUBMITTED = "unsubmitted"
    """The prompt was typed, and the agent never confirmed it. It may have run."""
    MIXED = "mixed"
    """A draft was in the composer with the prompt. The agent got neither."""
    LOST = "lost"
    """The call got no answer, and the agent's conversation does not have the prompt."""
    UNSTARTED = "unstarted"
    """The agent that was started with the prompt ended before it was ready."""
    DIED = "died"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Outcome:
    end: End
    text: str = ""
    """The answer, or what went wrong."""
    failure: Failure | None = None
    retry_after: float | None = None
    submitted: bool = True
    """Whether the agent is known to have taken the prompt."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unanswered(self) -> bool:
        """Whether the agent took the prompt, and its turn ended without an answer."""
        return self.submitted and self.end in (End.FAILED, End.INTERRUPTED, End.DIED, End.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the message's receipt."""

    stage: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Turn:
    """Takes events and returns facts for the receipt."""

    def __init__(
        self,
        prompt: str,
        carried: Carried,
        prompts: PromptProtocol,
        *,
        command: bool = False,
        running: Iterable[str] = (),
    ) -> None:
        self.prompt = prompt
        self.stage = TurnStage.WRITTEN
        self.prompt_id: str | None = None
        self.mixed = False
        """Whether the agent got this prompt together with other text."""
        self.written_down = False
        """Whether the transcript is complete for this turn. Hooks report earlier."""
        self.outcome: Outcome | None = None
        self.overtaken = False
        """Whether the next turn has started. Only the transcript can still report on this one."""
        self.interrupter = "by a human"
        self.interruption_recorded = False
        """Whether the transcript has the interrupt. If not, the prompt goes back into the composer."""
        self._carried = carried
        self._prompts = prompts
        self._command = command
        self._last: TurnStopped | TurnFailed | TurnHalted | CommandRun | None = None
        self._ids: set[str | None] = set()
        self._has_followers = False
        self._others: set[str | None] = set()
        """Ids of turns that others started before the agent confirmed our prompt."""
        self._last_of_others: TurnStopped | None = None
        self._before = frozenset(running)
        self._launched: set[str] = set()
        self.launched = False
        """Whether it started background work, which wakes the agent: a stop may not be its end."""
        self.stops = 0
        """How often it stopped or failed. A hook or background work can make the agent continue."""
        self._usage: dict[str, Mapping[str, Any]] = {}
        self._called = False
        """Whether the prompt was called and the agent returned the id of its turn."""
        self.said: str | None = None
        """The answer in the transcript, in case no hook reports it."""

    @property
    def submitted(self) -> bool:
        return self.stage in (TurnStage.SUBMITTED, TurnStage.RECORDED)

    @property
    def recorded(self) -> bool:
        return self.stage is TurnStage.RECORDED

    @property
    def expected(self) -> str:
        """The prompt as the agent is expected to report it."""
        return self._carried.reported

    @property
    def ending(self) -> bool:
        """Whether an event came that may be its end."""
        return self._last is not None

    @property
    def may_be_over(self) -> bool:
        """Whether the agent may be working on another prompt now: ours stopped, and another one waited."""
        return self.overtaken or (self.ending and self._has_followers)

    @property
    def background(self) -> tuple[Task, ...]:
        """Background work of this turn that ran on when the agent last stopped."""
        return self.begun_of(self._last.background if isinstance(self._last, TurnStopped) else ())

    @property
    def awaits_notice(self) -> bool:
        """Whether background work of this turn will still wake the agent."""
        return bool(self._launched)

    def begun_of(self, running: Iterable[Task]) -> tuple[Task, ...]:
        """Return the tasks that did not run before this turn."""
        return tuple(task for task in running if task.id not in self._before)

    @property
    def is_missing_records(self) -> bool:
        """Whether the transcript lacks what every turn has: the prompt and its answer."""
        return not self._command and (
            not self.recorded or (isinstance(self._last, TurnStopped) and self.said is None)
        )

    def take(self, event: AgentEvent) -> list[Fact]:
        if self.stage is TurnStage.ENDED or (self.overtaken and not self._is_late_record(event)):
            return []
        match event:
            case PromptSubmitted():
                return self._on_submitted(event)
            case PromptRecorded():
                return self._on_recorded(event)
            case CommandRun():
                return self._on_command(event)
            case CommandUnknown():
                self._on_unknown(event)
            case _ if not self.submitted:
                pass  # a late event of the turn before
            case MessageRecorded() | TurnRecorded():
                self._on_transcript(event)
            case TurnStopped() | TurnFailed() | TurnHalted() | BackgroundStarted():
                self._on_stopped(event)
            case PromptRefused() | TurnInterrupted():
                self._on_turned_away(event)
        return []

    def _is_late_record(self, event: AgentEvent) -> bool:
        """Return whether a record belongs to this turn, after the next one has started.

        Records of the next turn come after its own prompt.
        """
        match event:
            case PromptRecorded(prompt_id=str(number)) if self.prompt_id is not None:
                is_ours = number in self._ids
            case PromptRecorded():
                is_ours = self._is_recorded_by(event)
            case CommandRun():
                is_ours = False
            case _:
                return isinstance(event, MessageRecorded | TurnRecorded)
        if not is_ours:
            self.rest()
        return is_ours

    # ── events ──

    def _on_submitted(self, event: PromptSubmitted) -> list[Fact]:
        if self.submitted:
            self._on_another(event)
            return []
        if not self.is_ours(event.prompt):
            self.mixed = self.mixed or self._prompts.holds(event.prompt, self._carried.reported)
            self._others |= {event.prompt_id} - {None}
            return []
        self.stage = TurnStage.SUBMITTED
        if event.prompt_id not in self._others:  # else it is queued after that turn, and has its id
            self.prompt_id = event.prompt_id
            self._ids.add(event.prompt_id)
        return [Fact("submitted", {"prompt_id": self.prompt_id, **self._difference(event.prompt)})]

    def called(self, turn_id: str, *, merged: bool) -> list[Fact]:
        """Note the answer to a call. `merged`: the prompt was added to a turn that ran already."""
        self._called = True
        if merged:
            self._others.add(turn_id)
        (fact,) = self._on_submitted(PromptSubmitted(self._carried.reported, turn_id))
        return [Fact(fact.stage, {**fact.facts, "merged": True}) if merged else fact]

    def _on_another(self, event: PromptSubmitted) -> None:
        """Take the prompt of another turn that came before the end of ours was known."""
        if self._called and event.prompt_id in self._ids:
            return  # the answer to the call came first
        if event.notice:
            self._ids.add(event.prompt_id)  # the next events still belong to ours
            self._launched -= event.ends
            self._last, self.said, self.written_down = None, None, False  # it continues
            return
        self._has_followers = True  # a queued prompt is reported with the id of the running turn
        if event.prompt_id not in self._ids and self.ending:
            self._overtake()

    def _overtake(self) -> None:
        """Note that the next turn has started."""
        self.overtaken = True
        if self.written_down or self._command:
            self.rest()

    def _on_stopped(self, event: TurnStopped | TurnFailed | TurnHalted | BackgroundStarted) -> None:
        if isinstance(event, BackgroundStarted):
            self._launched.add(event.id)
            self.launched = True
        elif event.prompt_id in self._others:
            self._last_of_others = event if isinstance(event, TurnStopped) else None
        elif event.prompt_id is None or event.prompt_id in self._ids or not self._ids - {None}:
            self._last = self._with_delay(event)  # a command has no id of its own
            self.stops += not isinstance(event, TurnHalted)
        elif self._last is not None:
            self._overtake()
        elif not self._called:  # ours went back into the composer before the agent started
            self.finish(End.INTERRUPTED, "interrupted by a human, who sent another prompt")

    def _with_delay(self, event: _Stop) -> _Stop:
        """Keep the delay of a failure that hook and transcript both report: only one may have it."""
        before = self._last
        if not isinstance(event, TurnFailed) or not isinstance(before, TurnFailed):
            return event
        if event.kind is not before.kind or event.retry_after is not None:
            return event
        return TurnFailed(event.kind, event.text, event.prompt_id, before.retry_after, before.resets_at)

    def _on_turned_away(self, event: PromptRefused | TurnInterrupted) -> None:
        if isinstance(event, PromptRefused):
            if self.recorded:  # a refused prompt is never recorded: this one is another's
                return
            self.finish(End.REFUSED, f"refused by a hook of the agent's settings: {event.reason}")
        elif not self.may_be_over and self._is_of_ours(event):
            self.interruption_recorded = True
            if event.died:
                self.finish(End.DIED, "the agent's server died before it was answered")
            self.finish(End.INTERRUPTED, f"interrupted {self.interrupter}")

    def _is_of_ours(self, event: TurnInterrupted) -> bool:
        """Return whether our turn was interrupted, and not the one before: that is recorded late."""
        if event.prompt_id is None or not self._ids:
            return self.recorded or self._command
        return event.prompt_id in self._ids

    def _on_transcript(self, event: MessageRecorded | TurnRecorded) -> None:
        if not self.recorded and not self._command:
            return  # of the turn before: our records come after our prompt
        if isinstance(event, TurnRecorded):
            self.written_down = True
            if self.overtaken:
                self.rest()
            return
        self._usage[event.message_id] = event.usage
        if event.final:
            self.said = event.text

    def used(self) -> dict[str, int]:
        """Return the tokens of its messages that are recorded so far."""
        return _sum(self._usage.values())

    def _on_recorded(self, event: PromptRecorded) -> list[Fact]:
        if not self._is_recorded_by(event):
            return []
        facts = []
        if self.stage is TurnStage.WRITTEN:  # no hook reported it: hooks are off, or late
            facts = [
                Fact(
                    "submitted",
                    {"prompt_id": event.prompt_id, "by": "transcript", **self._difference(event.prompt)},
                )
            ]
        if self.prompt_id is None:
            self.prompt_id = event.prompt_id
            self._ids.add(event.prompt_id)
        if self.stage is not TurnStage.RECORDED:
            self.stage = TurnStage.RECORDED
            facts.append(Fact("recorded", {"session_id": event.conversation}))
        return facts

    def _is_recorded_by(self, event: PromptRecorded) -> bool:
        known = self.prompt_id is not None and event.prompt_id == self.prompt_id
        return known or self.is_ours(event.prompt)

    def _on_command(self, event: CommandRun) -> list[Fact]:
        if not self._command:
            return []
        word = self._command_word
        facts: list[Fact] = []
        if self.stage is TurnStage.WRITTEN and event.name in (word, ""):
            self.stage, self._last = TurnStage.SUBMITTED, event
            facts = [Fact("submitted", {"by": "hook" if event.confirmed else "transcript"})]
        if self.submitted and event.finished:
            self._last = event
        if self.submitted and event.confirmed and event.name == word:
            self.rest()
        return facts

    def opened_dialog(self) -> list[Fact]:
        """Note that a dialog opened after the prompt was typed. A command that opens one has run."""
        if not self._command or self.stage is not TurnStage.WRITTEN:
            return []
        self.end(Outcome(End.ANSWERED, "", facts={"command": True, "dialog": True}))
        return [Fact("submitted", {"by": "dialog"})]

    def _on_unknown(self, event: CommandUnknown) -> None:
        is_open = self.stage is TurnStage.WRITTEN or self._called
        if self._command and is_open and event.name == self._command_word:
            self.finish(End.REFUSED, f"the agent has no command /{event.name}")

    @property
    def _command_word(self) -> str:
        return self.prompt.split()[0].lstrip("/")

    def is_ours(self, reported: str) -> bool:
        """Return whether the agent reported this prompt."""
        return self._prompts.same(reported, self._carried.reported)

    def _difference(self, reported: str) -> dict[str, Any]:
        if reported == self.prompt:
            return {}
        return {
            "normalised": True,
            "reported": reported[:_SHOWN_CHARACTERS],
            "reported_characters": len(reported),
        }

    # ── the end ──

    def rest(self) -> None:
        """Set the outcome from the last event: the agent rests, and all sources agree."""
        if self.outcome is not None:
            return
        match self._last:
            case TurnStopped():
                text = self._last.text or self.said or ""  # a hook of copilot may not have it
                self.end(Outcome(End.ANSWERED, text, facts=self._answer_facts(self._last)))
            case TurnFailed():
                last = self._last
                self.end(Outcome(End.FAILED, last.text, last.kind, last.retry_after))
            case TurnHalted():
                self.end(Outcome(End.INTERRUPTED, self._last.reason))
            case CommandRun():
                self.end(Outcome(End.ANSWERED, "", facts=_command_facts(self._last)))

    def finish(self, end: End, text: str) -> None:
        """Set an outcome that the agent did not report."""
        if self.outcome is None:
            self.end(Outcome(end, text, submitted=self.submitted))

    @property
    def was_absorbed(self) -> bool:
        """Whether the turn before ours took our prompt along: it stopped, and no turn of ours started."""
        return self.submitted and not self.ending and self._last_of_others is not None

    def answered_by_others(self) -> None:
        """Set the outcome of a prompt that the turn before took along: its answer is for both."""
        if self.outcome is None and self._last_of_others is not None:
            self._last = self._last_of_others
            self.rest()

    def answered_by_transcript(self) -> None:
        """Set the outcome from the transcript: the agent rests, and no hook reported the end."""
        if self.outcome is None and self.said is not None:
            facts = {
                "by": "transcript",
                "prompt_id": self.prompt_id,
                **usage_facts(self._usage.values()),
            }
            self.end(Outcome(End.ANSWERED, self.said, facts=facts))

    def end(self, outcome: Outcome) -> None:
        self.outcome, self.stage = outcome, TurnStage.ENDED

    def _answer_facts(self, stopped: TurnStopped) -> dict[str, Any]:
        facts: dict[str, Any] = {"session_id": stopped.conversation, "prompt_id": self.prompt_id}
        facts |= usage_facts(self._usage.values() if self.said is not None else (), stopped.doubt)
        if stopped.background:
            facts["background"] = [task.kind for task in stopped.background]
        return facts


def stop_document(
    event: TurnStopped | TurnFailed, begun: Iterable[Task], *, last_word: bool
) -> dict[str, Any]:
    """Return what clients get to know of a stop.

    `begun`: background work that this turn left running. `last_word`: no hook can make the agent continue.

    The stop is final if only shells are left: they may never end. Other work will wake the agent.
    """
    if isinstance(event, TurnFailed):
        return {
            "end": "failed",
            "text": event.text,
            "failure": str(event.kind),
            "prompt_id": event.prompt_id,
            "final": True,
        }
    running = list(begun)
    return {
        "end": "answered",
        "text": event.text,
        "conversation": event.conversation,
        "prompt_id": event.prompt_id,
        "background": [{"id": task.id, "kind": task.kind, "shell": task.is_shell} for task in running],
        "final": last_word and all(task.is_shell for task in running),
    }


def _command_facts(run: CommandRun) -> dict[str, Any]:
    began = {} if run.conversation is None else {"session_id": run.conversation}
    return {"command": True, **began}


def past_outcome(past: Past, leased: Leased, how: str) -> Outcome:
    """Return the outcome of a turn whose end was not observed."""
    if past.answered:
        facts = {"recovered": True, "prompt_id": past.prompt_id, **usage_facts(past.usages, past.doubt)}
        return Outcome(End.ANSWERED, past.text, facts=facts)
    if past.interrupted:
        who = "on request" if leased.unwanted else "by a human"
        return Outcome(End.INTERRUPTED, f"interrupted {who}")
    if past.stored and not past.submitted:
        text = f"{how}; the agent has the prompt and started no turn for it"
        return Outcome(End.UNSUBMITTED, text, submitted=False, facts=IN_CONVERSATION)
    submitted = past.submitted or leased.submitted
    text = f"{how} before it was answered" if submitted else f"{how} before it was submitted"
    return Outcome(End.DIED, text, submitted=submitted)


def usage_facts(usages: Iterable[Mapping[str, Any]], doubt: str = "") -> dict[str, Any]:
    """Return the usage of an answer by its messages: null, with the reason, if none has any.

    `doubt`: why it may not be an answer.
    """
    usage = _sum(usages) or None
    degraded = [*([_USAGE_UNKNOWN] if usage is None else []), *filter(None, [doubt])]
    return {"usage": usage, **({"degraded": degraded} if degraded else {})}


def _sum(usages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for usage in usages:
        for key, value in usage.items():
            if isinstance(value, int) and not isinstance(value, bool):
                total[key] = total.get(key, 0) + value
    return total
