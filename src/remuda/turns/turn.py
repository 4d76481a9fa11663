"""One prompt and its turn: what the agent's own events prove of it. Pure.

    WRITTEN ──PromptSubmitted──▶ SUBMITTED ──PromptRecorded──▶ RECORDED
       │                       │                       │
       └───────────────────────┴── TurnInterrupted, or TurnStopped, TurnFailed and then rest ──▶ ENDED

A stop is an end only when the agent then rests: a hook of the user's may send it on, and what it started in
the background may wake it. So the last of these events is kept, and `rest` turns it into the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
from remuda.agents.speech import Carried, Speech

_SHOWN_CHARACTERS = 65_536
USAGE_UNKNOWN = "usage unknown: the transcript does not have the agent's last message"


_Stop = TurnStopped | TurnFailed | TurnHalted


class Stage(StrEnum):
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
    """It was taken back before the agent was given it."""
    UNSUBMITTED = "unsubmitted"
    """It was typed, and the agent never said that it took it. Nobody knows what became of it."""
    MIXED = "mixed"
    """It met a draft in the composer, and the agent was given neither."""
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


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the message's receipt."""

    stage: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Turn:
    """Takes events in, gives the facts that are worth a receipt."""

    def __init__(
        self,
        prompt: str,
        carried: Carried,
        speech: Speech,
        *,
        command: bool = False,
        running: Iterable[str] = (),
    ) -> None:
        self.prompt = prompt
        self.stage = Stage.WRITTEN
        self.prompt_id: str | None = None
        self.mixed = False
        """Whether the agent was given this prompt together with something else."""
        self.written_down = False
        """Whether the transcript has all of it; the hooks are quicker."""
        self.outcome: Outcome | None = None
        self.overtaken = False
        """Whether the next turn has begun: of this one only the transcript has still something to tell."""
        self.interrupter = "by a human"
        self.interruption_recorded = False
        """Whether the transcript says so. Where it does not, the prompt goes back into the composer."""
        self._carried = carried
        self._speech = speech
        self._command = command
        self._last: TurnStopped | TurnFailed | TurnHalted | CommandRun | None = None
        self._ids: set[str | None] = set()
        self._has_followers = False
        self._others: set[str | None] = set()
        """Turns that others began before the agent said that it took ours."""
        self._last_of_others: TurnStopped | None = None
        self._before = frozenset(running)
        self._launched: set[str] = set()
        self.launched = False
        """Whether it ever started background work, which wakes the agent: a stop may not be its end."""
        self.stops = 0
        """How often it stopped or failed. The agent may be sent on, or woken again."""
        self._usage: dict[str, Mapping[str, Any]] = {}
        self.said: str | None = None
        """What the transcript has as the answer, for when no hook tells of it."""

    @property
    def submitted(self) -> bool:
        return self.stage in (Stage.SUBMITTED, Stage.RECORDED)

    @property
    def recorded(self) -> bool:
        return self.stage is Stage.RECORDED

    @property
    def expected(self) -> str:
        """What the agent is expected to say that it got."""
        return self._carried.reported

    @property
    def ending(self) -> bool:
        """Whether something was said that may be its end."""
        return self._last is not None

    @property
    def may_be_over(self) -> bool:
        """Whether what the agent is at now may be somebody else's: it stopped, and another prompt waited."""
        return self.overtaken or (self.ending and self._has_followers)

    @property
    def background(self) -> tuple[Task, ...]:
        """What the agent began in this turn and left running when it last stopped."""
        return self.begun_of(self._last.background if isinstance(self._last, TurnStopped) else ())

    @property
    def awaits_notice(self) -> bool:
        """Something that it began will wake it, or has done so without its having heard of that yet."""
        return bool(self._launched)

    def begun_of(self, running: Iterable[Task]) -> tuple[Task, ...]:
        """Those of them that did not run before this turn."""
        return tuple(task for task in running if task.id not in self._before)

    @property
    def is_missing_records(self) -> bool:
        """Whether the transcript has yet to tell what always comes: the prompt, and the answer to it."""
        return not self._command and (
            not self.recorded or (isinstance(self._last, TurnStopped) and self.said is None)
        )

    def take(self, event: AgentEvent) -> list[Fact]:
        if self.stage is Stage.ENDED or (self.overtaken and not self._is_late_record(event)):
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
                pass  # late word of the turn before
            case MessageRecorded() | TurnRecorded():
                self._on_transcript(event)
            case TurnStopped() | TurnFailed() | TurnHalted() | BackgroundStarted():
                self._on_stopped(event)
            case PromptRefused() | TurnInterrupted():
                self._on_turned_away(event)
        return []

    def _is_late_record(self, event: AgentEvent) -> bool:
        """Of this turn, when the next has begun: the records of that one stand behind its own prompt."""
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
            self.mixed = self.mixed or self._speech.holds(event.prompt, self._carried.reported)
            self._others |= {event.prompt_id} - {None}
            return []
        self.stage = Stage.SUBMITTED
        if event.prompt_id not in self._others:  # else it is queued behind that turn, and told with its id
            self.prompt_id = event.prompt_id
            self._ids.add(event.prompt_id)
        return [Fact("submitted", {"prompt_id": self.prompt_id, **self._difference(event.prompt)})]

    def _on_another(self, event: PromptSubmitted) -> None:
        """The agent was given something else while ours had not ended, as far as we know."""
        if event.notice:
            self._ids.add(event.prompt_id)  # what is said next still belongs to ours
            self._launched -= event.ends
            self._last, self.said, self.written_down = None, None, False  # it goes on
            return
        self._has_followers = True  # one that is queued is told with the id of the turn that runs
        if event.prompt_id not in self._ids and self.ending:
            self._overtake()

    def _overtake(self) -> None:
        """The next turn has begun."""
        self.overtaken = True
        if self.written_down or self._command:
            self.rest()

    def _on_stopped(self, event: TurnStopped | TurnFailed | TurnHalted | BackgroundStarted) -> None:
        if isinstance(event, BackgroundStarted):
            self._launched.add(event.id)
            self.launched = True
        elif event.prompt_id in self._others:
            self._last_of_others = event if isinstance(event, TurnStopped) else None
        elif event.prompt_id is None or event.prompt_id in self._ids or not self._ids:
            self._last = self._with_delay(event)  # a command has no id of its own
            self.stops += not isinstance(event, TurnHalted)
        elif self._last is not None:
            self._overtake()
        else:  # ours went back into the composer before the agent had begun
            self.finish(End.INTERRUPTED, "interrupted by a human, who sent another prompt")

    def _with_delay(self, event: _Stop) -> _Stop:
        """Hook and transcript tell of the same failure, and only one of them may know how long it lasts."""
        before = self._last
        if not isinstance(event, TurnFailed) or not isinstance(before, TurnFailed):
            return event
        if event.kind is not before.kind or event.retry_after is not None:
            return event
        return TurnFailed(event.kind, event.text, event.prompt_id, before.retry_after, before.resets_at)

    def _on_turned_away(self, event: PromptRefused | TurnInterrupted) -> None:
        if isinstance(event, PromptRefused):
            if self.recorded:  # what a hook refuses is never written down: that is another's prompt
                return
            self.finish(End.REFUSED, f"refused by a hook of the agent's settings: {event.reason}")
        elif not self.may_be_over and self._is_of_ours(event):
            self.interruption_recorded = True
            self.finish(End.INTERRUPTED, f"interrupted {self.interrupter}")

    def _is_of_ours(self, event: TurnInterrupted) -> bool:
        """Whether our turn was interrupted. That of the turn before may be written after ours was taken."""
        if event.prompt_id is None or not self._ids:
            return self.recorded or self._command
        return event.prompt_id in self._ids

    def _on_transcript(self, event: MessageRecorded | TurnRecorded) -> None:
        if not self.recorded and not self._command:
            return  # of the turn before: what it has of ours stands behind the prompt
        if isinstance(event, TurnRecorded):
            self.written_down = True
            if self.overtaken:
                self.rest()
            return
        self._usage[event.message_id] = event.usage
        if event.final:
            self.said = event.text

    def _on_recorded(self, event: PromptRecorded) -> list[Fact]:
        if not self._is_recorded_by(event):
            return []
        facts = []
        if self.stage is Stage.WRITTEN:  # no hook told: they are off, or late
            facts = [
                Fact(
                    "submitted",
                    {"prompt_id": event.prompt_id, "by": "transcript", **self._difference(event.prompt)},
                )
            ]
        if self.prompt_id is None:
            self.prompt_id = event.prompt_id
            self._ids.add(event.prompt_id)
        if self.stage is not Stage.RECORDED:
            self.stage = Stage.RECORDED
            facts.append(Fact("recorded", {"session_id": event.conversation}))
        return facts

    def _is_recorded_by(self, event: PromptRecorded) -> bool:
        known = self.prompt_id is not None and event.prompt_id == self.prompt_id
        return known or self.is_ours(event.prompt)

    def _on_command(self, event: CommandRun) -> list[Fact]:
        if not self._command:
            return []
        word = self._command_word
        told: list[Fact] = []
        if self.stage is Stage.WRITTEN and event.name in (word, ""):
            self.stage, self._last = Stage.SUBMITTED, event
            told = [Fact("submitted", {"by": "hook" if event.confirmed else "transcript"})]
        if self.submitted and event.finished:
            self._last = event
        if self.submitted and event.confirmed and event.name == word:
            self.rest()
        return told

    def opened_dialog(self) -> list[Fact]:
        """A dialog came up behind what was typed. A command that opens one tells nothing else: it has run."""
        if not self._command or self.stage is not Stage.WRITTEN:
            return []
        self._end(Outcome(End.ANSWERED, "", facts={"command": True, "dialog": True}))
        return [Fact("submitted", {"by": "dialog"})]

    def _on_unknown(self, event: CommandUnknown) -> None:
        if self._command and self.stage is Stage.WRITTEN and event.name == self._command_word:
            self.finish(End.REFUSED, f"the agent has no command /{event.name}")

    @property
    def _command_word(self) -> str:
        return self.prompt.split()[0].lstrip("/")

    def is_ours(self, reported: str) -> bool:
        """Whether the agent says that it got this prompt."""
        return self._speech.same(reported, self._carried.reported)

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
        """The agent rests, and all that can tell agrees: what was said last is how it ended."""
        if self.outcome is not None:
            return
        match self._last:
            case TurnStopped():
                self._end(Outcome(End.ANSWERED, self._last.text, facts=self._answer_facts(self._last)))
            case TurnFailed():
                last = self._last
                self._end(Outcome(End.FAILED, last.text, last.kind, last.retry_after))
            case TurnHalted():
                self._end(Outcome(End.INTERRUPTED, self._last.reason))
            case CommandRun():
                self._end(Outcome(End.ANSWERED, "", facts=_command_facts(self._last)))

    def finish(self, end: End, text: str) -> None:
        """It ended in a way that the agent did not tell."""
        if self.outcome is None:
            self._end(Outcome(end, text, submitted=self.submitted))

    @property
    def was_absorbed(self) -> bool:
        """The turn that ours was queued behind has stopped, the agent rests, and none of our own began."""
        return self.submitted and not self.ending and self._last_of_others is not None

    def answered_by_others(self) -> None:
        """That turn took ours along: what it said last is the answer to both."""
        if self.outcome is None and self._last_of_others is not None:
            self._last = self._last_of_others
            self.rest()

    def answered_by_transcript(self) -> None:
        """No hook told of its end, the transcript has the answer, and the agent rests."""
        if self.outcome is None and self.said is not None:
            facts = {
                "by": "transcript",
                "prompt_id": self.prompt_id,
                "usage": _sum(self._usage.values()) or None,
            }
            self._end(Outcome(End.ANSWERED, self.said, facts=facts))

    def _end(self, outcome: Outcome) -> None:
        self.outcome, self.stage = outcome, Stage.ENDED

    def _answer_facts(self, stopped: TurnStopped) -> dict[str, Any]:
        facts: dict[str, Any] = {"session_id": stopped.conversation, "prompt_id": self.prompt_id}
        facts["usage"] = _sum(self._usage.values()) if self.said is not None else None
        if facts["usage"] is None:
            facts["degraded"] = [USAGE_UNKNOWN]
        if stopped.background:
            facts["background"] = [task.kind for task in stopped.background]
        return facts


def stop_document(
    event: TurnStopped | TurnFailed, begun: Iterable[Task], *, last_word: bool
) -> dict[str, Any]:
    """What clients are told of a stop.

    `begun`: what this turn left running; `last_word`: no hook can send the agent on.

    A shell may run for ever, and ends nothing; other work that runs on will wake the agent.
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


def _sum(usages: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for usage in usages:
        for key, value in usage.items():
            if isinstance(value, int) and not isinstance(value, bool):
                total[key] = total.get(key, 0) + value
    return total
