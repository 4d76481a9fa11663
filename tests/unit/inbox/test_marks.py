"""Only what our writers wrote has options, each message is delivered once, no line stops the others."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import InvalidOptions
from remuda.inbox import stop_hook
from remuda.inbox.compaction import compact
from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import trace
from remuda.inbox.stop_hook import Entry, Files, Key
from support.envelopes import put_marked, put_marked_line
from support.outside_json import FIELDS, poison_lines

OLD_ID = "m1a1e500a39e-086fc294ca"
OLD = f'{{"remuda": 1, "id": "{OLD_ID}", "at": 1764000000.123, "prompt": "/clear", "command": true}}\n'
"""As version 76f0a55 wrote it."""
DAY = 24 * 3600.0


class Box:
    """An inbox, its sender, and the Stop hook's ticks on it, in this process."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder
        self.inbox = folder / "inbox.jsonl"
        self.files = Files(str(self.inbox), durable=durable)
        self.journal = Inbox(folder, durable=durable)
        self.notices: list[str] = []

    def write(self, text: str) -> None:
        with self.inbox.open("a") as inbox:
            inbox.write(text)

    def tick(self) -> str | None:
        payload = {"session_id": "s", "last_assistant_message": "done"}
        return stop_hook.tick(self.files, payload, stop_hook.ticks(), self.notices).text

    def drain(self) -> list[str]:
        handed = []
        while (text := self.tick()) is not None:
            handed.append(text)
        return handed

    def leased(self) -> Any:
        consumer = Consumer(self.folder, "a test")
        consumer.open()
        try:
            return consumer.lease("test")
        finally:
            consumer.close()

    def lines(self) -> list[str]:
        return self.inbox.read_text().splitlines(keepends=True)

    def forget_receipts(self) -> None:
        """As in eight days."""
        compact(str(self.folder), time.time() + 8 * DAY, small=0)

    def receipts(self) -> list[dict[str, Any]]:
        path = self.folder / "receipts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def dead(self) -> list[str]:
        return [str(one["reason"]) for one in self.journal.dead_letters()]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


# ── whose envelope it is ──


def test_put_its_options_are_believed_and_the_line_does_not_tell_the_key(box: Box) -> None:
    box.journal.put("/clear", command=True, max_attempts=3, sender="me")
    leased = box.leased()
    assert (leased.command, leased.fields["max_attempts"], leased.fields["from"]) == (True, 3, "me")
    secret, since = (box.folder / ".inbox-key").read_text().split()
    assert (len(secret), since) == (64, "0")
    assert secret not in box.lines()[0]
    assert (box.folder / ".inbox-key").stat().st_mode & 0o777 == 0o600


def test_strangers_envelope_is_delivered_as_its_prompt_without_options(box: Box) -> None:
    box.journal.put("ours")
    fields = {"command": True, "max_attempts": 1, "not_before": 9e9, "priority": 9, "from": "x", "expires": 1}
    box.write(json.dumps({"remuda": 1, "id": OLD_ID, "prompt": "/clear", **fields}) + "\n")
    assert box.tick() == "ours"
    assert box.tick() == "/clear"
    box.tick()
    written = [one for one in box.receipts() if one["stage"] == "written"][1]
    assert written["id"].startswith("line-")
    assert written["options_ignored"] == "it has no mark"
    assert OLD_ID not in {one["id"] for one in box.receipts()}


def test_strangers_envelope_is_no_command_for_a_keeper(box: Box) -> None:
    box.write(OLD)
    leased = box.leased()
    assert (leased.text, leased.command, dict(leased.fields)) == ("/clear", False, {})


@pytest.mark.parametrize(
    "line",
    [
        '{"a": 1}',
        '{"remuda": "1", "prompt": "x"}',
        '{"remuda": true, "prompt": "x"}',
        '{"remuda": 1, "prompt": 5}',
        '{"a": "remuda", "b": 1e999}',
    ],
)
def test_foreign_object_is_delivered_as_it_stands(box: Box, line: str) -> None:
    box.write(f"{line}\n")
    assert box.drain() == [line]


