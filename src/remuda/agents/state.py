"""What a session is doing, decided from evidence. Pure: no clock, no I/O.

Every source of evidence votes for what it last saw. **The newest observation that disagrees with the
verdict changes it; observations of the same moment are ranked by source.** A source that sees less than
another (a title tells busy from not busy, a hook tells which tool) votes for the set of states that it
cannot tell apart; while the verdict is one of them it is confirmed, not changed. The other way round, a
source that sees more may say late what exactly happened (an interrupt is written down after the title
already shows rest): it refines a verdict whose source could not tell.

Byte timing is a guess. It counts only while nothing better has spoken: an idle agent that repaints its
screen is not at work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from remuda.untrusted import one_line


class State(StrEnum):
    STARTING = "starting"
    IDLE = "idle"
    THINKING = "thinking"
    STREAMING = "streaming"
    TOOL_USE = "tool_use"
    WAITING_PERMISSION = "waiting_permission"
    WAITING_ANSWER = "waiting_answer"
    INTERRUPTED = "interrupted"
    LIMITED = "limited"
    ERROR = "error"
    ACTIVE = "active"
    DEAD = "dead"

    @property
    def wire_byte(self) -> int:
        """The byte that Heimdall's clients know."""
        return _WIRE_BYTES.get(self, 0x00)


_WIRE_BYTES = {
    State.STARTING: 0x01,
    State.THINKING: 0x01,
    State.STREAMING: 0x02,
    State.TOOL_USE: 0x03,
    State.ACTIVE: 0x04,
    State.DEAD: 0xFF,
}

WORKING = frozenset({State.THINKING, State.STREAMING, State.TOOL_USE})
WAITING = frozenset({State.WAITING_PERMISSION, State.WAITING_ANSWER})
RESTING = frozenset({State.IDLE, State.INTERRUPTED, State.LIMITED, State.ERROR})


class Source(IntEnum):
    """Where evidence comes from; the lower the number, the more it is worth."""

    PROCESS = 0
    HOOK = 1
    REGISTRY = 2
    TRANSCRIPT = 3
    TITLE = 4
    SCREEN = 5
    TIMING = 6

    @property
    def label(self) -> str:
        return self.name.lower()


_LASTING = (Source.REGISTRY, Source.TITLE, Source.SCREEN)


@dataclass(frozen=True, slots=True)
class Vote:
    """One observation: at `at` (seconds, monotonic) a source saw `state`, or one of `alike`."""

    source: Source
    state: State
    at: float
    detail: str = ""
    alike: frozenset[State] = frozenset()

    def agrees_with(self, state: State) -> bool:
        return state == self.state or state in self.alike


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state, since when, and who said so."""

    state: State
    source: Source
    since: float
    detail: str = ""


@dataclass(slots=True)
class Evidence:
    """All votes of one session, and what follows from them."""

    verdict: Verdict
    votes: dict[Source, Vote] = field(default_factory=dict)
    _previous_since: float = 0.0  # when the state before this one began

    @classmethod
    def starting(cls, at: float) -> Evidence:
        vote = Vote(Source.PROCESS, State.STARTING, at, "started")
        return cls(Verdict(vote.state, vote.source, at, vote.detail), {Source.PROCESS: vote})

    def record(self, vote: Vote) -> bool:
        """Take a vote in. True when it changed the state."""
        known = self.votes.get(vote.source)
        if known is not None and vote.at < known.at:
            return False
        self.votes[vote.source] = vote
        if not self._decides(vote):
            return False
        changed = vote.state != self.verdict.state
        if changed:
            self._previous_since = self.verdict.since
        since = max(vote.at, self.verdict.since) if changed else self.verdict.since
        self.verdict = Verdict(vote.state, vote.source, since, vote.detail)
        return changed

    def _decides(self, vote: Vote) -> bool:
        now = self.verdict
        if now.state is State.DEAD:
            return False
        if vote.source is Source.TIMING and self._better_than_timing():
            return False
        if vote.agrees_with(now.state):
            # The same state, told by someone worth at least as much, refreshes source and detail.
            return vote.state == now.state and vote.source <= now.source
        spoke = self.votes.get(now.source)
        last_at = spoke.at if spoke is not None and spoke.agrees_with(now.state) else now.since
        if vote.at > last_at or (vote.at == last_at and vote.source < now.source):
            return True
        return spoke is not None and vote.state in spoke.alike and vote.at >= self._previous_since

    def _better_than_timing(self) -> bool:
        return any(source not in (Source.PROCESS, Source.TIMING) for source in self.votes)

    def dissent(self) -> list[Vote]:
        """Sources that show a lasting state and show another one: a proof of idleness wants this empty.

        Hooks and transcript tell of moments; what they told last may be long past.
        """
        lasting = (self.votes[source] for source in _LASTING if source in self.votes)
        return [vote for vote in lasting if not vote.agrees_with(self.verdict.state)]

    def _counts(self, source: Source) -> bool:
        return source is not Source.TIMING or not self._better_than_timing()

    def explain(self, now: float) -> list[dict[str, object]]:
        """Every vote with its age, the most valuable source first."""
        return [
            {
                "source": vote.source.label,
                "state": vote.state.value,
                "age": round(max(0.0, now - vote.at), 3),
                "detail": one_line(vote.detail),
                "decides": vote.source is self.verdict.source,
                "counts": self._counts(vote.source),
            }
            for _, vote in sorted(self.votes.items())
        ]
