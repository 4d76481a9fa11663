"""A message that was not answered is due again, with a delay, for as many attempts as it has."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.inbox import stop_hook
from remuda.inbox.journal import Inbox as Journal
from remuda.inbox.stop_hook import Clock, Files, HookInbox, Lock, NotOurFile


class Consumer:
    """Takes, gives back and ends messages, each in a look of its own, with a clock that can be put on."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder)
        self.files = Files(str(folder / "inbox.jsonl"))
        self.ahead = 0.0

    def clock(self) -> Clock:
        now = stop_hook.read_clock()
        return Clock(now.wall + self.ahead, now.ticks + self.ahead, now.boot)

    @contextmanager
    def inbox(self) -> Iterator[HookInbox]:
        with Lock(self.files):
            inbox = HookInbox(self.files, "test", self.clock)
            try:
                inbox.open()
                yield inbox
            finally:
                inbox.close()

    def take(self) -> str | None:
        with self.inbox() as inbox:
            taken = inbox.next_entry()
            if taken is None:
                return None
            inbox.deliver(*taken)
            return taken[0].text

    def nack(self, delay: float, reason: str = "busy", **options: Any) -> str:
        with self.inbox() as inbox:
            flight = inbox.in_flight()
            assert flight is not None
            return inbox.nack(flight, delay, reason, **options)

    def ack(self) -> None:
        with self.inbox() as inbox:
            flight = inbox.in_flight()
            assert flight is not None
            inbox.acknowledge(flight)

    def receipts(self, stage: str) -> list[dict[str, Any]]:
        lines = Path(self.files.receipts).read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["stage"] == stage]

    def written(self) -> list[int]:
        return [one["attempt"] for one in self.receipts("written")]


@pytest.fixture
def one(tmp_path: Path) -> Consumer:
    return Consumer(tmp_path / "inbox")


def test_nack_is_due_after_its_delay_and_lets_later_ones_pass(one: Consumer) -> None:
    one.journal.put("first")
    one.journal.put("second")
    assert one.take() == "first"
    assert one.nack(30.0, "overloaded", prompt_id="p") == "nacked"
    (said,) = one.receipts("nacked")
    assert (said["attempt"], said["reason"], said["prompt_id"]) == (1, "overloaded", "p")
    assert 0 < said["due"] - time.time() <= 30
    assert not stop_hook.exists(one.files.in_flight)
    assert one.take() == "second"
    one.ack()
    assert one.take() is None
    one.ahead = 31.0
    assert one.take() == "first"
    one.ack()
    assert one.written() == [1, 1, 2]
    assert one.journal.overview().waiting == 0


def test_nack_without_delay_goes_first(one: Consumer) -> None:
    one.journal.put("first")
    one.journal.put("second")
    assert one.take() == "first"
    one.nack(0.0)
    assert one.take() == "first"


def test_nack_after_the_last_attempt_is_a_dead_letter_and_a_bounce(one: Consumer) -> None:
    message = one.journal.put("poison", max_attempts=2, sender="cron").id
    assert one.take() == "poison"
    assert one.nack(0.0, "first reason") == "nacked"
    assert one.take() == "poison"
    assert one.nack(0.0, "last reason") == "dead"
    assert one.take() is None
    assert [letter["reason"] for letter in one.journal.dead_letters()] == ["last reason"]
    (bounce,) = [json.loads(line) for line in Path(one.files.outbox).read_text().splitlines()]
    assert (bounce["id"], bounce["to"], bounce["bounced"]) == (message, "cron", "dead")
    (dead,) = one.receipts("dead")
    assert (dead["id"], dead["attempt"]) == (message, 2)


def test_nack_that_does_not_count_is_no_step_towards_death_and_still_says_which_attempt(
    one: Consumer,
) -> None:
    one.journal.put("limited", max_attempts=2)
    for _ in range(5):
        assert one.take() == "limited"
        assert one.nack(0.0, "rate limit", count_attempt=False) == "nacked"
    assert one.take() == "limited"
    assert one.nack(0.0, "its own fault") == "nacked"
    assert one.take() == "limited"
    assert one.nack(0.0, "its own fault") == "dead"
    assert one.written() == [1, 2, 3, 4, 5, 6, 7]


