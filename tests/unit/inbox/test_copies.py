"""Each message is delivered once, whatever is copied, edited or lost."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from remuda.inbox import stop_hook
from remuda.inbox.consumer import Consumer
from remuda.inbox.stop_hook import InboxKey
from support.inbox_box import DAY, OLD, OLD_ID, Box

# ── once ──


def _at_once(box: Box) -> None:
    pass


def _receipts_gone(box: Box) -> None:
    box.forget_receipts()
    assert box.receipts() == []


def _queue_gone(box: Box) -> None:
    (box.folder / ".inbox-queue.json").unlink()


def _emptied(box: Box) -> None:
    box.inbox.write_text("")
    box.journal.put("after")
    assert box.drain() == ["after"]


def _emptied_long_ago(box: Box) -> None:
    _emptied(box)
    box.forget_receipts()


@pytest.mark.parametrize("meanwhile", [_at_once, _receipts_gone, _queue_gone, _emptied, _emptied_long_ago])
def test_copy_of_an_acknowledged_line_is_not_delivered_again(
    box: Box, meanwhile: Callable[[Box], None]
) -> None:
    box.journal.put("/clear", command=True)
    box.write("a plain line\n")
    (line, _) = box.lines()
    assert box.drain() == ["/clear", "a plain line"]
    meanwhile(box)
    box.write(line)
    box.journal.put("next")
    assert box.drain() == ["next"]
    assert box.journal.waiting() == []


def test_copy_of_a_waiting_line_is_not_delivered(box: Box) -> None:
    box.journal.put("later", delay=3600)
    box.write(box.lines()[0])
    box.journal.put("next")
    assert box.drain() == ["next"]
    assert len(box.journal.waiting()) == 1
    assert any("a copy of message" in one for one in box.notices)


def test_copy_before_the_original_is_acknowledged_is_delivered_once(box: Box) -> None:
    box.journal.put("once")
    box.write(box.lines()[0] * 3)
    assert box.drain() == ["once"]


def test_copy_among_those_that_are_looked_at_for_their_priority_is_not_delivered(box: Box) -> None:
    box.journal.allow_priority()
    box.journal.put("low", priority=1)
    box.write(box.lines()[0])
    box.journal.put("high", priority=2)
    assert box.drain() == ["high", "low"]


def test_line_of_a_foreign_writer_between_the_look_and_the_write_costs_no_message(box: Box) -> None:
    """Its place is where the file ended before that line."""
    box.journal.put("first")
    size = box.inbox.stat().st_size
    box.write("quicker\n")
    secret = InboxKey(box.files.key).secret
    box.write(stop_hook.marked_line(secret, b'{"remuda": 1, "id": "a", "prompt": "ours"}', size).decode())
    box.journal.put("last")
    assert box.drain() == ["first", "quicker", "ours", "last"]


def test_waiting_lines_that_an_editor_saves_in_another_order_are_all_delivered(box: Box) -> None:
    for text in ("done", "one", "two", "three"):
        box.journal.put(text, max_attempts=5)
    assert box.tick() == "done"
    done, one, two, three = box.lines()
    box.inbox.write_text(done + three + two + one)
    assert box.drain() == ["three", "two", "one"]
    assert {one.get("options_ignored") for one in box.receipts()} == {None}


def test_editor_that_takes_out_what_was_done_repeats_no_message(box: Box) -> None:
    for text in ("one", "two", "three"):
        box.journal.put(text)
    assert [box.tick(), box.tick()] == ["one", "two"]
    box.tick()
    _, two, three = box.lines()
    box.journal.put("four")
    box.inbox.write_text(two + three + box.lines()[3])
    assert box.drain() == ["four"]


def test_old_line_of_a_replaced_inbox_is_a_dead_letter_when_its_receipts_are_gone(box: Box) -> None:
    box.journal.put("one")
    box.journal.put("two")
    assert box.drain() == ["one", "two"]
    box.forget_receipts()
    box.inbox.write_text("edited\n" + box.lines()[1])
    assert box.drain() == ["edited"]
    assert box.dead() == [stop_hook.UNCERTAIN]


def test_offset_that_its_owner_sets_back_is_read_from_again(box: Box) -> None:
    box.journal.put("one")
    assert box.drain() == ["one"]
    (box.folder / ".inbox-offset").write_text("0")
    assert box.drain() == ["one"]


# ── what was acknowledged behind a delayed message ──


def _five_behind_a_delayed_one(box: Box) -> None:
    box.journal.put("later", delay=30 * DAY)
    for number in range(5):
        box.journal.put(str(number))
    box.write("plain\n")
    assert box.drain() == [*"01234", "plain"]


@pytest.mark.parametrize("damage", ["{", '{"cursor": 0, "frontier": 9, "held": [inf', ""])
def test_lost_queue_file_after_eight_days_repeats_nothing(box: Box, damage: str) -> None:
    _five_behind_a_delayed_one(box)
    box.forget_receipts()
    (box.folder / ".inbox-queue.json").write_text(damage)
    assert box.drain() == []
    assert [entry.text for entry in box.journal.waiting()] == ["later"]


def test_queue_file_with_a_delay_without_end_of_the_version_before_is_read(box: Box) -> None:
    _five_behind_a_delayed_one(box)
    path = box.folder / ".inbox-queue.json"
    queue = json.loads(path.read_text())
    due = f'"due": {queue["held"][0]["due"]!r}'
    assert due in path.read_text()
    path.write_text(path.read_text().replace(due, '"due": inf'))
    (box.folder / "receipts.jsonl").unlink()  # that version had forgotten them
    assert box.drain() == ["later"]


def test_lost_queue_file_a_message_that_was_given_back_and_copied_is_delivered_once(box: Box) -> None:
    box.journal.put("first", delay=30 * DAY)
    box.journal.put("again")
    consumer = Consumer(box.folder, "a test")
    consumer.open()
    leased = consumer.lease("test")
    assert leased is not None
    consumer.give_back(leased, 0.0, "busy", counts=False)
    consumer.close()
    box.write(box.lines()[1])
    (box.folder / ".inbox-queue.json").write_text("{")
    assert box.drain() == ["again"]


def test_inbox_edited_after_the_cursor_repeats_nothing(box: Box) -> None:
    _five_behind_a_delayed_one(box)
    box.inbox.write_text("".join(box.lines()[:-1]) + "other\n")
    assert box.drain() == ["other"]


# ── envelopes of the version before, and a key that is lost ──


def _acked_by_the_version_before(box: Box) -> None:
    """Three envelopes, the receipts of all, and the files as that version left them; then a new message."""
    names = [f"m1a1e500a39e-086fc294c{number}" for number in "abc"]
    lines = [OLD.replace(OLD_ID, name).replace("/clear", f"old {name[-1]}") for name in names]
    box.write("".join(lines))
    size = box.inbox.stat().st_size
    mark = stop_hook.digest(box.inbox.read_bytes()[-stop_hook.FINGERPRINT :])
    queue = {"cursor": size, "frontier": size, "held": [], "mark": mark, "mark_at": size}
    (box.folder / ".inbox-offset").write_text(str(size))
    (box.folder / ".inbox-queue.json").write_text(json.dumps(queue))
    receipts = [{"id": name, "stage": "acked", "at": 1764000001.0, "attempt": 1} for name in names]
    (box.folder / "receipts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in receipts))


@pytest.mark.parametrize("put_first", [True, False])
def test_editor_saves_an_inbox_of_the_version_before_and_nothing_is_repeated(
    box: Box, put_first: bool
) -> None:
    _acked_by_the_version_before(box)
    if put_first:
        box.journal.put("new")
    box.inbox.write_text("".join(box.lines()[1:]))
    if not put_first:
        box.journal.put("new")
    assert box.drain() == ["new"]


def test_copy_of_an_old_envelope_that_ended_is_not_delivered_again(box: Box) -> None:
    _acked_by_the_version_before(box)
    box.journal.put("new")
    box.write(box.lines()[0])
    assert box.drain() == ["new"]


@pytest.mark.parametrize("put_again", [True, False])
def test_copy_of_an_acknowledged_line_is_not_delivered_again_also_when_the_key_is_lost(
    box: Box, put_again: bool
) -> None:
    box.journal.put("once")
    assert box.drain() == ["once"]
    (box.folder / ".inbox-key").unlink()
    if put_again:
        box.journal.put("with a new key")
    box.write(box.lines()[0])
    assert box.drain() == ["with a new key"] * put_again


def test_old_envelope_that_waits_in_an_inbox_that_an_editor_saved_is_delivered(box: Box) -> None:
    _acked_by_the_version_before(box)
    box.write(OLD.replace(OLD_ID, "m1a1e500a39f-086fc294cd"))
    box.journal.put("new")
    box.inbox.write_text("".join(box.lines()[1:]))
    assert box.drain() == ["/clear", "new"]


# ── a plain line that comes again ──


@pytest.mark.parametrize("version_before", [True, False])
def test_crash_at_the_lease_of_a_plain_line_that_comes_again_does_not_lose_it(
    box: Box, version_before: bool
) -> None:
    box.write("check the nightly build\n")
    assert box.drain() == ["check the nightly build"]
    before = (box.folder / "receipts.jsonl").read_text()
    if version_before:
        documents = [json.loads(line) for line in before.splitlines()]
        kept = [{name: one[name] for name in one if name != "lease"} for one in documents]
        before = "".join(json.dumps(one) + "\n" for one in kept)
    box.inbox.write_text("")
    assert box.tick() is None
    box.write("check the nightly build\n")
    assert box.tick() == "check the nightly build"
    (box.folder / "receipts.jsonl").write_text(before)  # as if it was killed before the receipt
    assert stop_hook.recover(box.files, "retry", [])[0] == "ReQueued"
    assert box.drain() == ["check the nightly build"]
