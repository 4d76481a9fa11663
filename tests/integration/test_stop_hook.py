"""The Stop hook, run as Claude Code runs it: one file, `-I -S`, a Stop payload on standard input."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remuda

HOOK = Path(remuda.__file__).parent / "inbox" / "stop_hook.py"
IDLE = "--- IDLE TICK ---"
PATIENCE = 30.0
ALLOWED_MODULES = {"errno", "fcntl", "posix", "sys", "time", "_json", "_sha256", "_sha2", "_signal"}


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def reason(self) -> str | None:
        """What was handed out; None when the stop was approved."""
        if not self.out:
            return None
        said = json.loads(self.out)
        assert said.keys() == {"decision", "reason"}
        assert said["decision"] == "block"
        reason = said["reason"]
        assert isinstance(reason, str)
        return reason


class Box:
    """A folder with an inbox, and the hook on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = folder / "inbox.jsonl"
        self.running: list[subprocess.Popen[str]] = []

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-I", "-S", str(HOOK), *words, "--inbox", str(self.inbox)]

    def start(self, *words: str, payload: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.argv(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        assert process.stdin is not None
        process.stdin.write("" if payload is None else json.dumps(payload))
        process.stdin.close()
        process.stdin = None
        return process

    def finish(self, process: subprocess.Popen[str]) -> Ran:
        out, err = process.communicate(timeout=PATIENCE)
        return Ran(process.returncode, out, err)

    def run(self, *words: str, payload: dict[str, Any] | None = None) -> Ran:
        return self.finish(self.start(*words, payload=payload))

    def tick(self, *words: str, payload: dict[str, Any] | None = None) -> str | None:
        ran = self.run(*words, payload=payload)
        assert (ran.code, ran.err) == (0, "")
        return ran.reason

    def recover(self, policy: str = "retry") -> str:
        ran = self.run("recover", "--on-orphan", policy)
        assert (ran.code, ran.out) == (0, "")
        return ran.err.strip().rpartition(": ")[2]

    def drain(self) -> list[str]:
        handed = []
        while (reason := self.tick()) is not None:
            handed.append(reason)
        return handed

    def put(self, text: str) -> None:
        with self.inbox.open("a") as inbox:
            inbox.write(text)

    def envelope(self, **fields: Any) -> None:
        self.put(json.dumps({"remuda": 1, **fields}) + "\n")

    def path(self, name: str) -> Path:
        return self.folder / name

    def offset(self) -> int:
        path = self.path(".inbox-offset")
        return int(path.read_text()) if path.exists() else 0

    def flags(self) -> set[str]:
        return {name for name in (".in-flight", ".responded") if self.path(name).exists()}

    def flight(self) -> dict[str, Any]:
        found = json.loads(self.path(".in-flight").read_text())
        assert isinstance(found, dict)
        return found

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path(name)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def receipts(self) -> list[tuple[str, str]]:
        return [(str(one["id"]), str(one["stage"])) for one in self.lines("receipts.jsonl")]


BOTH = {".in-flight", ".responded"}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    one = Box(tmp_path)
    yield one
    for process in one.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


# ── scenarios of heartbeat-rs ──


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


def test_h14_in_flight_behind_the_offset_is_stale(box: Box) -> None:
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


# ── the defects of heartbeat-rs, gone (H17) ──


def test_a_torn_line_waits_for_its_newline(box: Box) -> None:
    box.put('whole\n"half of a mess')
    os.utime(box.inbox, (time.time() + 1, time.time() + 1))  # written just now, however slow this machine is
    assert box.drain() == ["whole"]
    box.put('age"\n')
    assert box.drain() == ["half of a message"]


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


def test_a_replaced_inbox_is_noticed(box: Box) -> None:
    box.put("alpha\nbravo\n")
    assert box.drain() == ["alpha", "bravo"]
    other = box.path("other")
    other.write_text("alpha\nbravo\ncharlie\n")
    other.rename(box.inbox)
    assert box.run().reason == "alpha"
    assert box.drain() == ["bravo", "charlie"]


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


def _wait_until(process: subprocess.Popen[str], where: str) -> None:
    """Until the kernel holds it in this call: looked at again and again, at the pace of the machine."""
    call = Path(f"/proc/{process.pid}/syscall")
    began = time.monotonic()
    while call.read_text().split()[0] != where:
        assert process.poll() is None
        assert time.monotonic() - began < PATIENCE
        os.sched_yield()


SYS_FLOCK = "73" if os.uname().machine == "x86_64" else "32"
SYS_SIGTIMEDWAIT = "128" if os.uname().machine == "x86_64" else "137"


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
            _wait_until(process, SYS_FLOCK)
    ran = [box.finish(process) for process in both]
    first, rest = ("bravo", ["charlie"]) if acknowledged else ("alpha", ["bravo", "charlie"])
    assert sorted(str(one.reason) for one in ran) == sorted([first, IDLE])
    assert [one.code for one in ran] == [0, 0]
    assert box.drain() == rest


def test_two_hooks_of_one_stop_deliver_once(box: Box) -> None:
    box.put("alpha\nbravo\n")
    with box.path(".inbox-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [box.start(payload={"session_id": "one"}) for _ in range(2)]
        for process in both:
            _wait_until(process, SYS_FLOCK)
    # One hook of a stop that blocks is enough; a second reason would be a second prompt.
    reasons = [box.finish(process).reason for process in both]
    assert sorted(reasons, key=str) == [None, "alpha"]
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


# ── what heartbeat-rs has not ──


def test_the_signal_file_is_touched_when_the_stop_is_approved(box: Box) -> None:
    signal = box.path("signal")
    box.put("alpha\n")
    assert box.tick("--signal-file", str(signal)) == "alpha"
    assert not signal.exists()
    assert box.tick("--signal-file", str(signal)) is None
    assert signal.exists()
    signal.write_text("kept")
    assert box.tick("--signal-file", str(signal)) is None
    assert signal.read_text() == "kept"


def test_the_signal_file_after_an_error_and_where_it_cannot_be(box: Box) -> None:
    box.path(".responded").touch()
    signal = box.path("signal")
    ran = box.run("--signal-file", str(signal))
    assert "inconsistent" in ran.err
    assert signal.exists()
    box.path(".responded").unlink()
    ran = box.run("--signal-file", str(box.path("missing") / "signal"))
    assert (ran.code, ran.out) == (0, "")
    assert "cannot touch" in ran.err


def test_a_reader_that_went_away_is_no_error(box: Box) -> None:
    box.put("alpha\n")
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(box.argv(), input=b"", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_full_disk_at_the_answer_is_an_error(box: Box) -> None:
    box.put("alpha\n")
    with Path("/dev/full").open("wb") as full:
        assert subprocess.run(box.argv(), input=b"", stdout=full, stderr=subprocess.PIPE).returncode == 1


def test_the_answer_goes_to_the_outbox(box: Box) -> None:
    box.envelope(id="m-1", prompt="question")
    box.put("plain\n")
    assert box.tick(payload={"session_id": "s", "last_assistant_message": "of before"}) == "question"
    assert box.lines("outbox.jsonl") == []
    payload = {"session_id": "s", "last_assistant_message": "it is\n42", "hook_event_name": "Stop"}
    assert box.tick(payload=payload) == "plain"
    (said,) = box.lines("outbox.jsonl")
    assert (said["id"], said["session_id"], said["text"]) == ("m-1", "s", "it is\n42")
    assert said["at"]
    assert box.receipts()[:2] == [("m-1", "written"), ("m-1", "acked")]


def test_background_tasks_are_no_end(box: Box) -> None:
    box.put("alpha\nbravo\n")
    assert box.tick() == "alpha"
    assert box.tick(payload={"session_id": "s", "background_tasks": [{"id": "b1"}]}) is None
    assert (box.offset(), box.flags()) == (0, BOTH)
    assert box.tick(payload={"session_id": "s", "background_tasks": []}) == "bravo"


@pytest.mark.parametrize("payload", ["", "{", "[]", "null", "\0", "[" * 100_000])
def test_any_payload_is_survived(box: Box, payload: str) -> None:
    box.put("alpha\n")
    ran = subprocess.run(box.argv(), input=payload, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["reason"] == "alpha"


def _make_due(box: Box) -> None:
    """The delay passes: the clock of the hook cannot be set, what it compares with can."""
    queue = json.loads(box.path(".inbox-queue.json").read_text())
    for one in queue["held"]:
        one["due"] = 1.0
    box.path(".inbox-queue.json").write_text(json.dumps(queue))


@pytest.mark.parametrize("ahead", ["", "before\n"])
def test_a_delayed_message_lets_later_ones_pass_and_comes_when_due(box: Box, ahead: str) -> None:
    box.put(ahead)
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.put("alpha\nbravo\n")
    assert box.drain() == [*ahead.split(), "alpha", "bravo"]
    assert box.offset() == len(ahead)  # the first byte that is not acknowledged
    assert box.drain() == []
    _make_due(box)
    assert box.drain() == ["later"]
    assert box.offset() == box.inbox.stat().st_size


def test_a_delayed_message_survives_retry_and_drop_of_another(box: Box) -> None:
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.put("alpha\nbravo\n")
    assert box.tick() == "alpha"
    assert box.recover("retry") == "ReQueued"
    assert box.tick() == "alpha"
    assert box.recover("drop") == "Dropped"
    assert box.drain() == ["bravo"]
    _make_due(box)
    assert box.drain() == ["later"]


def test_attempts_are_counted_also_when_another_goes_first(box: Box) -> None:
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.envelope(id="poison", prompt="poison", max_attempts=2)
    assert box.tick() == "poison"
    _make_due(box)
    assert box.recover("retry") == "ReQueued"
    assert box.drain() == ["later", "poison"]
    attempts = [one["attempt"] for one in box.lines("receipts.jsonl") if one["stage"] == "written"]
    assert attempts == [1, 1, 2]


def test_a_retried_line_without_end_that_grew_is_one_message(box: Box) -> None:
    box.put("half")
    os.utime(box.inbox, (time.time() - 3, time.time() - 3))
    assert box.tick() == "half"
    assert box.recover("retry") == "ReQueued"
    box.put(" and half\nnext\n")
    assert box.drain() == ["half and half", "next"]


def test_an_answer_is_written_once_also_when_its_tick_is_repeated(box: Box) -> None:
    box.put("alpha\n")
    payload = {"session_id": "s", "last_assistant_message": "so"}
    assert box.tick(payload=payload) == "alpha"
    marks = {path: path.read_bytes() for path in box.folder.iterdir() if path.name.startswith(".")}
    assert box.tick(payload=payload) is None
    for path, data in marks.items():  # as if it was killed right behind its answer
        path.write_bytes(data)
    box.path(".inbox-queue.json").unlink()
    box.path(".inbox-offset").unlink()
    assert box.tick(payload=payload) is None
    assert [one["text"] for one in box.lines("outbox.jsonl")] == ["so"]


def test_a_message_past_its_time_is_bounced(box: Box) -> None:
    box.envelope(id="old", prompt="old", expires=1.0, **{"from": "me"})
    box.put("alpha\n")
    assert box.drain() == ["alpha"]
    assert ("old", "expired") in box.receipts()
    bounced = box.lines("outbox.jsonl")[0]
    assert (bounced["id"], bounced["to"], bounced["bounced"]) == ("old", "me", "expired")
    assert box.lines(".dead-letter.jsonl") == []


def test_after_its_last_attempt_a_message_is_a_dead_letter(box: Box) -> None:
    box.envelope(id="poison", prompt="poison", max_attempts=2)
    box.put("alpha\n")
    for _ in range(2):
        assert box.tick() == "poison"
        assert box.recover("retry") == "ReQueued"
    assert box.drain() == ["alpha"]
    (letter,) = box.lines(".dead-letter.jsonl")
    assert json.loads(letter["raw_line"])["id"] == "poison"
    assert "attempts" in letter["reason"]
    assert ("poison", "dead") in box.receipts()


def test_an_envelope_cut_short_is_never_handed_out(box: Box) -> None:
    box.put('{"remuda": 1, "id": "x", "prompt": "do half of\nalpha\n')
    assert box.drain() == ["alpha"]
    assert len(box.lines(".dead-letter.jsonl")) == 1


def test_a_corrupt_offset_is_restored_from_our_own_file(box: Box) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    assert [box.tick(), box.tick()] == ["alpha", "bravo"]
    box.path(".inbox-offset").write_text("six")
    ran = box.run()
    assert (ran.code, ran.reason) == (0, "charlie")
    assert "corrupt" in ran.err


def test_a_corrupt_offset_alone_fails_open(box: Box) -> None:
    box.put("alpha\n")
    box.path(".inbox-offset").write_text("six")
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert "error: corrupt offset file" in ran.err
    assert box.run("recover").code == 1
    assert box.path(".inbox-offset").read_text() == "six"


def test_an_inbox_that_cannot_be_read_fails_open(box: Box) -> None:
    box.inbox.symlink_to(box.inbox)
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert "error: cannot read" in ran.err


def test_a_folder_that_is_not_there_fails_open(box: Box) -> None:
    box.inbox = box.path("missing") / "inbox.jsonl"
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert "Traceback" not in ran.err


def test_a_relative_path_is_of_the_working_folder(box: Box) -> None:
    box.put("alpha\n")
    argv = [sys.executable, "-I", "-S", str(HOOK), "--inbox=inbox.jsonl"]
    ran = subprocess.run(argv, input="", capture_output=True, text=True, cwd=box.folder)
    assert (ran.returncode, json.loads(ran.stdout)["reason"]) == (0, "alpha")
    assert box.flags() == BOTH


# ── persist ──


def test_persist_answers_a_plain_append_by_another_process(box: Box) -> None:
    box.put("first\n")
    assert box.tick("--mode", "persist") == "first"
    waiting = box.start("--mode", "persist")
    _wait_until(waiting, SYS_SIGTIMEDWAIT)
    assert box.flags() == set()  # what was answered is acknowledged before the wait
    subprocess.run(["sh", "-c", 'echo second >> "$0"', str(box.inbox)], check=True)
    ran = box.finish(waiting)
    assert (ran.code, ran.reason, ran.err) == (0, "second", "")


def test_persist_notices_an_inbox_that_is_made_later(box: Box) -> None:
    waiting = box.start("--mode", "persist")
    _wait_until(waiting, SYS_SIGTIMEDWAIT)
    box.put("alpha\n")
    assert box.finish(waiting).reason == "alpha"


def test_persist_hands_out_a_line_that_never_ends(box: Box) -> None:
    box.put("no newline")
    os.utime(box.inbox, (time.time() + 1, time.time() + 1))
    waiting = box.start("--mode", "persist")
    _wait_until(waiting, SYS_SIGTIMEDWAIT)
    os.utime(box.inbox, (time.time() - 3, time.time() - 3))
    assert box.finish(waiting).reason == "no newline"


def test_persist_ignores_other_files_of_the_folder(box: Box) -> None:
    waiting = box.start("--mode", "persist")
    _wait_until(waiting, SYS_SIGTIMEDWAIT)
    for number in range(100):
        box.path("noise").write_text(str(number))
    assert waiting.poll() is None
    box.put("alpha\n")
    assert box.finish(waiting).reason == "alpha"


# ── what it costs to start ──


@pytest.mark.parametrize("words", [[], ["--mode", "persist", "--wait", "0.001"], ["recover"]])
def test_only_builtin_and_extension_modules_are_imported(box: Box, words: list[str]) -> None:
    box.envelope(id="a", prompt="alpha")
    assert box.tick(payload={"session_id": "s"}) == "alpha"
    script = (
        "import sys; before = set(sys.modules)\n"
        f"sys.argv = {[str(HOOK), *words, '--inbox', str(box.inbox)]!r}\n"
        "source = open(sys.argv[0]).read()\n"
        "try: exec(compile(source, sys.argv[0], 'exec'))\n"
        "except SystemExit: pass\n"
        "sys.stderr.write('\\nMODULES ' + ' '.join(sorted(set(sys.modules) - before)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        input=json.dumps({"session_id": "s", "last_assistant_message": "so"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in ran.stderr
    imported = set(ran.stderr.rpartition("MODULES ")[2].split())
    assert imported <= ALLOWED_MODULES
    assert "_json" in imported
