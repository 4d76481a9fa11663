"""What clients that know our additions can do, and what is kept from those that do not."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda._version import __version__
from remuda.errors import (
    FolderUnusable,
    InvalidOptions,
    PermissionRefused,
    SessionDead,
    SessionNotFound,
    SpawnFailed,
)
from remuda.keeper.client import KeeperClient
from remuda.keeper.start import start_session
from remuda.terminal.ghostty import GhosttyScreen
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from remuda.wire.messages import PROTOCOL_VERSION, Type, json_frame
from support.heimdall_client import EXIT, HeimdallClient, frame
from support.keeper import Kept, Start, become, event_named, events_until, make_spec, output_until, until

CAT = ["sh", "-c", "printf READY; exec cat"]
RAW_CAT = ["sh", "-c", "stty raw -echo; printf READY; exec cat -v"]
FLOOD = ["sh", "-c", "stty -echo; printf READY; read line; seq 1 1000000; printf FLOODED; exec cat"]
FLOOD_BYTES = 7_888_896  # of `seq 1 1000000` on a terminal, whose lines end with two
COLS, ROWS = 80, 24
NOBODY = 65534


def subscribed(kept: Kept, *, read_only: bool = False, window_bytes: int = 0) -> KeeperClient:
    client = kept.hello(read_only=read_only, window_bytes=window_bytes)
    client.send(ClientConnection.subscribe())
    return client


def size_of(client: KeeperClient) -> tuple[int, int]:
    found = client.describe()
    return found["cols"], found["rows"]


@pytest.fixture
def screen() -> Iterator[GhosttyScreen]:
    made = GhosttyScreen(COLS, ROWS)
    yield made
    made.close()


# ── greeting and asking ──


def test_hello_is_answered_with_what_the_keeper_is(start: Start) -> None:
    kept = start("s", CAT)
    client = kept.hello()
    assert client.speaks_ours
    assert client.other_version is None
    assert client.welcome is not None
    told = {"version": PROTOCOL_VERSION, "name": "s", "keeper_version": __version__, "pid": kept.child_pid}
    assert told.items() <= client.welcome.items()


def test_hello_of_another_version_is_welcomed_and_learns_ours(start: Start) -> None:
    kept = start("s", CAT)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(kept.paths.socket))
        sock.sendall(json_frame(Type.HELLO, {"version": 99, "news": True}))
        connection = ClientConnection()
        heard: list[wire.ClientEvent] = []
        while not heard:
            heard += connection.receive(sock.recv(65536))
    assert isinstance(heard[0], wire.WelcomeReceived)
    assert heard[0].document["version"] == PROTOCOL_VERSION


def test_request_before_hello_is_dropped(start: Start) -> None:
    client = start("s", CAT).client()
    client.sock.sendall(ClientConnection.request(1, "status"))
    assert client.at_end()


def test_request_unknown_or_with_bad_arguments_is_refused_and_the_connection_stays(start: Start) -> None:
    client = start("s", CAT).hello()
    for op, args in (
        ("fly", {}),
        ("resize", {}),
        ("resize", {"cols": "80", "rows": 24}),
        ("resize", {"cols": True, "rows": 24}),
        ("resize", {"cols": 0, "rows": 24}),
        ("resize", {"cols": 10**30, "rows": 24}),
        ("kill", {"grace": -1}),
        ("kill", {"grace": "now"}),
    ):
        with pytest.raises(InvalidOptions):
            client.request(op, **args)
    assert client.status().alive


def test_request_status_explains_every_vote(start: Start) -> None:
    votes = start("s", CAT).hello().describe(explain=True)["votes"]
    assert {vote["source"] for vote in votes} == {"process", "timing"}
    assert all({"state", "age", "detail", "decides", "counts"} <= vote.keys() for vote in votes)


def test_request_screen_shows_the_lines_title_and_cursor(start: Start) -> None:
    program = "printf '\\033]2;my title\\007\\033[1mone\\r\\ntwo'; exec cat"
    kept = start("s", ["sh", "-c", program], cols=COLS, rows=ROWS)
    kept.subscriber().read_until(b"two")
    client = kept.hello()
    shown = client.request("screen")
    assert shown["lines"] == ["one", "two"] + [""] * (ROWS - 2)
    assert (shown["title"], shown["cursor"]["x"], shown["cursor"]["y"]) == ("my title", 3, 1)
    assert "\x1b[" in client.request("screen", styled=True)["lines"][0]
    assert client.describe()["last_line"] == "two"


def test_request_kill_ends_the_session(start: Start) -> None:
    kept = start("s", ["sh", "-c", "trap '' TERM HUP; printf READY; while :; do sleep 60; done"])
    client = subscribed(kept)
    output_until(client, b"READY")
    client.request("kill", grace=0.1)
    assert client.wait_exit(30) == 137


def test_connect_to_no_session_says_whether_there_ever_was_one(start: Start) -> None:
    kept = start("s", CAT)
    client = subscribed(kept)
    client.request("kill")
    client.wait_exit(30)
    with pytest.raises(SessionDead):
        kept.hello()
    with pytest.raises(SessionNotFound):
        KeeperClient.connect("never", kept.folder)


# ── events ──


def test_watch_reports_state_clients_and_size(start: Start) -> None:
    kept = start("s", CAT, idle_threshold_ms=100)
    watcher = kept.hello()
    until(lambda: "READY" in watcher.request("screen")["lines"][0], "what it says first")
    become(watcher, "idle")
    other = kept.subscriber()
    assert event_named(watcher, "clients")["count"] == 1
    other.resize(90, 20)
    event_named(watcher, "resized", cols=90, rows=20)
    other.type(b"hello\n")
    assert event_named(watcher, "state", state="active")["source"] == "timing"
    other.close()
    event_named(watcher, "clients", count=0)
    watcher.request("kill")
    event_named(watcher, "state", state="dead")


def test_watch_does_not_report_those_who_only_ask(start: Start) -> None:
    kept = start("s", CAT)
    watcher = kept.hello()
    watcher.request("watch")
    for _ in range(3):
        asker = kept.hello()
        asker.describe()
        asker.close()
    kept.subscriber()
    assert event_named(watcher, "clients")["count"] == 1


def test_watch_without_subscribe_gets_no_output(start: Start) -> None:
    kept = start("s", CAT, idle_threshold_ms=100)
    watcher, other = kept.hello(), kept.subscriber()
    watcher.request("watch")
    other.type(b"hello\n")
    other.read_until(b"hello")
    seen = list(
        events_until(
            watcher, lambda event: isinstance(event, wire.EventReceived) and "state" in event.document
        )
    )
    assert not [event for event in seen if isinstance(event, wire.OutputReceived | wire.RepaintReceived)]


# ── painting ──


def test_subscribe_late_joiner_is_painted_the_screen(start: Start, screen: GhosttyScreen) -> None:
    program = "seq 1 5000; printf '\\033[2J\\033[H\\033[31mred\\033[5;10Hhere'; exec cat"
    kept = start("s", ["sh", "-c", program], cols=COLS, rows=ROWS)
    kept.subscriber().read_until(b"here")
    client = subscribed(kept)
    *before, first = events_until(client, lambda event: not isinstance(event, wire.EventReceived))
    assert isinstance(first, wire.RepaintReceived)
    assert {"event": "resized", "cols": COLS, "rows": ROWS} in [
        event.document for event in before if isinstance(event, wire.EventReceived)
    ]
    assert len(first.data) < 5000
    screen.feed(first.data)
    shown = client.request("screen")
    assert screen.lines() == shown["lines"]
    assert (screen.cursor.x, screen.cursor.y) == (shown["cursor"]["x"], shown["cursor"]["y"])


def test_subscribe_join_while_output_streams_ends_on_the_keepers_screen(start: Start) -> None:
    program = "stty -echo; printf READY; read line; seq 1 60000; printf FLOODED; exec cat"
    kept = start("s", ["sh", "-c", program], cols=COLS, rows=ROWS)
    first = kept.ready()
    first.type(b"\n")
    clients = [subscribed(kept) for _ in range(8)]
    expected = None
    for client in clients:
        painted = GhosttyScreen(COLS, ROWS)
        painted.feed(output_until(client, b"FLOODED"))
        expected = expected or client.request("screen")["lines"]
        assert painted.lines() == expected
        painted.close()
    assert expected is not None
    assert expected[-1] == "FLOODED"


def test_lag_client_that_stops_reading_learns_it_and_gets_the_screen(
    start: Start, screen: GhosttyScreen
) -> None:
    kept = start("s", FLOOD, cols=COLS, rows=ROWS)
    lagging, fast = subscribed(kept), kept.subscriber()
    output_until(lagging, b"READY")
    fast.type(b"\n")
    fast.read_until(b"FLOODED")
    assert event_named(lagging, "lagged")["bytes"] > 0
    screen.feed(output_until(lagging, b"FLOODED"))
    assert screen.lines() == kept.hello().request("screen")["lines"]
    lagging.send(ClientConnection.input(b"go on\n"))
    assert b"go on" in output_until(lagging, b"go on")


def test_lag_repaint_follows_the_mark_at_once(start: Start) -> None:
    kept = start("s", FLOOD, cols=COLS, rows=ROWS)
    lagging, fast = subscribed(kept), kept.subscriber()
    output_until(lagging, b"READY")
    fast.type(b"\n")
    fast.read_until(b"FLOODED")
    event_named(lagging, "lagged")
    assert isinstance(next(iter(lagging.receive(30))), wire.RepaintReceived)


def test_lag_heimdall_client_is_painted_in_output_frames_and_meets_no_new_type(
    start: Start, screen: GhosttyScreen
) -> None:
    kept = start("s", FLOOD, cols=COLS, rows=ROWS)
    lagging, fast = kept.client(receive_buffer_bytes=4096), kept.subscriber()
    lagging.subscribe()
    lagging.read_until(b"READY")
    fast.type(b"\n")
    fast.read_until(b"FLOODED")
    lagging.read_until(b"FLOODED")
    assert len(lagging.output) < FLOOD_BYTES
    screen.feed(bytes(lagging.output))
    assert screen.lines() == kept.hello().request("screen")["lines"]


def test_lag_within_a_frame_that_has_begun_finishes_it(start: Start) -> None:
    """Only a frame larger than the socket's buffer is ever sent in part: a long replay is."""
    program = "stty -echo; seq 1 200000; printf HALF; read line; seq 1 1000000; printf FLOODED; exec cat"
    kept = start("s", ["sh", "-c", program], scrollback_bytes=4 << 20)
    other = kept.subscriber()
    other.read_until(b"HALF")
    lagging = kept.subscriber()
    kept.client().status()  # the keeper has heard it
    other.type(b"\n")
    other.read_until(b"FLOODED")
    lagging.read_until(b"FLOODED")
    assert lagging.status().alive == 1


