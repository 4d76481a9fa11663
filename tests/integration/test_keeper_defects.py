"""The ten defects that were seen in Heimdall 1.0.0 (SYSTEMS.md, section 6), none of which we may have."""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import socket
import stat
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remuda.errors import BadName, SessionExists
from remuda.keeper.claim import read_holder
from remuda.keeper.start import Started, start_session
from remuda.paths import SessionPaths
from support import counts
from support.heimdall_client import EXIT, OUTPUT, STATUS, STATUS_RESP, HeimdallClient, frame
from support.keeper import Kept, Process, Start, end_processes, make_spec, try_start

RAW = "stty raw -echo; printf READY; "
IGNORES = "trap '' TERM HUP INT; "
STAYS = "while :; do sleep 60; done"


def pid_in(output: bytes) -> int:
    found = re.search(rb"pid=(\d+);", output)
    assert found, output
    return int(found[1])


# ── 1: input ──


def test_input_of_200_000_bytes_arrives_whole(start: Start) -> None:
    typed = random.Random(1).randbytes(200_000)
    client = start("s", ["sh", "-c", f"{RAW} head -c 200000 | sha256sum; exec cat"]).ready()
    client.type(typed)
    client.read_until(hashlib.sha256(typed).hexdigest().encode())


def test_input_far_beyond_what_is_read_waits_and_arrives_whole_and_in_order(start: Start) -> None:
    """More than the keeper holds: it stops reading this client until the program reads on."""
    size = 5 << 20
    typed = random.Random(2).randbytes(size)
    program = (
        f"{RAW} while [ ! -e go ]; do read -t 0.01 none <> wait; done; head -c {size} | sha256sum; exec cat"
    )
    folder = start("other", ["cat"]).folder
    os.mkfifo(folder / "wait")
    kept = start("s", ["bash", "-c", program], cwd=str(folder))
    client, other = kept.subscriber(), kept.client()
    client.read_until(b"READY")

    def send() -> None:
        for at in range(0, size, 65536):
            client.type(typed[at : at + 65536])

    sender = threading.Thread(target=send)
    sender.start()
    assert other.status().alive == 1
    (folder / "go").write_text("")
    client.read_until(hashlib.sha256(typed).hexdigest().encode())
    sender.join()


# ── 2, 3, 5: the end ──


def test_output_pending_at_exit_is_framed_and_whole_and_exit_is_last(start: Start) -> None:
    expected = b"".join(b"%d\r\n" % number for number in range(1, 20_001)) + b"END"
    for number in range(counts.EXITS):
        kept = start(
            f"s{number}", ["sh", "-c", "stty -echo; printf READY; read line; seq 1 20000; printf END"]
        )
        client = kept.ready()
        client.type(b"\n")
        assert client.exit_code() == 0
        assert client.output == b"READY" + expected
        assert client.at_end()


@pytest.mark.soak
def test_output_unread_when_the_program_is_long_gone_is_whole(start: Start, home: Path) -> None:
    """The keeper is stopped until the program is dead: its output still waits in the kernel."""
    size = 8_000  # more than one read of a terminal gives, less than makes the program wait
    program = f"stty raw -echo; printf READY; read go <{home}/go; "
    program += f"head -c {size} /dev/zero | tr '\\0' x; printf END"
    os.mkfifo(home / "go")
    for number in range(counts.EXITS):
        kept = start(f"s{number}", ["sh", "-c", program])
        client, ended = kept.subscriber(), Process(kept.child_pid)
        client.read_until(b"READY")
        kept.keeper.signal(signal.SIGSTOP)
        (home / "go").write_text("\n")
        ended.gone()
        kept.keeper.signal(signal.SIGCONT)
        assert client.exit_code() == 0
        assert client.output == b"READY" + b"x" * size + b"END"


def test_output_pending_at_exit_a_background_process_holds_the_terminal_is_whole(
    start: Start, home: Path
) -> None:
    program = (
        "stty -echo; printf READY; read line; setsid sleep 600 & echo $! > holder; seq 1 3000; printf END"
    )
    kept = start("s", ["sh", "-c", program], cwd=str(home))
    client = kept.ready()
    client.type(b"\n")
    assert client.exit_code() == 0
    assert client.output.endswith(b"\r\n3000\r\nEND")
    assert not end_processes([int((home / "holder").read_text())])


def test_exit_with_a_background_process_that_prints_on_and_on_is_reported(start: Start, home: Path) -> None:
    chatter = "while :; do printf .; sleep 0.02; done"
    program = f"printf READY; read line; trap '' HUP; sh -c '{chatter}' & echo $! > chatter; exit 3"
    kept = start("s", ["sh", "-c", program], cwd=str(home))
    client = kept.ready()
    client.type(b"\n")
    assert client.exit_code() == 3
    assert kept.keeper.ended()
    assert not end_processes([int((home / "chatter").read_text())])