def test_nack_of_a_message_whose_inbox_was_replaced_is_kept_as_a_dead_letter(one: Consumer) -> None:
    one.journal.put("gone")
    assert one.take() == "gone"
    Path(one.files.inbox).write_text("other\n")
    assert one.nack(5.0, "busy") == "dead"
    assert [json.loads(letter["raw_line"])["prompt"] for letter in one.journal.dead_letters()] == ["gone"]
    assert one.take() == "other"


def test_recover_after_a_nack_that_was_cut_short_keeps_the_delay(one: Consumer) -> None:
    one.journal.put("first")
    assert one.take() == "first"
    marks = {Path(path): Path(path).read_bytes() for path in (one.files.in_flight, one.files.lease)}
    one.nack(30.0)
    for path, data in marks.items():  # killed before it had forgotten them
        path.write_bytes(data)
    assert stop_hook.recover(one.files, "retry", [])[0] == "ReQueued"
    assert one.take() is None
    one.ahead = 31.0
    assert one.take() == "first"


def test_dead_letter_is_written_once_also_when_a_crash_repeats_the_burial(one: Consumer) -> None:
    one.journal.put("poison", max_attempts=1)
    one.journal.put("next")
    assert one.take() == "poison"
    assert stop_hook.recover(one.files, "retry", [])[0] == "ReQueued"
    before = Path(one.files.queue).read_bytes(), Path(one.files.offset).read_bytes()
    assert one.take() == "next"
    assert len(list(one.journal.dead_letters())) == 1
    queue = json.loads(before[0])
    (letter,) = one.journal.dead_letters()
    queue["held"][0]["buried"] = letter["delivered_at"]  # as it is saved before the letter is written
    Path(one.files.queue).write_text(json.dumps(queue))
    Path(one.files.offset).write_bytes(before[1])
    assert one.take() == "next"
    assert len(list(one.journal.dead_letters())) == 1


def test_dead_letter_of_recover_is_written_once_also_when_it_is_repeated(one: Consumer) -> None:
    one.journal.put("doomed")
    assert one.take() == "doomed"
    files = [one.files.in_flight, one.files.lease]
    marks = {Path(path): Path(path).read_bytes() for path in files}
    assert stop_hook.recover(one.files, "deadletter", [])[0] == "DeadLettered"
    for path, data in marks.items():  # killed between the letter and the cursor
        path.write_bytes(data)
    Path(one.files.offset).unlink()
    Path(one.files.queue).unlink()
    assert stop_hook.recover(one.files, "retry", [])[0] == "StaleOrphanDeleted"
    assert one.take() is None
    assert len(list(one.journal.dead_letters())) == 1


def test_the_same_line_at_the_same_place_may_die_twice(one: Consumer) -> None:
    one.journal.folder.mkdir(mode=0o700)
    for day, text in ((1, "alpha\nmore\n"), (2, "alpha\n")):  # the second is shorter: another file
        Path(one.files.inbox).write_text(text)
        assert one.take() == "alpha"
        flight = json.loads(Path(one.files.in_flight).read_text())
        flight["delivered_at"] = f"2026-01-0{day}T00:00:00Z"
        Path(one.files.in_flight).write_text(json.dumps(flight))
        assert stop_hook.recover(one.files, "deadletter", [])[0] == "DeadLettered"
        if day == 1:
            assert one.take() == "more"
            one.ack()
    assert len(list(one.journal.dead_letters())) == 2


def test_a_delivery_that_cannot_be_written_down_is_no_attempt(one: Consumer) -> None:
    receipts = Path(one.files.receipts)
    one.journal.put("first", max_attempts=2)
    receipts.mkdir()
    for _ in range(3):
        with pytest.raises(NotOurFile, match=one.files.receipts):
            one.take()
        with one.inbox() as inbox:
            assert inbox.in_flight() is None
    receipts.rmdir()
    assert one.take() == "first"
    assert one.nack(0.0) == "nacked"
    assert one.take() == "first"
    assert one.written() == [1, 2]