@pytest.mark.parametrize("change", [('"x"', '"y"'), ('"command": true', '"command": 1'), ("place", "plaze")])
def test_marked_line_that_was_changed_has_no_options(box: Box, change: tuple[str, str]) -> None:
    box.journal.put("x", command=True)
    (line,) = box.lines()
    assert change[0] in line
    entry = Entry(0, 0, line.replace(*change).strip(), Key(box.files.key))
    assert (entry.fields, entry.distrust) == ({}, "its mark is not of this inbox")


def test_marked_line_of_another_inbox_has_no_options(box: Box, tmp_path: Path) -> None:
    other = Box(tmp_path / "other")
    other.journal.put("/clear", command=True)
    box.journal.put("first")
    box.write(other.lines()[0])
    assert box.tick() == "first"
    box.tick()
    assert box.receipts()[-1]["options_ignored"] == "its mark is not of this inbox"


@pytest.mark.parametrize("key", [None, b"", b"x" * 64 + b" 0\n", b"00 0\n", bytes(200)])
def test_lost_key_the_prompt_is_delivered_the_receipt_says_why_and_the_next_put_makes_one(
    box: Box, key: bytes | None
) -> None:
    sent = box.journal.put("/compact", command=True)
    path = box.folder / ".inbox-key"
    path.unlink() if key is None else path.write_bytes(key)
    assert box.tick() == "/compact"
    assert [(one["id"], one["stage"]) for one in box.receipts()] == [(sent.id, "written")]
    assert ".inbox-key is" in box.receipts()[0]["options_ignored"]
    box.tick()
    box.journal.put("again", command=True)
    assert box.leased().command


def test_key_is_one_for_all_writers_of_a_new_inbox(tmp_path: Path) -> None:
    script = "import sys; from remuda import Inbox; Inbox(sys.argv[1]).put('x', max_attempts=7)"
    folder = tmp_path / "new"
    with ThreadPoolExecutor(8) as pool:
        words = [sys.executable, "-c", script, str(folder)]
        threads = [pool.submit(Inbox(folder).put, "x", max_attempts=7) for _ in range(20)]
        runs = [pool.submit(subprocess.run, words, check=True) for _ in range(6)]
        for put in threads:
            put.result(60)
        for run in runs:
            run.result(60)
    assert [entry.max_attempts() for entry in Inbox(folder).waiting()] == [7] * 26


def test_put_into_a_folder_that_was_removed_meanwhile_has_the_key_of_the_new_one(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "box")
    inbox.put("x", max_attempts=3)
    shutil.rmtree(tmp_path / "box")
    inbox.put("x", max_attempts=3)
    assert [entry.max_attempts() for entry in Inbox(tmp_path / "box").waiting()] == [3]


# ── ids ──


def test_envelope_of_the_version_before_is_delivered_as_its_prompt_under_its_id(box: Box) -> None:
    box.write(OLD)
    sent = box.journal.put("new")
    found = trace(box.folder, OLD_ID)
    assert found is not None
    assert found.stage == "accepted"
    assert box.drain() == ["/clear", "new"]
    acked = [one["id"] for one in box.receipts() if one["stage"] == "acked"]
    assert acked == [OLD_ID, sent.id]
    assert box.receipts()[0]["options_ignored"] == "it has no mark"


def test_files_of_the_version_before_are_taken_over(box: Box) -> None:
    """In flight there, behind a delayed one, when the version changed."""
    later = OLD.replace(OLD_ID, OLD_ID.replace("m1", "m2")).replace("/clear", "later")
    box.write(later + OLD + "next\n")
    start, end = len(later), len(later + OLD)
    flight = {
        "delivered_at": "2026-01-01T00:00:00Z",
        "end_offset": end,
        "entry_id": stop_hook.digest(OLD.strip()),
        "raw_line": OLD.strip(),
        "start_offset": start,
    }
    held: dict[str, Any] = {"start": 0, "end": start, "due": time.time() + 3600, "attempt": 1}
    held |= {"since": time.time(), "clock": [5.0, "another boot"]}
    queue = {"cursor": 0, "frontier": start, "held": [held], "mark": stop_hook.digest(""), "mark_at": 0}
    lease = {"id": OLD_ID, "attempt": 2, "at": time.time(), "ticked": 1, "boot": "x", "flight": flight}
    for name, document in (
        (".in-flight", flight),
        (".inbox-queue.json", queue),
        (".inbox-lease.json", lease),
    ):
        (box.folder / name).write_text(json.dumps(document))
    (box.folder / ".inbox-offset").write_text("0")
    (box.folder / ".responded").touch()
    assert box.drain() == ["next"]
    assert (box.receipts()[0]["id"], box.receipts()[0]["stage"]) == (OLD_ID, "acked")
    assert box.notices == []
    assert [entry.text for entry in box.journal.waiting()] == ["later"]


