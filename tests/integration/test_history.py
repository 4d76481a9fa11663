"""A session's output on disk: what `logs` and `screen` print of it, alive, dead, killed, on a full disk."""

from __future__ import annotations

import os
import re
import resource
import stat

import pytest

from remuda.keeper.history_reader import HistoryReader, last_screen
from remuda.paths import SessionPaths
from remuda.terminal.history_format import Gap
from remuda.terminal.history_lines import open_transcript
from remuda.wire.connection import ClientConnection
from support.commands import Commands, run_to_end, until_line, watch
from support.heimdall_client import PATIENCE
from support.keeper import Kept, Start, output_until, until

HOSTILE = (
    r"\033]0;t\007\033]52;c;cm0=\007\033[31mred\033[0m\033[?1000h\033[6n\302\233A\033P+q\033\\ok\007\r\n"
)


def lines_of(paths: SessionPaths) -> list[str]:
    transcript = open_transcript(styled=False, unwrap=True)
    with HistoryReader(paths) as reader:
        return [*transcript.take(reader.read()), *transcript.rest()]


def finish(kept: Kept) -> None:
    with kept.hello() as client:
        client.request("kill", grace=0.0)
    assert kept.keeper.ended()


# ── what is kept ──


def test_history_of_a_flood_is_bounded_private_and_ends_with_its_last_line(start: Start) -> None:
    kept = start("s", ["sh", "-c", "read go; seq 1500000; echo END; exec cat"], history_bytes=2 << 20)
    client = kept.hello()
    client.send(ClientConnection.subscribe())
    client.send(ClientConnection.input(b"\n"))
    output_until(client, b"END")
    client.request("history")
    files = [kept.paths.older_history, kept.paths.history]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600, 0o600]
    assert sum(path.stat().st_size for path in files) <= 2 << 20
    found = [line for line in lines_of(kept.paths) if line]
    numbers = [int(line) for line in found if line.isdigit() and len(line) > 5]
    assert found[-1] == "END"
    assert numbers[-1] == 1500000
    assert numbers[-50_000:] == list(range(1450001, 1500001)), "without a gap"
    shown = client.request("screen")["lines"]
    screen = last_screen(kept.paths)
    assert screen is not None
    assert screen.lines() == shown


def test_history_survives_a_keeper_that_is_killed_in_the_middle_of_a_flood(start: Start) -> None:
    kept = start("s", ["sh", "-c", "echo first; exec seq 1000000000"], history_bytes=1 << 20)
    until(kept.paths.older_history.exists, "a second file")
    kept.keeper.kill()
    found = [int(line) for line in lines_of(kept.paths)[1:-1] if line]
    assert len(found) > 10_000
    assert found[-5000:] == list(range(found[-1] - 4999, found[-1] + 1)), "without a gap up to its end"


def test_resume_goes_on_after_a_torn_record_and_a_new_start_begins_anew(start: Start) -> None:
    first = start("s", ["sh", "-c", "echo one; exec cat"])
    with first.hello() as client:
        client.send(ClientConnection.subscribe())
        output_until(client, b"one")
        client.request("history")
    first.keeper.kill()
    whole = first.paths.history.read_bytes()
    first.paths.history.write_bytes(whole + b"\x02\x00\x00\x10\x00torn")
    second = start("s", ["sh", "-c", "echo two; exec cat"], resume=True)
    with second.hello() as client:
        client.send(ClientConnection.subscribe())
        output_until(client, b"two")
    finish(second)
    assert lines_of(second.paths) == ["one", "two"]
    assert second.paths.history.read_bytes().startswith(whole)
    third = start("s", ["sh", "-c", "echo three; exec cat"])
    with third.hello() as client:
        client.send(ClientConnection.subscribe())
        output_until(client, b"three")
    finish(third)
    assert lines_of(third.paths) == ["three"]
    fourth = start("s", ["cat"], history_bytes=0)
    finish(fourth)
    assert not list(fourth.folder.glob("s.history*"))


