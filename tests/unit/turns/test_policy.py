"""What is done with a message when its turn has ended: the complete table."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.events import Failure
from remuda.turns.message_policy import (
    FIRST_DELAY,
    LONGEST_DELAY,
    LONGEST_LIMIT,
    MessageAction,
    MessageDecision,
    OnOrphan,
    backoff,
    decide,
    decide_once,
    decide_unwanted,
)
from remuda.turns.turn import End, Outcome

POLICIES: tuple[OnOrphan, ...] = get_args(OnOrphan)


def act(outcome: Outcome, on_orphan: OnOrphan = "deadletter", attempt: int = 1) -> MessageAction:
    return decide(outcome, attempt, on_orphan, 0.5).action


@pytest.mark.parametrize("on_orphan", POLICIES)
@pytest.mark.parametrize(
    ("outcome", "action"),
    [
        (Outcome(End.ANSWERED, "done"), MessageAction.ACK),
        (Outcome(End.REFUSED, "no", submitted=False), MessageAction.DEAD),
        (Outcome(End.REFUSED, "by a hook"), MessageAction.DEAD),
        (Outcome(End.FAILED, "400", Failure.INVALID), MessageAction.DEAD),
        (Outcome(End.FAILED, "401", Failure.AUTHENTICATION), MessageAction.DEAD),
        (Outcome(End.FAILED, "429", Failure.RATE_LIMITED), MessageAction.NACK),
        (Outcome(End.FAILED, "529", Failure.OVERLOADED), MessageAction.NACK),
        (Outcome(End.FAILED, "408", Failure.OTHER), MessageAction.NACK),
        (Outcome(End.INTERRUPTED, "by a human"), MessageAction.DEAD),
        (Outcome(End.INTERRUPTED, "by a human", submitted=False), MessageAction.DEAD),
        (Outcome(End.UNSUBMITTED, "nothing heard", submitted=False), MessageAction.DEAD),
        (Outcome(End.MIXED, "met a draft", submitted=False), MessageAction.NACK),
        (Outcome(End.DIED, "killed", submitted=False), MessageAction.NACK),
    ],
)
def test_decide_these_ends_are_the_same_under_every_policy(
    outcome: Outcome, action: MessageAction, on_orphan: OnOrphan
) -> None:
    decision = decide(outcome, 1, on_orphan, 0.5)
    assert decision.action is action
    assert decision.reason == ("" if action is MessageAction.ACK else outcome.text)


@pytest.mark.parametrize("end", [End.DIED, End.TIMEOUT])
def test_decide_what_was_submitted_and_lost_is_left_to_the_policy(end: End) -> None:
    outcome = Outcome(end, "lost")
    assert act(outcome, "deadletter") is MessageAction.DEAD
    assert act(outcome, "drop") is MessageAction.DROP
    assert act(outcome, "retry") is MessageAction.NACK
    assert decide(outcome, 1, "retry", 0.5).counts


@pytest.mark.parametrize("kind", Failure)
def test_decide_only_a_limit_of_the_service_costs_no_attempt_and_holds_the_account(kind: Failure) -> None:
    decision = decide(Outcome(End.FAILED, "no", kind), 1, "retry", 0.5)
    limited = kind in (Failure.RATE_LIMITED, Failure.OVERLOADED)
    assert (decision.account_waits, decision.counts) == (limited, not limited)
    assert (decision.delay > 0) == (decision.action is MessageAction.NACK)


def test_decide_every_end_has_a_decision() -> None:
    for end in End:
        for submitted in (True, False):
            for on_orphan in POLICIES:
                assert (
                    decide(Outcome(end, "x", submitted=submitted), 1, on_orphan, 0.5).action in MessageAction
                )


def test_decide_delay_that_the_service_asked_for_is_kept_and_never_none() -> None:
    def delay(retry_after: float, jitter: float) -> float:
        outcome = Outcome(End.FAILED, "429", Failure.RATE_LIMITED, retry_after)
        return decide(outcome, 1, "retry", jitter).delay

    assert delay(60, 0) == 60
    assert 60 < delay(60, 1) <= 65
    assert delay(20, 1) == 22
    assert delay(7200, 1) == 7205  # an agent that goes on by itself would be first
    assert delay(0, 0) == 1


@pytest.mark.parametrize("on_orphan", POLICIES)
def test_decide_what_was_taken_back_is_dropped(on_orphan: OnOrphan) -> None:
    outcome = Outcome(End.CANCELLED, "no longer wanted", submitted=False)
    assert decide(outcome, 1, on_orphan, 0.5) == MessageDecision(MessageAction.DROP, "no longer wanted")


def test_decide_unwanted_never_tries_again_and_keeps_every_other_end() -> None:
    for end in End:
        for submitted in (True, False):
            outcome = Outcome(end, "x", Failure.RATE_LIMITED, submitted=submitted)
            before = decide(outcome, 1, "retry", 0.5)
            after = decide_unwanted(before, outcome)
            if before.action is not MessageAction.NACK:
                assert after == before
                continue
            assert (after.action, after.reason) == (
                MessageAction.DEAD if submitted else MessageAction.DROP,
                "taken back; x",
            )
            assert after.account_waits == before.account_waits


def test_decide_once_never_tries_again() -> None:
    for end in End:
        wanted = {End.ANSWERED: MessageAction.ACK, End.CANCELLED: MessageAction.DROP}.get(
            end, MessageAction.DEAD
        )
        assert decide_once(Outcome(end, "x", Failure.RATE_LIMITED)).action is wanted


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_backoff_grows_within_its_bounds(attempt: int, jitter: float) -> None:
    delay = backoff(attempt, jitter)
    assert FIRST_DELAY / 2 <= delay <= LONGEST_DELAY
    assert delay <= backoff(attempt + 1, jitter)
    assert backoff(attempt, 0) <= delay <= backoff(attempt, 1) == 2 * backoff(attempt, 0)


@pytest.mark.parametrize("asked", [math.inf, 1e300, 10.0**12])
def test_failed_a_delay_without_end_is_a_week_at_most(asked: float) -> None:
    outcome = Outcome(End.FAILED, "later", failure=Failure.RATE_LIMITED, retry_after=asked)
    decision = decide(outcome, 1, "deadletter", 0.5)
    assert (decision.action, decision.account_waits) == (MessageAction.NACK, True)
    assert LONGEST_LIMIT <= decision.delay < LONGEST_LIMIT + 60
