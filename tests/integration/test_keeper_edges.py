"""Corners that keepers were once seen to cut."""

from __future__ import annotations

import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import BadName, FolderUnusable, InvalidOptions, RemoteProtocolError, SessionUnreachable
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.keeper.start import Started, start_session
from remuda.paths import SessionPaths, private_folder
from remuda.terminal.pty import DRAIN_BYTES
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection, KeeperConnection
from support.heimdall_client import KILL, PATIENCE, RESIZE, STATUS, STATUS_RESP, frame
from support.keeper import (
    Kept,
    Process,
    Start,
    end_processes,
    event_named,
    events_until,
    make_spec,
    output_until,
    try_start,
)

CAT = ["sh", "-c", "printf READY; exec cat"]
TOTAL = 7_888_896  # bytes of `seq 1 1000000` on a terminal, whose lines end with two
STUBBORN = ["sh", "-c", "trap '' TERM HUP; printf READY; while :; do sleep 60; done"]


def subscribed(kept: Kept, *, window_bytes: int = 0) -> KeeperClient:
    client = kept.hello(window_bytes=window_bytes)
    client.send(ClientConnection.subscribe())
    return client


# ── flow control and lag ──


@pytest.mark.parametrize("window_bytes", [1, 1000, 65536, 1 << 20])
def test_window_client_that_acknowledges_everything_gets_everything(start: Start, window_bytes: int) -> None:
    program = "stty -echo; printf READY; read line; seq 1 100000; printf FLOODED; exec cat"
    kept = start("s", ["sh", "-c", program])
    client, other = subscribed(kept, window_bytes=window_bytes), kept.subscriber()
    other.read_until(b"READY")
    other.type(b"\n")
    other.read_until(b"FLOODED")
    seen = b""
    while b"FLOODED" not in seen:
        for event in client.receive(PATIENCE):
            if isinstance(event, wire.OutputReceived | wire.RepaintReceived):
                seen += event.data
                client.send(ClientConnection.ack(len(event.data)))
    assert b"\r\n99999\r\n100000\r\nFLOODED" in seen


def test_window_client_that_never_acknowledges_gets_little_and_still_its_answers(start: Start) -> None:
    kept = start(
        "s", ["sh", "-c", "stty -echo; printf READY; read line; seq 1 100000; printf FLOODED; exec cat"]
    )
    client, other = subscribed(kept, window_bytes=10_000), kept.subscriber()
    other.read_until(b"READY")
    other.type(b"\n")
    other.read_until(b"FLOODED")
    assert client.request("status")["alive"]
    seen = sum(len(event.data) for event in client.receive(0) if isinstance(event, wire.OutputReceived))
    assert seen <= 10_000 + DRAIN_BYTES + 4096


def test_lag_status_asked_before_it_is_still_answered(start: Start) -> None:
    program = "stty -echo; printf READY; read line; seq 1 200000; printf HALF; read line; "
    program += "seq 1 1000000; printf FLOODED; exec cat"
    kept = start("s", ["sh", "-c", program])
    lagging, other = kept.client(receive_buffer_bytes=4096), subscribed(kept)
    lagging.subscribe()
    lagging.read_until(b"READY")
    other.send(frame(0x01, b"\n"))
    output_until(other, b"HALF")
    lagging.send(STATUS)
    kept.client().status()  # the keeper has heard it
    other.send(frame(0x01, b"\n"))
    output_until(other, b"FLOODED")
    assert len(lagging.until(STATUS_RESP)) == 15


def test_lag_mark_says_how_much_was_lost(start: Start) -> None:
    program = "stty -echo; printf READY; read line; seq 1 1000000; printf FLOODED; exec cat"
    kept = start("s", ["sh", "-c", program])
    lagging, other = subscribed(kept), subscribed(kept)
    output_until(lagging, b"READY")
    other.send(frame(0x01, b"\n"))
    output_until(other, b"FLOODED")
    *before, mark = events_until(
        lagging, lambda event: isinstance(event, wire.EventReceived) and event.document["event"] == "lagged"
    )
    got = sum(len(event.data) for event in before if isinstance(event, wire.OutputReceived))
    assert isinstance(mark, wire.EventReceived)
    assert mark.document["bytes"] == TOTAL + len(b"FLOODED") - got


# ── the end ──


def test_subscribe_while_the_end_is_reported_to_a_slow_client_gets_the_exit_too(start: Start) -> None:
    kept = start("s", ["sh", "-c", "stty -echo; printf READY; read line; seq 1 200000; printf END; exit 3"])
    slow, late = kept.client(receive_buffer_bytes=4096), kept.client()
    slow.subscribe()
    slow.read_until(b"READY")
    late.type(b"\n")
    while late.status().state != 0xFF:
        pass
    late.subscribe()
    assert late.exit_code() == 3
    assert late.output.endswith(b"END")


def to_the_end(client: KeeperClient) -> list[wire.ClientEvent]:
    heard: list[wire.ClientEvent] = []
    try:
        while True:
            heard += client.receive(PATIENCE)
    except EOFError:
        return heard


