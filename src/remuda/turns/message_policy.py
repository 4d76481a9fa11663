"""What is done with a message when its turn has ended. Pure.

| end | done |
| --- | --- |
| answered | acknowledged; the answer is in the outbox |
| refused, invalid request, not signed in | dead letter: trying again would end the same |
| rate limited, overloaded | given back with a delay, for the complete account; counts as no attempt |
| another API error | given back with a growing delay |
| interrupted by a human | dead letter: the user decides whether to try it again |
| the agent did not start with it | put back; counts as no attempt |
| met a draft, died before it was submitted, or its call was lost | handed over again |
| taken back, before it was handed over | dropped |
| taken back, and would be tried again | dead letter, or dropped if it was never submitted |
| typed, and never confirmed | dead letter: it may have run, so it is not typed twice |
| died or timed out after it was submitted | what `on_orphan` says |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from remuda.agents.events import Failure
from remuda.duration import clamp_seconds
from remuda.inbox.stop_hook import UNWANTED

from .readiness import DRAFT_PATIENCE
from .turn import End, Outcome

OnOrphan = Literal["retry", "deadletter", "drop"]

FIRST_DELAY = 15.0
LONGEST_DELAY = 900.0
LONGEST_LIMIT = (7 * 24 + 1) * 3600.0
"""The longest limit of a service is a week. One that asks for more is tried again after that."""
# After the end of a limit. An agent may resume by itself soon after that: a later retry would run twice.
_SPREAD = 5.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user chose for this session."""

    on_orphan: OnOrphan = "deadletter"
    trust: bool = False
    once: bool = False
    """Try the first message once."""
    single_try: bool = False
    """Try each message once."""
    turn_timeout: float = 0.0
    """Seconds without a sign of life after which a turn counts as lost; 0 means never."""
    draft_patience: float = DRAFT_PATIENCE
    stop_timeout: float = 0.0
    """Seconds after the end of a turn by which a hook must report it, or it has failed.

    0: without the hook it counts as interrupted.
    """


class MessageAction(StrEnum):
    ACK = "ack"
    NACK = "nack"
    DEAD = "dead"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class MessageDecision:
    action: MessageAction
    reason: str = ""
    delay: float = 0.0
    counts: bool = True
    """Whether it counts as an attempt."""
    account_waits: bool = False


def decide_once(outcome: Outcome) -> MessageDecision:
    """Decide about a message that is tried only once."""
    if outcome.end is End.CANCELLED:
        return MessageDecision(MessageAction.DROP, outcome.text)
    if outcome.end is End.FAILED and outcome.failure is Failure.RATE_LIMITED:
        return replace(_failed(outcome, 1, 0.0), action=MessageAction.DEAD, counts=True)
    return (
        MessageDecision(MessageAction.ACK)
        if outcome.end is End.ANSWERED
        else MessageDecision(MessageAction.DEAD, outcome.text)
    )


def decide(outcome: Outcome, attempt: int, on_orphan: OnOrphan, jitter: float) -> MessageDecision:
    """Decide about a message. `jitter`, from 0 to 1, spreads the retries of messages that failed together."""
    if outcome.end is End.ANSWERED:
        return MessageDecision(MessageAction.ACK)
    if outcome.end is End.FAILED:
        return _failed(outcome, attempt, jitter)
    if outcome.end is End.MIXED:
        return MessageDecision(MessageAction.NACK, outcome.text, FIRST_DELAY)
    if outcome.end is End.UNSTARTED:
        return MessageDecision(MessageAction.NACK, outcome.text, counts=False)
    if outcome.end in (End.DIED, End.LOST) and not outcome.submitted:
        return MessageDecision(MessageAction.NACK, outcome.text)
    if outcome.end in (End.DIED, End.TIMEOUT):
        return _orphaned(outcome, on_orphan)
    if outcome.end is End.CANCELLED:
        return MessageDecision(MessageAction.DROP, outcome.text)
    return MessageDecision(MessageAction.DEAD, outcome.text)


def decide_unwanted(decision: MessageDecision, outcome: Outcome) -> MessageDecision:
    """Decide about a cancelled message: it is not tried again."""
    if decision.action is not MessageAction.NACK:
        return decision
    action = MessageAction.DEAD if outcome.submitted else MessageAction.DROP
    return replace(decision, action=action, reason=f"{UNWANTED}; {decision.reason}")


def _failed(outcome: Outcome, attempt: int, jitter: float) -> MessageDecision:
    if outcome.failure in (Failure.INVALID, Failure.AUTHENTICATION):
        return MessageDecision(MessageAction.DEAD, outcome.text)
    delay = backoff(attempt, jitter)
    if outcome.retry_after is not None:
        asked = clamp_seconds(outcome.retry_after, longest=LONGEST_LIMIT)
        delay = max(1.0, asked) + jitter * min(_SPREAD, asked / 10)
    limited = outcome.failure in (Failure.RATE_LIMITED, Failure.OVERLOADED)
    return MessageDecision(MessageAction.NACK, outcome.text, delay, counts=not limited, account_waits=limited)


def _orphaned(outcome: Outcome, on_orphan: OnOrphan) -> MessageDecision:
    if on_orphan == "retry":
        return MessageDecision(MessageAction.NACK, outcome.text)
    return MessageDecision(MessageAction.DROP if on_orphan == "drop" else MessageAction.DEAD, outcome.text)


def backoff(attempt: int, jitter: float) -> float:
    """Return a delay that doubles with each attempt; `jitter` takes off up to half of it."""
    whole = min(LONGEST_DELAY, FIRST_DELAY * float(2 ** min(attempt - 1, 16)))
    return whole * (0.5 + jitter / 2)
