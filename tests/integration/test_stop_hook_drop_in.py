"""The Stop hook under the name heartbeat-stop, in settings and launchers that were written for that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.hooks import BOTH, IDLE, PATIENCE, SYS_SIGTIMEDWAIT, Box, Ran, start_while_written, wait_until

HEARTBEAT_STOP = str(Path(sys.executable).with_name("heartbeat-stop"))
PERSIST = ("--mode", "persist")


def heartbeat(box: Box, *words: str, stdin: int = subprocess.DEVNULL) -> Ran:
    done = subprocess.run(
        [HEARTBEAT_STOP, *words, "--inbox", str(box.inbox)],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


# ── the idle interval ──


def test_idle_interval_bounds_the_wait_and_announces_it(box: Box) -> None:
    ran = box.run(*PERSIST, "--idle-interval", "0.05")
    assert (ran.code, ran.reason) == (0, IDLE)
    assert ran.err == "remuda stop-hook: idle sleep 0.05s — ensure hook timeout > 0.05s\n"
    assert box.tick(*PERSIST, "--idle-interval", "0") == IDLE


@pytest.mark.parametrize(
    "words", [["--wait", "0.05", "--idle-interval", "600"], ["--wait", "600", "--idle-interval", "0.05"]]
)
def test_idle_interval_beside_a_wait_the_shorter_one_counts(box: Box, words: list[str]) -> None:
    assert box.run(*PERSIST, *words).reason == IDLE


def test_heartbeat_stop_without_an_interval_gives_an_idle_tick_after_two_seconds(box: Box) -> None:
    ran = heartbeat(box, *PERSIST)
    assert (ran.code, ran.reason) == (0, IDLE)
    assert ran.err == "heartbeat-stop: idle sleep 2s — ensure hook timeout > 2s\n"


def test_idle_interval_is_cut_short_by_a_message(box: Box) -> None:
    waiting = box.start(*PERSIST, "--idle-interval", "600")
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    box.put("late message\n")
    assert box.finish(waiting).reason == "late message"


# ── a message that is being written ──


def test_drain_waits_for_the_end_of_a_line_and_reports_no_end(box: Box) -> None:
    signal = box.path("signal")
    box.put('"half of a mess')
    waiting = start_while_written(box, "--signal-file", str(signal))
    box.put('age"\n')
    assert box.finish(waiting).reason == "half of a message"
    assert not signal.exists()
    assert box.tick("--signal-file", str(signal)) is None
    assert signal.exists()


def test_drain_approves_when_the_line_turns_out_to_be_blank(box: Box) -> None:
    box.put("  x")
    waiting = start_while_written(box, "--signal-file", str(box.path("signal")))
    box.inbox.write_bytes(b"   \n")
    assert box.finish(waiting).out == ""
    assert box.path("signal").exists()


def test_drain_gives_up_a_line_without_end_and_reports_no_end_either(box: Box) -> None:
    box.put("still being writ")
    script = (
        "import os, sys, time; from remuda.inbox import stop_hook; stop_hook.TORN_LIMIT = 0.05\n"
        "os.utime(sys.argv[2], (time.time() + 1, time.time() + 1)); stop_hook.main()"
    )
    words = ["--inbox", str(box.inbox), "--signal-file", str(box.path("signal"))]
    ran = subprocess.run([sys.executable, "-c", script, *words], input="", capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "is incomplete; a later stop will read it" in ran.stderr
    assert not box.path("signal").exists()


# ── files that are damaged, or not there ──


def test_recover_with_a_corrupt_offset_and_nothing_in_flight_succeeds(box: Box) -> None:
    box.put("alpha\n")
    box.path(".inbox-offset").write_text("six")
    box.path(".responded").touch()
    ran = heartbeat(box, "recover")
    assert (ran.code, ran.err) == (0, "heartbeat-stop recover: NothingToRecover\n")
    assert box.flags() == set()
    assert box.path(".inbox-offset").read_text() == "six"


def test_folder_that_does_not_exist_is_an_empty_inbox(box: Box) -> None:
    box.inbox = box.path("missing") / "inbox.jsonl"
    assert box.tick() is None
    assert box.tick(*PERSIST, "--wait", "0.01") == IDLE
    ran = heartbeat(box, "recover")
    assert (ran.code, ran.err) == (0, "heartbeat-stop recover: NothingToRecover\n")
    assert not box.path("missing").exists()


def test_persist_finds_a_message_in_a_folder_that_is_made_later(box: Box) -> None:
    box.inbox = box.path("later") / "inbox.jsonl"
    waiting = box.start(*PERSIST)
    box.path("later").mkdir()
    box.put("alpha\n")
    assert box.finish(waiting).reason == "alpha"


def test_persist_with_a_corrupt_offset_and_no_inbox_gives_an_idle_tick(box: Box) -> None:
    box.path(".inbox-offset").write_text("six")
    assert box.tick(*PERSIST, "--wait", "0") == IDLE
    assert box.path(".inbox-offset").read_text() == "six"


def test_offset_that_is_lost_while_an_entry_is_in_flight_repeats_nothing(box: Box) -> None:
    box.put("alpha\nbravo\ncharlie\ndelta\n")
    box.path(".inbox-offset").write_text("12")  # by another program: none of our own files is there
    assert box.tick() == "charlie"
    box.path(".inbox-offset").unlink()
    ran = box.run()
    assert (ran.reason, box.offset()) == ("delta", 20)
    assert "restored from .in-flight" in ran.err
    assert box.drain() == []


def test_offset_that_is_lost_with_our_own_file_keeps_what_is_delayed(box: Box) -> None:
    box.put("alpha\n")
    box.envelope(id="later", prompt="later", not_before=time.time() + 3600)
    box.put("bravo\ncharlie\n")
    box.path(".inbox-offset").write_text("6")
    assert box.tick() == "bravo"
    for name in (".inbox-offset", ".inbox-queue.json"):
        box.path(name).unlink()
    assert box.run().reason == "charlie"
    assert box.offset() == 6  # the delayed one is the first that is not acknowledged


def test_recover_names_the_entry(box: Box) -> None:
    box.put("alpha\n")
    assert box.tick() == "alpha"
    entry = box.flight()["entry_id"]
    ran = heartbeat(box, "recover", "--on-orphan", "retry")
    assert (ran.code, ran.err) == (0, f'heartbeat-stop recover: ReQueued {{ entry_id: "{entry}" }}\n')


# ── the command line and its streams ──


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["recover", "--help"], ["recover", "-h"]])
def test_help_is_printed_and_succeeds(words: list[str]) -> None:
    done = subprocess.run([HEARTBEAT_STOP, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: heartbeat-stop [recover] --inbox FILE")
    assert "--idle-interval" in done.stdout


@pytest.mark.parametrize("flag", ["--inbox", "--signal-file", "--mode", "--idle-interval"])
def test_option_without_its_value_is_a_wrong_command_line(flag: str) -> None:
    done = subprocess.run([HEARTBEAT_STOP, flag], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"heartbeat-stop: {flag} needs a value\n")


def test_standard_input_that_stays_open_holds_up_no_tick(box: Box) -> None:
    box.put("alpha\nbravo\n")
    reading, writing = os.pipe()
    try:
        assert heartbeat(box, stdin=reading).reason == "alpha"
        os.write(writing, b'{"session_id": "s", "last_assistant_message": "so"}')
        assert heartbeat(box, stdin=reading).reason == "bravo"
    finally:
        os.close(reading)
        os.close(writing)
    assert [one["text"] for one in box.lines("outbox.jsonl")] == ["so"]


def test_payload_that_comes_in_pieces_is_read_to_its_end(box: Box) -> None:
    box.put("alpha\n")
    assert box.tick() == "alpha"
    process = subprocess.Popen(box.argv(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    for piece in (b'{"session_id": "s", ', b'"last_assistant_message": "', b"x" * 500_000, b'"}'):
        process.stdin.write(piece)
        process.stdin.flush()
    assert process.communicate(timeout=PATIENCE)[0] == b""
    assert [len(one["text"]) for one in box.lines("outbox.jsonl")] == [500_000]


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_closed_streams_are_no_error_and_no_file_of_the_inbox_takes_their_place(
    box: Box, closed: str
) -> None:
    box.put("alpha\nbravo\n")
    redirections = " ".join(f"{fd}>&-" for fd in closed.split())
    line = f'exec "$0" --inbox "$1" {redirections}'
    for _ in range(2):
        done = subprocess.run(
            ["sh", "-c", line, HEARTBEAT_STOP, str(box.inbox)], stdin=subprocess.DEVNULL, capture_output=True
        )
        assert done.returncode == 0
        assert closed == "1" or done.stderr == b""
    assert box.inbox.read_text() == "alpha\nbravo\n"
    # Where it cannot print, nothing is handed out.
    assert (box.flags(), box.offset()) == ((set(), 0) if "1" in closed else (BOTH, 6))
    # Also where there is something to say on standard error.
    box.path(".responded").touch()
    box.path(".in-flight").unlink(missing_ok=True)
    done = subprocess.run(["sh", "-c", line, HEARTBEAT_STOP, str(box.inbox)], stdin=subprocess.DEVNULL)
    assert done.returncode == 0