# ── size ──


def test_size_latest_follows_the_client_that_typed_last(start: Start) -> None:
    kept = start("s", CAT, cols=COLS, rows=ROWS)
    one, two = subscribed(kept), subscribed(kept)
    one.send(ClientConnection.resize(100, 30))
    assert size_of(one) == (100, 30)
    two.send(ClientConnection.resize(90, 20))
    assert size_of(two) == (90, 20)
    one.send(ClientConnection.input(b"x"))
    assert size_of(one) == (100, 30)
    one.close()
    event_named(two, "resized", cols=90, rows=20)


def test_size_smallest_fits_all(start: Start) -> None:
    kept = start("s", CAT, cols=COLS, rows=ROWS, size_policy="smallest")
    one, two = subscribed(kept), subscribed(kept)
    one.send(ClientConnection.resize(100, 20))
    assert size_of(one) == (100, 20)
    two.send(ClientConnection.resize(90, 30))
    assert size_of(two) == (90, 20)
    one.close()
    event_named(two, "resized", cols=90, rows=30)


def test_size_fixed_changes_only_by_command(start: Start) -> None:
    kept = start("s", CAT, cols=COLS, rows=ROWS, size_policy="fixed")
    client = subscribed(kept)
    client.send(ClientConnection.resize(100, 30))
    assert size_of(client) == (COLS, ROWS)
    assert client.request("resize", cols=100, rows=30) == {"cols": 100, "rows": 30}
    assert size_of(client) == (100, 30)


