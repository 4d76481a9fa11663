"""Messages that a consumer is handed without the inbox file: receipts and ends as for those in the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import InputError, InvalidOptions
from remuda.inbox.consumer import Consumer, Leased
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import trace
from remuda.inbox.submitted import SubmittedMessages

End = Callable[[Consumer, Leased], object]
ENDS: dict[str, End] = {
    "acked": lambda consumer, leased: consumer.acknowledge(leased, "hi", session_id="c1"),
    "dead": lambda consumer, leased: consumer.bury(leased, "it failed"),
    "dropped": lambda consumer, leased: consumer.drop(leased, "not wanted"),
}


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[SubmittedMessages]:
    folder = tmp_path / "inbox"
    folder.mkdir()
    made = SubmittedMessages(folder, "a test")
    made.open()
    yield made
    made.close()


def put(consumer: SubmittedMessages, text: str, message_id: str, *, as_file: bool) -> None:
    if as_file:
        Inbox(consumer.folder, durable=False).put(text, message_id=message_id)
    else:
        consumer.submit(text, message_id)


def lease(consumer: Consumer, **facts: Any) -> Leased:
    leased = consumer.lease("paste", **facts)
    assert leased is not None
    return leased


def steps(folder: Path, message_id: str) -> list[dict[str, Any]]:
    found = trace(folder, message_id)
    assert found is not None
    return list(found.steps)


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("end", ENDS)
def test_submitted_message_leaves_what_one_in_the_file_leaves(consumer: SubmittedMessages, end: str) -> None:
    left = []
    for as_file in (True, False):
        message_id = f"m-{as_file}"
        put(consumer, "hello", message_id, as_file=as_file)
        leased = lease(consumer, session_id="c1")
        assert (leased.id, leased.text, leased.attempt, leased.facts) == (
            message_id,
            "hello",
            1,
            {"session_id": "c1"},
        )
        consumer.note(leased, "submitted", prompt_id="p")
        ENDS[end](consumer, leased)
        receipt = [
            {key: value for key, value in step.items() if key not in ("id", "at", "lease")}
            for step in steps(consumer.folder, message_id)
        ]
        answers = [one["text"] for one in lines(consumer.folder, "outbox.jsonl") if one["id"] == message_id]
        letters = [
            one for one in lines(consumer.folder, ".dead-letter.jsonl") if message_id in one["raw_line"]
        ]
        left.append((receipt, answers, [(sorted(one), one["reason"]) for one in letters]))
        assert consumer.lease("paste") is None
        assert all(step["at"] for step in steps(consumer.folder, message_id))
    assert left[0] == left[1]
    assert left[0][0][-1]["stage"] == end


def test_submitted_messages_go_in_order_and_before_those_in_the_file(consumer: SubmittedMessages) -> None:
    put(consumer, "in the file", "m-0", as_file=True)
    consumer.submit("first", "m-1")
    consumer.submit("/clear", "m-2", command=True)
    assert consumer.ahead().ready
    order = []
    for _ in range(3):
        leased = lease(consumer)
        order.append((leased.id, leased.command))
        consumer.acknowledge(leased, "")
    assert order == [("m-1", False), ("m-2", True), ("m-0", False)]
    assert not consumer.ahead().ready


def test_put_back_message_is_the_next_one_again(consumer: SubmittedMessages) -> None:
    consumer.submit("first", "m-1")
    consumer.submit("second", "m-2")
    consumer.put_back(lease(consumer))
    again = lease(consumer)
    assert (again.id, again.attempt) == ("m-1", 2)
    stages = [step["stage"] for step in steps(consumer.folder, "m-1")]
    assert stages == ["accepted", "written", "nacked", "written"]


def test_cancel_drops_what_waits_and_leaves_what_is_in_flight(consumer: SubmittedMessages) -> None:
    consumer.submit("first", "m-1")
    consumer.submit("second", "m-2")
    put(consumer, "in the file", "m-0", as_file=True)
    assert lease(consumer).id == "m-1"
    assert consumer.cancel("m-1", "no") == "in flight"
    assert consumer.cancel("m-2", "no") == "dropped"
    assert consumer.cancel("m-2", "no") == "unknown"
    assert consumer.cancel("m-0", "no") == "dropped"
    assert [step["stage"] for step in steps(consumer.folder, "m-2")] == ["accepted", "dropped"]


def test_orphan_is_the_submitted_message_in_flight(consumer: SubmittedMessages) -> None:
    assert consumer.orphan() is None
    consumer.submit("first", "m-1")
    leased = lease(consumer)
    assert consumer.orphan() == leased
    consumer.bury(leased, "its session died")
    assert consumer.orphan() is None


@pytest.mark.parametrize("prompt", ["", " \n", "a\0b", "\ud800"])
def test_submit_refuses_what_put_refuses(consumer: SubmittedMessages, prompt: str) -> None:
    with pytest.raises(InputError):
        consumer.submit(prompt, "m-1")
    assert consumer.lease("paste") is None


def test_submit_with_an_id_that_is_none_is_refused(consumer: SubmittedMessages) -> None:
    with pytest.raises(InvalidOptions):
        consumer.submit("hello", "\x1b[2J")
