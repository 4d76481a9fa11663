"""What a transcript says of one turn, also where it says things that no one has heard of."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.claude.hooks import TASK_NOTICE
from remuda.agents.claude.print.print_messages import PartialText, to_messages
from remuda.agents.claude.print.print_transcript import TurnSummary, add_up
from remuda.agents.unattended import DENIED
from support import DATA

Json = dict[str, Any]
_numbers = itertools.count()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["type", "subtype", "message", "content", "usage", "id", "isMeta", "isSidechain", "toolUseResult"]
KEYS += ["attachment", "identity", "permissionDecision", "isApiErrorMessage", "sessionId", "uuid", "text"]
NAMES = ["assistant", "user", "system", "attachment", "turn_duration", "text", "tool_use", "tool_result"]
odd_values = json_values | st.sampled_from(NAMES)
odd_records = st.recursive(
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), odd_values, max_size=6),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner | st.lists(inner, max_size=2), max_size=5),
    max_leaves=8,
)


def assistant(*blocks: Json, number: str = "m1", usage: Json | None = None, **more: Any) -> Json:
    message: Json = {"id": number, "model": "opus", "content": list(blocks), "stop_reason": "end_turn"}
    message["usage"] = {"input_tokens": 10, "output_tokens": 2} if usage is None else usage
    return {"type": "assistant", "message": message, "uuid": f"u{next(_numbers)}", **more}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def result(number: str, content: object, *, failed: bool = False) -> Json:
    block = {"type": "tool_result", "tool_use_id": number, "content": content, "is_error": failed}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def summary_of(*records: Json) -> TurnSummary:
    summary = TurnSummary()
    for record in records:
        summary.take(record)
    return summary


def test_usage_is_counted_once_for_each_message_of_the_api() -> None:
    usage = {"input_tokens": 10, "output_tokens": 2, "server_tool_use": {"web_search_requests": 1}}
    records = [assistant(text("a"), usage=usage), assistant(text("b"), usage=usage)]
    summary = summary_of(*records, assistant(text("c"), number="m2", usage=usage))
    assert len(summary.usages) == 2
    assert summary.usage() == {
        "input_tokens": 20,
        "output_tokens": 4,
        "server_tool_use": {"web_search_requests": 2},
    }
    assert summary.usage_by_model() == {"opus": summary.usage()}


def test_recorded_transcript_of_the_real_cli_adds_up() -> None:
    """A turn with a tool, as 2.1.325 wrote it: three records of two messages, and helper lines of its own."""
    recorded = DATA / "transcript_2.1.325.jsonl"
    summary = summary_of(*map(json.loads, recorded.read_text().splitlines()))
    assert (summary.text, summary.stop_reason) == ("REPLY#4 to: tool_result hi-there", "end_turn")
    assert (summary.turns, len(summary.usages)) == (2, 2)
    assert (summary.version, summary.entrypoint) == ("2.1.325", "cli")
    assert summary.session_id == "3945688d-5a5b-472a-8419-571517cc83bf"
    usage = summary.usage()
    tokens = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert [usage[name] for name in tokens] == [24, 14, 6, 0]


def test_usage_of_two_models_is_kept_apart() -> None:
    one, other = assistant(text("a")), assistant(text("b"), number="m2")
    other["message"]["model"] = "haiku"
    assert {name: each["input_tokens"] for name, each in summary_of(one, other).usage_by_model().items()} == {
        "opus": 10,
        "haiku": 10,
    }


@pytest.mark.parametrize(
    ("blocks", "answer"),
    [
        ([text("one"), text("two")], "two"),
        ([text("one"), {"type": "thinking", "thinking": "hm"}], ""),
        ([{"type": "thinking", "thinking": "hm"}, text(" \n kept \n")], " \n kept \n"),
        ([{"type": "hologram", "text": "no"}], ""),
        ([], ""),
    ],
)
def test_the_answer_is_the_last_block_of_the_last_message(blocks: list[Json], answer: str) -> None:
    """Whether the blocks come in one record or, as the CLI writes them, in one each."""
    assert summary_of(assistant(*blocks)).text == answer
    assert summary_of(*(assistant(block) for block in blocks)).text == answer


def test_an_answer_has_come_when_its_text_is_there_whatever_the_blanks_around_it() -> None:
    summary = summary_of(assistant(text("\n  yes \n")))
    assert summary.has("yes")
    assert not summary.has("no")
    assert not summary.has("")
    summary.take({"type": "system", "subtype": "turn_duration"})
    assert summary.has("")
    assert not summary.has("no")


def test_an_answer_of_an_earlier_message_is_not_the_one_that_is_awaited() -> None:
    assert not summary_of(assistant(text("yes")), assistant(text("I go on"), number="m2")).has("yes")


def test_turns_are_what_the_model_was_given() -> None:
    prompt = {"type": "user", "message": {"role": "user", "content": "go"}}
    pushed = {"type": "user", "isMeta": True, "message": {"role": "user", "content": "go on"}}
    records = [prompt, assistant(text("a")), result("t1", "x"), result("t2", "y"), pushed]
    assert summary_of(*records).turns == 4


def test_denials_name_the_tool_that_was_refused() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "rm"}}
    summary = summary_of(
        assistant(use), result("t1", DENIED, failed=True), result("t2", [text(DENIED)], failed=True)
    )
    assert summary.permission_denials() == [
        {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "rm"}},
        {"tool_name": None, "tool_use_id": "t2", "tool_input": None},
    ]
    assert summary_of(assistant(use), result("t1", "no such file", failed=True)).permission_denials() == []


def test_an_api_error_counts_as_no_message_and_an_answer_after_it_counts() -> None:
    error = assistant(
        text("API Error"), number="e", isApiErrorMessage=True, apiErrorStatus=529, apiErrorType="overloaded"
    )
    summary = summary_of(error)
    assert (summary.is_api_error, summary.api_error_status, summary.text) == (True, 529, "API Error")
    assert not summary.usages
    summary.take(assistant(text("fine")))
    assert (summary.is_api_error, summary.text) == (False, "fine")


def test_what_subagents_say_is_not_the_answer() -> None:
    summary = summary_of(assistant(text("mine")), assistant(text("theirs"), number="s", isSidechain=True))
    assert (summary.text, len(summary.usages)) == ("mine", 1)


NOTICE = f"{TASK_NOTICE}\n<task-id>a1</task-id>\n</task-notification>"
ENQUEUED = {"type": "queue-operation", "operation": "enqueue", "content": NOTICE}
TURN_OVER = {"type": "system", "subtype": "turn_duration"}


def test_a_notice_that_waits_for_the_end_of_the_turn_wakes_the_agent_again() -> None:
    dequeued = {"type": "queue-operation", "operation": "dequeue"}
    told = {"type": "user", "message": {"role": "user", "content": NOTICE}}
    records = [ENQUEUED, assistant(text("early")), dequeued, TURN_OVER, told]
    for count in range(1, len(records) + 1):
        assert summary_of(*records[:count]).goes_on
    woken = summary_of(*records, assistant(text("late"), number="m2"))
    assert woken.goes_on
    woken.take(TURN_OVER)
    assert (woken.goes_on, woken.woken, woken.text) == (False, True, "late")


def test_a_turn_that_was_woken_and_failed_is_over() -> None:
    told = {"type": "user", "message": {"role": "user", "content": NOTICE}}
    failed = assistant(text("API Error"), number="m2", isApiErrorMessage=True)
    assert not summary_of(ENQUEUED, assistant(text("early")), TURN_OVER, told, failed).goes_on


@pytest.mark.parametrize(
    "taken",
    [
        {"type": "queue-operation", "operation": "remove", "content": NOTICE, "reason": "absorbed_mid_turn"},
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": NOTICE}},
    ],
)
def test_a_notice_that_the_agent_gets_in_its_turn_wakes_no_one(taken: Json) -> None:
    found = summary_of(ENQUEUED, taken, assistant(text("all")), TURN_OVER)
    assert (found.goes_on, found.woken) == (False, False)


def test_what_a_human_has_queued_is_no_notice() -> None:
    assert not summary_of({**ENQUEUED, "content": "and then"}, assistant(text("early"))).goes_on


def test_the_model_is_known_before_it_answers() -> None:
    told = {"type": "attachment", "attachment": {"type": "model", "identity": {"modelId": "opus-9"}}}
    assert summary_of(told).model == "opus-9"


@given(st.lists(odd_records, max_size=5))
def test_records_of_unknown_kind_change_nothing_that_is_known(records: list[Json]) -> None:
    known = [assistant(text("before")), assistant(text("answer"), number="m2")]
    summary = TurnSummary()
    for record in [*records, *known, *({**record, "type": "new-kind"} for record in records)]:
        summary.take(record)
        to_messages(record, summary.tool_uses)
    assert summary.text == "answer"
    assert {"m1", "m2"} <= set(summary.usages)
    summary.usage_by_model()
    summary.permission_denials()


@given(st.lists(st.dictionaries(st.sampled_from("abc"), json_values, max_size=3), max_size=4))
def test_usage_of_any_shape_adds_up(usages: list[Json]) -> None:
    total = add_up(usages)
    assert set(total) == {key for usage in usages for key in usage}
    numbers = [usage["a"] for usage in usages if type(usage.get("a")) is int]
    if numbers and len(numbers) == sum("a" in usage for usage in usages):
        assert total["a"] == sum(numbers)


@given(st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=6), st.data())
def test_parts_of_a_text_are_told_once_and_all_of_it_before_the_message(lines: list[str], data: Any) -> None:
    """Some of the lines are told late: after the message that has them."""
    early = data.draw(st.integers(0, len(lines)))
    partial = PartialText()
    told = [partial.shown(line) for line in lines[:early]]
    told.append(partial.message("".join(lines)))
    assert "".join(told) == "".join(lines)
    assert [partial.shown(line) for line in lines[early:]] == [""] * (len(lines) - early)
    assert partial.shown("next") == "next"
