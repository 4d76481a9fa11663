"""What heartbeat-rs has not: answers, delays, attempts, bounces, repair from evidence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.hooks import BOTH, HOOK, SYS_SIGTIMEDWAIT, Box, make_due, wait_until


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


def unheard(box: Box, how: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run the hook where no one can get its answer."""
    if how == "closed":
        shell = ["sh", "-c", 'exec "$0" "$@" >&-', *box.argv(*words)]
        return subprocess.run(shell, input=b'{"session_id": "s"}', stderr=subprocess.PIPE)
    reading, writing = os.pipe()
    os.close(reading)
    if how == "full":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    try:
        return subprocess.run(
            box.argv(*words), input=b'{"session_id": "s"}', stdout=writing, stderr=subprocess.PIPE
        )
    finally:
        os.close(writing)


UNHEARD = {
    "no reader": (0, "", "Broken pipe"),
    "full": (1, "cannot write to standard output: No space left on device", "No space left on device"),
    "closed": (0, "cannot write to standard output: Bad file descriptor", "Bad file descriptor"),
}


@pytest.mark.parametrize("how", UNHEARD)
@pytest.mark.parametrize("mode", ["drain", "persist"])
def test_a_message_that_cannot_be_printed_stays_for_the_next_stop(box: Box, how: str, mode: str) -> None:
    code, said, why = UNHEARD[how]
    box.envelope(id="m-1", prompt="before", max_attempts=1)
    box.envelope(id="m-2", prompt="alpha", max_attempts=1)
    stop = {"session_id": "s"}
    assert box.tick(payload=stop) == "before"
    for _ in range(3):  # none of these is an attempt
        ran = unheard(box, how, "--mode", mode, "--signal-file", str(box.path("signal")))
        assert ran.returncode == code
        assert said in ran.stderr.decode()
        assert "stays in the inbox" in ran.stderr.decode()
        assert box.flags() == set()
        assert box.receipts()[-1] == ("m-2", "nacked")
        assert why in box.path("receipts.jsonl").read_text().splitlines()[-1]
    assert not box.path("signal").exists()
    assert box.tick(payload=stop) == "alpha"
    assert box.tick(payload=stop) is None
    stages = [stage for name, stage in box.receipts() if name == "m-2"]
    assert stages == ["written", "nacked"] * 3 + ["written", "acked"]
    assert ("m-1", "acked") in box.receipts()


def test_a_message_that_cannot_be_printed_on_a_full_disk_is_not_acknowledged(box: Box) -> None:
    """Of all files, only the receipts can be written: there is no room to note that it is put back."""
    box.put("alpha\n")
    box.path(".inbox-queue.json.tmp").mkdir()
    ran = unheard(box, "full")
    assert "error: " in ran.stderr.decode()
    box.path(".inbox-queue.json.tmp").rmdir()
    assert box.tick(payload={"session_id": "s"}) == "alpha"
    assert "acked" not in dict(box.receipts()).values()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_hook_that_is_ended_before_it_has_printed_keeps_its_message(box: Box, number: signal.Signals) -> None:
    """As Claude Code does at the hook's timeout, and when the user presses Esc."""
    box.put("a" * (1 << 20) + "\n")
    process = box.start(payload={"session_id": "s"})  # no one reads the pipe, which takes 64 KiB
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(number)
    assert box.finish(process).code == 128 + number
    assert box.flags() == set()
    assert [stage for _, stage in box.receipts()] == ["written", "nacked"]
    assert box.tick(payload={"session_id": "s"}) == "a" * (1 << 20)


def test_hook_that_is_ended_while_it_waits_changes_nothing_of_another_session(box: Box) -> None:
    box.put("alpha\n")
    assert box.tick(payload={"session_id": "s"}) == "alpha"
    waiting = box.start("--mode", "persist", payload={"session_id": "other"})
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    waiting.terminate()
    assert box.finish(waiting).code == 143
    assert box.flags() == BOTH


def test_an_idle_tick_that_cannot_be_printed_changes_nothing(box: Box) -> None:
    assert unheard(box, "no reader", "--mode", "persist", "--wait", "0").returncode == 0
    assert box.receipts() == []


def test_help_on_a_full_disk_is_an_error(box: Box) -> None:
    ran = unheard(box, "full", "--help")
    said = ran.stderr.decode().partition(": ")[2]
    assert (ran.returncode, said) == (1, "cannot write to standard output: No space left on device\n")


def test_a_notice_that_cannot_be_printed_does_not_cost_the_message(box: Box) -> None:
    box.put("alpha\n")
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(box.argv(), input=b"not JSON", stdout=subprocess.PIPE, stderr=full)
    assert json.loads(ran.stdout)["reason"] == "alpha"