def test_full_disk_leaves_a_gap_and_the_session_undisturbed(start: Start) -> None:
    kept = start("s", ["sh", "-c", "stty -echo; while read x; do echo $x; done"])
    kept.may_complain = True
    with kept.hello() as client:
        client.send(ClientConnection.subscribe())
        client.send(ClientConnection.input(b"before\n"))
        output_until(client, b"before")
        client.request("history")
        limit = kept.paths.history.stat().st_size + 3  # also a torn record
        resource.prlimit(kept.keeper_pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        client.send(ClientConnection.input(b"lost\n"))
        output_until(client, b"lost")
        client.request("history")
        assert "history has a gap" in "".join(client.request("status")["degraded"])
        resource.prlimit(kept.keeper_pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        client.send(ClientConnection.input(b"after\n"))
        output_until(client, b"after")
        client.request("history")
        assert client.request("status")["degraded"] == []
        client.send(ClientConnection.input(b"last\n"))
        output_until(client, b"last")
        shown = client.request("screen")["lines"]
    finish(kept)
    with HistoryReader(kept.paths) as reader:
        assert [event.byte_count for event in reader.read() if isinstance(event, Gap)] == [6]
    screen = last_screen(kept.paths)
    assert screen is not None
    assert screen.lines() == shown, "what follows a gap begins with the screen"
    found = lines_of(kept.paths)
    assert found[0] == "before"
    assert "6 bytes of output are missing" in found[1]
    assert found[-1] == "last"


def test_size_and_alternate_screen_are_part_of_the_last_screen(start: Start) -> None:
    kept = start("s", ["sh", "-c", r"read x; printf '\033[?1049h\033[2J\033[3;5HTUI'; exec cat"])
    with kept.hello() as client:
        client.send(ClientConnection.subscribe())
        client.request("resize", cols=40, rows=6)
        client.send(ClientConnection.input(b"\n"))
        output_until(client, b"TUI")
    finish(kept)
    screen = last_screen(kept.paths)
    assert screen is not None
    assert (screen.cols, screen.rows, screen.alternate) == (40, 6, True)
    assert screen.lines()[2] == "    TUI"


# ── the commands ──


def test_logs_print_the_output_of_a_dead_session_in_text_and_raw(remuda: Commands) -> None:
    program = f"stty -echo; printf '{HOSTILE}'; seq 60; printf 'no newline'"
    assert run_to_end(remuda, "work", "--cols", "40", "--", "bash", "-c", program) == 0
    out = remuda("logs", "work").out
    first, *others = out.splitlines()
    assert first.startswith("red")
    assert first.isprintable()
    assert others == [*map(str, range(1, 61)), "no newline"]
    assert remuda("logs", "work", "--tail", "2").out == "60\nno newline\n"
    assert remuda("logs", "work", "-n", "0").out == ""
    raw = remuda("logs", "--raw", "work").out.encode()
    assert raw.startswith(b"\x1b]0;t\x07\x1b]52;c;cm0=\x07\x1b[31mred")
    assert raw.endswith(b"60\r\nno newline")
    assert remuda("logs", "--raw", "-n", "2", "work").out == "60\r\nno newline"


def test_logs_follow_prints_lines_as_they_come_and_ends_with_the_session(remuda: Commands) -> None:
    remuda.start("work", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo [$x]; done")
    following = remuda.begin("logs", "-f", "work")
    until_line(following, b"ready")
    with watch(remuda, "work") as client:
        for i in range(3):
            client.send(ClientConnection.input(b"%d\n" % i))
            assert until_line(following, b"[") == b"[%d]\n" % i
    remuda("kill", "work")
    out, err = following.communicate(timeout=PATIENCE)
    assert (following.returncode, err) == (0, b"")
    assert b"[" not in out, "no line twice"


def test_logs_follow_goes_over_to_the_next_file(remuda: Commands) -> None:
    program = "stty -echo; while read x; do seq $x; echo done $x; done"
    remuda.start("work", "--history-bytes", str(1 << 20), "--", "sh", "-c", program)
    following = remuda.begin("logs", "-f", "work")
    with watch(remuda, "work") as client:
        for count in (5, 60_000, 7):
            client.send(ClientConnection.input(b"%d\n" % count))
            until_line(following, b"done %d" % count)
    assert (remuda.sessions / "work.history.1").exists()
    remuda("kill", "work")
    following.communicate(timeout=PATIENCE)


def test_logs_follow_counts_what_was_gone_before_it_could_print_it(remuda: Commands) -> None:
    program = "stty -echo -opost; echo ready; while read x; do seq $x; echo done; done"
    remuda.start("work", "--history-bytes", str(1 << 20), "--", "sh", "-c", program)
    raw, text = remuda.begin("logs", "-f", "--raw", "work"), remuda.begin("logs", "-f", "work")
    for following in (raw, text):  # from here on no one reads what they print, until the session has ended
        until_line(following, b"ready")
    with watch(remuda, "work") as client:
        client.send(ClientConnection.input(b"900000\n"))
        output_until(client, b"done")
    remuda("kill", "work")
    out, err = raw.communicate(timeout=PATIENCE)
    missing = sum(int(number) for number in re.findall(rb"\[(\d+) bytes of output are missing", err))
    printed = sum(len(f"{number}\n") for number in range(1, 900_001)) + len("done\n")
    assert missing > 0
    assert len(out) + missing == printed
    out, err = text.communicate(timeout=PATIENCE)
    assert b" bytes of output are missing here" in out


def test_keeper_log_is_followed_when_it_rotates(remuda: Commands) -> None:
    config = remuda.home / "small.toml"
    config.write_text("log_max_bytes = 400\n")
    remuda.start("work", "--config", str(config), "--", "cat")
    following = remuda.begin("logs", "--keeper", "-f", "work")
    with watch(remuda, "work") as client:
        for cols in range(100, 120):
            client.request("resize", cols=cols, rows=30)
            until_line(following, b"resized to %dx30" % cols)
    assert (remuda.sessions / "work.log.1").exists()
    remuda("kill", "work")
    following.communicate(timeout=PATIENCE)


def test_logs_are_of_the_program_or_of_the_keeper(remuda: Commands) -> None:
    assert "use one of them" in remuda.refused("logs", "--keeper", "--raw", "work", code=2)


def test_logs_without_history_say_what_else_there_is(remuda: Commands) -> None:
    remuda.start("work", "--history-bytes", "0", "--", "cat")
    assert "logs --keeper work" in remuda.refused("logs", "work", code=3)
    assert "history_bytes must be 0 or at least" in remuda.refused(
        "start", "less", "-d", "--history-bytes", "1000", "--", "cat", code=2
    )


def test_damaged_history_is_printed_up_to_the_damage(remuda: Commands) -> None:
    assert run_to_end(remuda, "work", "--", "echo", "good") == 0
    path = remuda.sessions / "work.history"
    path.write_bytes(path.read_bytes() + b"\x02\xff\xff\xff\xff junk")
    done = remuda("logs", "work")
    assert done.out == "good\n"
    assert "is damaged" in done.err


def test_screen_of_a_dead_session_is_its_last(remuda: Commands) -> None:
    assert run_to_end(remuda, "work", "--", "sh", "-c", "echo one; echo two; exit 9") == 9
    done = remuda("screen", "work")
    assert done.out == "one\ntwo\n"
    assert done.err == "remuda: session 'work' has ended with exit code 9; below is its last screen\n"
    shown = remuda.json("screen", "work")
    assert (shown["lines"][:2], shown["cols"], shown["cursor"]["y"]) == (["one", "two"], 220, 2)


def test_clean_removes_history_with_the_rest(remuda: Commands) -> None:
    assert run_to_end(remuda, "work", "--", "echo", "x") == 0
    (remuda.sessions / "work.history.1").write_bytes(b"")
    (remuda.sessions / "work.history.1").chmod(0o600)
    for path in remuda.sessions.glob("work*"):
        os.utime(path, (0, 0))
    assert "work.history\n" in remuda("clean").out
    remuda("clean", "--force")
    assert not list(remuda.sessions.glob("work*"))


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_planted_history_file_is_replaced_and_never_written_through(remuda: Commands, planted: str) -> None:
    remuda.sessions.mkdir(mode=0o700)
    other = remuda.home / "other"
    other.write_text("precious")
    path = remuda.sessions / "work.history"
    path.symlink_to(other) if planted == "link" else os.mkfifo(path)
    assert run_to_end(remuda, "work", "--cols", "80", "--", "echo", "x") == 0
    assert other.read_text() == "precious"
    assert remuda("logs", "work").out == "x\n"