def test_exit_is_the_last_that_any_subscriber_hears(start: Start) -> None:
    kept = start("s", CAT)
    clients = [subscribed(kept) for _ in range(4)]
    clients[-1].request("status")
    clients[0].request("kill")
    for client in clients:
        assert isinstance(to_the_end(client)[-1], wire.ExitReceived)


@pytest.mark.parametrize("grace", ["NaN", "Infinity", "1e400"])
def test_kill_grace_that_is_not_json_ends_that_connection_alone(start: Start, grace: str) -> None:
    kept = start("s", STUBBORN, kill_grace=0.1)
    client, asker = kept.subscriber(), kept.hello()
    client.read_until(b"READY")
    asker.send(frame(0x11, b'{"id":77,"op":"kill","args":{"grace":%s}}' % grace.encode()))
    with pytest.raises(EOFError):
        list(events_until(asker, lambda _: False))
    client.kill()
    assert client.exit_code() == 137


@pytest.mark.parametrize("grace", ["true", "-1", '"5"'])
def test_kill_grace_that_is_no_time_is_refused_and_a_kill_still_kills(start: Start, grace: str) -> None:
    kept = start("s", STUBBORN, kill_grace=0.1)
    client, asker = kept.subscriber(), kept.hello()
    client.read_until(b"READY")
    asker.send(frame(0x11, b'{"id":77,"op":"kill","args":{"grace":%s}}' % grace.encode()))
    *_, answer = events_until(asker, lambda event: isinstance(event, wire.ResponseReceived))
    assert isinstance(answer, wire.ResponseReceived)
    assert answer.document["ok"] is False
    client.kill()
    assert client.exit_code() == 137


@pytest.fixture
def immutable(home: Path) -> Iterator[Path]:
    """A folder that even root cannot write to, once `chattr` is called on it."""
    folder = home / "sessions"
    folder.mkdir(0o700)
    if subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("chattr does not work here")
    subprocess.run(["chattr", "-i", folder], check=True)
    yield folder
    subprocess.run(["chattr", "-i", folder], check=True)


def test_folder_became_unwritable_the_end_is_still_reported(start: Start, immutable: Path) -> None:
    kept = start("s", CAT)
    kept.may_complain = True
    client = kept.ready()
    subprocess.run(["chattr", "+i", immutable], check=True)
    client.kill()
    assert client.exit_code() == 143
    assert kept.keeper.ended()


def test_private_folder_that_cannot_be_tightened_is_refused(immutable: Path) -> None:
    immutable.chmod(0o755)
    subprocess.run(["chattr", "+i", immutable], check=True)
    with pytest.raises(FolderUnusable):
        private_folder(immutable)


def test_private_folder_elsewhere_is_left_as_it_is_or_refused_when_others_may_write(
    home: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    private_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    tmp_path.chmod(0o777)
    with pytest.raises(FolderUnusable):
        private_folder(tmp_path)


# ── size ──


@pytest.mark.parametrize("policy", ["latest", "smallest"])
def test_size_by_command_holds_when_the_one_who_asked_leaves(start: Start, policy: str) -> None:
    kept = start("s", CAT, size_policy=policy)
    attached, asker = kept.subscriber(), kept.hello()
    attached.resize(80, 24)
    attached.status()
    watcher = kept.hello()
    watcher.request("watch")
    asker.request("resize", cols=100, rows=30)
    asker.close()
    event_named(watcher, "resized", cols=100, rows=30)
    found = kept.hello().describe()  # a new connection: the leave was seen before it
    assert (found["cols"], found["rows"]) == (100, 30)


# ── words before a broken one ──


def heard_before_the_error(stream: bytes, size: int) -> list[wire.KeeperEvent]:
    keeper, heard = KeeperConnection(), []
    try:
        for at in range(0, len(stream), size):
            for event in keeper.receive(stream[at : at + size]):
                heard.append(event)  # noqa: PERF402  # what came before the error counts
    except RemoteProtocolError:
        return heard
    pytest.fail("the broken word was taken")


@pytest.mark.parametrize("broken", [struct.pack(">BI", 0x03, 1 << 30), frame(RESIZE, b"xx")])
def test_keeper_connection_words_before_a_broken_one_are_heard_however_they_are_cut(broken: bytes) -> None:
    stream = ClientConnection.ask_status() + ClientConnection.kill() + broken
    for size in (1, 5, len(stream)):
        assert heard_before_the_error(stream, size) == [wire.StatusAsked(), wire.KillAsked()]


def test_kill_in_one_piece_with_a_broken_word_after_it_kills(start: Start) -> None:
    kept = start("s", CAT)
    client, broken = kept.subscriber(), kept.client()
    broken.sock.sendall(frame(KILL) + frame(RESIZE, b"xx"))
    assert broken.at_end()
    assert client.exit_code() == 143


# ── starting ──


@pytest.mark.parametrize(
    "wrong",
    [
        {"size_policy": "biggest"},
        {"cols": 0},
        {"rows": 0},
        {"cols": -1},
        {"cols": 100_000},
        {"scrollback_bytes": -1},
        {"kill_grace": -1.0},
        {"argv": []},
        {"env": {"A": "b\0c"}},
    ],
)
def test_start_wrong_option_is_refused_and_leaves_no_process(home: Path, wrong: dict[str, Any]) -> None:
    os.mkfifo(home / "alive")
    reader = os.open(home / "alive", os.O_RDONLY | os.O_NONBLOCK)
    argv = ["sh", "-c", f"trap '' HUP TERM; exec 3>{home}/alive; echo here >&3; sleep 60"]
    given = {"argv": argv, **wrong}
    end = try_start(make_spec(home / "sessions", "s", given.pop("argv"), **given))
    if isinstance(end, Started):
        end_processes(end)
    assert isinstance(end, InvalidOptions)
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_start_name_with_a_nul_is_refused(home: Path) -> None:
    with pytest.raises(BadName):
        start_session(make_spec(home / "sessions", "a\0b", CAT))


def test_log_on_a_device_is_refused_and_leaves_the_modes_of_the_device_alone(home: Path) -> None:
    """`--log-file /dev/null` as root must not close /dev/null to all other users."""
    master, slave = os.openpty()
    os.fchmod(slave, 0o620)
    end = try_start(make_spec(home / "sessions", "s", CAT, log_file=os.ttyname(slave)))
    assert isinstance(end, FolderUnusable)
    assert "it is not a regular file" in str(end)
    assert stat.S_IMODE(os.fstat(slave).st_mode) == 0o620
    os.close(master)
    os.close(slave)


def test_folders_umask_zero_all_that_were_made_are_private(start: Start, home: Path) -> None:
    before = os.umask(0)
    try:
        start("s", CAT, folder=home / "a" / "b" / "sessions")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((home / path).stat().st_mode) for path in ("a", "a/b", "a/b/sessions")]
    assert modes == [0o700] * 3


