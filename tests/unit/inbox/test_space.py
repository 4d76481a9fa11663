"""Disk space is given back: the acknowledged part of the inbox in place, and what is old in our own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.inbox import compaction, stop_hook
from remuda.inbox.compaction import KEEP_BYTES, KEEP_SECONDS, compact
from remuda.inbox.journal import Inbox
from remuda.inbox.stop_hook import Files

LINE = "x" * 999
DAY = 24 * 3600.0


class Box:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.inbox = folder / "inbox.jsonl"
        self.files = Files(str(self.inbox))
        self.journal = Inbox(folder)

    def write(self, text: str) -> None:
        with self.inbox.open("a") as inbox:
            inbox.write(text)

    def acknowledge(self, position: int) -> None:
        """Everything before this byte, as if it had been handed out and answered."""
        with stop_hook.Lock(self.files):
            inbox = stop_hook.HookInbox(self.files)
            inbox.open()
            inbox.queue.done(0, position)
            inbox.queue.save(inbox.reader)
            inbox.close()

    def drain(self) -> list[str]:
        handed: list[str] = []
        notices: list[str] = []
        while (text := stop_hook.tick(self.files, {}, stop_hook.ticks(), notices).text) is not None:
            handed.append(text)
        assert notices == []
        return handed

    def used(self) -> int:
        return self.inbox.stat().st_blocks * 512

    def append(self, name: str, *documents: dict[str, Any]) -> None:
        with (self.folder / name).open("a") as file:
            file.writelines(json.dumps(document) + "\n" for document in documents)

    def ids(self, name: str) -> list[str]:
        return [json.loads(line)["id"] for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "inbox")


def test_compact_the_acknowledged_part_takes_no_space_and_no_offset_changes(box: Box) -> None:
    box.write(f"{LINE}\n" * 2000)
    with box.inbox.open("ab", buffering=0) as foreign:  # a writer who opened it long ago
        box.acknowledge(1_990_000)
        size, used = box.inbox.stat().st_size, box.used()
        given = box.journal.compact()
        assert given.note == ""
        assert given.inbox == used - box.used() > 1_900_000
        assert box.inbox.stat().st_size == size
        foreign.write(b"foreign\n")
    box.journal.put("ours")
    assert box.drain() == [LINE] * 10 + ["foreign", "ours"]


def test_compact_again_has_nothing_left_to_give(box: Box) -> None:
    box.write(f"{LINE}\n" * 2000)
    box.acknowledge(1_990_000)
    box.journal.compact()
    assert box.journal.compact().inbox == 0


def test_compact_then_the_cursor_is_lost_and_only_whole_messages_come_again(box: Box) -> None:
    lines = [f"{number} {LINE}" for number in range(500)]
    box.write("".join(f"{line}\n" for line in lines))
    box.acknowledge(len("".join(f"{line}\n" for line in lines[:490])))
    box.journal.compact()
    for name in (".inbox-offset", ".inbox-queue.json"):
        (box.folder / name).unlink()
    handed = box.drain()
    assert handed == lines[500 - len(handed) :]
    assert 10 <= len(handed) < 20  # but for those that tell which file it is


def test_compact_between_delayed_ones(box: Box) -> None:
    long = "x" * 200_000
    box.write(f"{long}\n")
    for _ in range(3):
        box.journal.put("later", delay=3600)
        box.write(f"{long}\n{LINE}\n")
    assert len(box.drain()) == 7
    used = box.used()
    assert box.journal.compact().inbox > 390_000
    assert box.used() < 0.6 * used
    assert [entry.text for entry in box.journal.waiting()] == ["later"] * 3
    queue = json.loads(Path(box.files.queue).read_text())
    for one in queue["held"]:
        one["due"] = 1.0
    Path(box.files.queue).write_text(json.dumps(queue))
    assert box.drain() == ["later"] * 3


def test_compact_up_to_a_delayed_one_at_the_end_leaves_what_identifies_the_file(box: Box) -> None:
    box.journal.put("later", delay=3600)
    box.write("x" * 200_000 + "\n" + f"{LINE}\n" * 5)
    box.journal.put("last", delay=3600)
    assert len(box.drain()) == 6
    assert box.journal.compact().inbox > 100_000
    assert box.drain() == []  # and no notice that the file was changed
    assert [entry.text for entry in box.journal.waiting()] == ["later", "last"]


def test_compact_leaves_a_held_line_that_grew_whole(box: Box) -> None:
    box.write("half")
    os.utime(box.inbox, (1, 1))
    assert stop_hook.tick(box.files, {}, stop_hook.ticks(), []).text == "half"
    assert stop_hook.recover(box.files, "retry", [])[0] == "ReQueued"
    rest = "y" * 200_000
    box.write(f"{rest}\n" + f"{LINE}\n" * 10)
    with stop_hook.Lock(box.files):
        inbox = stop_hook.HookInbox(box.files)
        inbox.open()
        inbox.queue.frontier = 210_005
        inbox.queue.save(inbox.reader)
        inbox.close()
    box.journal.compact()
    assert box.drain() == [f"half{rest}"]


def _calls(box: Box) -> list[str]:
    trace = box.folder.parent / "trace"
    words = [sys.executable, "-I", "-S", stop_hook.__file__, "--inbox", str(box.inbox)]
    strace = ["strace", "-qq", "-y", "-o", str(trace), "-e", "trace=pread64"]
    subprocess.run([*strace, *words], input=b"", check=True, capture_output=True)
    return [line.rpartition("= ")[2] for line in trace.read_text().splitlines() if "inbox.jsonl" in line]


def test_tick_after_a_gigabyte_that_was_given_back_reads_as_much_as_after_nothing(tmp_path: Path) -> None:
    read = []
    for before in (10_000, 1_000_000_000):
        box = Box(tmp_path / str(before))
        with box.inbox.open("wb") as inbox:
            inbox.truncate(before)
        box.write(f"\n{LINE}\n" * 200)
        box.acknowledge(before + 1)
        read.append([_calls(box), _calls(box)])
    assert read[0] == read[1]


# ── our own files ──


def _chain(message: str, at: float, *stages: str) -> list[dict[str, Any]]:
    return [{"id": message, "stage": stage, "at": at} for stage in stages]


def test_compact_receipts_old_ended_ones_go_and_open_and_young_ones_stay(box: Box) -> None:
    now = time.time()
    box.append("receipts.jsonl", *_chain("old", now - 8 * DAY, "written", "acked"))
    box.append("receipts.jsonl", *_chain("open", now - 8 * DAY, "written", "nacked"))
    box.append("receipts.jsonl", *_chain("young", now - DAY, "written", "dead"))
    box.append("receipts.jsonl", {"id": "late", "stage": "written", "at": now - 8 * DAY})
    box.append("receipts.jsonl", {"id": "late", "stage": "acked", "at": now - DAY})
    given = box.journal.compact()
    assert given.receipts > 0
    assert box.ids("receipts.jsonl") == ["open", "open", "young", "young", "late", "late"]


def test_compact_answers_go_with_their_messages(box: Box) -> None:
    now = time.time()
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 8 * DAY))
    box.append("receipts.jsonl", *_chain("open", now - 8 * DAY, "written"))
    box.append("receipts.jsonl", *_chain("old", now - 8 * DAY, "written", "acked"))
    for message, at in (("open", then), ("old", then), ("forgotten", then), ("young", stop_hook.iso_time())):
        box.append("outbox.jsonl", {"id": message, "text": "so", "at": at})
    assert box.journal.compact().outbox > 0
    assert box.ids("outbox.jsonl") == ["open", "young"]


def test_compact_receipts_beyond_the_bound_the_oldest_go_but_none_of_the_last_hour(box: Box) -> None:
    now = time.time()
    pad = "p" * 1000
    count = KEEP_BYTES // 1000

    def receipts(name: str, at: float) -> list[dict[str, Any]]:
        return [
            {"id": f"{name}{number}", "stage": "acked", "at": at + number / 1e4, "reason": pad}
            for number in range(count // 2)
        ]

    box.append("receipts.jsonl", {"id": "open", "stage": "written", "at": now - 5 * DAY})
    box.append("receipts.jsonl", *receipts("b", now - DAY), *receipts("a", now - 2 * DAY))
    box.append("receipts.jsonl", *receipts("recent", now - 60))
    compact(str(box.folder))
    kept = box.ids("receipts.jsonl")
    assert kept[0] == "open"
    assert len([one for one in kept if one.startswith("recent")]) == count // 2
    assert not [one for one in kept if one[0] in "ab"]
    assert (box.folder / "receipts.jsonl").stat().st_size <= KEEP_BYTES


def test_compact_leaves_small_files_of_ours_alone_when_it_comes_by_itself(box: Box) -> None:
    box.append("receipts.jsonl", *_chain("old", time.time() - 2 * KEEP_SECONDS, "acked"))
    assert compact(str(box.folder)).receipts == 0
    assert box.ids("receipts.jsonl") == ["old"]


def test_compact_a_torn_receipt_is_dropped_and_the_next_is_whole(box: Box) -> None:
    box.append("receipts.jsonl", *_chain("old", time.time() - 8 * DAY, "acked"))
    box.append("receipts.jsonl", *_chain("open", time.time(), "written"))
    with (box.folder / "receipts.jsonl").open("a") as receipts:
        receipts.write('{"id": "torn", "sta')
    box.journal.compact()
    stop_hook.HookInbox(box.files).receipt("open", "acked")
    assert box.ids("receipts.jsonl") == ["open", "open"]


def test_compact_dedup_keys_of_yesterday_go_unless_their_message_waits(box: Box) -> None:
    old = time.time() - 2 * DAY
    waits = box.journal.put("waits", dedup="waits", delay=90 * DAY, now=old)
    box.journal.put("done", dedup="done", now=old)
    box.journal.put("new", dedup="new")
    assert box.drain() == ["done", "new"]
    box.journal.compact()
    assert box.ids(".inbox-dedup.jsonl")[0] == waits.id
    assert box.journal.put("waits", dedup="waits").id == waits.id
    assert not box.journal.put("done", dedup="done").duplicate
    assert box.journal.put("new", dedup="new").duplicate


# ── by itself ──


def test_put_that_crosses_some_megabytes_gives_back(box: Box) -> None:
    box.write(f"{LINE}\n" * 8300)
    box.acknowledge(8_300_000)
    assert box.used() > 8_000_000
    box.journal.put("z" * 200_000)
    assert box.used() < 1_000_000


def test_hook_whose_cursor_crosses_some_megabytes_gives_back(box: Box) -> None:
    box.write(f"{LINE}\n" * 8388 + "crossing it " * 100 + "\nnext\n")
    box.acknowledge(8_388_000)
    words = [sys.executable, "-I", "-S", stop_hook.__file__, "--inbox", str(box.inbox)]
    for text in ("crossing it " * 100, "next", None):
        assert box.used() > 8_000_000 or text != "next"
        ran = subprocess.run(words, input=b"", capture_output=True, check=True)
        assert ran.stderr == b""
        assert (json.loads(ran.stdout)["reason"] if ran.stdout else None) == (text and text.strip())
    assert box.used() < 100_000


def test_constants_the_window_of_keys_is_shorter_than_that_of_receipts() -> None:
    assert compaction.DEDUP_WINDOW < compaction.KEEP_SECONDS
