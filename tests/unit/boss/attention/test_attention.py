"""What events make of a session, and that their order and number do not matter."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.state import Source
from remuda.agents.state import State as AgentState
from remuda.boss.attention import projection as standings
from remuda.boss.attention.event_log import EventLog
from remuda.boss.attention.model import Activity, ApprovalState, Event, Reason
from remuda.boss.attention.session_index import SessionIndex
from support.boss import event, fed, only
from support.histories import histories, outcome

NOW = 1e9
BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "touch a"}}


def state(index: SessionIndex, session: str = "s") -> Activity:
    return index.entries[session].session.state


PROMPT = event("prompted", 10, prompt="go")
STOP = event("stopped", 20, message="done")


def test_stop_puts_the_session_into_the_queue_with_its_whole_last_message() -> None:
    item = only(fed(PROMPT, STOP))
    assert (item.reason, item.since, item.message) == (Reason.STOPPED, 20, "done")


def test_prompt_resolves_what_was_stopped() -> None:
    index = fed(PROMPT, STOP)
    changes = index.take(event("prompted", 30), NOW)
    assert index.queue() == []
    (resolved,) = changes.items.values()
    assert (resolved.resolved_at, resolved.resolution) == (30, "prompted")


def test_stop_again_is_a_new_wait_with_its_own_date() -> None:
    first = only(fed(PROMPT, STOP))
    again = only(fed(PROMPT, STOP, event("stopped", 40, message="more")))
    assert (again.since, again.message) == (40, "more")
    assert again.id != first.id


def test_the_same_stop_reported_by_two_is_one_item_of_the_first_date() -> None:
    record = event("stopped", 19.95, Source.TRANSCRIPT, message="done")
    idle = event("stopped", 20.06, Source.REGISTRY)
    for order in ([STOP, record, idle], [idle, record, STOP], [record, idle, STOP]):
        item = only(fed(PROMPT, *order))
        assert (item.since, item.message) == (19.95, "done")


def test_registry_idle_after_nothing_at_all_is_no_stop() -> None:
    index = fed(event("stopped", 5, Source.REGISTRY))
    assert index.queue() == []
    assert state(index) is Activity.STARTED


def test_transcript_of_a_session_that_no_one_saw_stop_puts_it_into_the_queue() -> None:
    assert only(fed(event("stopped", 5, Source.TRANSCRIPT, message="asked you something"))).since == 5


def test_session_start_is_not_in_the_queue_and_a_fresh_idle_registry_does_not_change_that() -> None:
    index = fed(event("registered", 5, how="startup"), event("stopped", 5.5, Source.REGISTRY))
    assert index.queue() == []
    assert state(index) is Activity.STARTED


def test_session_start_that_is_reported_after_its_own_first_prompt_changes_nothing() -> None:
    assert state(fed(PROMPT, event("registered", 10.3, how="startup"))) is Activity.WORKING


def test_stop_with_background_work_is_not_stopped_until_it_is_done() -> None:
    events = [PROMPT, event("stopped", 20, message="started it", background=[{"id": "a"}])]
    busy = event("working", 30, Source.REGISTRY)
    rest = [event("stopped", 20.1, Source.REGISTRY), busy, event("stopped", 31, Source.REGISTRY)]
    index = fed(*events, *rest, event("stopped", 80, Source.TITLE))
    assert (index.queue(), state(index)) == ([], Activity.BACKGROUND)
    index.take(event("working", 90, notice=True), NOW)
    assert (index.queue(), state(index)) == ([], Activity.WORKING)
    index.take(event("stopped", 95, message="all done"), NOW)
    assert only(index).message == "all done"


def test_stop_with_a_shell_that_may_run_forever_is_stopped() -> None:
    item = only(fed(PROMPT, event("stopped", 20, message="serving", shells=[{"id": "b"}])))
    assert item.detail["shells"] == [{"id": "b"}]


def test_task_notification_is_no_human_what_was_said_before_stays_unanswered() -> None:
    index = fed(PROMPT, STOP, event("working", 30, notice=True), event("stopped", 35, message="built"))
    assert only(index).detail["earlier"] == [{"at": 20, "message": "done"}]
    index.take(event("prompted", 40), NOW)
    index.take(event("stopped", 45, message="x"), NOW)
    assert "earlier" not in only(index).detail


def test_blocked_stop_goes_on_whichever_of_the_two_is_dated_first() -> None:
    for at in (19.99, 20.01):
        going_on = event("working", at, Source.TRANSCRIPT, continued=True)
        assert state(fed(PROMPT, STOP, going_on)) is Activity.WORKING


def test_lagging_evidence_of_work_does_not_wake_one_that_just_stopped() -> None:
    late = event("tool_ran", 20.2, **BASH, tool_use_id="t1")
    assert state(fed(PROMPT, STOP, late, event("working", 20.3, Source.REGISTRY))) is Activity.STOPPED
    assert state(fed(PROMPT, STOP, event("working", 21, Source.REGISTRY))) is Activity.WORKING


def test_api_error_and_rate_limit_have_reasons_of_their_own() -> None:
    failed = only(fed(PROMPT, event("failed", 20, message="API Error: 400", error="invalid_request")))
    assert (failed.reason, failed.message) == (Reason.API_ERROR, "API Error: 400")
    limited = only(fed(PROMPT, event("limited", 20, message="429", until=3600.0)))
    assert (limited.reason, limited.detail["until"]) == (Reason.LIMITED, 3600.0)


def test_interrupt_resolves_the_open_dialog_and_is_stopped() -> None:
    index = fed(PROMPT, event("asked", 15, **BASH), event("interrupted", 20, Source.TRANSCRIPT))
    item = only(index)
    assert (item.reason, item.detail) == (Reason.STOPPED, {"interrupted": True})
    (approval,) = index.entries["s"].approvals.values()
    assert (approval.state, approval.proof) == (ApprovalState.ENDED, {"end": "interrupted", "at": 20})


def test_hung_dead_and_ended() -> None:
    assert only(fed(PROMPT, event("hung", 500, Source.PROCESS))).reason is Reason.HUNG
    index = fed(PROMPT, event("gone", 50, Source.PROCESS))
    assert (only(index).reason, state(index)) == (Reason.DEAD, Activity.DEAD)
    for goodbye in (49, 51):
        index = fed(PROMPT, event("gone", 50, Source.PROCESS), event("ended", goodbye, why="other"))
        assert (index.queue(), state(index)) == ([], Activity.ENDED)


def test_the_end_of_a_process_that_is_not_its_last_is_no_death() -> None:
    index = fed(event("prompted", 10, pid=1), event("registered", 20, how="resume", pid=2))
    for end in (event("gone", 30, Source.PROCESS, pid=1), event("ended", 31, pid=1)):
        index.take(end, NOW)
        assert (state(index), index.entries["s"].session.pid) == (Activity.STARTED, 2)
    index.take(event("gone", 32, Source.PROCESS, pid=2), NOW)
    assert state(index) is Activity.DEAD


def test_one_that_ended_comes_back_when_it_is_resumed_and_not_by_a_late_hook() -> None:
    ended = [PROMPT, event("ended", 20, why="other")]
    assert state(fed(*ended, event("stopped", 20.4, message="x"))) is Activity.ENDED
    assert state(fed(*ended, event("registered", 21, how="resume"))) is Activity.STARTED
    assert state(fed(*ended, event("stopped", 60, message="x"))) is Activity.STOPPED


def test_end_of_a_run_that_a_program_started_is_nothing_for_a_human_its_permission_is() -> None:
    prompt = event("prompted", 10, entrypoint="sdk-cli")
    for end in (STOP, event("failed", 20, message="x"), event("limited", 20), event("gone", 20)):
        assert fed(prompt, end).queue() == []
    assert only(fed(prompt, event("asked", 15, **BASH))).reason is Reason.PERMISSION


# ── dialogs ──


QUESTION = {"reason": "question", "options": [{"question": "Which colour?"}], "message": "Which colour?"}


@pytest.mark.parametrize("late", [False, True])
def test_question_that_no_hook_reports_has_the_options_of_the_pending_call(late: bool) -> None:
    began = event(
        "tool_began", 14, Source.TRANSCRIPT, tool="AskUserQuestion", tool_use_id="t1", asks=QUESTION
    )
    waits = event("asked", 15, Source.REGISTRY, reason="question", waiting_for="input needed")
    item = only(fed(PROMPT, *((waits, began) if late else (began, waits))))
    assert (item.reason, item.message) == (Reason.QUESTION, "Which colour?")
    assert item.detail["options"] == QUESTION["options"]


def test_dialog_on_a_screen_is_over_when_the_screen_shows_none() -> None:
    shown = event("asked", 15, Source.SCREEN, reason="question", waiting_for="trust dialog")
    assert only(fed(event("registered", 10), shown)).detail["waiting_for"] == "trust dialog"
    assert fed(event("registered", 10), shown, event("stopped", 16, Source.SCREEN)).queue() == []


def test_permission_is_in_the_queue_whole_with_its_approval() -> None:
    big = {"command": "x" * 100_000}
    asked = event("asked", 15, tool="Bash", input=big, message="Bash: x", suggestions=[{"type": "setMode"}])
    index = fed(PROMPT, asked)
    item, (approval,) = only(index), index.entries["s"].approvals.values()
    assert (item.reason, item.detail["input"], item.detail["ask"]) == (Reason.PERMISSION, big, approval.id)
    assert (approval.input, approval.suggestions) == (big, ({"type": "setMode"},))


@pytest.mark.parametrize("reason", ["question", "plan"])
def test_question_and_plan_have_reasons_of_their_own(reason: str) -> None:
    asked = event("asked", 15, tool="AskUserQuestion", input={}, reason=reason, options=[1])
    assert (only(fed(asked)).reason, only(fed(asked)).detail["options"]) == (reason, [1])


def test_permission_answered_at_the_terminal_resolves_by_the_end_of_its_call() -> None:
    began = event("tool_began", 14.9, **BASH, tool_use_id="t1")
    asked = event("asked", 15, **BASH)
    edited = event("tool_ran", 30, tool="Bash", input={"command": "touch b"}, tool_use_id="t1", ok=True)
    for order in ([began, asked, edited], [edited, asked, began], [asked, edited, began]):
        index = fed(PROMPT, *order)
        assert (index.queue(), state(index)) == ([], Activity.WORKING)
        (approval,) = index.entries["s"].approvals.values()
        assert approval.proof == {"ran": True, "at": 30, "by": "hook", "tool_use_id": "t1"}


@pytest.mark.parametrize(
    ("told_of_it", "proof"),
    [
        ({"ok": True, "denied": False}, {"ran": True}),
        ({"ok": False, "denied": False}, {"ran": True, "failed": True}),
        ({"ok": False, "denied": True}, {"ran": False}),
        ({"ok": False}, {"ran": False}),  # as those say who know no more, and an older boss wrote down
    ],
)
def test_proof_distinguishes_what_failed_from_what_was_refused(
    told_of_it: dict[str, Any], proof: dict[str, Any]
) -> None:
    index = fed(PROMPT, event("asked", 15, **BASH), event("tool_ran", 30, **BASH, **told_of_it))
    (approval,) = index.entries["s"].approvals.values()
    assert approval.proof == {"at": 30, "by": "hook", **proof}


def test_edited_one_of_two_calls_that_were_alike_ends_the_dialog_about_them() -> None:
    began = [event("tool_began", 14, **BASH, tool_use_id=number) for number in ("t1", "t2")]
    edited = event("tool_ran", 30, tool="Bash", input={"command": "touch b"}, tool_use_id="t2", ok=True)
    assert fed(PROMPT, *began, event("asked", 15, **BASH), edited).queue() == []


def test_permission_requests_of_a_long_session_are_not_all_kept_in_memory() -> None:
    told_of = [
        one
        for number in range(200)
        for one in (
            event(
                "asked",
                20 + 3 * number,
                tool="Bash",
                input={"command": str(number)},
                tool_use_id=f"t{number}",
            ),
            event(
                "tool_ran",
                21 + 3 * number,
                tool="Bash",
                input={"command": str(number)},
                tool_use_id=f"t{number}",
            ),
        )
    ]
    known = fed(PROMPT, *told_of).entries["s"]
    assert len(known.approvals) < 100
    assert [one.input for one in known.approvals.values()][-1] == {"command": "199"}


def test_two_calls_that_are_alike_are_asked_for_one_by_one() -> None:
    """Each is told by a hook that does not say which; one that is told twice is one."""
    calls = [
        event("tool_began", 11, **BASH, tool_use_id="t1"),
        event("tool_began", 11.1, **BASH, tool_use_id="t2"),
    ]
    asked = [event("asked", at, **BASH) for at in (12, 12.5, 12.6)]
    index = fed(PROMPT, *calls, *asked)
    assert len(index.entries["s"].approvals) == 2
    assert len(fed(PROMPT, calls[0], *asked).entries["s"].approvals) == 1
    numbered = [event("asked", at, **BASH, tool_use_id=number) for at, number in ((12, "t1"), (12.5, "t2"))]
    assert [one.tool_use_id for one in fed(PROMPT, *calls, *numbered).entries["s"].approvals.values()] == [
        "t1",
        "t2",
    ]


def test_dialog_of_a_session_that_had_ended_before_is_withdrawn() -> None:
    index = fed(PROMPT, event("asked", 12, **BASH), event("ended", 11))
    (approval,) = index.entries["s"].approvals.values()
    assert (index.queue(), approval.state) == ([], ApprovalState.ENDED)


def test_the_end_of_another_call_leaves_the_dialog_open() -> None:
    index = fed(PROMPT, event("asked", 15, **BASH), event("tool_ran", 16, tool="Read", input={}, ok=True))
    assert only(index).reason is Reason.PERMISSION


def test_the_same_command_asked_for_again_later_is_another_approval() -> None:
    ran = event("tool_ran", 16, **BASH, tool_use_id="t1")
    index = fed(PROMPT, event("asked", 15, **BASH), ran, event("asked", 40, **BASH))
    assert only(index).since == 40
    assert len(index.entries["s"].approvals) == 2


def test_registry_that_shows_work_again_closes_the_dialog_and_waiting_opens_it_again() -> None:
    events = [PROMPT, event("asked", 15, **BASH), event("working", 30, Source.REGISTRY)]
    index = fed(*events)
    (approval,) = index.entries["s"].approvals.values()
    assert (index.queue(), approval.state) == ([], ApprovalState.ENDED)
    index.take(event("asked", 30.05, Source.REGISTRY, reason="permission"), NOW)
    (approval,) = index.entries["s"].approvals.values()
    assert (only(index).detail["tool"], approval.state) == ("Bash", ApprovalState.OPEN)


def test_dialog_that_only_the_registry_reports_is_in_the_queue_with_the_call_that_waits() -> None:
    began = event("tool_began", 14, **BASH, tool_use_id="t1")
    index = fed(PROMPT, began, event("asked", 15, Source.REGISTRY, reason="permission"))
    assert (only(index).detail["input"], index.entries["s"].approvals) == ({"command": "touch a"}, {})
    assert state(fed(PROMPT, event("asked", 15, Source.REGISTRY, reason="question"))) is Activity.WAITING


def test_dialog_reported_by_registry_then_hook_is_one_item_of_the_first_date() -> None:
    index = fed(
        PROMPT, event("asked", 15, Source.REGISTRY, reason="permission"), event("asked", 15.1, **BASH)
    )
    assert (only(index).since, only(index).detail["tool"]) == (15, "Bash")


def test_dialog_that_a_human_opens_in_a_stopped_session_leaves_it_stopped() -> None:
    index = fed(PROMPT, STOP, event("asked", 25, Source.REGISTRY, reason="question"))
    assert only(index).reason is Reason.STOPPED


def test_of_several_dialogs_the_first_is_shown_then_the_next() -> None:
    other: dict[str, Any] = {"tool": "Write", "input": {"file_path": "/b"}}
    index = fed(PROMPT, event("asked", 15, **BASH), event("asked", 18, **other))
    assert (only(index).detail["tool"], only(index).detail["more"]) == ("Bash", 1)
    index.take(event("tool_ran", 20, **BASH), NOW)
    assert (only(index).detail["tool"], only(index).since) == ("Write", 18)


def test_answered_dialog_is_out_of_the_queue_before_its_call_has_run() -> None:
    index = fed(PROMPT, event("asked", 15, **BASH))
    ask = only(index).detail["ask"]
    index.take(event("ask_ended", 17, ask=ask), NOW)
    assert index.queue() == []
    index.take(event("tool_ran", 18, **BASH), NOW)
    assert (index.entries["s"].approvals[ask].proof or {})["ran"] is True


def test_request_that_no_one_decided_elsewhere_is_one_of_its_terminal() -> None:
    """Its notification may be dated before or after that, and is no other dialog."""
    notice = event("asked", 15.9, Source.TITLE, reason="permission")
    index = fed(PROMPT, event("asked", 15, **BASH, keeper_ask="a1"), notice)
    ask = only(index).detail["ask"]
    index.take(event("ask_ended", 16, Source.PROCESS, **BASH, why="undecided"), NOW)
    index.take(event("asked", 16.1, Source.TITLE, reason="permission"), NOW)
    item = only(index)
    assert (item.reason, item.detail["tool"], item.detail["at_terminal"]) == (
        Reason.PERMISSION,
        "Bash",
        True,
    )
    assert index.entries["s"].approvals[ask].state is ApprovalState.ENDED
    index.take(event("tool_ran", 17, **BASH), NOW)
    assert index.queue() == []


@pytest.mark.parametrize(
    "closed",
    [
        event("working", 21, Source.REGISTRY),
        event("ask_ended", 21, Source.PROCESS, **BASH),
        event("stopped", 21, Source.REGISTRY),
        event("stopped", 21, Source.HOOK),
    ],
    ids=["allowed at the terminal", "allowed elsewhere", "interrupted", "stopped"],
)
def test_reminder_of_a_dialog_that_was_closed_a_moment_before_opens_nothing(closed: Event) -> None:
    reminder: dict[str, Any] = {"reason": "permission", "message": "needs permission", "reminder": True}
    index = fed(PROMPT, event("tool_began", 14, **BASH, tool_use_id="t1"), event("asked", 15, **BASH))
    index.take(event("asked", 20.9, Source.TITLE, **reminder), NOW)
    assert only(index).reason is Reason.PERMISSION
    index.take(closed, NOW)
    before = [item.reason for item in index.queue()]
    assert Reason.PERMISSION not in before
    index.take(event("asked", 21.2, Source.TITLE, **reminder), NOW)
    assert [item.reason for item in index.queue()] == before
    index.take(event("working", 22, notice=True), NOW)
    assert index.queue() == []
    index.take(event("asked", 29, Source.TITLE, **reminder), NOW)
    assert only(index).reason is Reason.PERMISSION, "a dialog that no hook reported"


def test_subagent_asks_while_the_session_waits_for_it_and_stays_in_the_background_after() -> None:
    stop = event("stopped", 20, message="m", background=[{"id": "a"}])
    index = fed(PROMPT, event("asked", 19, **BASH, subagent="a"), stop)
    assert only(index).reason is Reason.PERMISSION
    index.take(event("tool_ran", 30, **BASH, subagent="a"), NOW)
    assert state(index) is Activity.BACKGROUND


def test_dismissed_stays_away_until_it_waits_for_something_new() -> None:
    index = fed(PROMPT, STOP, event("dismissed", 25), event("stopped", 80, Source.TITLE))
    assert index.queue() == []
    index.take(event("stopped", 90, message="again"), NOW)
    assert only(index).since == 90


# ── which session is which ──


def test_clear_gives_pane_and_name_to_the_new_conversation() -> None:
    index = fed(
        event("stopped", 10, session="old", message="m", pane="%1", pid=7, name="work"),
        event("ended", 20, session="old", why="clear", pane="%1", pid=7, name="work"),
        event("registered", 20.1, session="new", how="clear", pane="%1", pid=7, name="work"),
    )
    assert index.queue() == []
    new = index.entries["new"].session
    assert (new.pane, new.name, new.replaced_by) == ("%1", "work", None)
    assert index.entries["old"].session.replaced_by == "new"


def test_bootstrap_entry_gives_way_to_the_real_session_of_its_pane() -> None:
    index = fed(event("stopped", 10, session="%5", message="[no message]", pane="%5"))
    index.take(event("stopped", 20, session="real", message="m", pane="%5", tmux="/tmp/tmux-0/default"), NOW)
    assert only(index).session_id == "real"


def test_bootstrap_of_a_pane_with_a_live_session_changes_nothing_and_of_a_free_one_does() -> None:
    prompt = event("prompted", 10, session="real", pane="%5")
    bootstrap = event("stopped", 20, session="%5", message="m", pane="%5")
    for order in ([prompt, bootstrap], [bootstrap, prompt]):
        index = fed(*order)
        assert (index.queue(), state(index, "real")) == ([], Activity.WORKING)
        index.take(event("ended", 30, session="real", pane="%5"), NOW)
        assert only(index).session_id == "%5"


def test_late_event_of_the_one_before_does_not_take_the_pane_back() -> None:
    stop = event("stopped", 10, session="old", message="m", pane="%1")
    prompt = event("prompted", 20, session="new", pane="%1")
    for order in ([stop, prompt], [prompt, stop]):
        index = fed(*order)
        assert (index.queue(), index.entries["old"].session.replaced_by) == ([], "new")


def test_agent_that_runs_another_in_its_own_pane_stays_in_the_queue() -> None:
    index = fed(
        event("asked", 10, session="outer", **BASH, pane="%1", pid=1),
        event("prompted", 12, session="inner", pane="%1", pid=2, entrypoint="sdk-cli"),
    )
    assert only(index).session_id == "outer"


def test_session_resumed_in_another_pane_moves_there() -> None:
    index = fed(
        event("stopped", 10, message="m", pane="%1"), event("registered", 20, how="resume", pane="%2")
    )
    index.take(event("stopped", 30, session="other", message="x", pane="%1"), NOW)
    assert index.entries["s"].session.pane == "%2"
    assert index.entries["s"].session.replaced_by is None


def test_clock_that_is_ahead_does_not_keep_the_present_out() -> None:
    index = SessionIndex()
    index.take(event("stopped", 5000, message="from the future"), 100)
    index.take(event("prompted", 101), 101)
    assert index.queue() == []


# ── any order, any number ──


@given(st.data())
def test_any_order_and_number_of_a_history_ends_in_the_same_queue(data: st.DataObject) -> None:
    history = data.draw(histories())
    order = data.draw(st.permutations(history))
    again = data.draw(st.lists(st.sampled_from(history), max_size=4))
    at_last = outcome(fed(*history))
    assert outcome(fed(*order, *again)) == at_last
    assert outcome(fed(*again, *reversed(order))) == at_last


@given(histories())
def test_standing_that_was_saved_and_loaded_is_the_same(history: list[Event]) -> None:
    event_log = EventLog()
    for one in history:
        event_log.take(one)
    assert (
        standings.load(json.loads(json.dumps(standings.save(event_log.projection)))) == event_log.projection
    )


def test_long_event_log_taken_at_once_ends_the_same() -> None:
    event_log, whole = EventLog(), EventLog()
    for number in range(5 * EventLog.KEPT):
        kind = ("prompted", "asked", "tool_ran", "stopped")[number % 4]
        one = event(kind, 10.0 + number * 3, **(BASH if kind in ("asked", "tool_ran") else {"message": "m"}))
        event_log.take(one)
        # Anyone who tells an event waits also for what is put away with it.
        assert len(event_log.trim()) <= EventLog.FOLDED
        whole.take(one)
    assert EventLog.KEPT <= len(event_log.events) < EventLog.KEPT + EventLog.FOLDED
    assert replace(event_log.projection, asks=()) == replace(whole.projection, asks=())
    assert not event_log.take(event("prompted", 11))


# ── the words of `remuda ls` ──


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([event("seen", 10)], None),
        ([event("registered", 10)], "idle"),
        ([PROMPT], "thinking"),
        ([PROMPT, event("tool_began", 12, tool_use_id="1", **BASH)], "tool_use"),
        ([PROMPT, STOP], "idle"),
        ([PROMPT, event("interrupted", 20)], "interrupted"),
        ([PROMPT, event("failed", 20, message="overloaded")], "error"),
        ([PROMPT, event("limited", 20, message="limit")], "limited"),
        ([PROMPT, event("asked", 20, tool_use_id="1", **BASH)], "waiting_permission"),
        ([PROMPT, event("asked", 20, reason="plan", tool="ExitPlanMode", input={})], "waiting_permission"),
        ([PROMPT, event("asked", 20, reason="question", tool="AskUserQuestion", input={})], "waiting_answer"),
        ([PROMPT, event("hung", 20)], "thinking"),
        ([PROMPT, event("ended", 20)], "dead"),
        ([PROMPT, event("gone", 20)], "dead"),
    ],
)
def test_agent_state_has_the_words_of_ls(events: list[Event], word: str | None) -> None:
    known = fed(*events).entries["s"]
    assert known.event_log.projection.agent_state == (word and AgentState(word))


def test_every_state_of_the_boss_has_a_word_of_ls() -> None:
    states = standings._AGENT_STATES
    assert set(states) == {*Activity} - {Activity.SEEN, Activity.WAITING}