def test_size_of_heimdall_client_reaches_program_and_screen(start: Start) -> None:
    kept = start("s", ["sh", "-c", "trap 'stty size' WINCH; printf READY; while :; do read x; done"])
    client = kept.ready()
    client.resize(77, 33)
    client.type(b"\n")
    client.read_until(b"33 77")
    shown = kept.hello().request("screen")
    assert (shown["cols"], shown["rows"]) == (77, 33)


@pytest.mark.parametrize("size", [(0, 0), (0, 24), (80, 0), (65535, 65535)])
def test_size_impossible_is_ignored(start: Start, size: tuple[int, int]) -> None:
    kept = start("s", CAT, cols=COLS, rows=ROWS)
    client = kept.client()
    client.resize(*size)
    assert client.status().alive == 1
    assert size_of(kept.hello()) == (COLS, ROWS)


# ── read only ──


def test_read_only_never_types_resizes_or_kills(start: Start) -> None:
    kept = start("s", RAW_CAT, cols=COLS, rows=ROWS)
    watcher, typist = subscribed(kept, read_only=True), kept.subscriber()
    typist.read_until(b"READY")
    watcher.send(ClientConnection.input(b"intruder"))
    event_named(watcher, "refused", what="input")
    watcher.send(ClientConnection.resize(100, 30) + ClientConnection.kill())
    assert size_of(watcher) == (COLS, ROWS)
    for op, args in (("resize", {"cols": 100, "rows": 30}), ("kill", {})):
        with pytest.raises(PermissionRefused):
            watcher.request(op, **args)
    typist.type(b"only me")
    assert typist.read_until(b"only me") == b"READYonly me"
    assert watcher.status().alive


