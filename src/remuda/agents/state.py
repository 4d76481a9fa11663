"""What a session is doing, decided from evidence. Pure: no clock, no I/O.

Every source of evidence votes for what it last saw. **The newest observation that disagrees with the
verdict changes it; observations of the same moment are ranked by source.** Some sources see less than
others: a title shows only busy or not busy, a hook names the tool. Such a source votes for a set of states.
If the verdict is one of them, the vote confirms it. A source that sees more may report later (an interrupt is
recorded after the title shows rest). It then refines a verdict that came from a set.

Byte timing is a guess. It counts only until a better source has voted: an idle agent that repaints its screen
is not working.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from remuda.frozen import frozen
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
    ASLEEP = "asleep"
    """Its program was ended, and starts again with its conversation when it is needed."""
    DEAD = "dead"

    @property
    def wire_byte(self) -> int:
        """Return the byte that Heimdall's clients know."""
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
AT_REST = RESTING | {State.ASLEEP}
"""Nothing is going on. `RESTING`: and a program runs that could be typed into."""


class Source(IntEnum):
    """Where evidence comes from; the lower the number, the more it is worth."""

    PROCESS = 0
    HOOK = 1
    """What the agent itself reports as it happens: by a hook, or over its call channel."""
    REGISTRY = 2
    TRANSCRIPT = 3
    TITLE = 4
    SCREEN = 5
    TIMING = 6

    @property
    def label(self) -> str:
        return self.name.lower()


_LASTING = (Source.REGISTRY, Source.TITLE, Source.SCREEN)


_DETAIL_CHARACTERS = 200


@frozen
class Vote:
    """One observation: at `at` (seconds, monotonic) a source saw `state`, or one of `alike`."""

    source: Source
    state: State
    at: float
    detail: str = ""
    alike: frozenset[State] = frozenset()

    def __post_init__(self) -> None:
        """Cut what an agent says of itself: `ls`, `status` and the log repeat it."""
        object.__setattr__(self, "detail", self.detail[:_DETAIL_CHARACTERS])

    def agrees_with(self, state: State) -> bool:
        return state == self.state or state in self.alike


@frozen
class Verdict:
    """The state, since when, and from which source."""

    state: State
    source: Source
    since: float
    detail: str = ""


class Evidence:
    """All votes of one session, and the verdict."""

    __slots__ = ("_previous_since", "verdict", "votes")

    def __init__(self, verdict: Verdict, votes: dict[Source, Vote]) -> None:
        self.verdict = verdict
        self.votes = votes
        self._previous_since = 0.0  # when the state before this one began

    @classmethod
    def starting(cls, at: float) -> Evidence:
        return cls.of_process(State.STARTING, at, "started")

    @classmethod
    def of_process(cls, state: State, at: float, detail: str) -> Evidence:
        """Begin with one vote: what was seen of an earlier process does not count."""
        vote = Vote(Source.PROCESS, state, at, detail)
        return cls(Verdict(vote.state, vote.source, at, vote.detail), {Source.PROCESS: vote})

    def record(self, vote: Vote) -> bool:
        """Take a vote. Returns whether it changed the state."""
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
        if now.state is State.DEAD or (now.state is State.ASLEEP and vote.source is not Source.PROCESS):
            return False
        if vote.source is Source.TIMING and self._better_than_timing():
            return False
        if vote.agrees_with(now.state):
            # The same state from a source of the same or a higher rank refreshes source and detail.
            return vote.state == now.state and vote.source <= now.source
        spoke = self.votes.get(now.source)
        last_at = spoke.at if spoke is not None and spoke.agrees_with(now.state) else now.since
        # A report may say that a turn began and ended: of one source and moment, the later vote counts.
        if vote.at > last_at or (vote.at == last_at and vote.source <= now.source):
            return True
        return spoke is not None and vote.state in spoke.alike and vote.at >= self._previous_since

    def _better_than_timing(self) -> bool:
        return any(source not in (Source.PROCESS, Source.TIMING) for source in self.votes)

    def dissent(self) -> list[Vote]:
        """Return the sources that now show another state. A proof of idleness needs this to be empty.

        Hooks and transcript report moments, which may be long past: they do not count.
        """
        lasting = (self.votes[source] for source in _LASTING if source in self.votes)
        return [vote for vote in lasting if not vote.agrees_with(self.verdict.state)]

    @property
    def is_guess(self) -> bool:
        """Return whether byte timing alone gave the verdict: this is never a proof of idleness."""
        return self.verdict.source is Source.TIMING

    def _counts(self, source: Source) -> bool:
        return source is not Source.TIMING or not self._better_than_timing()

    def explain(self, now: float) -> list[dict[str, object]]:
        """Return every vote with its age, the highest rank first."""
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
