"""What heartbeat-rs got wrong: torn lines, cut files, two ticks at once, a price that grew with the queue."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest

from support.hooks import IDLE, SYS_FLOCK, Box, make_due, start_while_written, wait_until


def test_a_torn_line_waits_for_its_newline(box: Box) -> None:
    box.put('whole\n"half of a mess')
    assert box.tick() == "whole"
    waiting = start_while_written(box)
    box.put('age"\n')
    assert box.finish(waiting).reason == "half of a message"
    assert box.drain() == []


def test_a_line_that_never_ends_is_handed_out_after_the_grace(box: Box) -> None:
    box.put("no newline")
    os.utime(box.inbox, (time.time() - 3, time.time() - 3))
    assert box.drain() == ["no newline"]
    box.put("\nnext\n")
    assert box.drain() == ["next"]


def test_a_truncated_inbox_is_noticed(box: Box) -> None:
    box.put("alpha\nbravo\n")
    assert box.drain() == ["alpha", "bravo"]
    box.inbox.write_text("new\n")
    ran = box.run()
    assert (ran.code, ran.reason) == (0, "new")
    assert "truncated or replaced" in ran.err
    assert box.drain() == []


def test_an_inbox_truncated_and_grown_beyond_the_cursor_is_noticed(box: Box) -> None:
    box.put("alpha\nbravo\n")
    assert box.drain() == ["alpha", "bravo"]
    box.inbox.write_text("one\ntwo\nthree\nfour\nfive\n")
    assert box.run().reason == "one"
    assert box.drain() == ["two", "three", "four", "five"]


def _replace(box: Box, text: str) -> None:
    other = box.path("other")
    other.write_text(text)
    other.rename(box.inbox)


def test_a_replaced_inbox_is_noticed(box: Box) -> None:
    box.put("alpha\nbravo\n")
    assert box.drain() == ["alpha", "bravo"]
    _replace(box, "alphx\nbravo\ncharlie\n")
    assert box.run().reason == "alphx"
    assert box.drain() == ["bravo", "charlie"]


def test_a_replaced_inbox_with_the_same_prompts_is_noticed_by_their_ids(box: Box) -> None:
    box.envelope(id="m-1", prompt="check " * 100)
    assert len(box.drain()) == 1
    _replace(box, box.inbox.read_text().replace("m-1", "m-2"))
    assert box.run().reason == "check " * 100


def test_an_editor_that_saves_the_inbox_anew_repeats_nothing(box: Box) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    assert [box.tick(), box.tick()] == ["alpha", "bravo"]
    subprocess.run(["sed", "-i", "s/charlie/delta/", str(box.inbox)], check=True)
    assert box.drain() == ["delta"]


def test_an_inbox_edited_after_the_cursor_loses_none_of_the_delayed(box: Box) -> None:
    box.put("before\n")
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.put("alpha\n")
    assert box.drain() == ["before", "alpha"]
    _replace(box, box.inbox.read_text().replace("alpha", "bravo"))
    ran = box.run()
    assert ran.reason == "bravo"
    assert "changed after the cursor" in ran.err
    assert box.drain() == []
    make_due(box)
    assert box.drain() == ["later"]


@pytest.mark.parametrize("acknowledged", [0, 1])
def test_an_inbox_truncated_while_an_entry_is_in_flight_loses_nothing(box: Box, acknowledged: int) -> None:
    box.put("alpha\nbravo\n")
    for _ in range(acknowledged + 1):
        assert box.tick() is not None
    box.inbox.write_text("x\ny\nz\nand more of it\n")
    ran = box.run()
    assert ran.reason == "x"
    assert "truncated or replaced" in ran.err
    assert box.drain() == ["y", "z", "and more of it"]


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("sessions", [(None, None), ("one", "two")])
def test_two_ticks_at_once_deliver_once(
    box: Box, sessions: tuple[str | None, str | None], acknowledged: bool
) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    if acknowledged:
        assert box.tick() == "alpha"
    with box.path(".inbox-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [box.start(payload=None if one is None else {"session_id": one}) for one in sessions]
        for process in both:
            wait_until(process, SYS_FLOCK)
    ran = [box.finish(process) for process in both]
    first, rest = ("bravo", ["charlie"]) if acknowledged else ("alpha", ["bravo", "charlie"])
    assert sorted(str(one.reason) for one in ran) == sorted([first, IDLE])
    assert [one.code for one in ran] == [0, 0]
    assert box.drain() == rest


def test_two_hooks_of_one_stop_deliver_once_and_report_no_end(box: Box) -> None:
    signal = box.path("signal")
    box.put("alpha\nbravo\n")
    with box.path(".inbox-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [box.start("--signal-file", str(signal), payload={"session_id": "one"}) for _ in range(2)]
        for process in both:
            wait_until(process, SYS_FLOCK)
    # One hook of a stop that blocks is enough; a second reason would be a second prompt.
    reasons = [box.finish(process).reason for process in both]
    assert sorted(reasons, key=str) == [None, "alpha"]
    assert not signal.exists()
    assert box.drain() == ["bravo"]


def test_100_000_blank_lines_are_one_tick_and_one_write(box: Box) -> None:
    box.put("\n" * 100_000 + "real\n")
    calls = _calls(box, "trace=fsync,pread64")
    assert box.flight()["raw_line"] == "real"
    assert len([one for one in calls if one.startswith("pread64")]) < 10
    assert len([one for one in calls if one.startswith("fsync")]) < 12
    assert box.drain() == []


def _calls(box: Box, what: str) -> list[str]:
    trace = box.path("trace")
    subprocess.run(
        ["strace", "-qq", "-y", "-o", str(trace), "-e", what, *box.argv()],
        input=b"",
        check=True,
        capture_output=True,
    )
    return trace.read_text().splitlines()


def test_a_tick_reads_as_much_at_any_length(tmp_path: Path) -> None:
    read = {}
    for entries in (10, 1_000, 100_000):
        folder = tmp_path / str(entries)
        folder.mkdir()
        box = Box(folder)
        box.put(f"{'x' * 99}\n" * entries)
        read[entries] = [
            [int(one.rpartition("= ")[2]) for one in _calls(box, "trace=pread64") if "inbox.jsonl" in one]
            for _ in range(2)
        ]
    assert read[1_000] == read[100_000]  # the shortest is shorter than one piece of reading
    assert [len(one) for one in read[10]] == [len(one) for one in read[100_000]]
