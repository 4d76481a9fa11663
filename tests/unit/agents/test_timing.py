"""Heimdall's classifiers, by its own vectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.state import State
from remuda.agents.timing import (
    Classifier,
    ClaudeClassifier,
    NoneClassifier,
    SimpleClassifier,
    make_classifier,
)
from remuda.errors import InvalidOptions


def state_of(one: Classifier) -> State:
    """Its state, as something that may change between two looks."""
    return one.state


def claude(debounce_ms: int = 200) -> ClaudeClassifier:
    return ClaudeClassifier(3000, debounce_ms)


def test_claude_burst_after_a_pause_is_raw_tool_use() -> None:
    one = claude()
    one.record(50, 1000)
    one.record(5000, 1300)
    assert one.raw_state(1300) is State.TOOL_USE


def test_claude_pause_then_more_than_a_kilobyte_is_raw_tool_use() -> None:
    one = claude()
    for size, at in ((50, 1000), (50, 1080), (1025, 1281)):
        one.record(size, at)
    assert one.raw_state(1281) is State.TOOL_USE


def test_claude_pause_of_exactly_200_ms_is_no_tool_use() -> None:
    one = claude()
    for size, at in ((50, 1000), (50, 1080), (1025, 1280)):
        one.record(size, at)
    assert one.raw_state(1280) is State.THINKING


def test_claude_regular_small_repaints_are_thinking() -> None:
    one = claude()
    for index in range(15):
        one.record(70, 1000 + 80 * index)
    assert one.raw_state(1000 + 80 * 14) is State.THINKING
    assert state_of(one) is State.THINKING


def test_claude_irregular_larger_output_is_streaming() -> None:
    one = claude(debounce_ms=0)
    for index in range(15):
        one.record(200 + 150 * (index % 5), 1000 + 40 * index)
    assert state_of(one) is State.STREAMING


def test_claude_first_record_stays_idle_until_the_debounce_is_over() -> None:
    one = claude()
    one.record(70, 1000)
    assert state_of(one) is State.IDLE
    one.tick(1199)
    assert state_of(one) is State.IDLE
    one.tick(1200)
    assert state_of(one) is State.THINKING


def test_claude_raw_state_changes_within_the_debounce_stays_idle() -> None:
    one = claude()
    one.record(70, 1000)
    one.record(5000, 1050)
    one.tick(1150)
    assert state_of(one) is State.IDLE
    one.tick(1250)
    assert state_of(one) is State.TOOL_USE


def test_claude_silence_is_idle_at_once() -> None:
    one = claude()
    one.record(70, 1000)
    one.tick(1200)
    one.tick(3999)
    assert state_of(one) is State.THINKING
    one.tick(4000)
    assert state_of(one) is State.IDLE


@pytest.mark.parametrize("one", [claude(), SimpleClassifier(3000)])
def test_dead_then_output_and_time_stays_dead(one: Classifier) -> None:
    one.record(70, 1000)
    one.set_dead()
    one.record(70, 1200)
    one.tick(9000)
    assert state_of(one) is State.DEAD
    assert one.next_tick_ms(9000) is None


def test_claude_window_keeps_at_most_twenty() -> None:
    one = claude()
    for index in range(100):
        one.record(70, 1000 + index)
    assert len(one._events) == 20


def test_simple_output_is_active_and_silence_idle() -> None:
    one = SimpleClassifier(3000)
    one.record(1, 1000)
    assert state_of(one) is State.ACTIVE
    one.tick(3999)
    assert state_of(one) is State.ACTIVE
    one.tick(4000)
    assert state_of(one) is State.IDLE


def test_none_whatever_happens_is_idle_for_no_time() -> None:
    one = NoneClassifier()
    one.record(5000, 1000)
    one.tick(2000)
    one.set_dead()
    assert state_of(one) is State.IDLE


@pytest.mark.parametrize(
    ("name", "kind"), [("simple", SimpleClassifier), ("claude", ClaudeClassifier), ("none", NoneClassifier)]
)
def test_make_classifier_known_name_gives_it(name: str, kind: type) -> None:
    assert isinstance(make_classifier(name), kind)


def test_make_classifier_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidOptions):
        make_classifier("clever")


def test_make_classifier_threshold_zero_is_not_the_default() -> None:
    one = make_classifier("simple", 0)
    one.record(1, 1000)
    assert state_of(one) is State.IDLE


@given(st.sampled_from(["simple", "claude"]), st.lists(st.tuples(st.integers(1, 6000), st.integers(0, 4000))))
def test_next_tick_any_output_the_state_changes_at_no_earlier_moment(
    name: str, bursts: list[tuple[int, int]]
) -> None:
    one = make_classifier(name)
    now = 1000
    for size, gap in bursts:
        now += gap
        one.tick(now)
        one.record(size, now)
    for _ in range(10):
        due = one.next_tick_ms(now)
        before = one.state
        if due is None:
            one.tick(now + 100_000)
            assert state_of(one) is before
            return
        assert due > now
        one.tick(due - 1)
        assert state_of(one) is before
        now = due
        one.tick(now)
    pytest.fail("a silent program is ticked for ever")
