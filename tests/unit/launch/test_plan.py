"""When a silent program is prompted, and when it is given up: the rule alone, on times of the test's own."""

from __future__ import annotations

from remuda.launch.launcher import ECHO_GRACE, IdleRule


def test_idle_silence_below_its_limit_waits() -> None:
    rule = IdleRule(10, 3, now=100)
    assert (rule.due(), rule.check(109.9)) == (110, "wait")
    rule.heard(105)
    assert (rule.due(), rule.check(110)) == (115, "wait")


def test_idle_silence_at_its_limit_prompts_and_begins_anew() -> None:
    rule = IdleRule(10, 3, now=0)
    assert rule.check(10) == "prompt"
    assert (rule.due(), rule.check(19), rule.check(20)) == (20, "wait", "prompt")


def test_idle_prompts_in_vain_end_in_giving_up() -> None:
    rule = IdleRule(1, 2, now=0)
    assert [rule.check(at) for at in (1, 2, 3)] == ["prompt", "prompt", "give_up"]


def test_idle_without_retries_gives_up_at_once() -> None:
    assert IdleRule(1, 0, now=0).check(1) == "give_up"


def test_idle_output_that_may_be_an_echo_keeps_the_count() -> None:
    rule = IdleRule(5, 1, now=0)
    assert rule.check(5) == "prompt"
    rule.heard(5.1)
    rule.heard(5 + ECHO_GRACE - 0.1)
    assert rule.retries == 1
    assert rule.check(5 + ECHO_GRACE - 0.1 + 5) == "give_up"


def test_idle_output_after_the_echo_resets_the_count() -> None:
    rule = IdleRule(5, 1, now=0)
    assert rule.check(5) == "prompt"
    rule.heard(5 + ECHO_GRACE)
    assert rule.retries == 0
    assert rule.check(5 + ECHO_GRACE + 5) == "prompt"