def test_stranger_can_neither_take_nor_settle_the_id_of_a_message(box: Box) -> None:
    sent = box.journal.put("ours", delay=3600)
    box.write(json.dumps({"remuda": 1, "id": sent.id, "prompt": "theirs", "expires": 1.0}) + "\n")
    assert box.drain() == ["theirs"]
    found = trace(box.folder, sent.id)
    assert found is not None
    assert [one["stage"] for one in found.steps] == ["accepted"]
    assert [entry.id for entry in box.journal.waiting()] == [sent.id]


@pytest.mark.parametrize(
    "name", ["\x1b]52;c;aGk=\x07", "../x", "line-0-000000000000", "r" + "0" * 20, "", "m1", 5]
)
def test_id_of_a_stranger_that_is_not_of_our_form_is_not_taken(box: Box, name: object) -> None:
    box.write(json.dumps({"remuda": 1, "id": name, "prompt": "x"}) + "\n")
    (entry,) = box.journal.waiting()
    assert entry.id == stop_hook.line_id(0, entry.raw)


def test_dedup_key_of_a_stranger_blocks_no_message(box: Box) -> None:
    box.write(json.dumps({"remuda": 1, "id": OLD_ID, "prompt": "x", "dedup": "k"}) + "\n")
    assert not box.journal.put("ours", dedup="k").duplicate
    assert box.journal.put("ours", dedup="k").duplicate


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
    secret = Key(box.files.key).secret
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


def test_inbox_edited_behind_the_cursor_repeats_nothing(box: Box) -> None:
    _five_behind_a_delayed_one(box)
    box.inbox.write_text("".join(box.lines()[:-1]) + "other\n")
    assert box.drain() == ["other"]


# ── numbers ──


@pytest.mark.parametrize("line", poison_lines(), ids=range(len(poison_lines())))
@pytest.mark.parametrize("marked", [False, True])
def test_line_that_cannot_be_read_is_a_dead_letter_and_the_next_is_delivered(
    box: Box, line: str, marked: bool
) -> None:
    if marked:
        put_marked_line(box.inbox, line.encode())
    else:
        box.write(f"{line}\n")
    box.journal.put("next")
    assert box.journal.overview().waiting == 2
    assert box.drain() == ["next"]
    (reason,) = box.dead()
    assert reason.startswith("an envelope that cannot be read: ")
    assert box.journal.redrive() == []
    assert box.dead() == [reason]


JSON_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 10**30)
ANY = st.recursive(
    st.none() | st.booleans() | JSON_NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(
    st.lists(st.dictionaries(st.sampled_from([*FIELDS, "id", "from", "dedup"]), ANY), max_size=4),
    st.booleans(),
)
def test_envelopes_with_any_fields_stop_nothing_and_all_files_stay_json(
    tmp_path_factory: pytest.TempPathFactory, envelopes: list[dict[str, Any]], marked: bool
) -> None:
    box = Box(tmp_path_factory.mktemp("fuzz"), durable=False)
    for fields in envelopes:
        if marked:
            put_marked(box.inbox, prompt="x", **fields)
        else:
            box.write(json.dumps({"remuda": 1, "prompt": "x", **fields}) + "\n")
    box.journal.put("next")
    box.journal.overview()
    handed = box.drain()
    assert handed.count("next") == 1
    assert marked or handed == ["x"] * len(envelopes) + ["next"]
    for path in box.folder.iterdir():
        if path.name.endswith((".json", ".jsonl")) and path.name != "inbox.jsonl":
            for line in path.read_text().splitlines():
                json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert not any("corrupt" in one for one in box.notices)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, math.nan, -1, -0.5, 1e10, 10**400, "-5", True, [1]], ids=range(10)
)
@pytest.mark.parametrize("name", ["delay", "ttl", "max_attempts", "priority"])
def test_put_with_a_number_out_of_bounds_raises_invalid_options(box: Box, name: str, value: Any) -> None:
    if name == "priority":
        value = -(10**10) if value in (-1, -0.5) else value
    with pytest.raises(InvalidOptions, match=name):
        box.journal.put("x", **{name: value})
    assert not box.inbox.exists()


