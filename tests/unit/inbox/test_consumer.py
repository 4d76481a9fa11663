"""One consumer of an inbox: what it is handed, and what is left of that when it ends or dies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import InboxBusy
from remuda.inbox import stop_hook
from remuda.inbox.consumer import Ahead, Consumer, Leased
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import read_receipts, trace

FAR = 3600.0


class Bench:
    """An inbox and its consumer; `again` is the next one, after this one died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = Inbox(folder)
        self.consumer = Consumer(folder, "a test")
        self.consumer.open()

    def again(self) -> Consumer:
        self.consumer.close()
        self.consumer = Consumer(self.folder, "the next test")
        self.consumer.open()
        return self.consumer

    def lease(self, **facts: Any) -> Leased:
        leased = self.consumer.lease("paste", **facts)
        assert leased is not None
        return leased

    def stages(self, message: str) -> list[str]:
        found = trace(self.folder, message)
        assert found is not None
        return [str(step["stage"]) for step in found.steps]

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def keep(self, *names: str) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in names}

    def put_back(self, files: dict[str, bytes]) -> None:
        """As a crash leaves it: what was to be removed is still there."""
        for name, data in files.items():
            (self.folder / name).write_bytes(data)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "inbox")
    yield made
    made.consumer.close()


MARKS = (".in-flight", ".inbox-lease.json")


# ── one at a time ──


def test_open_second_consumer_is_refused_until_the_first_is_closed(bench: Bench) -> None:
    other = Consumer(bench.folder, "another")
    with pytest.raises(InboxBusy, match="a test"):
        other.open()
    bench.consumer.close()
    other.open()
    other.close()


# ── looking ahead ──


def test_ahead_empty_or_missing_inbox_has_nothing(bench: Bench) -> None:
    assert bench.consumer.ahead() == Ahead(False)
    assert bench.consumer.peek() is None
    assert bench.consumer.lease("paste") is None


