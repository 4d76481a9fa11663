"""The small files of a member: on the disk after each call, and readable after a crash."""

from __future__ import annotations

import time
from pathlib import Path

from remuda.fleet.member_files import DurableMap, SentMessages


def test_a_change_of_the_table_is_on_the_disk(tmp_path: Path) -> None:
    table = DurableMap(tmp_path / "table.json")
    table.update({"m1": "work", "m2": "work"})
    table.update({"m3": "other"}, ["m1"])
    again = DurableMap(tmp_path / "table.json")
    assert sorted(again) == ["m2", "m3"]
    assert again.get("m3") == "other"
    assert "m1" not in again


def test_a_table_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_bytes(b'{"m1": "wo')
    assert list(DurableMap(tmp_path / "table.json")) == []


def test_facts_about_a_sent_message_are_joined_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    sent = SentMessages(path)
    sent.note("m1", host="b7", session="work", sent_at=time.time())
    with open(path, "ab") as file:
        file.write(b'{"id": "m1", "sto')  # the boss was killed while it wrote
    sent.note("m1", stored=True)
    again = SentMessages(path)
    assert again.get("m1") == sent.get("m1")
    assert again.matching("m") == ["m1"]
    assert [one["id"] for one in again.to("b7", "work")] == ["m1"]
    assert again.to("b7", "other") == []


def test_messages_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    sent = SentMessages(path)
    sent.note("old", sent_at=time.time() - 30 * 86400)
    sent.note("new", sent_at=time.time())
    again = SentMessages(path)
    assert again.get("old") is None
    assert again.get("new") is not None
    assert b"old" not in path.read_bytes()
