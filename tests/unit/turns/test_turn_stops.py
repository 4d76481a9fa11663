"""Whose turn a stop of the agent ends."""

from __future__ import annotations

import pytest

from remuda.agents.events import (
    AgentEvent,
    BackgroundStarted,
    Failure,
    PromptSubmitted,
    Task,
    TurnFailed,
    TurnStopped,
)
from remuda.turns.turn import stop_document
from support.turns import OURS, THEIRS, made, outcome, stops, taken


def test_stop_of_ours_is_known_before_the_turn_has_taken_anything() -> None:
    stop = TurnStopped("done", OURS)
    assert stops(made(), PromptSubmitted("do it", OURS), stop) == [None, stop]


@pytest.mark.parametrize("stop", [TurnStopped("x", THEIRS), TurnFailed(Failure.OTHER, "x", THEIRS)])
def test_stop_of_another_prompt_is_none_of_ours(stop: AgentEvent) -> None:
    assert stops(made(), PromptSubmitted("do it", OURS), stop)[-1] is None
    assert stops(made(), PromptSubmitted("their prompt", THEIRS), stop)[-1] is None


def test_stop_of_the_turn_before_is_none_of_ours() -> None:
    assert stops(made(), TurnStopped("late", None)) == [None]


def test_stop_after_a_notice_of_its_own_background_is_ours() -> None:
    stop = TurnStopped("all done", "p-notice")
    heard = stops(
        made(), PromptSubmitted("do it", OURS), PromptSubmitted("<task>", "p-notice", notice=True), stop
    )
    assert heard[-1] is stop


def test_agent_in_the_background_is_known_for_all_of_its_turn() -> None:
    turn = made()
    turn.take(BackgroundStarted("a0"))  # of the turn before
    turn.take(PromptSubmitted("do it", OURS))
    assert not turn.launched
    turn.take(BackgroundStarted("a1"))
    turn.take(PromptSubmitted("<task>", "p2", notice=True, ends=frozenset({"a1"})))
    assert turn.launched


def test_turn_awaits_the_notice_of_each_agent_that_it_launched() -> None:
    turn = taken(BackgroundStarted("a1"), BackgroundStarted("a2"), TurnStopped("so far", OURS))
    assert turn.awaits_notice
    turn.take(PromptSubmitted("<task>", "p2", notice=True, ends=frozenset({"a1"})))
    assert turn.awaits_notice
    turn.take(PromptSubmitted("<task>", "p3", notice=True, ends=frozenset({"a2"})))
    assert (turn.awaits_notice, turn.ending) == (False, False)  # its last word is still to come
    turn.take(TurnStopped("all of it", "p3"))
    assert outcome(turn).text == "all of it"


SUBAGENT, SHELL = Task("a", "subagent"), Task("b", "shell", is_shell=True)


@pytest.mark.parametrize(
    ("begun", "last_word", "final"),
    [
        ((), True, True),
        ((), False, False),
        ((SHELL,), True, True),
        ((SUBAGENT,), True, False),
        ((SHELL, SUBAGENT), True, False),
    ],
)
def test_stop_is_final_when_no_one_sends_the_agent_on_and_nothing_will_wake_it(
    begun: tuple[Task, ...], last_word: bool, final: bool
) -> None:
    told = stop_document(TurnStopped("done", OURS, (), "s"), begun, last_word=last_word)
    assert (told["end"], told["text"], told["conversation"], told["final"]) == (
        "answered",
        "done",
        "s",
        final,
    )
    assert [task["id"] for task in told["background"]] == [task.id for task in begun]


def test_failure_is_final_in_any_case() -> None:
    told = stop_document(TurnFailed(Failure.INVALID, "API Error: 400"), (), last_word=False)
    assert told == {
        "end": "failed",
        "text": "API Error: 400",
        "failure": "invalid_request",
        "prompt_id": None,
        "final": True,
    }