# ── finding ──


def test_read_holder_of_a_stale_file_many_look_at_once_is_none_for_all(home: Path) -> None:
    paths = SessionPaths(home, "s")
    paths.pid.write_text("2147483647\n1")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: [read_holder(paths) for _ in range(2000)], range(4)))
    assert not [holder for holders in found for holder in holders if holder is not None]


def test_connect_keeper_hangs_up_at_once_is_unreachable(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "s.sock"))
        listener.listen()
        hanging_up = threading.Thread(target=lambda: listener.accept()[0].close())
        hanging_up.start()
        with pytest.raises(SessionUnreachable):
            KeeperClient.connect("s", home)
        hanging_up.join()


# ── replies ──


def test_replies_to_a_query_that_was_printed_in_two_pieces_are_dropped(start: Start, home: Path) -> None:
    os.mkfifo(home / "go")
    program = f"stty raw -echo; printf 'A\\033[6'; read go <{home}/go; printf n; "
    program += "IFS= read -r -d R place; printf READY; exec cat -v"
    client = start("s", ["bash", "-c", program]).subscriber()
    client.read_until(b"A\x1b[6")
    (home / "go").write_text("\n")
    client.read_until(b"READY")
    client.type(b"\x1b[9;9Rx.")
    assert client.read_until(b".").endswith(b"READYx.")


def test_replies_that_arrive_in_two_pieces_are_dropped(start: Start) -> None:
    client = start("s", ["sh", "-c", "stty raw -echo; printf READY; exec cat -v"]).ready()
    client.type(b"one\x1b[?6")
    client.type(b"2;22ctwo.")
    assert client.read_until(b".").endswith(b"READYonetwo.")


def test_many_clients_more_than_there_are_descriptors_the_others_are_served(start: Start) -> None:
    kept = start("s", CAT)
    kept.may_complain = True
    first = kept.client()
    resource.prlimit(kept.keeper_pid, resource.RLIMIT_NOFILE, (40, 40))
    crowd = []
    for _ in range(60):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(kept.paths.socket))
        crowd.append(sock)
    assert first.status().alive == 1
    for sock in crowd:
        sock.close()
    program = Process(kept.child_pid)
    assert kept.client().status().alive == 1
    assert program.alive
    program.close()


_CLAIMED = """
import signal, sys
from pathlib import Path
from remuda.keeper.claim import Claim
from remuda.paths import SessionPaths
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # clients ask for the socket with it
claim = Claim.take(SessionPaths(Path(sys.argv[1]), "work"))
print(flush=True)
sys.stdin.read()
"""
"""A keeper that has its name, and no socket yet."""


def test_session_that_has_a_keeper_and_no_socket_yet_is_said_to_start(home: Path) -> None:
    words = [sys.executable, "-c", _CLAIMED, str(home)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        with pytest.raises(SessionUnreachable, match="has no socket") as caught:
            KeeperClient.connect("work", home)
        keeper.communicate()
    assert caught.value.hint == (
        "it is starting, or the file of its socket was removed: try again; 'remuda kill work' ends it"
    )
