"""What a keeper does when its surroundings are strange: folders, names, floods of words, closed terminals."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.errors import FolderUnusable
from remuda.keeper.claim import live_names
from remuda.keeper.client import KeeperClient
from remuda.keeper.start import start_session
from remuda.paths import private_folder
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from support.heimdall_client import PATIENCE, frame
from support.keeper import Kept, Process, Start, event_named, events_until, make_spec, until

CAT = ["sh", "-c", "printf READY; exec cat"]
STUBBORN = ["sh", "-c", "trap '' TERM HUP; printf READY; while :; do sleep 60; done"]


def remuda(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "remuda", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_start_in_a_folder_with_modules_of_its_own_imports_none_of_them(home: Path, tmp_path: Path) -> None:
    for name in ("json", "shlex", "asyncio", "select"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\n")
    assert remuda("start", "s", "--detach", "--", "cat", cwd=tmp_path).returncode == 0
    assert remuda("start", "d", "--detach", "--agent", "demo", cwd=tmp_path).returncode == 0
    assert remuda("kill", "--all", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "imported").exists()


def test_live_names_foreign_socket_that_listens_is_left_alone(home: Path) -> None:
    path = home / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert list(live_names(home)) == []
        assert path.exists()
        (home / "other.pid").write_text("2147483647\n1")  # a pid file does not make it stale
        assert list(live_names(home)) == []
        assert path.exists()


def test_private_folder_named_by_the_user_keeps_its_mode_or_is_refused(home: Path, tmp_path: Path) -> None:
    for mode, refused in ((0o755, False), (0o1777, True), (0o775, True)):
        folder = tmp_path / oct(mode)
        folder.mkdir()
        folder.chmod(mode)
        if refused:
            with pytest.raises(FolderUnusable):
                private_folder(folder)
        else:
            private_folder(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == mode


def test_kill_second_one_with_less_grace_brings_the_end_forward(start: Start) -> None:
    kept = start("s", STUBBORN, kill_grace=600.0)
    client, asker = kept.subscriber(), kept.hello()
    client.read_until(b"READY")
    assert asker.request("kill") == {"grace": 600.0}
    assert asker.request("kill", grace=0) == {"grace": 0}
    assert client.exit_code() == 137


def test_status_of_a_very_long_command_is_answered(start: Start) -> None:
    kept = start("s", ["sh", "-c", "printf READY; exec cat", *["x" * 90] * 15_000])
    found = kept.hello().describe()
    assert found["argv"][:2] == ["sh", "-c"]
    assert found["argv"][-1] == "…"


def test_failure_after_the_spawn_leaves_no_program_running(home: Path) -> None:
    os.mkfifo(home / "alive")
    reader = os.open(home / "alive", os.O_RDONLY | os.O_NONBLOCK)
    program = f"trap '' HUP TERM; exec 3>{home}/alive; sleep 60"
    # Started before anything else, and then its log cannot be written: it is a folder.
    spec = make_spec(home / "sessions", "s", ["sh", "-c", program], once=True, log_file=str(home))
    with pytest.raises(FolderUnusable, match="log"):
        start_session(spec)
    until(lambda: _is_closed(reader), "the end of the program")
    os.close(reader)


def test_failure_to_listen_starts_nothing_and_leaves_nothing(home: Path) -> None:
    folder = home / "sessions"
    folder.mkdir(0o700)
    (folder / "s.sock").mkdir()  # no socket can take this name
    (folder / "s.sock" / "full").write_text("")
    with pytest.raises(FolderUnusable, match=r"s\.sock"):
        start_session(make_spec(folder, "s", ["touch", str(home / "ran")]))
    assert not (home / "ran").exists()
    assert os.listdir(folder) == ["s.sock"]


def test_program_that_is_quicker_than_its_keeper_finds_its_socket(start: Start, home: Path) -> None:
    socket_path = home / "sessions" / "s.sock"
    kept = start("s", ["sh", "-c", f"[ -S {socket_path} ] && printf THERE || printf MISSING; exec cat"])
    assert b"THERE" in kept.subscriber().read_until(b"E")


def _is_closed(reader: int) -> bool:
    try:
        return os.read(reader, 100) == b""
    except BlockingIOError:  # someone holds the other end
        return False


def test_terminal_that_was_closed_for_a_while_is_read_again(start: Start) -> None:
    program = "printf ONE; exec 0<&- 1>&- 2>&-; sleep 0.3; exec 0<>/dev/tty 1>&0 2>&0; printf TWO; exec cat"
    client = start("s", ["sh", "-c", program]).subscriber()
    client.read_until(b"ONE")
    client.read_until(b"TWO")


def test_watcher_that_never_reads_events_is_let_go_before_it_costs_memory(start: Start) -> None:
    kept = start("s", CAT)
    mute, asker = kept.hello(), kept.hello()
    mute.request("watch")
    for number in range(25_000):
        asker.send(ClientConnection.request(number + 1000, "resize", {"cols": 80 + number % 2, "rows": 24}))
        if number % 100 == 99:
            list(events_until(asker, _answer_to(number + 1000)))
    with pytest.raises(EOFError):
        _read_for_ever(mute)


def _read_for_ever(client: KeeperClient) -> None:
    while True:
        list(client.receive(PATIENCE))


def _answer_to(number: int) -> Callable[[wire.ClientEvent], bool]:
    def enough(event: wire.ClientEvent) -> bool:
        return isinstance(event, wire.ResponseReceived) and event.id == number

    return enough


def test_raw_client_that_said_hello_its_terminals_answers_are_dropped(start: Start) -> None:
    program = "stty raw -echo; printf 'READY\\033[c'; exec cat -v"
    kept = start("s", ["sh", "-c", program])
    watcher = kept.subscriber()
    watcher.read_until(b"^[[?62")  # the keeper's own answer
    raw = kept.hello(raw=True)
    raw.send(ClientConnection.subscribe())
    raw.send(ClientConnection.input(b"\x1b[?64;1;2c"))
    raw.send(ClientConnection.input(b"typed."))
    assert b"64;1;2" not in watcher.read_until(b"typed.")


def test_answer_of_a_terminal_alone_does_not_count_as_typing(start: Start) -> None:
    kept = start("s", CAT)
    first, second = kept.subscriber(), kept.subscriber()
    second.resize(70, 20)
    second.status()
    first.resize(90, 30)
    first.status()
    second.type(b"\x1b[?64;1;2c")
    second.status()
    found = kept.hello().describe()
    assert (found["cols"], found["rows"]) == (90, 30)


def test_slow_steady_reader_gets_the_exit(start: Start) -> None:
    kept = start("s", ["sh", "-c", "stty -echo; printf READY; read go; seq 1 400000; exit 5"])
    slow = kept.client(receive_buffer_bytes=4096)
    slow.subscribe()
    slow.read_until(b"READY")
    program = Process(kept.child_pid)
    slow.type(b"\n")
    program.gone()
    assert slow.exit_code() == 5


def test_broken_frames_of_any_length_in_one_read_do_not_disturb_the_keeper(kept_cat: Kept) -> None:
    for length in range(1, 7):
        client = kept_cat.client()
        client.sock.sendall(frame(0x01, b"x")[:length])
        client.close()
    assert kept_cat.client().status().alive == 1


@pytest.fixture
def kept_cat(start: Start) -> Kept:
    return start("s", CAT)


def test_clients_event_counts_those_who_watch(start: Start) -> None:
    kept = start("s", CAT)
    watcher = kept.hello()
    watcher.request("watch")
    kept.subscriber()
    event_named(watcher, "clients", count=1)


def test_log_that_cannot_grow_costs_lines_and_nothing_else(start: Start, tmp_path: Path) -> None:
    most, limits = 1 << 30, resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "log").touch()
    os.truncate(tmp_path / "log", most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        kept = start("s", CAT, log_file=str(tmp_path / "log"), log_max_bytes=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    client = kept.ready()
    client.resize(70, 20)  # which is logged
    client.type(b"still here\n")
    client.read_until(b"still here")
    client.kill()
    assert client.exit_code() == 143
    assert (tmp_path / "log").stat().st_size == most


def test_log_that_has_grown_rotates_and_stays_private(start: Start) -> None:
    kept = start("s", CAT, log_max_bytes=2000)
    asker = kept.hello()
    for number in range(100):
        asker.request("resize", cols=80 + number % 2, rows=24)
    asker.describe()  # whatever the last one logged is written
    for path in (kept.paths.log, kept.paths.log.with_name("s.log.1")):
        assert path.stat().st_size <= 2000
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
