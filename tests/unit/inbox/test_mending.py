"""An inbox whose own files are wrong: what was answered is not handed out again, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.inbox.stop_hook import UNCERTAIN

FAR = 3600.0


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = Inbox(folder)
        self.consumer = Consumer(folder, "a test")
        self.consumer.open()

    def answer(self, *texts: str) -> None:
        for text in texts:
            leased = self.consumer.lease("paste")
            assert leased is not None
            assert leased.text == text
            self.consumer.acknowledge(leased, "ok")

    def waiting(self) -> list[str]:
        return [entry.text for entry in self.inbox.waiting()]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def offset(self) -> int:
        return int((self.folder / ".inbox-offset").read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "inbox")
    yield made
    made.consumer.close()


# ── an old key ──


def test_dedup_key_of_days_ago_is_free_again_also_after_a_compaction(bench: Bench) -> None:
    old = bench.inbox.put("stand-up", dedup="stand-up", now=time.time() - 3 * 86400)
    bench.answer("stand-up")
    bench.inbox.compact()
    again = bench.inbox.put("stand-up", dedup="stand-up")
    assert not again.duplicate
    assert again.id != old.id
    assert bench.inbox.put("stand-up", dedup="stand-up") == (again.id, True)
    bench.answer("stand-up")


def test_dedup_key_of_days_ago_still_counts_while_its_message_waits(bench: Bench) -> None:
    old = bench.inbox.put("stand-up", dedup="stand-up", now=time.time() - 3 * 86400)
    (bench.folder / ".inbox-dedup.jsonl").unlink()
    assert bench.inbox.put("stand-up", dedup="stand-up") == (old.id, True)


# ── an offset that is no place in the inbox ──


def test_offset_beyond_the_inbox_is_restored_from_the_queue_file(bench: Bench) -> None:
    for text in ("one", "two", "three"):
        bench.inbox.put(text)
    bench.answer("one", "two")
    right = bench.offset()
    bench.write(".inbox-offset", "99999999")
    assert bench.waiting() == ["three"]
    bench.answer("three")
    assert any("beyond the inbox" in notice for notice in bench.consumer.notices)
    assert bench.offset() > right


def test_offset_beyond_the_inbox_is_mended_also_where_nothing_waits(bench: Bench) -> None:
    bench.inbox.put("one")
    bench.answer("one")
    right = bench.offset()
    bench.write(".inbox-offset", "99999999")
    assert bench.consumer.lease("paste") is None
    assert bench.offset() == right


def test_offset_beyond_an_inbox_that_was_replaced_begins_anew(bench: Bench) -> None:
    bench.inbox.put("one")
    bench.answer("one")
    bench.write("inbox.jsonl", "other\n" * 100)
    bench.write(".inbox-offset", "99999999")
    assert bench.waiting() == ["other"] * 100


# ── a queue file that cannot be read ──


@pytest.mark.parametrize("garbage", ["", '{"cur', "[]", '{"cursor": 0, "frontier": -5, "held": []}'])
def test_corrupt_queue_file_what_was_answered_after_a_delayed_one_is_not_handed_out_again(
    bench: Bench, garbage: str
) -> None:
    bench.inbox.put("late", delay=FAR)
    for text in ("one", "two"):
        bench.inbox.put(text)
    bench.answer("one", "two")
    bench.inbox.put("three")
    bench.write(".inbox-queue.json", garbage)
    assert bench.waiting() == ["late", "three"]
    bench.answer("three")
    assert any(".inbox-queue.json" in notice for notice in bench.consumer.notices)
    assert bench.consumer.lease("paste") is None
    bench.inbox.put("four")
    bench.answer("four")
    assert bench.waiting() == ["late"]


def test_corrupt_queue_file_keeps_the_delay_of_what_was_given_back(bench: Bench) -> None:
    bench.inbox.put("again")
    bench.inbox.put("one")
    leased = bench.consumer.lease("paste")
    assert leased is not None
    bench.consumer.give_back(leased, FAR, "limited", counts=False)
    bench.answer("one")
    bench.write(".inbox-queue.json", "{")
    assert bench.consumer.lease("paste") is None
    ahead = bench.consumer.ahead()
    assert ahead.next_due is not None
    assert 0 < ahead.next_due - time.time() <= FAR
    [entry] = bench.inbox.waiting()
    assert entry.text == "again"


def test_corrupt_queue_file_tries_that_did_not_count_are_not_held_against_a_message(bench: Bench) -> None:
    bench.inbox.put("limited", max_attempts=2)
    for _ in range(3):
        leased = bench.consumer.lease("paste")
        assert leased is not None
        bench.consumer.give_back(leased, 0.0, "limited", counts=False)
    bench.write(".inbox-queue.json", "{")
    leased = bench.consumer.lease("paste")
    assert leased is not None
    assert (leased.text, leased.attempt) == ("limited", 4)


def test_corrupt_queue_file_the_first_that_waits_is_handed_out_whatever_its_receipts_say(
    bench: Bench,
) -> None:
    """A plain line that was written again has the id of the one before."""
    bench.write("inbox.jsonl", "continue\n")
    bench.answer("continue")
    bench.write("inbox.jsonl", "go on\n")
    bench.answer("go on")
    bench.write("inbox.jsonl", "continue\n")
    assert bench.waiting() == ["continue"]
    bench.write(".inbox-queue.json", "{")
    bench.answer("continue")


# ── files that are missing ──

OFFSET, QUEUE = ".inbox-offset", ".inbox-queue.json"
LOST = pytest.mark.parametrize("lost", [[QUEUE], [OFFSET], [OFFSET, QUEUE]], ids=["queue", "offset", "both"])


def lose(bench: Bench, names: list[str]) -> None:
    for name in names:
        (bench.folder / name).unlink()


@LOST
def test_missing_file_what_was_answered_after_a_delayed_one_is_not_handed_out_again(
    bench: Bench, lost: list[str]
) -> None:
    bench.inbox.put("tonight", delay=FAR)
    for text in ("one", "two"):
        bench.inbox.put(text)
    bench.answer("one", "two")
    lose(bench, lost)
    assert bench.waiting() == ["tonight"]
    bench.inbox.put("three")
    bench.answer("three")
    assert bench.consumer.lease("paste") is None
    assert any("was missing" in notice for notice in bench.consumer.notices)


@LOST
def test_missing_file_what_was_answered_is_not_handed_out_again_and_the_rest_is(
    bench: Bench, lost: list[str]
) -> None:
    for text in ("one", "two", "three"):
        bench.inbox.put(text)
    bench.answer("one", "two")
    lose(bench, lost)
    bench.answer("three")
    assert bench.consumer.lease("paste") is None


def test_missing_files_of_an_inbox_without_receipts_mean_that_it_is_new(bench: Bench) -> None:
    bench.inbox.put("one")
    bench.answer("one")
    lose(bench, [OFFSET, QUEUE, "receipts.jsonl"])
    bench.answer("one")
    assert bench.consumer.notices == []


def test_missing_queue_file_of_a_foreign_inbox_is_not_a_loss(bench: Bench) -> None:
    bench.write("inbox.jsonl", "one\ntwo\n")
    bench.write(OFFSET, "4")
    bench.answer("two")
    assert bench.consumer.notices == []


def test_missing_files_a_message_whose_receipts_are_gone_is_a_dead_letter(bench: Bench) -> None:
    for text in ("long ago", "one", "two"):
        bench.inbox.put(text)
    bench.answer("long ago", "one")
    receipts = (bench.folder / "receipts.jsonl").read_text().splitlines(keepends=True)
    bench.write("receipts.jsonl", "".join(receipts[2:]))
    lose(bench, [OFFSET, QUEUE])
    bench.answer("two")
    assert [one["reason"] for one in bench.inbox.dead_letters()] == [UNCERTAIN]