@pytest.mark.parametrize(
    "options",
    [{"dedup": 5}, {"sender": b"x"}, {"message_id": "\x1b"}, {"message_id": "line-1"}, {"now": math.inf}],
)
def test_put_with_an_option_of_another_kind_raises_invalid_options(box: Box, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions, match=next(iter(options))):
        box.journal.put("x", **options)


def test_nack_with_a_delay_without_end_is_due_within_thirty_years(box: Box) -> None:
    box.journal.put("x")
    consumer = Consumer(box.folder, "a test")
    consumer.open()
    leased = consumer.lease("test")
    assert leased is not None
    assert consumer.give_back(leased, math.inf, "busy", counts=False) == "nacked"
    assert consumer.lease("test") is None
    consumer.close()
    assert box.receipts()[-1]["due"] <= time.time() + stop_hook.LONGEST


# ── letters ──


def test_redrive_keeps_the_options_of_our_own_messages_alone(box: Box) -> None:
    box.journal.put("/clear", command=True, max_attempts=4)
    box.write(OLD)
    for _ in range(2):
        assert box.tick() == "/clear"
        box.journal.recover("deadletter")
    assert len(box.journal.redrive()) == 2
    found = [(entry.fields.get("command"), entry.max_attempts()) for entry in box.journal.waiting()]
    assert found == [(True, 4), (None, 10)]


def test_redrive_of_one_leaves_lines_that_it_cannot_read_where_they_are(box: Box) -> None:
    box.journal.put("x")
    assert box.tick() == "x"
    box.journal.recover("deadletter")
    with (box.folder / ".dead-letter.jsonl").open("a") as file:
        file.write("not ours\n")
    box.journal.redrive()
    assert (box.folder / ".dead-letter.jsonl").read_text() == "not ours\n"


# ── lines without an end ──


@pytest.mark.parametrize("line", ["a mail body that ends in NUL\0", "\0", "a\0\0\0", '{"remuda": 1\0'])
def test_message_after_a_line_that_ends_in_nul_keeps_its_options(tmp_path: Path, line: str) -> None:
    box = Box(tmp_path)
    box.write(line)
    os.utime(box.inbox, (1, 1))  # its writer is gone
    accepted = box.journal.put("deploy the fix", command=True)
    [ours] = [entry for entry in box.journal.waiting() if entry.id == accepted.id]
    assert ours.fields["command"] is True
    assert box.drain()[-1] == "deploy the fix"
    assert trace(tmp_path, accepted.id).stage == "acked"  # type: ignore[union-attr]


# ── many bad lines ──


def test_many_bad_lines_are_given_up_in_batches_and_the_lock_is_free_between_them(box: Box) -> None:
    box.write('{"remuda"x\n' * (stop_hook.BATCH + 2) + "good\n")
    handed = []
    for _ in range(2):
        with stop_hook.Lock(box.files):
            inbox = stop_hook.Inbox(box.files)
            inbox.open()
            taken = inbox.next_entry()
            handed.append((taken and taken[0].text, inbox.unfinished, len(box.dead())))
            inbox.close()
    assert handed == [(None, True, stop_hook.BATCH), ("good", False, stop_hook.BATCH + 2)]


def test_message_after_thousands_of_bad_lines_is_delivered_and_each_is_a_dead_letter(box: Box) -> None:
    """With several syncs for each line this takes minutes."""
    box.write('{"remuda"x\n' * 20_000 + "good\n")
    assert box.drain() == ["good"]
    assert len(box.dead()) == 20_000
    assert len({one["id"] for one in box.receipts() if one["stage"] == "dead"}) == 20_000


def test_expired_messages_with_senders_are_bounced_once_each(box: Box) -> None:
    for number in range(5):
        put_marked(box.inbox, id=f"m{number}", prompt="x", expires=1.0, **{"from": "me"})
    box.write("good\n")
    assert box.leased().text == "good"
    outbox = [json.loads(line) for line in (box.folder / "outbox.jsonl").read_text().splitlines()]
    assert [one["id"] for one in outbox] == [f"m{number}" for number in range(5)]


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
