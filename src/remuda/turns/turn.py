"""One prompt on its way: what the agent's own signals prove of it. Pure.

    WRITTEN ──Submitted──▶ SUBMITTED ──Recorded──▶ RECORDED
       │                       │                       │
       └───────────────────────┴── Interrupted, or Stopped, Failed and then rest ──▶ ENDED

A stop is an end only when the agent then rests: a hook of the user's may send it on, and what it started in
the background may wake it. So the last of these signals is kept, and `rest` turns it into the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remuda.agents.speech import (
    Carried,
    CommandRun,
    CommandUnknown,
    Failed,
    Failure,
    Halted,
    Interrupted,
    Launched,
    Recorded,
    Refused,
    Said,
    Signal,
    Speech,
    Stopped,
    Submitted,
    Task,
    WrittenDown,
)

_SHOWN_CHARACTERS = 65_536
USAGE_UNKNOWN = "usage unknown: the transcript does not have the agent's last message"


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
    """Takes signals in, gives the facts that are worth a receipt."""

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
        self._last: Stopped | Failed | Halted | CommandRun | None = None
        self._ids: set[str | None] = set()
        self._has_followers = False
        self._others: set[str | None] = set()
        """Turns that others began before the agent said that it took ours."""
        self._last_of_others: Stopped | None = None
        self._before = frozenset(running)
        self._launched: set[str] = set()
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
        return self.begun_of(self._last.background if isinstance(self._last, Stopped) else ())

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
            not self.recorded or (isinstance(self._last, Stopped) and self.said is None)
        )

    def take(self, signal: Signal) -> list[Fact]:
        if self.stage is Stage.ENDED or (self.overtaken and not self._is_late_record(signal)):
            return []
        match signal:
            case Submitted():
                return self._on_submitted(signal)
            case Recorded():
                return self._on_recorded(signal)
            case CommandRun():
                return self._on_command(signal)
            case CommandUnknown():
                self._on_unknown(signal)
            case _ if not self.submitted:
                pass  # late word of the turn before
            case Said() | WrittenDown():
                self._on_transcript(signal)
            case Stopped() | Failed() | Halted() | Launched():
                self._on_stopped(signal)
            case Refused() | Interrupted():
                self._on_turned_away(signal)
        return []

    def _is_late_record(self, signal: Signal) -> bool:
        """Of this turn, when the next has begun: the records of that one stand behind its own prompt."""
        match signal:
            case Recorded(prompt_id=str(number)) if self.prompt_id is not None:
                is_ours = number in self._ids
            case Recorded():
                is_ours = self._is_recorded_by(signal)
            case CommandRun():
                is_ours = False
            case _:
                return isinstance(signal, Said | WrittenDown)
        if not is_ours:
            self.rest()
        return is_ours

    # ── signals ──

    def _on_submitted(self, signal: Submitted) -> list[Fact]:
        if self.submitted:
            self._on_another(signal)
            return []
        if not self.is_ours(signal.prompt):
            self.mixed = self.mixed or self._speech.holds(signal.prompt, self._carried.reported)
            self._others |= {signal.prompt_id} - {None}
            return []
        self.stage = Stage.SUBMITTED
        if signal.prompt_id not in self._others:  # else it is queued behind that turn, and told with its id
            self.prompt_id = signal.prompt_id
            self._ids.add(signal.prompt_id)
        return [Fact("submitted", {"prompt_id": self.prompt_id, **self._difference(signal.prompt)})]

    def _on_another(self, signal: Submitted) -> None:
        """The agent was given something else while ours had not ended, as far as we know."""
        if signal.notice:
            self._ids.add(signal.prompt_id)  # what is said next still belongs to ours
            self._launched -= signal.ends
            self._last, self.said, self.written_down = None, None, False  # it goes on
            return
        self._has_followers = True  # one that is queued is told with the id of the turn that runs
        if signal.prompt_id not in self._ids and self.ending:
            self._overtake()

    def _overtake(self) -> None:
        """The next turn has begun."""
        self.overtaken = True
        if self.written_down or self._command:
            self.rest()

    def _on_stopped(self, signal: Stopped | Failed | Halted | Launched) -> None:
        if isinstance(signal, Launched):
            self._launched.add(signal.id)
        elif signal.prompt_id in self._others:
            self._last_of_others = signal if isinstance(signal, Stopped) else None
        elif signal.prompt_id is None or signal.prompt_id in self._ids or not self._ids:
            self._last = self._with_delay(signal)  # a command has no id of its own
        elif self._last is not None:
            self._overtake()
        else:  # ours went back into the composer before the agent had begun
            self.finish(End.INTERRUPTED, "interrupted by a human, who sent another prompt")

    def _with_delay(self, signal: Stopped | Failed | Halted) -> Stopped | Failed | Halted:
        """Hook and transcript tell of the same failure, and only one of them may know how long it lasts."""
        before = self._last
        if not isinstance(signal, Failed) or not isinstance(before, Failed):
            return signal
        if signal.kind is not before.kind or signal.retry_after is not None:
            return signal
        return Failed(signal.kind, signal.text, signal.prompt_id, before.retry_after)

    def _on_turned_away(self, signal: Refused | Interrupted) -> None:
        if isinstance(signal, Refused):
            if self.recorded:  # what a hook refuses is never written down: that is another's prompt
                return
            self.finish(End.REFUSED, f"refused by a hook of the agent's settings: {signal.reason}")
        elif not self.may_be_over and self._is_of_ours(signal):
            self.interruption_recorded = True
            self.finish(End.INTERRUPTED, f"interrupted {self.interrupter}")

    def _is_of_ours(self, signal: Interrupted) -> bool:
        """Whether our turn was interrupted. That of the turn before may be written after ours was taken."""
        if signal.prompt_id is None or not self._ids:
            return self.recorded or self._command
        return signal.prompt_id in self._ids

    def _on_transcript(self, signal: Said | WrittenDown) -> None:
        if not self.recorded and not self._command:
            return  # of the turn before: what it has of ours stands behind the prompt
        if isinstance(signal, WrittenDown):
            self.written_down = True
            if self.overtaken:
                self.rest()
            return
        self._usage[signal.message_id] = signal.usage
        if signal.final:
            self.said = signal.text

    def _on_recorded(self, signal: Recorded) -> list[Fact]:
        if not self._is_recorded_by(signal):
            return []
        facts = []
        if self.stage is Stage.WRITTEN:  # no hook told: they are off, or late
            facts = [
                Fact(
                    "submitted",
                    {"prompt_id": signal.prompt_id, "by": "transcript", **self._difference(signal.prompt)},
                )
            ]
        if self.prompt_id is None:
            self.prompt_id = signal.prompt_id
            self._ids.add(signal.prompt_id)
        if self.stage is not Stage.RECORDED:
            self.stage = Stage.RECORDED
            facts.append(Fact("recorded", {"session_id": signal.conversation}))
        return facts

    def _is_recorded_by(self, signal: Recorded) -> bool:
        known = self.prompt_id is not None and signal.prompt_id == self.prompt_id
        return known or self.is_ours(signal.prompt)

    def _on_command(self, signal: CommandRun) -> list[Fact]:
        if not self._command:
            return []
        word = self._command_word
        told: list[Fact] = []
        if self.stage is Stage.WRITTEN and signal.name in (word, ""):
            self.stage, self._last = Stage.SUBMITTED, signal
            told = [Fact("submitted", {"by": "hook" if signal.confirmed else "transcript"})]
        if self.submitted and signal.finished:
            self._last = signal
        if self.submitted and signal.confirmed and signal.name == word:
            self.rest()
        return told

    def opened_dialog(self) -> list[Fact]:
        """A dialog came up behind what was typed. A command that opens one tells nothing else: it has run."""
        if not self._command or self.stage is not Stage.WRITTEN:
            return []
        self._end(Outcome(End.ANSWERED, "", facts={"command": True, "dialog": True}))
        return [Fact("submitted", {"by": "dialog"})]

    def _on_unknown(self, signal: CommandUnknown) -> None:
        if self._command and self.stage is Stage.WRITTEN and signal.name == self._command_word:
            self.finish(End.REFUSED, f"the agent has no command /{signal.name}")

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
            case Stopped():
                self._end(Outcome(End.ANSWERED, self._last.text, facts=self._answer_facts(self._last)))
            case Failed():
                last = self._last
                self._end(Outcome(End.FAILED, last.text, last.kind, last.retry_after))
            case Halted():
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

    def _answer_facts(self, stopped: Stopped) -> dict[str, Any]:
        facts: dict[str, Any] = {"session_id": stopped.conversation, "prompt_id": self.prompt_id}
        facts["usage"] = _sum(self._usage.values()) if self.said is not None else None
        if facts["usage"] is None:
            facts["degraded"] = [USAGE_UNKNOWN]
        if stopped.background:
            facts["background"] = [task.kind for task in stopped.background]
        return facts


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
