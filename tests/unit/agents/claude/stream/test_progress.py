"""When a prompt's turn is over, and what it came to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.claude.stream.prompt_progress import PromptProgress
from remuda.agents.claude.stream.stream_events import (
    BackgroundTask,
    Event,
    MessagePart,
    PromptMoved,
    StateChanged,
    TasksChanged,
    TurnResult,
)

DONE = TurnResult("c", "u", "well", is_error=False, subtype="success", reason="completed", num_turns=1)
WOKEN = replace(DONE, command_id=None, text="woken")
STOPPED = replace(DONE, is_error=True, subtype="error_during_execution", reason="aborted_streaming", text="")
AGENT = TasksChanged((BackgroundTask("a", "local_agent"),))
SHELL = TasksChanged((BackgroundTask("b", "local_bash"),))
NONE = TasksChanged(())
IDLE, RUNNING = StateChanged("idle"), StateChanged("running")
STARTED = PromptMoved("u", "started")


def fed(*events: Event, until_exit: bool = False) -> PromptProgress:
    command = PromptProgress("u", until_exit=until_exit)
    for event in events:
        command.take(event)
    return command


@pytest.mark.parametrize(
    ("events", "over"),
    [
        ((), False),
        ((STARTED, RUNNING), False),
        ((STARTED, DONE), True),
        ((DONE,), True),
        # A CLI that knows no ids of ours, and one that does.
        ((replace(DONE, command_id=None),), True),
        ((STARTED, replace(DONE, command_id=None)), False),
        ((STARTED, replace(DONE, command_id=None), PromptMoved("u", "completed")), True),
        ((STARTED, PromptMoved("u", "completed")), False),
        ((replace(DONE, command_id="another"),), False),
        # Cancelled before it ran; or in the middle of it, where the result comes first.
        ((PromptMoved("u", "queued"), PromptMoved("u", "cancelled")), True),
        ((PromptMoved("another", "cancelled"),), False),
        ((STARTED, STOPPED, PromptMoved("u", "cancelled")), True),
        # What runs in the background.
        ((STARTED, RUNNING, SHELL, DONE), True),
        ((STARTED, RUNNING, AGENT, DONE), False),
        ((STARTED, RUNNING, AGENT, DONE, IDLE), False),
        ((STARTED, RUNNING, AGENT, DONE, IDLE, NONE), False),
        ((STARTED, RUNNING, AGENT, DONE, IDLE, NONE, RUNNING, WOKEN), False),
        ((STARTED, RUNNING, AGENT, DONE, IDLE, NONE, RUNNING, WOKEN, IDLE), True),
        ((STARTED, RUNNING, AGENT, NONE, DONE), False),
        ((STARTED, RUNNING, AGENT, NONE, DONE, WOKEN, IDLE), True),
        ((STARTED, RUNNING, AGENT, STOPPED), True),
        # A CLI that does not tell when it rests.
        ((STARTED, AGENT, DONE), True),
    ],
)
def test_turn_is_over_with_its_result_unless_an_agent_will_wake_it(
    events: tuple[Event, ...], over: bool
) -> None:
    assert fed(*events).over is over


def test_turn_until_exit_waits_for_the_process_when_anything_runs_in_the_background() -> None:
    assert fed(DONE, until_exit=True).over
    assert not fed(SHELL, DONE, IDLE, until_exit=True).over
    command = fed(SHELL, DONE, IDLE, WOKEN, until_exit=True)
    command.process_ended = True
    assert command.over
    assert command.last.text == "woken"


def test_process_that_ended_without_a_result_has_not_ended_the_turn() -> None:
    command = fed(STARTED)
    command.process_ended = True
    assert not command.over


def test_answer_is_the_last_and_counts_are_of_all() -> None:
    usage = {"input_tokens": 12, "output_tokens": 7, "odd": "x", "cache_read_input_tokens": True}
    first = replace(DONE, usage=usage, denials=({"tool_name": "Bash"},))
    command = fed(
        RUNNING, MessagePart("opus"), MessagePart("<synthetic>"), AGENT, first, replace(WOKEN, usage=usage)
    )
    assert command.last.text == "woken"
    assert command.usage() == {
        "input_tokens": 24,
        "output_tokens": 14,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    assert command.num_turns() == 2
    assert command.denials() == ({"tool_name": "Bash"},)
    assert command.model == "opus"
    assert command.error() is None


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (replace(DONE, is_error=True, text="API Error: 400"), "API Error: 400"),
        (replace(DONE, is_error=True, text="", errors=("one", "two")), "one; two"),
        (replace(DONE, is_error=True, text="", subtype="error_max_turns"), "error_max_turns"),
        (replace(DONE, is_error=True, text="", subtype=""), "it did not say why"),
    ],
)
def test_error_is_reported_in_the_agents_words(ended: TurnResult, error: str) -> None:
    assert fed(ended).error() == error


EVENTS = st.sampled_from(
    [DONE, WOKEN, STOPPED, AGENT, SHELL, NONE, IDLE, RUNNING, STARTED, PromptMoved("u", "cancelled")]
)


@given(st.lists(EVENTS, max_size=12))
def test_turn_that_is_over_has_a_result_or_never_ran(events: list[Event]) -> None:
    command = fed(*events)
    assert not command.over or command.dropped or command.results
    assert not (command.over and command.awaits_tasks)
