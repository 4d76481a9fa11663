"""Only what our writers wrote has options, also after a redrive."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda.inbox import stop_hook
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import trace
from remuda.inbox.stop_hook import Entry, InboxKey
from support.inbox_box import OLD, OLD_ID, Box

# ── whose envelope it is ──


def test_put_its_options_are_believed_and_the_line_does_not_contain_the_key(box: Box) -> None:
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
    assert written["id"] == OLD_ID  # version 0.1 may have sent it, and waits for its receipts
    assert written["options_ignored"] == "it has no mark"


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
def test_foreign_object_is_delivered_unchanged(box: Box, line: str) -> None:
    box.write(f"{line}\n")
    assert box.drain() == [line]


@pytest.mark.parametrize("change", [('"x"', '"y"'), ('"command": true', '"command": 1'), ("place", "plaze")])
def test_marked_line_that_was_changed_has_no_options(box: Box, change: tuple[str, str]) -> None:
    box.journal.put("x", command=True)
    (line,) = box.lines()
    assert change[0] in line
    entry = Entry(0, 0, line.replace(*change).strip(), InboxKey(box.files.key))
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
    assert box.drain() == []
    assert box.notices == [f"skipped a copy of message {sent.id}: a message is delivered once"]
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