def test_ahead_message_is_ready_and_looking_changes_nothing(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    assert bench.consumer.ahead() == bench.consumer.ahead() == Ahead(True)
    peeked = bench.consumer.peek()
    assert peeked is not None
    assert (peeked.id, peeked.text) == (message, "hello")
    assert bench.stages(message) == ["accepted"]


def test_ahead_delayed_message_says_when_and_lets_later_ones_pass(bench: Bench) -> None:
    bench.inbox.put("later", delay=FAR)
    ahead = bench.consumer.ahead()
    assert not ahead.ready
    assert ahead.next_due is not None
    assert 0 < ahead.next_due - time.time() <= FAR
    bench.inbox.put("now")
    assert bench.consumer.ahead() == Ahead(True)
    assert bench.lease().text == "now"


def test_ahead_torn_line_is_looked_at_again_soon(bench: Bench) -> None:
    bench.folder.joinpath("inbox.jsonl").write_text("half a li")
    ahead = bench.consumer.ahead()
    assert not ahead.ready
    assert ahead.next_due is not None
    assert ahead.next_due - time.time() <= stop_hook.TORN_GRACE


# ── leasing ──


def test_lease_takes_messages_in_order_with_their_options(bench: Bench) -> None:
    first = bench.inbox.put("/clear", command=True).id
    bench.inbox.put("read @a", literal=True)
    with (bench.folder / "inbox.jsonl").open("a") as foreign:
        foreign.write('plain line\n"two\\nlines"\n{"some": "object"}\n')
    leased = bench.lease(session_id="s", transcript_path="/t")
    assert (leased.id, leased.attempt, leased.command, leased.literal) == (first, 1, True, False)
    assert bench.stages(first) == ["accepted", "written"]
    assert read_receipts(bench.folder, first)[0]["transport"] == "paste"
    texts = []
    for _ in range(4):
        bench.consumer.acknowledge(leased, "ok")
        leased = bench.lease()
        texts.append((leased.text, leased.command, leased.literal))
    assert texts == [
        ("read @a", False, True),
        ("plain line", False, False),
        ("two\nlines", False, False),
        ('{"some": "object"}', False, False),
    ]


def test_lease_expired_message_is_bounced_and_the_next_is_handed_out(bench: Bench) -> None:
    expired = bench.inbox.put("too late", ttl=0.001, sender="me").id
    bench.inbox.put("in time", ttl=FAR)
    time.sleep(0.01)
    assert bench.lease().text == "in time"
    assert bench.stages(expired) == ["accepted", "expired"]
    assert bench.lines("outbox.jsonl")[0]["bounced"] == "expired"


# ── the end ──


def test_acknowledge_answer_is_in_the_outbox_and_the_cursor_moved(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    leased = bench.lease()
    bench.consumer.note(leased, "submitted", prompt_id="p")
    bench.consumer.acknowledge(leased, "hi", session_id="s", usage={"output_tokens": 7})
    assert bench.stages(message) == ["accepted", "written", "submitted", "acked"]
    said = bench.lines("outbox.jsonl")
    assert [(one["id"], one["text"], one["session_id"]) for one in said] == [(message, "hi", "s")]
    assert said[0]["usage"] == {"output_tokens": 7}
    offset = (bench.folder / ".inbox-offset").read_text()
    assert int(offset) == (bench.folder / "inbox.jsonl").stat().st_size
    assert bench.again().orphan() is None


def test_give_back_message_is_due_after_its_delay_with_its_attempts(bench: Bench) -> None:
    message = bench.inbox.put("hello", max_attempts=2).id
    assert bench.consumer.give_back(bench.lease(), FAR, "limited", counts=False) == "nacked"
    assert not bench.consumer.ahead().ready
    make_due(bench)
    leased = bench.lease()
    assert (leased.id, leased.attempt) == (message, 2)
    assert bench.consumer.give_back(leased, 0, "again", counts=True) == "nacked"
    assert bench.consumer.give_back(bench.lease(), 0, "and again", counts=True) == "dead"
    assert bench.stages(message)[-1] == "dead"


def make_due(bench: Bench) -> None:
    path = bench.folder / ".inbox-queue.json"
    queue = json.loads(path.read_text())
    for one in queue["held"]:
        one["due"] = 1.0
    path.write_text(json.dumps(queue))


def test_put_back_costs_no_attempt(bench: Bench) -> None:
    bench.inbox.put("hello", max_attempts=1)
    for _ in range(5):
        bench.consumer.put_back(bench.lease())
    assert bench.lease().text == "hello"
    assert bench.lines(".dead-letter.jsonl") == []


def test_bury_is_a_dead_letter_and_bounces_to_the_sender(bench: Bench) -> None:
    message = bench.inbox.put("hello", sender="me").id
    bench.consumer.bury(bench.lease(), "refused")
    assert bench.stages(message) == ["accepted", "written", "dead"]
    assert [one["reason"] for one in bench.lines(".dead-letter.jsonl")] == ["refused"]
    bounced = [(one["to"], one["bounced"], one["reason"]) for one in bench.lines("outbox.jsonl")]
    assert bounced == [("me", "dead", "refused")]
    assert bench.consumer.lease("paste") is None


def test_drop_leaves_a_receipt_alone(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    bench.consumer.drop(bench.lease(), "its session died")
    assert bench.stages(message) == ["accepted", "written", "dropped"]
    assert bench.lines(".dead-letter.jsonl") == []


def test_end_of_a_message_whose_inbox_was_replaced_leaves_the_new_one(bench: Bench) -> None:
    bench.inbox.put("old")
    leased = bench.lease()
    (bench.folder / "inbox.jsonl").write_text("new\n")
    bench.consumer.acknowledge(leased, "ok")
    assert bench.lease().text == "new"


# ── after a death ──


def test_orphan_is_what_was_in_flight_and_what_was_known_of_it(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    leased = bench.lease(session_id="s")
    before = bench.again().orphan()
    assert before is not None
    assert (before.id, before.text, before.attempt) == (message, "hello", 1)
    assert (before.submitted, before.facts["session_id"]) == (False, "s")
    assert before.leased_at == pytest.approx(leased.leased_at, abs=1)
    bench.consumer.note(leased, "submitted", prompt_id="p", session_id="t", transcript_path="/t")
    after = bench.again().orphan()
    assert after is not None
    assert after.submitted
    assert (after.facts["session_id"], after.facts["transcript_path"]) == ("s", "/t")


def test_orphan_submitted_counts_for_its_own_attempt_only(bench: Bench) -> None:
    bench.inbox.put("hello")
    leased = bench.lease()
    bench.consumer.note(leased, "submitted", prompt_id="p")
    bench.consumer.give_back(leased, 0, "limited", counts=False)
    assert bench.lease().attempt == 2
    orphan = bench.again().orphan()
    assert orphan is not None
    assert not orphan.submitted


def test_orphan_submitted_of_the_same_line_in_an_inbox_before_does_not_count(bench: Bench) -> None:
    path = bench.folder / "inbox.jsonl"
    path.write_text("same line\n")
    leased = bench.lease()
    bench.consumer.note(leased, "submitted", prompt_id="p")
    bench.consumer.acknowledge(leased, "ok")
    path.write_text("")
    assert bench.consumer.lease("paste") is None
    path.write_text("same line\n")
    assert bench.lease().id == leased.id
    orphan = bench.again().orphan()
    assert orphan is not None
    assert not orphan.submitted


def test_orphan_acknowledged_with_its_marks_left_is_none(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    leased = bench.lease()
    marks = bench.keep(*MARKS)
    bench.consumer.acknowledge(leased, "hi")
    bench.put_back(marks)
    assert bench.again().orphan() is None
    assert bench.stages(message).count("acked") == 1
    assert not (bench.folder / ".in-flight").exists()


def test_orphan_acked_before_the_cursor_moved_is_none(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    bench.inbox.put("next")
    leased = bench.lease()
    marks = bench.keep(*MARKS)
    bench.consumer.acknowledge(leased, "hi")
    bench.put_back(marks)
    for name in (".inbox-offset", ".inbox-queue.json"):
        (bench.folder / name).unlink()
    assert bench.again().orphan() is None
    assert bench.lease().text == "next"
    assert bench.stages(message) == ["accepted", "written", "acked"]


def test_orphan_whose_answer_is_in_the_outbox_is_acknowledged(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    bench.inbox.put("next")
    leased = bench.lease()
    marks = bench.keep(*MARKS, "receipts.jsonl")
    bench.consumer.acknowledge(leased, "hi")
    bench.put_back(marks)
    for name in (".inbox-offset", ".inbox-queue.json"):
        (bench.folder / name).unlink()
    assert bench.again().orphan() is None
    assert bench.stages(message) == ["accepted", "written", "acked"]
    assert len(bench.lines("outbox.jsonl")) == 1
    assert bench.lease().text == "next"


def test_orphan_given_back_with_its_marks_left_keeps_its_delay(bench: Bench) -> None:
    message = bench.inbox.put("hello").id
    leased = bench.lease()
    marks = bench.keep(*MARKS)
    bench.consumer.give_back(leased, FAR, "limited", counts=False)
    bench.put_back(marks)
    assert bench.again().orphan() is None
    assert not bench.consumer.ahead().ready
    make_due(bench)
    assert bench.lease().attempt == 2
    assert bench.stages(message) == ["accepted", "written", "nacked", "written"]


def test_orphan_of_a_second_lease_is_not_taken_for_the_one_given_back(bench: Bench) -> None:
    bench.inbox.put("hello")
    bench.consumer.give_back(bench.lease(), 0, "again", counts=True)
    bench.lease()
    orphan = bench.again().orphan()
    assert orphan is not None
    assert orphan.attempt == 2


def test_orphan_buried_with_its_marks_left_is_one_letter(bench: Bench) -> None:
    bench.inbox.put("hello", sender="me")
    leased = bench.lease()
    marks = bench.keep(*MARKS)
    bench.consumer.bury(leased, "refused")
    bench.put_back(marks)
    for name in (".inbox-offset", ".inbox-queue.json"):
        (bench.folder / name).unlink()
    assert bench.again().orphan() is None
    assert len(bench.lines(".dead-letter.jsonl")) == 1
    assert bench.consumer.lease("paste") is None


def test_orphan_lease_without_flight_was_never_handed_out(bench: Bench) -> None:
    bench.inbox.put("hello")
    bench.lease()
    (bench.folder / ".in-flight").unlink()
    assert bench.again().orphan() is None
    assert (bench.lease().text, bench.lines(".dead-letter.jsonl")) == ("hello", [])


def test_tidy_gives_the_acknowledged_part_back_when_the_files_have_grown(tmp_path: Path) -> None:
    folder = tmp_path / "inbox"
    inbox = Inbox(folder)
    for number in range(3):
        inbox.put(f"{number} " + "x" * (4 << 20))
    consumer = Consumer(folder, "test")
    consumer.open()
    for _ in range(3):
        leased = consumer.lease("paste")
        assert leased is not None
        consumer.acknowledge(leased, "done")
    before = (folder / "inbox.jsonl").stat()
    consumer.tidy()
    after = (folder / "inbox.jsonl").stat()
    consumer.close()
    assert after.st_size == before.st_size
    assert after.st_blocks < before.st_blocks // 2


# ── taken back ──


def test_cancel_drops_one_that_waits_and_the_others_keep_their_order(bench: Bench) -> None:
    first, second, third = (bench.inbox.put(text).id for text in ("one", "two", "three"))
    assert bench.consumer.cancel(second, "no longer wanted") == "dropped"
    assert bench.stages(second) == ["accepted", "dropped"]
    assert read_receipts(bench.folder, second)[-1]["reason"] == "no longer wanted"
    assert bench.lease().id == first
    bench.consumer.acknowledge(Leased(first, "one", 1), "done")
    assert bench.lease().id == third


def test_cancel_does_not_touch_what_is_in_flight_or_unknown(bench: Bench) -> None:
    message = bench.inbox.put("one").id
    bench.lease()
    assert bench.consumer.cancel(message, "no longer wanted") == "in flight"
    assert bench.consumer.cancel("m-unknown", "no longer wanted") == "unknown"
    assert bench.stages(message) == ["accepted", "written"]


def test_wish_to_take_back_what_is_in_flight_outlives_its_consumer(bench: Bench) -> None:
    message = bench.inbox.put("one").id
    bench.consumer.note_unwanted(bench.lease())
    orphan = bench.again().orphan()
    assert orphan is not None
    assert (orphan.id, orphan.unwanted) == (message, True)
    bench.consumer.note_unwanted(Leased("m-another", "x", 1))
    bench.consumer.close()
    assert bench.inbox.recover("retry").outcome == "DeadLettered"
    assert bench.stages(message) == ["accepted", "written", "dead"]
    assert read_receipts(bench.folder, message)[-1]["reason"] == "taken back"


def test_take_back_is_left_to_the_consumer_while_there_is_one(bench: Bench) -> None:
    message = bench.inbox.put("one").id
    with pytest.raises(InboxBusy, match="a test"):
        bench.inbox.take_back(message)
    bench.consumer.close()
    assert [bench.inbox.take_back(one) for one in (message, message, "m-unknown")] == [
        "dropped",
        "unknown",
        "unknown",
    ]
    assert bench.stages(message) == ["accepted", "dropped"]


# ── gone with its owner ──


def test_inbox_that_is_not_durable_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    monkeypatch.setattr("posix.fsync", synced.append)
    for durable in (False, True):
        folder = tmp_path / str(durable)
        consumer = Consumer(folder, "a test", durable=durable)
        consumer.open()
        with Inbox(folder, durable=durable) as inbox:
            inbox.put("one")
        leased = consumer.lease("paste")
        assert leased is not None
        consumer.acknowledge(leased, "done")
        consumer.close()
        assert bool(synced) is durable