def test_a_long_message_passes_a_pipe_that_does_not_block(box: Box) -> None:
    text = "a" * (1 << 20)
    box.put(f"{text}\n")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with subprocess.Popen(
        box.argv(), stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE
    ) as hook:
        os.close(writing)
        with open(reading, "rb", buffering=0) as pipe:
            pieces = list(iter(lambda: pipe.read(4096), b""))
        assert json.loads(b"".join(pieces))["reason"] == text
        assert hook.stderr is not None
        assert hook.stderr.read() == b""


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


def test_an_agent_that_goes_on_by_itself_is_not_reported_as_ended(box: Box) -> None:
    signal = box.path("signal")
    box.put("alpha\n")
    assert box.tick(payload={"session_id": "s"}) == "alpha"
    stop = {"session_id": "s", "background_tasks": [{"id": "a1", "type": "subagent", "status": "running"}]}
    assert box.tick("--signal-file", str(signal), payload=stop) is None
    assert not signal.exists()
    assert box.tick("--signal-file", str(signal), payload={"session_id": "s"}) is None
    assert signal.exists()


@pytest.mark.parametrize("kind", ["shell", "local_bash"])
def test_a_shell_in_the_background_holds_nothing_up(box: Box, kind: str) -> None:
    box.put("alpha\nbravo\n")
    stop = {"session_id": "s", "background_tasks": [{"id": "b1", "type": kind, "status": "running"}]}
    assert [box.tick(payload=stop) for _ in range(3)] == ["alpha", "bravo", None]
    assert [stage for _, stage in box.receipts()] == ["written", "acked"] * 2


UNREADABLE = ["{", "[]", "null", "\0", "[" * 100_000, '{"session_id": "b", "x": NaN}']


@pytest.mark.parametrize("payload", ["", " \n", *UNREADABLE])
def test_any_payload_is_survived(box: Box, payload: str) -> None:
    box.put("alpha\n")
    ran = subprocess.run(box.argv(), input=payload, capture_output=True, text=True)
    assert ran.returncode == 0
    assert ("is invalid" in ran.stderr) == (payload in UNREADABLE)
    assert json.loads(ran.stdout)["reason"] == "alpha"


@pytest.mark.parametrize("payload", UNREADABLE)
def test_payload_that_cannot_be_read_acknowledges_nothing(box: Box, payload: str) -> None:
    box.put("work for a\nnext\n")
    assert box.tick(payload={"session_id": "a"}) == "work for a"
    ran = subprocess.run(box.argv(), input=payload, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "no message is acknowledged" in ran.stderr
    assert [stage for _, stage in box.receipts()] == ["written"]
    assert box.tick(payload={"session_id": "a"}) == "next"


@pytest.mark.parametrize("ahead", ["", "before\n"])
def test_a_delayed_message_lets_later_ones_pass_and_comes_when_due(box: Box, ahead: str) -> None:
    box.put(ahead)
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.put("alpha\nbravo\n")
    assert box.drain() == [*ahead.split(), "alpha", "bravo"]
    assert box.offset() == len(ahead)  # the first byte that is not acknowledged
    assert box.drain() == []
    make_due(box)
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
    make_due(box)
    assert box.drain() == ["later"]


def test_attempts_are_counted_also_when_another_goes_first(box: Box) -> None:
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.envelope(id="poison", prompt="poison", max_attempts=2)
    assert box.tick() == "poison"
    make_due(box)
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
    assert box.path(".inbox-offset").read_text() == "six"


def test_an_inbox_that_cannot_be_read_fails_open(box: Box) -> None:
    box.inbox.symlink_to(box.inbox)
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert "error: cannot read" in ran.err


def test_a_relative_path_is_of_the_working_folder(box: Box) -> None:
    box.put("alpha\n")
    argv = [sys.executable, "-I", "-S", str(HOOK), "--inbox=inbox.jsonl"]
    ran = subprocess.run(argv, input="", capture_output=True, text=True, cwd=box.folder)
    assert (ran.returncode, json.loads(ran.stdout)["reason"]) == (0, "alpha")
    assert box.flags() == BOTH


def test_an_offset_that_is_set_back_is_read_from_again_also_while_an_entry_is_in_flight(box: Box) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    assert [box.tick(), box.tick()] == ["alpha", "bravo"]
    box.path(".inbox-offset").write_text("0")
    assert box.drain() == ["alpha", "charlie"]
    assert box.offset() == 20


def test_recover_does_not_repeat_what_a_receipt_calls_answered(box: Box) -> None:
    box.put("alpha\nbravo\n")
    assert box.tick() == "alpha"
    marks = {path: path.read_bytes() for path in box.folder.iterdir() if path.name.startswith(".")}
    assert box.tick("--mode", "drain") == "bravo"
    lines = box.path("receipts.jsonl").read_text().splitlines(keepends=True)
    box.path("receipts.jsonl").write_text("".join(lines[:2]))
    for path in (box.path(".inbox-queue.json"), box.path(".inbox-offset")):
        path.unlink()
    for path, data in marks.items():  # as if it was killed between the receipt and the cursor
        path.write_bytes(data)
    assert box.recover("retry") == "StaleOrphanDeleted"
    assert box.drain() == ["bravo"]
