"""State from evidence: the newest disagreement wins, rank breaks ties, death is final."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.state import RESTING, WAITING, WORKING, Evidence, Source, State, Vote

BETTER = [source for source in Source if source not in (Source.PROCESS, Source.TIMING)]
LIVING = [state for state in State if state not in (State.DEAD, State.STARTING, State.ASLEEP)]


@pytest.mark.parametrize(
    ("state", "byte"),
    [
        (State.IDLE, 0),
        (State.INTERRUPTED, 0),
        (State.WAITING_PERMISSION, 0),
        (State.WAITING_ANSWER, 0),
        (State.LIMITED, 0),
        (State.ERROR, 0),
        (State.STARTING, 1),
        (State.THINKING, 1),
        (State.STREAMING, 2),
        (State.TOOL_USE, 3),
        (State.ACTIVE, 4),
        (State.DEAD, 0xFF),
    ],
)
def test_wire_byte_of_every_state_is_the_documented_one(state: State, byte: int) -> None:
    assert state.wire_byte == byte


def test_groups_of_states_do_not_overlap() -> None:
    assert not WORKING & WAITING
    assert not WORKING & RESTING
    assert not WAITING & RESTING


def test_record_newer_disagreement_changes_the_state() -> None:
    evidence = Evidence.starting(0.0)
    assert evidence.record(Vote(Source.HOOK, State.THINKING, 1.0))
    assert evidence.record(Vote(Source.TITLE, State.IDLE, 2.0))
    assert (evidence.verdict.state, evidence.verdict.source, evidence.verdict.since) == (
        State.IDLE,
        Source.TITLE,
        2.0,
    )


def test_record_same_moment_is_decided_by_rank() -> None:
    for order in ((Source.HOOK, Source.TITLE), (Source.TITLE, Source.HOOK)):
        evidence = Evidence.starting(0.0)
        states = {Source.HOOK: State.THINKING, Source.TITLE: State.IDLE}
        for source in order:
            evidence.record(Vote(source, states[source], 1.0))
        assert evidence.verdict.state is State.THINKING


def test_record_older_vote_of_the_same_source_is_ignored() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.HOOK, State.IDLE, 5.0))
    assert not evidence.record(Vote(Source.HOOK, State.THINKING, 4.0))
    assert evidence.votes[Source.HOOK].state is State.IDLE


def test_record_older_vote_of_another_source_does_not_change_the_state() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.REGISTRY, State.IDLE, 5.0))
    assert not evidence.record(Vote(Source.HOOK, State.THINKING, 4.0))
    assert evidence.verdict.state is State.IDLE


def test_record_vote_that_cannot_distinguish_confirms_and_keeps_the_finer_state() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.HOOK, State.TOOL_USE, 1.0, "Bash"))
    assert not evidence.record(Vote(Source.TITLE, State.THINKING, 2.0, "busy", WORKING))
    assert (evidence.verdict.state, evidence.verdict.detail) == (State.TOOL_USE, "Bash")


def test_record_vote_of_a_set_without_the_verdict_changes_it() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.HOOK, State.IDLE, 1.0))
    assert evidence.record(Vote(Source.TITLE, State.THINKING, 2.0, "busy", WORKING))
    assert evidence.verdict.state is State.THINKING


def test_record_same_state_by_a_better_source_refreshes_detail_and_keeps_since() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.TITLE, State.IDLE, 1.0, "title"))
    assert not evidence.record(Vote(Source.HOOK, State.IDLE, 2.0, "Stop"))
    assert (evidence.verdict.source, evidence.verdict.detail, evidence.verdict.since) == (
        Source.HOOK,
        "Stop",
        1.0,
    )


def test_record_timing_alone_decides() -> None:
    evidence = Evidence.starting(0.0)
    assert evidence.record(Vote(Source.TIMING, State.ACTIVE, 1.0))
    assert evidence.record(Vote(Source.TIMING, State.IDLE, 2.0))


def test_record_timing_after_a_better_source_spoke_does_not_count() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.HOOK, State.IDLE, 1.0))
    assert not evidence.record(Vote(Source.TIMING, State.ACTIVE, 2.0))
    assert evidence.verdict.state is State.IDLE
    assert evidence.dissent() == []
    assert [vote["counts"] for vote in evidence.explain(3.0)] == [True, True, False]


def test_dissent_a_vote_that_disagrees_is_named() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.TITLE, State.THINKING, 1.0))
    evidence.record(Vote(Source.HOOK, State.IDLE, 2.0))
    assert [vote.source for vote in evidence.dissent()] == [Source.TITLE]


def test_dissent_a_moment_long_past_is_none() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.HOOK, State.THINKING, 1.0))
    evidence.record(Vote(Source.TITLE, State.IDLE, 2.0))
    assert evidence.dissent() == []


def test_explain_reports_every_vote_with_its_age_best_source_first() -> None:
    evidence = Evidence.starting(0.0)
    evidence.record(Vote(Source.TITLE, State.IDLE, 2.0, "title"))
    evidence.record(Vote(Source.HOOK, State.IDLE, 1.0, "Stop"))
    told = evidence.explain(10.0)
    assert [(vote["source"], vote["age"]) for vote in told] == [
        ("process", 10.0),
        ("hook", 9.0),
        ("title", 8.0),
    ]


votes = st.lists(st.tuples(st.sampled_from(BETTER), st.sampled_from(LIVING)), min_size=1, max_size=12)


@given(votes)
def test_record_in_the_order_of_time_the_newest_vote_is_the_state(cast: list[tuple[Source, State]]) -> None:
    evidence = Evidence.starting(0.0)
    for at, (source, state) in enumerate(cast, 1):
        evidence.record(Vote(source, state, float(at)))
        assert evidence.verdict.state is state


@given(votes)
def test_record_true_exactly_when_the_state_changed_and_since_is_that_moment(
    cast: list[tuple[Source, State]],
) -> None:
    evidence = Evidence.starting(0.0)
    seen = [evidence.verdict]
    for at, (source, state) in enumerate(cast, 1):
        changed = evidence.record(Vote(source, state, float(at)))
        seen.append(evidence.verdict)
        assert changed == (seen[-1].state != seen[-2].state)
        assert (seen[-1].since == float(at)) == changed
    assert all(before.since <= after.since for before, after in pairwise(seen))


@given(votes)
def test_record_after_death_changes_nothing(cast: list[tuple[Source, State]]) -> None:
    evidence = Evidence.starting(0.0)
    assert evidence.record(Vote(Source.PROCESS, State.DEAD, 1.0, "exit code 0"))
    for at, (source, state) in enumerate(cast, 2):
        assert not evidence.record(Vote(source, state, float(at)))
    assert (evidence.verdict.state, evidence.verdict.since) == (State.DEAD, 1.0)


@given(
    st.permutations([(Source.HOOK, State.IDLE), (Source.TITLE, State.THINKING), (Source.SCREEN, State.ERROR)])
)
def test_record_all_at_one_moment_in_any_order_the_best_source_wins(cast: list[tuple[Source, State]]) -> None:
    evidence = Evidence.starting(0.0)
    for source, state in cast:
        evidence.record(Vote(source, state, 1.0))
    assert evidence.verdict.state is State.IDLE