def slow_and_fast(kept: Kept) -> tuple[HeimdallClient, HeimdallClient]:
    """Two subscribers of a program that was let go on, and ended with code 3."""
    slow, fast = kept.client(receive_buffer_bytes=4096), kept.subscriber()
    slow.subscribe()
    slow.read_until(b"READY")
    fast.type(b"\n")
    assert fast.exit_code() == 3
    assert slow.exit_code() == 3
    return slow, fast


def test_exit_slow_subscriber_within_the_bound_gets_every_byte_and_then_the_exit(start: Start) -> None:
    kept = start("s", ["sh", "-c", "stty -echo; printf READY; read line; seq 1 200000; printf END; exit 3"])
    slow, fast = slow_and_fast(kept)
    assert slow.output == fast.output
    assert slow.at_end()


def test_exit_subscriber_that_lagged_gets_the_last_screen_and_then_the_exit(start: Start) -> None:
    kept = start("s", ["sh", "-c", "stty -echo; printf READY; read line; seq 1 1000000; printf END; exit 3"])
    slow, _ = slow_and_fast(kept)
    assert len(slow.output) < sum(len(str(number)) + 2 for number in range(1, 1_000_001))
    last = bytes(slow.output[-20_000:])
    assert b"1000000" in last
    assert b"END" in last
    assert slow.at_end()


# ── 4: killing ──


def kills(kept: Kept, client: HeimdallClient, *others: Process) -> None:
    program = Process(kept.child_pid)
    client.kill()
    client.until(EXIT)
    assert kept.keeper.ended()
    assert not program.alive
    assert not [other.pid for other in others if other.alive]
    for process in (program, *others):
        process.close()


def test_kill_program_that_ignores_term_is_killed(start: Start) -> None:
    kept = start("s", ["sh", "-c", f"{IGNORES} printf READY; {STAYS}"], kill_grace=0.2)
    client = kept.ready()
    client.kill()
    assert client.exit_code() == 137
    assert kept.keeper.ended()


def test_kill_stopped_program_is_killed(start: Start) -> None:
    kept = start("s", ["sh", "-c", "printf READY; kill -STOP $$; exec cat"])
    client = kept.ready()
    client.kill()
    assert client.exit_code() == 143  # it took its TERM; it did not have to be killed


def test_kill_grandchild_in_its_own_process_session_is_killed(start: Start) -> None:
    inner = f"{IGNORES} {STAYS}"
    program = f'setsid sh -c "{inner}" & printf "pid=%s;" $!; exec cat'
    kept = start("s", ["sh", "-c", program], kill_grace=0.2)
    client = kept.subscriber()
    kills(kept, client, Process(pid_in(client.read_until(b";"))))


def test_kill_daemon_that_forked_twice_is_killed(start: Start) -> None:
    inner = f"{IGNORES} {STAYS}"
    program = f'(setsid sh -c "{inner}" </dev/null >/dev/null 2>&1 & printf "pid=%s;" $!); exec cat'
    kept = start("s", ["sh", "-c", program], kill_grace=0.2)
    client = kept.subscriber()
    daemon = Process(pid_in(client.read_until(b";")))
    kills(kept, client, daemon)


def test_kill_program_gone_first_and_its_daemon_ignores_term_both_are_gone_before_exit(start: Start) -> None:
    inner = f"{IGNORES} printf 'pid=%s;' $$ >/dev/tty; {STAYS}"
    kept = start("s", ["sh", "-c", f'setsid -f sh -c "{IGNORES} {STAYS}"; {inner}'], kill_grace=0.2)
    client = kept.subscriber()
    client.read_until(b";")
    kills(kept, client)


def test_kill_without_the_group_only_the_program_ends(start: Start) -> None:
    program = "setsid sh -c 'printf \"pid=%s;\" $$; exec sleep 60' & exec cat"
    kept = start("s", ["sh", "-c", program], kill_group=False)
    client = kept.subscriber()
    grandchild = Process(pid_in(client.read_until(b";")))
    client.kill()
    assert client.exit_code() == 143
    assert kept.keeper.ended()
    assert grandchild.alive
    end_processes([grandchild.pid])
    grandchild.close()


def test_kill_without_the_group_program_that_ignores_term_is_killed(start: Start) -> None:
    kept = start("s", ["sh", "-c", f"{IGNORES} printf READY; {STAYS}"], kill_group=False, kill_grace=0.2)
    client = kept.ready()
    client.kill()
    assert client.exit_code() == 137


