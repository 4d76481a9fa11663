"""A prompt on its way, and the signals of an agent that it gets."""

from __future__ import annotations

from remuda.agents.claude.prompting import ClaudePrompts
from remuda.agents.events import AgentEvent, PromptSubmitted
from remuda.turns.turn import Outcome, Turn

PROMPTS = ClaudePrompts()
OURS = "p-ours"
THEIRS = "p-theirs"


def made(prompt: str = "do it", *, command: bool = False) -> Turn:
    return Turn(prompt, PROMPTS.transport.paste(prompt, command=command), PROMPTS, command=command)


def taken(*signals: AgentEvent, prompt: str = "do it") -> Turn:
    """A turn that the agent took, and these signals after that."""
    turn = made(prompt)
    turn.take(PromptSubmitted(prompt, OURS))
    for signal in signals:
        turn.take(signal)
    return turn


def outcome(turn: Turn) -> Outcome:
    turn.rest()
    assert turn.outcome is not None
    return turn.outcome


def facts(turn: Turn, *signals: AgentEvent) -> list[str]:
    return [fact.stage for signal in signals for fact in turn.take(signal)]


def stops(turn: Turn, *signals: AgentEvent) -> list[AgentEvent | None]:
    """Those that the turn takes for its own stop, each in its place."""
    found: list[AgentEvent | None] = []
    for signal in signals:
        before = turn.stops
        turn.take(signal)
        found.append(signal if turn.stops > before else None)
    return found
