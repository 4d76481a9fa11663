"""The scenarios of heartbeat-rs: flags, files, decisions and exit codes are the same."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys

import pytest

from support.hooks import BOTH, HOOK, IDLE, Box


def test_h1_messages_are_handed_out_one_per_stop(box: Box) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    for text, offset in (("alpha", 0), ("bravo", 6), ("charlie", 12)):
        ran = box.run()
        assert ran.out == f'{{"decision":"block","reason":"{text}"}}'
        assert (box.offset(), box.flags()) == (offset, BOTH)
    assert box.tick() is None
    assert (box.offset(), box.flags()) == (20, set())
    assert box.path(".inbox-offset").read_bytes() == b"20"


@pytest.mark.parametrize("there", [False, True])
def test_h2_nothing_to_hand_out(box: Box, there: bool) -> None:
    if there:
        box.put("")
    ran = box.run()
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert box.tick("--mode", "persist", "--wait", "0") == IDLE
    old = box.run("--mode", "persist", "--idle-tick", "--idle-interval", "0")
    assert (old.code, old.reason, old.err) == (0, IDLE, "")


def test_the_old_idle_tick_announces_its_sleep(box: Box) -> None:
    ran = box.run("--mode", "persist", "--idle-tick", "--idle-interval=0.01")
    assert ran.reason == IDLE
    assert "idle sleep 0.01s — ensure hook timeout > 0.01s" in ran.err


def test_h3_blank_lines_are_no_messages(box: Box) -> None:
    box.put("first\n\n \t\nsecond\r\n")
    assert box.drain() == ["first", "second"]


def test_h3_blank_lines_around(box: Box) -> None:
    box.put("\n\nreal message\n\n")
    assert box.drain() == ["real message"]
    assert box.offset() == box.inbox.stat().st_size


def test_h4_a_json_string_is_unwrapped_and_all_else_is_verbatim(box: Box) -> None:
    encoded = json.dumps("line one\nline two ☃")
    foreign = '{"text": "no envelope of ours"}'
    box.put(f'{encoded}\n"not ended\n{foreign}\n[1, 2]\n')
    assert box.tick() == "line one\nline two ☃"
    assert box.flight()["raw_line"] == encoded
    assert box.drain() == ['"not ended', foreign, "[1, 2]"]


def test_bytes_that_are_not_utf8_are_replaced(box: Box) -> None:
    box.inbox.write_bytes(b"a\xffb\n")
    assert box.drain() == ["a\ufffdb"]


def test_h6_the_entry_in_flight(box: Box) -> None:
    box.put("hello world\n")
    for _ in range(3):  # without .responded nothing is acknowledged
        assert box.tick() == "hello world"
        flight = box.flight()
        assert flight.keys() == {"delivered_at", "end_offset", "entry_id", "raw_line", "start_offset"}
        assert (flight["start_offset"], flight["end_offset"]) == (0, 12)
        assert flight["entry_id"] == hashlib.sha256(b"hello world").hexdigest()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", flight["delivered_at"])
        box.path(".responded").unlink()
    attempts = [one["attempt"] for one in box.lines("receipts.jsonl") if one["stage"] == "written"]
    assert attempts == [1, 2, 3]


def test_h7_appended_after_the_end(box: Box) -> None:
    box.put("first\n")
    assert box.drain() == ["first"]
    box.put("second\n")
    assert box.drain() == ["second"]


def test_h8_responded_without_in_flight(box: Box) -> None:
    box.put("alpha\n")
    box.path(".responded").touch()
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert "inconsistent state" in ran.err
    assert box.recover() == "NothingToRecover"
    assert box.drain() == ["alpha"]


@pytest.mark.parametrize("bad", ["{bad", "", "[]", "{}", '{"start_offset": "x", "end_offset": 1}'])
def test_h10_a_corrupt_in_flight_file_with_our_lease_goes_on(box: Box, bad: str) -> None:
    box.put("alpha\nbravo\n")
    assert box.tick() == "alpha"
    box.path(".in-flight").write_text(bad)
    ran = box.run()
    assert (ran.code, ran.reason) == (0, "bravo")
    assert "corrupt" in ran.err
    assert box.drain() == []


@pytest.mark.parametrize("bad", ["{bad", ""])
def test_h10_a_corrupt_in_flight_file_alone_fails_open(box: Box, bad: str) -> None:
    box.put("alpha\nbravo\n")
    assert box.tick() == "alpha"
    box.path(".in-flight").write_text(bad)
    box.path(".inbox-lease.json").unlink()
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert "error: corrupt in-flight file" in ran.err
    recovered = box.run("recover", "--on-orphan", "drop")
    assert (recovered.code, recovered.out) == (1, "")
    assert "corrupt in-flight file" in recovered.err
    assert box.path(".in-flight").read_text() == bad


def test_h11_retry_hands_out_the_same_again(box: Box) -> None:
    box.put("alpha\nbravo\n")
    for _ in range(3):
        assert box.tick() == "alpha"
        assert box.recover("retry") == "ReQueued"
        assert (box.offset(), box.flags()) == (0, set())
        assert box.inbox.read_text() == "alpha\nbravo\n"
    assert box.drain() == ["alpha", "bravo"]
    stages = [stage for _, stage in box.receipts()]
    assert stages.count("requeued") == 3


def test_h12_dead_letters_and_drops(box: Box) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    for count, text in enumerate(("alpha", "bravo"), start=1):
        assert box.tick() == text
        assert box.recover("deadletter") == "DeadLettered"
        assert [letter["raw_line"] for letter in box.lines(".dead-letter.jsonl")] == ["alpha", "bravo"][
            :count
        ]
        assert box.offset() == 6 * count
    letter = box.lines(".dead-letter.jsonl")[0]
    assert list(letter)[:5] == ["delivered_at", "end_offset", "entry_id", "raw_line", "start_offset"]
    assert box.tick() == "charlie"
    assert box.recover("drop") == "Dropped"
    assert (len(box.lines(".dead-letter.jsonl")), box.offset(), box.flags()) == (2, 20, set())
    assert box.drain() == []


def test_h12_deadletter_is_the_default(box: Box) -> None:
    box.put("alpha\n")
    assert box.tick() == "alpha"
    assert "DeadLettered" in box.run("recover").err


def _foreign_flight(box: Box) -> None:
    """As heartbeat-rs leaves it: none of our own files."""
    raw = "alpha"
    flight = {
        "entry_id": hashlib.sha256(raw.encode()).hexdigest(),
        "start_offset": 0,
        "end_offset": 6,
        "raw_line": raw,
        "delivered_at": "2026-01-01T00:00:00Z",
    }
    box.put("alpha\nbravo\n")
    box.path(".in-flight").write_text(json.dumps(flight))


def test_h14_no_in_flight_is_delivered_again(box: Box) -> None:
    box.put("alpha\n")
    assert box.recover() == "NothingToRecover"
    assert box.drain() == ["alpha"]


@pytest.mark.parametrize("responded", [False, True])
def test_h14_in_flight_before_the_offset_moved_is_live(box: Box, responded: bool) -> None:
    _foreign_flight(box)
    if responded:
        box.path(".responded").touch()
    assert box.recover() == "ReQueued"
    assert box.drain() == ["alpha", "bravo"]


def test_h14_in_flight_after_the_offset_is_stale(box: Box) -> None:
    _foreign_flight(box)
    box.path(".inbox-offset").write_text(" 6\n")
    assert box.recover() == "StaleOrphanDeleted"
    assert box.flags() == set()
    assert box.drain() == ["bravo"]


def test_h14_responded_only(box: Box) -> None:
    box.put("alpha\nbravo\n")
    box.path(".inbox-offset").write_text("6")
    box.path(".responded").touch()
    assert box.recover() == "NothingToRecover"
    assert box.drain() == ["bravo"]


def test_a_folder_of_heartbeat_is_taken_over_in_flight(box: Box) -> None:
    _foreign_flight(box)
    box.path(".responded").touch()
    assert box.drain() == ["bravo"]


def test_h16_missing_inbox_and_nothing_to_recover(box: Box) -> None:
    ran = subprocess.run([sys.executable, "-I", "-S", str(HOOK)], input="", capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "--inbox is required" in ran.stderr
    assert box.recover() == "NothingToRecover"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "forever"], "forever"),
        (["recover", "--on-orphan", "pray"], "pray"),
        (["--wait", "long"], "long"),
        (["--wait", "-1"], "-1"),
        (["--idle-interval", "nan"], "nan"),
        (["--nonsense"], "--nonsense"),
        (["surplus"], "surplus"),
    ],
)
def test_bad_arguments_exit_2_and_say_which(box: Box, words: list[str], said: str) -> None:
    box.put("alpha\n")
    ran = box.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert box.flags() == set()