def test_kill_interactive_shell_that_ignores_term_ends_by_hangup(start: Start) -> None:
    kept = start("s", ["bash", "--norc", "-i"], kill_grace=30.0)
    client = kept.subscriber()
    client.type(b"echo o''k\n")
    client.read_until(b"ok")
    client.kill()
    assert client.exit_code() in (1, 128 + signal.SIGHUP)


# ── 6: split frames ──


@pytest.mark.soak
def test_frame_in_single_bytes_while_output_streams_is_always_heard(start: Start) -> None:
    kept = start("s", ["sh", "-c", "while :; do echo tick; sleep 0.001; done"])
    client = kept.subscriber()
    for _ in range(counts.STATUS_IN_PIECES):
        for byte in frame(STATUS):
            client.until(OUTPUT)
            client.sock.sendall(bytes((byte,)))
        assert len(client.until(STATUS_RESP)) == 15


# ── 7: names ──


@pytest.mark.parametrize("name", ["../evil", "", ".", "..", "a/b", "/tmp/evil", "-x", "a b", "x" * 65])
def test_start_bad_name_is_refused_and_writes_nothing(home: Path, name: str) -> None:
    with pytest.raises(BadName):
        start_session(make_spec(home / "sessions", name, ["true"]))
    assert list(home.rglob("*")) == []


# ── 8: replay and live ──


@pytest.mark.soak
def test_join_while_output_streams_sees_no_gap_and_no_repeat(start: Start) -> None:
    kept = start("s", ["seq", "1", "2000000000"])
    for _ in range(counts.JOINS):
        client = kept.subscriber()
        while len(client.output) < 120_000:  # more than is replayed, less than waits for one who reads late
            client.until(OUTPUT)
        client.close()
        numbers = [int(line) for line in bytes(client.output).split(b"\r\n")[1:-1]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# ── 9: modes ──


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_files_any_umask_are_private(start: Start, home: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        kept = start("s", ["cat"], env={**os.environ, "SECRET": "hunter2"}, record_file=str(home / "s.cast"))
    finally:
        os.umask(before)
    client = kept.subscriber()
    client.status()  # all its files are there, and none of them is being replaced
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [kept.folder, *home.rglob("*")]}
    assert modes.pop(kept.folder) == 0o700
    assert set(modes.values()) == {0o600}, modes
    assert {".log", ".json", ".sock", ".pid", ".cast"} <= {path.suffix for path in modes}
    client.kill()
    client.until(EXIT)
    assert not [path for path in home.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_socket_and_pid_file_any_umask_are_0600_while_it_lives(start: Start, mask: int) -> None:
    before = os.umask(mask)
    try:
        kept = start("s", ["cat"])
    finally:
        os.umask(before)
    for path in (kept.paths.socket, kept.paths.pid, kept.paths.log, kept.paths.record):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_environment_of_the_program_is_nobodys_argument(start: Start) -> None:
    kept = start("s", ["cat"], env={**os.environ, "SECRET": "hunter2"})
    assert b"hunter2" not in Path(f"/proc/{kept.keeper_pid}/cmdline").read_bytes()


# ── 10: the socket ──


@pytest.mark.soak
def test_socket_accepts_from_the_moment_it_can_be_seen(home: Path) -> None:
    folder = home / "sessions"
    folder.mkdir()
    with ThreadPoolExecutor(1) as starting:
        for number in range(counts.STARTS):
            path = str(folder / f"s{number}.sock")
            begun = starting.submit(start_session, make_spec(folder, f"s{number}", ["cat"]))
            while not os.path.lexists(path):
                assert not begun.done() or not begun.exception()
            with socket.socket(socket.AF_UNIX) as early:
                early.connect(path)
                assert early.recv(1) == b"\x00"
            end_processes(begun.result())


@pytest.mark.soak
def test_start_one_name_at_the_same_time_exactly_one_wins(home: Path) -> None:
    folder = home / "sessions"
    for number in range(counts.RACES):
        spec = make_spec(folder, f"s{number}", ["cat"])
        with ThreadPoolExecutor(4) as pool:
            ends = list(pool.map(try_start, [spec] * 4))
        winners = [end for end in ends if isinstance(end, Started)]
        assert len(winners) == 1, ends
        assert all(isinstance(end, Started | SessionExists) for end in ends), ends
        holder = read_holder(SessionPaths(folder, spec.name))
        assert holder is not None
        assert (holder.keeper_pid, holder.child_pid) == winners[0]
        end_processes(winners[0])


def test_half_a_frame_then_the_end_harms_no_one(start: Start) -> None:
    kept = start("s", ["cat"])
    for size in range(1, 7):
        half = kept.client()
        half.sock.sendall(struct.pack(">BI", 0x01, 2) + b"ab"[: max(0, size - 5)])
        half.close()
    assert kept.client().status().alive == 1