def test_read_only_still_sees_everything(start: Start) -> None:
    kept = start("s", CAT)
    watcher, typist = subscribed(kept, read_only=True), kept.subscriber()
    typist.type(b"hello\n")
    output_until(watcher, b"hello")


# ── terminal queries ──


def test_queries_with_no_one_attached_are_answered(start: Start) -> None:
    program = "stty raw -echo; printf '\\033[6n'; IFS= read -r -d R place; "
    program += (
        "printf '\\033[c'; IFS= read -r -d c kind; printf 'place=%q kind=%q;' \"$place\" \"$kind\"; exec cat"
    )
    said = start("s", ["bash", "-c", program]).subscriber().read_until(b";")
    assert b"place=$'\\E[1;1'" in said
    assert b"kind=$'\\E[?" in said


def test_replies_of_a_raw_client_are_dropped_and_its_typing_is_not(start: Start) -> None:
    program = "stty raw -echo; printf '\\033[6n\\033[c'; IFS= read -r -d R a; IFS= read -r -d c b; "
    program += "printf READY; exec cat -v"
    client = start("s", ["bash", "-c", program]).ready()
    client.type(b"one\x1b[9;9R\x1b[?62;22ctwo\x1b[1;2R\x1b[A")
    said = client.read_until(b"^[[A")
    assert said.endswith(b"READYonetwo^[[1;2R^[[A")


def test_replies_of_a_client_that_only_sends_are_typed(start: Start) -> None:
    kept = start("s", RAW_CAT)
    watcher, sender = kept.subscriber(), kept.client()
    watcher.read_until(b"READY")
    sender.type(b"\x1b[?62cX")
    assert watcher.read_until(b"X").endswith(b"READY^[[?62cX")


# ── another user ──


