"""One prompt on its way: what the agent's signals prove of it, in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.events import (
    AgentEvent,
    CommandRun,
    CommandUnknown,
    Failure,
    MessageRecorded,
    PromptRecorded,
    PromptRefused,
    PromptSubmitted,
    Task,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.turns.turn import End, Outcome, Turn, TurnStage
from support.turns import OURS, PROMPTS, THEIRS, facts, made, outcome, stops, taken

# ── taken ──


def test_turn_steps_are_reported_once_each_in_their_order() -> None:
    turn = made()
    assert str(turn.stage) == "written"
    assert facts(turn, PromptSubmitted("do it", OURS)) == ["submitted"]
    assert (turn.submitted, turn.recorded, turn.prompt_id) == (True, False, OURS)
    assert facts(turn, PromptRecorded("do it", OURS, "s")) == ["recorded"]
    assert facts(turn, PromptRecorded("do it", OURS, "s"), PromptSubmitted("do it", OURS)) == []
    assert turn.recorded
    turn.take(TurnStopped("done", OURS, (), "s"))
    assert str(turn.stage) == "recorded"
    ended = outcome(turn)
    assert (ended.end, ended.text) == (End.ANSWERED, "done")
    assert (ended.facts["session_id"], ended.facts["prompt_id"]) == ("s", OURS)
    assert str(turn.stage) == "ended"
    assert facts(turn, PromptSubmitted("do it", OURS), PromptRecorded("do it", OURS)) == []


def test_turn_that_no_hook_reported_is_submitted_by_its_transcript() -> None:
    turn = made()
    told = turn.take(PromptRecorded("do it", OURS, "s"))
    assert [fact.stage for fact in told] == ["submitted", "recorded"]
    assert told[0].facts == {"prompt_id": OURS, "by": "transcript"}
    assert told[1].facts == {"session_id": "s"}


def test_turn_receipt_says_what_the_agent_got_where_that_differs() -> None:
    turn = made("!ls")
    [fact] = turn.take(PromptSubmitted("\n!ls", OURS))
    assert fact.facts == {
        "prompt_id": OURS,
        "normalised": True,
        "reported": "\n!ls",
        "reported_characters": 4,
    }
    [plain] = made("ls").take(PromptSubmitted("ls", OURS))
    assert "normalised" not in plain.facts


def test_turn_receipt_of_a_long_prompt_is_cut() -> None:
    prompt = "x" * 100_000
    [fact] = made(f"{prompt}\n").take(PromptSubmitted(prompt, OURS))
    assert len(fact.facts["reported"]) == 65_536
    assert fact.facts["reported_characters"] == 100_000


def test_turn_somebody_elses_prompt_does_not_submit_it() -> None:
    turn = made()
    assert (
        facts(turn, PromptSubmitted("something else", THEIRS), PromptRecorded("something else", THEIRS)) == []
    )
    assert (turn.submitted, turn.mixed) == (False, False)
    assert facts(turn, PromptSubmitted("do it", OURS)) == ["submitted"]


@pytest.mark.parametrize("reported", ["my draft do it", "do it my draft"])
def test_turn_taken_together_with_a_draft_is_mixed(reported: str) -> None:
    turn = made()
    assert facts(turn, PromptSubmitted(reported, OURS)) == []
    assert (turn.submitted, turn.mixed) == (False, True)


@pytest.mark.parametrize(
    "late",
    [
        TurnStopped("of the turn before", THEIRS),
        TurnFailed(Failure.OTHER, "of the turn before"),
        TurnInterrupted(),
        PromptRefused("of the turn before"),
        MessageRecorded("m-0", {"output_tokens": 100}, "of the turn before", final=True),
        TurnRecorded(),
    ],
)
def test_turn_late_word_of_the_turn_before_does_not_count(late: AgentEvent) -> None:
    turn = made()
    assert facts(turn, late) == []
    turn.take(PromptSubmitted("do it", OURS))
    assert (turn.ending, turn.written_down, turn.said, turn.outcome) == (False, False, None, None)
    turn.take(TurnStopped("done", OURS))
    assert outcome(turn).facts["usage"] is None
    assert [reason.partition(":")[0] for reason in outcome(turn).facts["degraded"]] == ["usage unknown"]


def test_turn_late_records_of_the_turn_before_do_not_count_before_its_own() -> None:
    turn = taken(MessageRecorded("m-0", {"output_tokens": 100}, "before", final=True), TurnRecorded())
    assert (turn.said, turn.written_down) == (None, False)
    for signal in (
        PromptRecorded("do it", OURS),
        MessageRecorded("m-1", {"output_tokens": 7}, "done", final=True),
        TurnRecorded(),
    ):
        turn.take(signal)
    assert (turn.said, turn.written_down) == ("done", True)
    turn.take(TurnStopped("done", OURS))
    assert outcome(turn).facts["usage"] == {"output_tokens": 7}


# ── ended ──


def test_turn_does_not_end_before_the_agent_rests() -> None:
    turn = taken(TurnStopped("so far", OURS))
    assert turn.ending
    assert turn.outcome is None
    turn.take(TurnStopped("done", OURS))  # a hook had sent it on
    assert outcome(turn).text == "done"


def test_turn_at_rest_without_a_word_has_not_ended() -> None:
    turn = taken(PromptRecorded("do it", OURS))
    turn.rest()
    assert turn.outcome is None


def test_turn_that_failed_has_the_kind_and_the_delay() -> None:
    turn = taken(TurnFailed(Failure.RATE_LIMITED, "slow down", OURS, 30.0))
    assert outcome(turn) == Outcome(End.FAILED, "slow down", Failure.RATE_LIMITED, 30.0)


def test_turn_that_failed_and_then_went_on_is_answered() -> None:
    assert (
        outcome(taken(TurnFailed(Failure.OTHER, "no", OURS), TurnStopped("done", OURS))).end is End.ANSWERED
    )


@pytest.mark.parametrize("hook_first", [True, False])
def test_failure_lasts_as_long_as_hook_or_transcript_knows(hook_first: bool) -> None:
    told = [
        TurnFailed(Failure.RATE_LIMITED, "no", OURS),
        TurnFailed(Failure.RATE_LIMITED, "no", None, 7200.0),
    ]
    assert outcome(taken(*(told if hook_first else reversed(told)))).retry_after == 7200.0
    assert outcome(taken(told[1], TurnFailed(Failure.OVERLOADED, "no", OURS))).retry_after is None


@pytest.mark.parametrize("late", [TurnInterrupted(THEIRS), TurnInterrupted()], ids=["another's", "unnamed"])
def test_turn_is_not_ended_by_a_late_record_of_an_interrupt_before_it(late: TurnInterrupted) -> None:
    """The record of the turn before may be written after ours was taken (seen on 2.1.325, busy machine)."""
    turn = taken(late)
    assert (turn.outcome, turn.interruption_recorded) == (None, False)
    assert facts(turn, PromptRecorded("do it", OURS), TurnStopped("done", OURS)) == ["recorded"]
    assert outcome(turn).end is End.ANSWERED


def test_turn_that_was_interrupted_ends_at_once() -> None:
    turn = taken(TurnInterrupted(OURS))
    assert turn.outcome == Outcome(End.INTERRUPTED, "interrupted by a human")


def test_turn_that_a_hook_refused_ends_with_its_reason() -> None:
    ended = taken(PromptRefused("not today")).outcome
    assert ended is not None
    assert ended.end is End.REFUSED
    assert "not today" in ended.text


def test_turn_first_outcome_stays() -> None:
    turn = taken(TurnStopped("done", OURS))
    turn.finish(End.TIMEOUT, "no sign of life")
    turn.rest()
    turn.finish(End.DIED, "killed")
    assert turn.outcome == Outcome(End.TIMEOUT, "no sign of life")


def test_turn_that_was_never_taken_says_so_in_its_outcome() -> None:
    turn = made()
    turn.finish(End.UNSUBMITTED, "nothing heard")
    assert turn.outcome == Outcome(End.UNSUBMITTED, "nothing heard", submitted=False)


def test_turn_usage_is_the_sum_of_its_messages_each_counted_once() -> None:
    turn = taken(
        PromptRecorded("do it", OURS),
        MessageRecorded(
            "m-1", {"input_tokens": 1, "output_tokens": 1, "service_tier": "standard", "cached": True}
        ),
        MessageRecorded("m-1", {"input_tokens": 1, "output_tokens": 5}),
        MessageRecorded("m-2", {"input_tokens": 2, "output_tokens": 7}, final=True),
        TurnStopped("done", OURS),
    )
    assert outcome(turn).facts["usage"] == {"input_tokens": 3, "output_tokens": 12}


@pytest.mark.parametrize("usage", [None, {"output_tokens": 5}])
def test_turn_without_hooks_is_answered_by_its_transcript(usage: dict[str, int] | None) -> None:
    turn = made()
    for signal in (
        PromptRecorded("do it", OURS),
        MessageRecorded("m-1", {}, "running"),
        MessageRecorded("m-2", usage or {}, "done", final=True),
    ):
        turn.take(signal)
    assert (turn.ending, turn.said) == (False, "done")
    turn.answered_by_transcript()
    assert turn.outcome is not None
    assert (turn.outcome.end, turn.outcome.text) == (End.ANSWERED, "done")
    assert {key: turn.outcome.facts[key] for key in ("by", "prompt_id", "usage")} == {
        "by": "transcript",
        "prompt_id": OURS,
        "usage": usage,
    }
    reasons = turn.outcome.facts.get("degraded", [])
    assert [reason.partition(":")[0] for reason in reasons] == ([] if usage else ["usage unknown"])


def test_turn_whose_stop_has_no_text_has_the_answer_of_its_transcript() -> None:
    said = MessageRecorded("m-1", {}, "done", final=True)
    turn = taken(PromptRecorded("do it", OURS), TurnStopped("", OURS), said)
    assert outcome(turn).text == "done"


def test_turn_whose_prompt_had_no_id_is_ended_by_a_stop_with_one() -> None:
    """As copilot reports it: only its transcript has the id of the prompt, and that may be lost."""
    turn = made()
    assert facts(turn, PromptSubmitted("do it", None), TurnStopped("done", OURS)) == ["submitted"]
    assert outcome(turn).end is End.ANSWERED


def test_turn_of_which_nothing_was_said_is_not_answered_by_its_transcript() -> None:
    turn = taken(PromptRecorded("do it", OURS), MessageRecorded("m-1", {}, "running"))
    turn.answered_by_transcript()
    assert turn.outcome is None


# ── others ──


def test_turn_answer_to_a_prompt_queued_after_it_is_not_its_own() -> None:
    turn = taken(
        PromptSubmitted("my own", THEIRS), TurnStopped("done", OURS), TurnStopped("to the human", THEIRS)
    )
    assert (outcome(turn).end, outcome(turn).text) == (End.ANSWERED, "done")


RUNS = (Task("a", "subagent"),)


def test_turn_that_waits_for_its_background_ends_with_its_own_answer_when_somebody_goes_on() -> None:
    turn = taken(
        PromptRecorded("do it", OURS),
        MessageRecorded("m-1", {}, "so far", final=True),
        TurnStopped("so far", OURS, RUNS),
    )
    turn.take(PromptSubmitted("my own", THEIRS))
    assert turn.may_be_over
    turn.take(TurnInterrupted())  # of theirs
    turn.take(PromptSubmitted("<task-notification>done", THEIRS, notice=True))
    turn.take(TurnStopped("to the human", THEIRS))
    turn.take(PromptRecorded("my own", THEIRS))
    assert turn.outcome is not None
    assert (turn.outcome.end, turn.outcome.text) == (End.ANSWERED, "so far")


def test_interrupt_of_a_prompt_that_was_queued_after_ours_is_not_ours() -> None:
    turn = taken(PromptSubmitted("my own", OURS), TurnStopped("done", OURS), TurnInterrupted())
    assert (outcome(turn).end, outcome(turn).text) == (End.ANSWERED, "done")


def test_refusal_of_another_prompt_is_not_ours() -> None:
    turn = taken(PromptRecorded("do it", OURS), PromptRefused("not that one"), TurnStopped("done", OURS))
    assert outcome(turn).end is End.ANSWERED


# ── queued behind a turn that began in the same moment ──

NOTICE = PromptSubmitted("<task-notification>done", THEIRS, notice=True)


def behind(*signals: AgentEvent) -> Turn:
    """A turn whose prompt was typed when another began: it is told with the id of that one."""
    turn = made()
    for signal in (NOTICE, PromptSubmitted("do it", THEIRS), *signals):
        turn.take(signal)
    return turn


def test_turn_after_another_is_not_answered_by_that_one() -> None:
    turn = behind(TurnStopped("noted", THEIRS))
    assert (turn.submitted, turn.ending, turn.prompt_id) == (True, False, None)
    turn.take(PromptRecorded("do it", OURS))
    turn.take(TurnStopped("done", OURS))
    assert (outcome(turn).text, outcome(turn).facts["prompt_id"]) == ("done", OURS)


def test_turn_after_another_is_answered_without_a_transcript_too() -> None:
    assert outcome(behind(TurnStopped("noted", THEIRS), TurnStopped("done", OURS))).text == "done"


def test_turn_that_another_took_along_has_its_answer() -> None:
    turn = behind()
    before = turn.was_absorbed
    turn.take(TurnStopped("both done", THEIRS))
    assert (before, turn.was_absorbed) == (False, True)
    turn.answered_by_others()
    assert turn.outcome is not None
    assert turn.outcome.text == "both done"


def test_stop_of_the_turn_before_ours_is_none_of_ours() -> None:
    ours = TurnStopped("done", OURS)
    heard = stops(made(), NOTICE, PromptSubmitted("do it", THEIRS), TurnStopped("noted", THEIRS), ours)
    assert heard == [None, None, None, ours]


def test_turn_may_be_over_when_it_stopped_and_another_prompt_waited() -> None:
    assert not taken(TurnStopped("done", OURS)).may_be_over, "a hook of the user's may send it on"
    assert not taken(PromptSubmitted("my own", OURS)).may_be_over, "that is queued"
    assert taken(PromptSubmitted("my own", OURS), TurnStopped("done", OURS)).may_be_over
    assert taken(PromptSubmitted("my own", THEIRS), TurnStopped("done", OURS)).may_be_over
    assert taken(TurnStopped("done", OURS), PromptSubmitted("my own", THEIRS)).may_be_over
    notice = PromptSubmitted("<task-notification>done", THEIRS, notice=True)
    assert not taken(TurnStopped("so far", OURS), notice).may_be_over


NEXT: list[list[AgentEvent]] = [
    [TurnStopped("done", OURS), PromptSubmitted("my own", THEIRS)],
    [PromptSubmitted("my own", THEIRS), TurnStopped("done", OURS), TurnStopped("to the human", THEIRS)],
]


@pytest.mark.parametrize("signals", NEXT, ids=["given", "queued"])
def test_turn_ends_when_the_next_one_has_begun_and_all_of_it_is_written_down(
    signals: list[AgentEvent],
) -> None:
    turn = taken(
        PromptRecorded("do it", OURS),
        MessageRecorded("m-1", {}, "done", final=True),
        TurnRecorded(),
        *signals,
    )
    assert turn.outcome is not None
    assert turn.outcome.text == "done"


@pytest.mark.parametrize(
    "following",
    [PromptRecorded("my own", THEIRS), PromptRecorded("do it", THEIRS), CommandRun("review"), TurnRecorded()],
    ids=["prompt", "same words", "command", "written down"],
)
@pytest.mark.parametrize("signals", NEXT, ids=["given", "queued"])
def test_turn_that_the_next_one_overtakes_still_takes_its_own_records_and_nothing_else(
    signals: list[AgentEvent], following: AgentEvent
) -> None:
    turn = taken(*signals, TurnInterrupted(), TurnFailed(Failure.OVERLOADED, "theirs", THEIRS))
    assert (turn.overtaken, turn.outcome, turn.is_missing_records) == (True, None, True)
    assert facts(turn, PromptRecorded("do it", OURS)) == ["recorded"]
    turn.take(MessageRecorded("m-1", {"output_tokens": 7}, "done", final=True))
    assert (turn.outcome, turn.is_missing_records) == (None, False)
    turn.take(following)
    turn.take(MessageRecorded("m-2", {"output_tokens": 9}, "to the human", final=True))
    assert turn.outcome is not None
    assert (turn.outcome.text, turn.outcome.facts["usage"]) == ("done", {"output_tokens": 7})


def test_turn_whose_prompt_went_back_and_another_was_answered_was_interrupted() -> None:
    turn = taken(PromptSubmitted("my own", THEIRS), TurnStopped("to the human", THEIRS))
    assert turn.outcome is not None
    assert turn.outcome.end is End.INTERRUPTED


def test_turn_with_work_in_the_background_goes_on_with_its_notice() -> None:
    turn = taken(TurnStopped("so far", OURS, (Task("a", "subagent"),)))
    assert [task.kind for task in turn.background] == ["subagent"]
    turn.take(PromptSubmitted("<task-notification>done", THEIRS, notice=True))
    assert turn.outcome is None
    turn.take(TurnStopped("done", THEIRS))
    assert not turn.background
    assert outcome(turn).text == "done"


def test_turn_is_not_kept_open_by_what_ran_before_it() -> None:
    carried = PROMPTS.transport.paste("hello", command=False)
    turn = Turn("hello", carried, PROMPTS, running=["server"])
    turn.take(PromptSubmitted("hello", OURS))
    turn.take(TurnStopped("done", OURS, (Task("server", "shell", is_shell=True),)))
    assert not turn.background


# ── commands ──


def test_command_is_taken_and_done_when_it_ran() -> None:
    turn = made("/clear", command=True)
    assert facts(turn, CommandRun("clear")) == ["submitted"]
    assert outcome(turn) == Outcome(End.ANSWERED, "", facts={"command": True})


@pytest.mark.parametrize("recorded_first", [True, False])
def test_command_that_the_agent_confirmed_has_ended_and_names_its_conversation(recorded_first: bool) -> None:
    turn = made("/clear", command=True)
    first = [CommandRun("clear", finished=False)] if recorded_first else []
    told = facts(turn, *first, CommandRun("clear", confirmed=True, conversation="s2"))
    assert told == ["submitted"]
    assert turn.outcome == Outcome(End.ANSWERED, "", facts={"command": True, "session_id": "s2"})


def test_command_confirmed_for_somebody_else_does_not_end_ours() -> None:
    turn = made("/compact", command=True)
    turn.take(CommandRun("compact", finished=False))
    turn.take(CommandRun("clear", confirmed=True))
    assert turn.outcome is None


@pytest.mark.parametrize("name", ["compact", ""])
def test_command_is_known_by_its_name_or_by_none(name: str) -> None:
    assert facts(made("/compact keep the tests", command=True), CommandRun(name)) == ["submitted"]


def test_command_of_somebody_else_does_not_submit_it() -> None:
    turn = made("/clear", command=True)
    assert facts(turn, CommandRun("model")) == []
    assert not turn.submitted


@pytest.mark.parametrize("prompt_id", [None, "p-command"])
def test_command_that_starts_a_turn_has_its_answer(prompt_id: str | None) -> None:
    turn = made("/review", command=True)
    turn.take(CommandRun("review", finished=False))
    turn.take(TurnStopped("looks good", prompt_id))
    assert outcome(turn).text == "looks good"


def test_command_of_somebody_does_not_concern_a_prompt() -> None:
    turn = made()
    assert facts(turn, CommandRun("clear"), CommandRun("")) == []
    assert not turn.submitted


# ── in any order ──

ids = st.sampled_from([OURS, THEIRS, None])
texts = st.sampled_from(["do it", "my own", "draft do it", "<task-notification>x"])
signals = st.one_of(
    st.builds(PromptSubmitted, texts, ids, st.booleans()),
    st.builds(PromptRecorded, texts, ids),
    st.builds(CommandRun, st.sampled_from(["clear", ""]), st.booleans(), st.booleans()),
    st.builds(TurnStopped, st.just("said"), ids, st.sampled_from([(), ("subagent",)])),
    st.builds(TurnFailed, st.sampled_from(Failure), st.just("failed"), ids),
    st.just(TurnInterrupted()),
    st.builds(PromptRefused, st.just("no")),
    st.builds(MessageRecorded, st.just("m"), st.just({"output_tokens": 1}), st.just("said"), st.booleans()),
    st.just(TurnRecorded()),
    st.none(),
)


@given(st.lists(signals, max_size=12), st.booleans())
def test_turn_any_signals_keep_the_order_of_its_receipt(
    given_signals: list[AgentEvent | None], command: bool
) -> None:
    turn = made("/clear" if command else "do it", command=command)
    told: list[str] = []
    for signal in given_signals:
        before = turn.outcome
        if signal is None:
            turn.rest()
        else:
            told += [fact.stage for fact in turn.take(signal)]
        assert before is None or turn.outcome is before
    assert told == ["submitted", "recorded"][: len(told)]
    assert (turn.outcome is not None) == (turn.stage is TurnStage.ENDED)
    if turn.outcome is not None:
        assert told[:1] == ["submitted"]
        assert turn.outcome.submitted


def test_command_that_the_agent_does_not_know_is_refused_at_once() -> None:
    turn = Turn("/nosuch x", PROMPTS.transport.paste("/nosuch x", command=True), PROMPTS, command=True)
    turn.take(CommandUnknown("other"))
    assert turn.stage is not TurnStage.ENDED
    turn.take(CommandUnknown("nosuch"))
    assert turn.outcome is not None
    assert turn.outcome.end is End.REFUSED
    assert "/nosuch" in turn.outcome.text
