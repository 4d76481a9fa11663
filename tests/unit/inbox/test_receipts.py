"""A message's chain: read at any time, and followed to its end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

import pytest

from remuda.errors import MessageNotFound, WaitTimeout
from remuda.inbox.compaction import compact
from remuda.inbox.consumer import Consumer, Leased
from remuda.inbox.journal import Inbox
from remuda.inbox.message import PutOptions
from remuda.inbox.receipts import Trace, find, follow, trace

PATIENCE = 30.0


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = Inbox(folder)
        self.consumer = Consumer(folder, "a test")

    def put(self, prompt: str = "hello", **options: Unpack[PutOptions]) -> str:
        return self.inbox.put(prompt, **options).id

    def lease(self) -> Leased:
        leased = self.consumer.lease("paste")
        assert leased is not None
        return leased

    def answered(self, text: str = "hi") -> None:
        leased = self.lease()
        for stage in ("submitted", "recorded", "ended"):
            self.consumer.note(leased, stage)
        self.consumer.acknowledge(leased, text)

    def trace(self, message: str) -> Trace:
        found = trace(self.folder, message)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "inbox")


def stages(found: Trace) -> list[str]:
    return [str(one["stage"]) for one in found.steps]


CHAIN = ["accepted", "written", "submitted", "recorded", "ended", "acked"]


# ── the chain ──


def test_trace_waiting_message_is_accepted(bench: Bench) -> None:
    found = bench.trace(bench.put())
    assert stages(found) == ["accepted"]
    assert (found.stage, found.ended, found.answer) == ("accepted", False, None)
    assert found.steps[0]["at"] > 0


def test_trace_answered_message_is_whole_with_its_answer(bench: Bench) -> None:
    message = bench.put()
    other = bench.put("other")
    bench.answered("hi")
    found = bench.trace(message)
    assert stages(found) == CHAIN
    assert found.ended
    assert found.answer is not None
    assert found.answer["text"] == "hi"
    assert stages(bench.trace(other)) == ["accepted"]
    document = found.document()
    assert (document["id"], document["stage"], document["ended"]) == (message, "acked", True)
    json.dumps(document)


def test_trace_line_of_a_foreign_writer_begins_with_accepted_before_and_after(bench: Bench) -> None:
    bench.put()
    (bench.folder / "inbox.jsonl").write_text("a plain line\n")
    [entry] = bench.inbox.waiting()
    assert entry.id.startswith("line-")
    assert stages(bench.trace(entry.id)) == ["accepted"]
    bench.answered()
    assert stages(bench.trace(entry.id)) == CHAIN


def replace_inbox(bench: Bench, line: str) -> str:
    """As `echo LINE > inbox.jsonl` does; the id of the line."""
    (bench.folder / "inbox.jsonl").write_text(f"{line}\n")
    [entry] = bench.inbox.waiting()
    return entry.id


def test_trace_plain_line_that_comes_again_has_receipts_and_an_answer_of_its_own(bench: Bench) -> None:
    bench.folder.mkdir()
    line = replace_inbox(bench, "continue")
    bench.answered("first")
    replace_inbox(bench, "go on")
    bench.answered("between")
    assert replace_inbox(bench, "continue") == line
    found = bench.trace(line)
    assert (stages(found), found.ended, found.answer) == (["accepted"], False, None)
    leased = bench.lease()
    bench.consumer.note(leased, "submitted")
    found = bench.trace(line)
    assert (stages(found), found.answer) == (["accepted", "written", "submitted"], None)
    bench.consumer.acknowledge(leased, "second")
    found = bench.trace(line)
    assert stages(found) == ["accepted", "written", "submitted", "acked"]
    assert found.answer is not None
    assert found.answer["text"] == "second"


@pytest.mark.parametrize("aged", [False, True])
def test_follow_plain_line_that_comes_again_goes_on_to_its_own_end(bench: Bench, aged: bool) -> None:
    bench.folder.mkdir()
    line = replace_inbox(bench, "continue")
    bench.answered("first")
    replace_inbox(bench, "go on")
    bench.answered("between")
    replace_inbox(bench, "continue")
    following = follow(bench.folder, line, PATIENCE)
    assert stages(next(following)) == ["accepted"]
    if aged:
        assert compact(str(bench.folder), now=9e9, small=0).receipts > 0  # of the one before
    leased = bench.lease()
    assert stages(next(following)) == ["accepted", "written"]
    compact(str(bench.folder), now=9e9, small=0)
    bench.consumer.acknowledge(leased, "second")
    *_, last = following
    assert stages(last) == ["accepted", "written", "acked"]
    assert last.answer is not None
    assert last.answer["text"] == "second"


def test_trace_message_whose_line_is_gone_begins_with_accepted(bench: Bench) -> None:
    message = bench.put()
    bench.answered()
    (bench.folder / "inbox.jsonl").write_text("")
    assert stages(bench.trace(message)) == CHAIN


def test_trace_dead_message_has_its_reason_and_a_bounce_is_no_answer(bench: Bench) -> None:
    message = bench.put(sender="me")
    bench.consumer.bury(bench.lease(), "refused")
    found = bench.trace(message)
    assert (found.stage, found.reason, found.answer) == ("dead", "refused", None)


@pytest.mark.parametrize("message", ["m0-none", "line-0-0123456789ab"])
def test_trace_unknown_message_is_none(bench: Bench, message: str) -> None:
    assert trace(bench.folder, message) is None
    bench.put()
    assert trace(bench.folder, message) is None


def test_trace_torn_and_foreign_lines_are_passed_over(bench: Bench) -> None:
    message = bench.put()
    bench.lease()
    with (bench.folder / "receipts.jsonl").open("ab") as receipts:
        receipts.write(f'["{message}"]\n\xff{message}\n{{"id": "{message}", "sta'.encode("latin-1"))
    assert stages(bench.trace(message)) == ["accepted", "written"]


def test_trace_id_that_only_occurs_in_a_prompt_is_not_it(bench: Bench) -> None:
    message = bench.put()
    quoting = bench.put(f'about {{"id": "{message}"}}')
    bench.answered()
    assert stages(bench.trace(message)) == CHAIN
    assert stages(bench.trace(quoting)) == ["accepted"]


def test_trace_of_a_part_given_back_to_the_disk(bench: Bench) -> None:
    for _ in range(40):
        bench.put("x" * 10_000)
        bench.answered()
    message = bench.put("the last")
    compact(str(bench.folder))
    assert stages(bench.trace(message)) == ["accepted"]


def test_find_looks_into_every_inbox(bench: Bench, tmp_path: Path) -> None:
    message = bench.put()
    folders = [tmp_path / "none", tmp_path / "other", bench.folder]
    Inbox(folders[1]).put("else")
    assert find(message, folders).folder == bench.folder
    for unknown in ("m0-none", "line-0-0123456789ab"):
        with pytest.raises(MessageNotFound):
            find(unknown, folders)


# ── following ──


def test_follow_ended_message_is_reported_at_once_and_once(bench: Bench) -> None:
    message = bench.put()
    bench.answered()
    assert [stages(found) for found in follow(bench.folder, message, 0)] == [CHAIN]


def test_follow_unknown_message_is_an_error(bench: Bench) -> None:
    bench.put()
    with pytest.raises(MessageNotFound):
        next(follow(bench.folder, "m0-none", 0))


def test_follow_message_that_does_not_end_times_out_with_its_stage(bench: Bench) -> None:
    message = bench.put()
    bench.lease()
    following = follow(bench.folder, message, 0.05)
    assert stages(next(following)) == ["accepted", "written"]
    with pytest.raises(WaitTimeout, match="has not ended within 50ms; its last step is `written`"):
        next(following)


def test_follow_every_step_is_reported_as_it_comes(bench: Bench) -> None:
    message = bench.put()
    following = follow(bench.folder, message, PATIENCE)
    assert next(following).stage == "accepted"
    leased = bench.lease()
    assert next(following).stage == "written"
    bench.consumer.note(leased, "submitted")
    assert next(following).stage == "submitted"
    bench.consumer.give_back(leased, 0, "limited", counts=False)
    assert next(following).stage == "nacked"
    bench.answered()
    last = next(following)
    assert (last.stage, last.steps[-1]["attempt"]) == ("acked", 2)
    with pytest.raises(StopIteration):
        next(following)


class Waiter(threading.Thread):
    """Follows in a thread of its own; `begun` when it has seen the first step."""

    def __init__(self, following: Iterator[Trace]) -> None:
        super().__init__(daemon=True)
        self._following = following
        self.begun = threading.Event()
        self.last: Trace | None = None

    def run(self) -> None:
        for found in self._following:
            self.last = found
            self.begun.set()

    def result(self) -> Trace:
        self.join(PATIENCE)
        assert not self.is_alive()
        assert self.last is not None
        return self.last


def test_follow_waiter_is_woken_by_the_end(bench: Bench) -> None:
    message = bench.put()
    waiter = Waiter(follow(bench.folder, message, PATIENCE))
    waiter.start()
    assert waiter.begun.wait(PATIENCE)
    bench.answered()
    assert stages(waiter.result()) == CHAIN


def test_follow_receipts_replaced_under_a_waiter_are_read_anew(bench: Bench) -> None:
    """Compaction writes another file in place of the receipts, perhaps with fewer lines."""
    message = bench.put()
    leased = bench.lease()
    for stage in ("submitted", "recorded", "ended"):
        bench.consumer.note(leased, stage)
    waiter = Waiter(follow(bench.folder, message, PATIENCE))
    waiter.start()
    assert waiter.begun.wait(PATIENCE)
    receipts = bench.folder / "receipts.jsonl"
    shorter = bench.folder / "shorter"
    shorter.write_text(json.dumps({"id": message, "stage": "acked", "attempt": 1}) + "\n")
    shorter.rename(receipts)
    assert stages(waiter.result()) == ["accepted", "acked"]


def test_follow_compaction_under_a_waiter_loses_nothing_of_an_open_message(bench: Bench) -> None:
    for _ in range(3):
        bench.put()
        bench.answered()
    message = bench.put()
    leased = bench.lease()
    waiter = Waiter(follow(bench.folder, message, PATIENCE))
    waiter.start()
    assert waiter.begun.wait(PATIENCE)
    given = compact(str(bench.folder), now=9e9, small=0)
    assert given.receipts > 0
    bench.consumer.acknowledge(leased, "hi")
    assert stages(waiter.result()) == ["accepted", "written", "acked"]