def _as_nobody(path: Path) -> bytes:
    """What a process of another user hears at that socket."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads
        child = os.fork()
    if child == 0:
        heard = b"failed"
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(20)
            sock.connect(str(path))
            heard = b"heard " + sock.recv(10)
        finally:
            os.write(theirs, heard)
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as report:
        heard = report.read()
    os.waitpid(child, 0)
    return heard


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_though_the_modes_let_it_in(start: Start, home: Path) -> None:
    kept = start("s", CAT)
    for path, mode in ((home, 0o755), (kept.folder, 0o755), (kept.paths.socket, 0o666)):
        path.chmod(mode)
    assert _as_nobody(kept.paths.socket) == b"heard "
    assert kept.client().status().alive == 1
    assert f"refused a connection from uid {NOBODY}" in kept.log()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_does_not_get_through_the_folder(start: Start, home: Path) -> None:
    kept = start("s", CAT)
    home.chmod(0o755)
    kept.paths.socket.chmod(0o666)
    assert _as_nobody(kept.paths.socket) == b"failed"


# ── recording ──


def test_recording_has_all_output_and_sizes(start: Start, home: Path) -> None:
    cast = home / "s.cast"
    kept = start("s", CAT, record_file=str(cast), cols=COLS, rows=ROWS)
    client = kept.ready()
    client.resize(100, 30)
    client.type("größe €\n".encode())
    client.read_until("€".encode())
    assert kept.hello().describe()["recording"] == str(cast)
    client.kill()
    client.exit_code()
    assert kept.keeper.ended()
    header, *events = [json.loads(line) for line in cast.read_bytes().splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, COLS, ROWS)
    assert "".join(text for _, kind, text in events if kind == "o").encode() == client.output
    assert [text for _, kind, text in events if kind == "r"] == ["100x30"]
    times = [at for at, _, _ in events]
    assert times == sorted(times)


def test_recording_to_a_place_that_is_not_there_fails_the_start(home: Path) -> None:
    with pytest.raises(SpawnFailed):
        start_session(make_spec(home / "sessions", "s", CAT, record_file=str(home / "none" / "s.cast")))
    assert not (home / "sessions" / "s.pid").exists()


# ── places ──


def test_home_with_a_very_long_path_works(start: Start, home: Path) -> None:
    folder = home / ("long" * 30) / ("path" * 30) / "sessions"
    kept = start("s", CAT, folder=folder)
    client = subscribed(kept)
    output_until(client, b"READY")
    fd = os.open(folder, os.O_PATH)
    with HeimdallClient(f"/proc/self/fd/{fd}/s.sock") as plain:
        assert plain.status().alive == 1
    os.close(fd)
    client.request("kill")
    assert client.wait_exit(30) == 143
    assert not kept.paths.socket.exists()


def test_folder_is_a_file_fails_the_start(home: Path) -> None:
    (home / "sessions").write_text("")
    with pytest.raises(FolderUnusable):
        start_session(make_spec(home / "sessions", "s", CAT))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_folder_of_another_user_fails_the_start(home: Path) -> None:
    (home / "sessions").mkdir()
    os.chown(home / "sessions", NOBODY, NOBODY)
    with pytest.raises(FolderUnusable):
        start_session(make_spec(home / "sessions", "s", CAT))


@pytest.fixture
def immutable(home: Path) -> Iterator[Path]:
    """A folder that even root cannot write to."""
    folder = home / "sessions"
    folder.mkdir(0o700)
    if subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("chattr does not work here")
    yield folder
    subprocess.run(["chattr", "-i", folder], check=True)


def test_folder_not_writable_fails_the_start(immutable: Path) -> None:
    with pytest.raises(FolderUnusable):
        start_session(make_spec(immutable, "s", CAT))


def test_disk_full_session_goes_on_and_its_end_is_reported(start: Start) -> None:
    kept = start("s", CAT)
    kept.may_complain = True
    client = kept.ready()
    resource.prlimit(kept.keeper_pid, resource.RLIMIT_FSIZE, (0, 0))
    client.resize(100, 30)
    client.type(b"still here\n")
    client.read_until(b"still here")
    client.kill()
    assert client.exit_code() == 143
    assert kept.keeper.ended()
    assert not kept.paths.socket.exists()


def test_folder_deleted_while_it_runs_the_end_is_reported(start: Start) -> None:
    kept = start("s", CAT)
    kept.may_complain = True
    client = kept.ready()
    for path in kept.folder.iterdir():
        path.unlink()
    kept.folder.rmdir()
    client.kill()
    assert client.exit_code() == 143
    assert kept.keeper.ended()


def test_signal_of_the_program_reaches_the_code(start: Start) -> None:
    kept = start("s", ["sh", "-c", "printf READY; read line; kill -SEGV $$"])
    client = subscribed(kept)
    output_until(client, b"READY")
    client.send(frame(Type.INPUT, b"\n"))
    assert client.wait_exit(30) == 128 + signal.SIGSEGV


def test_exit_many_subscribers_of_both_kinds_all_hear_it(start: Start) -> None:
    kept = start("s", CAT)
    old, new = [kept.subscriber() for _ in range(5)], [subscribed(kept) for _ in range(5)]
    old[0].kill()
    for plain in old:
        assert plain.until(EXIT) == (143).to_bytes(4, "big")
    for client in new:
        assert client.wait_exit(30) == 143
