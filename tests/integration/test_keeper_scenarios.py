"""Heimdall's behaviour, end to end: real keepers, and a client that knows only Heimdall's document."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import struct
import sys
from pathlib import Path

import pytest

from remuda.errors import CommandNotExecutable, CommandNotFound, FolderUnusable, SessionExists
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.environment import session_environment
from remuda.keeper.start import start_session
from remuda.paths import SessionPaths
from support.heimdall_client import EXIT, KILL, STATUS, STATUS_RESP, Closed, HeimdallClient, frame
from support.keeper import AWAKE, Process, Start, end_processes, event_named, make_spec, output_until

CAT = ["sh", "-c", "printf READY; exec cat"]
SLEEP = ["sleep", "30"]
RAW = "stty raw -echo; printf READY; "


STARTER = """
import os, signal
from pathlib import Path
from support.keeper import make_spec
from remuda.keeper.start import start_session

started = start_session(make_spec(Path(sys.argv[1]), "inner", ["cat"]))
print(f"in={started.keeper_pid};", flush=True)
os.killpg(0, signal.SIGKILL)
"""


def number_after(word: bytes, output: bytes) -> int:
    found = re.search(word + rb"=(\d+);", output)
    assert found, output
    return int(found[1])


# ── asking ──


def test_connect_first_byte_is_the_binary_mode(start: Start) -> None:
    assert start("s", SLEEP).client().mode == b"\x00"


def test_status_on_a_sleeping_program_reports_it_lives(start: Start) -> None:
    kept = start("s", SLEEP)
    status = kept.client().status()
    assert status.pid == kept.child_pid > 0
    assert status.alive == 1
    assert status.state <= 4
    assert status.idle_ms < 60_000
    assert status.reserved == 0


def test_status_after_a_subscriber_left_is_answered(start: Start) -> None:
    kept = start("s", CAT)
    leaving = kept.ready()
    leaving.close()
    assert kept.client().status().alive == 1


def test_status_of_many_clients_at_once_are_all_answered(start: Start) -> None:
    kept = start("s", SLEEP)
    clients = [kept.client() for _ in range(12)]
    for client in clients:
        client.send(STATUS)
    for client in clients:
        assert len(client.until(STATUS_RESP)) == 15


def test_status_with_a_payload_is_answered(start: Start) -> None:
    client = start("s", SLEEP).client()
    client.send(STATUS, b"what is it")
    assert len(client.until(STATUS_RESP)) == 15


def test_status_idle_grows_while_nothing_is_printed(start: Start) -> None:
    client = start("s", SLEEP).client()
    first = client.status().idle_ms
    while client.status().idle_ms <= first + 5:
        pass


def test_status_state_is_active_with_output(start: Start) -> None:
    client = start("s", CAT, idle_threshold_ms=600_000).ready()
    assert client.status().state == 0x04


def test_status_state_is_idle_after_silence(start: Start) -> None:
    client = start("s", CAT, idle_threshold_ms=150).ready()
    while client.status().state != 0x00:
        pass


def test_status_classifier_none_is_idle_for_no_time_whatever_happens(start: Start) -> None:
    kept = start("s", CAT, agent="none", classifier="none")
    client = kept.ready()
    status = client.status()
    assert (status.state, status.state_ms) == (0, 0)


def test_status_after_a_flood_is_answered(start: Start) -> None:
    kept = start("s", ["sh", "-c", "seq 1 10000; printf FLOODED; exec cat"])
    client = kept.subscriber()
    client.read_until(b"FLOODED")
    assert client.status().alive == 1


# ── bad words ──


def test_oversized_header_is_dropped_and_others_stay(start: Start) -> None:
    kept = start("s", SLEEP)
    good, bad = kept.client(), kept.client()
    bad.sock.sendall(struct.pack(">BI", 0x01, 1_048_577))
    assert bad.at_end()
    assert good.status().alive == 1


def test_frame_of_exactly_the_bound_is_taken(start: Start) -> None:
    client = start("s", SLEEP).client()
    client.send(0xAA, bytes(1_048_576))
    assert client.status().alive == 1


def test_resize_not_four_bytes_is_dropped(start: Start) -> None:
    client = start("s", SLEEP).client()
    client.send(0x04, b"\x00\x50\x00")
    assert client.at_end()


@pytest.mark.parametrize("subscribed", [False, True])
def test_unknown_type_is_ignored(start: Start, subscribed: bool) -> None:
    kept = start("s", CAT)
    client = kept.subscriber() if subscribed else kept.client()
    for kind in (0xAA, 0x00, 0x7F, 0x80, 0x81, 0xFF):
        client.send(kind, b"whatever")
    assert client.status().alive == 1


# ── watching ──


def test_subscribe_every_word_works_while_subscribed(start: Start) -> None:
    program = 'printf READY; read line; printf "got=%s;" "$line"; stty size; exec cat'
    kept = start("s", ["sh", "-c", program])
    client = kept.ready()
    client.resize(101, 37)
    assert client.status().alive == 1
    client.type(b"hello\n")
    client.read_until(b"got=hello;37 101")
    client.kill()
    assert client.exit_code() == 128 + signal.SIGTERM


@pytest.mark.parametrize("code", [0, 7, 255])
def test_exit_program_ends_subscriber_gets_its_code_and_then_the_end(start: Start, code: int) -> None:
    client = start("s", ["sh", "-c", f"read line; exit {code}"]).subscriber()
    client.type(b"\n")
    assert client.exit_code() == code
    assert client.at_end()


def test_exit_program_killed_by_a_signal_is_128_and_the_signal(start: Start) -> None:
    client = start("s", ["sh", "-c", "read line; kill -9 $$"]).subscriber()
    client.type(b"\n")
    assert client.exit_code() == 137


def test_exit_keepers_own_code_and_record_are_the_programs(start: Start) -> None:
    kept = start("s", ["sh", "-c", "read line; exit 7"])
    client = kept.subscriber()
    client.type(b"\n")
    assert client.exit_code() == 7
    assert kept.keeper.ended()
    assert '"exit_code": 7' in kept.paths.record.read_text()


def test_late_joiner_gets_what_was_printed_before(start: Start) -> None:
    kept = start("s", ["sh", "-c", "printf SCROLLBACK_MARKER; exec cat"])
    kept.subscriber().read_until(b"SCROLLBACK_MARKER")
    assert kept.subscriber().read_until(b"SCROLLBACK_MARKER") == b"SCROLLBACK_MARKER"


def test_late_joiner_small_scrollback_has_only_the_end(start: Start) -> None:
    program = f"{RAW} printf OLD_MARKER; head -c1; head -c 200 /dev/zero | tr '\\0' x; head -c1; "
    program += "head -c 200 /dev/zero | tr '\\0' y; printf NEW_MARKER; exec cat"
    kept = start("s", ["sh", "-c", program], scrollback_bytes=256)
    first = kept.subscriber()
    first.read_until(b"OLD_MARKER")
    first.type(b"1")
    first.read_until(b"x" * 200)
    first.type(b"2")
    first.read_until(b"NEW_MARKER")
    late = kept.subscriber()
    late.read_until(b"NEW_MARKER")
    assert len(late.output) <= 256
    assert b"OLD_MARKER" not in late.output


def test_subscribers_several_get_the_same_bytes(start: Start) -> None:
    kept = start("s", ["sh", "-c", "printf READY; read line; seq 1 5000; printf END"])
    clients = [kept.subscriber() for _ in range(5)]
    for client in clients:
        client.read_until(b"READY")
    clients[0].type(b"\n")
    assert {client.exit_code() for client in clients} == {0}
    assert len({bytes(client.output) for client in clients}) == 1
    assert b"\r\n5000\r\nEND" in clients[0].output


def test_subscribe_twice_shows_nothing_twice(start: Start) -> None:
    kept = start("s", CAT)
    client = kept.subscriber()
    client.subscribe()
    client.read_until(b"READY")
    client.status()
    assert client.output.count(b"READY") == 1


def test_output_escape_sequences_are_not_changed(start: Start) -> None:
    said = b"\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[?1049h\x1b[2J\xff\x00\xfe\x1b[?1049l"
    octal = "".join(f"\\{byte:03o}" for byte in said)
    kept = start("s", ["sh", "-c", f"stty raw; printf '{octal}END'; exec cat"])
    assert kept.subscriber().read_until(b"END") == said + b"END"


def test_slow_reader_does_not_block_others(start: Start) -> None:
    kept = start("s", ["sh", "-c", "printf READY; read line; seq 1 300000; printf END; exec cat"])
    slow, fast = kept.client(receive_buffer_bytes=4096), kept.subscriber()
    slow.subscribe()
    fast.read_until(b"READY")
    fast.type(b"\n")
    fast.read_until(b"\r\n300000\r\nEND")
    assert fast.status().alive == 1


# ── typing ──


def test_input_of_4000_bytes_arrives(start: Start) -> None:
    client = start("s", ["sh", "-c", f"{RAW} head -c 4000 | wc -c; exec cat"]).ready()
    client.type(b"x" * 4000)
    client.read_until(b"4000")


def test_input_empty_changes_nothing(start: Start) -> None:
    client = start("s", CAT).subscriber()
    client.type(b"")
    client.type(b"here\n")
    client.read_until(b"here")


def test_input_control_c_interrupts_the_program_and_not_its_keeper(start: Start) -> None:
    program = f"trap 'echo GOT_SIGINT' INT; printf READY; {AWAKE}"
    client = start("s", ["bash", "-c", program]).ready()
    client.type(b"\x03")
    client.read_until(b"GOT_SIGINT")
    assert client.status().alive == 1


# ── killing ──


def test_kill_with_a_payload_is_honoured(start: Start) -> None:
    client = start("s", SLEEP).subscriber()
    client.send(KILL, b"please")
    assert client.exit_code() == 143


def test_kill_removes_socket_and_pid_file(start: Start) -> None:
    kept = start("s", SLEEP)
    client = kept.subscriber()
    client.kill()
    client.until(EXIT)
    # From the moment that the end is told the name is free.
    assert not kept.paths.socket.exists()
    assert not kept.paths.pid.exists()
    assert start_session(kept.spec) != (kept.keeper_pid, kept.child_pid)
    again = read_holder(kept.paths)
    assert again
    end_processes([again.keeper_pid, again.child_pid])


def test_sigterm_to_the_keeper_ends_the_program_and_cleans_up(start: Start) -> None:
    kept = start("s", SLEEP)
    program = Process(kept.child_pid)
    client = kept.subscriber()
    kept.keeper.signal(signal.SIGTERM)
    assert client.exit_code() == 143
    assert kept.keeper.ended()
    assert not program.alive
    program.close()
    assert not kept.paths.socket.exists()
    assert not kept.paths.pid.exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_hangup_and_interrupt_to_the_keeper_change_nothing(start: Start, number: int) -> None:
    kept = start("s", CAT)
    client = kept.ready()
    kept.keeper.signal(number)
    client.type(b"still here\n")
    client.read_until(b"still here")


@pytest.mark.parametrize("kill_group", [True, False])
def test_kill_grandchild_dies_with_the_group_and_lives_without(start: Start, kill_group: bool) -> None:
    program = "setsid sh -c 'printf \"pid=%s;\" $$; exec sleep 60' & exec cat"
    kept = start("s", ["sh", "-c", program], kill_group=kill_group)
    client = kept.subscriber()
    grandchild = Process(number_after(b"pid", client.read_until(b";")))
    client.kill()
    assert client.exit_code() == 143
    assert kept.keeper.ended()
    assert grandchild.alive != kill_group
    end_processes([grandchild.pid])
    grandchild.close()


# ── starting ──


def test_start_program_gets_exactly_its_environment(start: Start) -> None:
    program = 'printf "%s|%s|%s|%s;" "$HEIMDALL_SESSION_ID" "$MINE" "$REMUDA_SESSION" "$TMUX"; exec cat'
    inherited = {**os.environ, "TMUX": "elsewhere"}
    env = session_environment(inherited, "s", "HEIMDALL_SESSION_ID", {"MINE": "a b"})
    kept = start("s", ["sh", "-c", program], env=env)
    assert kept.subscriber().read_until(b";") == b"s|a b|s|;"


def test_start_program_has_its_folder_terminal_and_size(start: Start, tmp_path: Path) -> None:
    program = 'pwd; tty; stty size; ps -o tty=,sid= -p $$; printf "me=%s;" $$; exec cat'
    kept = start("s", ["sh", "-c", program], cwd=str(tmp_path), cols=93, rows=21)
    said = kept.subscriber().read_until(b";").replace(b"\r", b"").split(b"\n")
    assert said[0] == bytes(tmp_path)
    assert said[1].startswith(b"/dev/pts/")
    assert said[2] == b"21 93"
    assert said[3].split() == [said[1].removeprefix(b"/dev/"), str(kept.child_pid).encode()]
    assert number_after(b"me", said[4]) == kept.child_pid


def test_start_program_inherits_no_descriptor_and_no_ignored_signal(start: Start) -> None:
    program = "ls /proc/self/fd | tr '\\n' ,; grep -E 'Sig(Ign|Blk)' /proc/self/status; printf END; exec cat"
    said = start("s", ["bash", "-c", program]).subscriber().read_until(b"END")
    # The fourth is ls's own, on the folder that it lists.
    assert said.startswith(b"0,1,2,3,")
    blocked, ignored = (int(mask, 16) for mask in re.findall(rb"Sig\w+:\s+(\w+)", said))
    assert blocked == 0
    # 32 and 33 are glibc's own: its posix_spawn leaves them ignored in every program.
    assert ignored & ~(0b11 << 31) == 0


def test_start_keeper_is_detached_for_good(start: Start) -> None:
    kept = start("s", SLEEP)
    fields = Path(f"/proc/{kept.keeper_pid}/stat").read_text().rpartition(")")[2].split()
    parent, group, session, terminal = (int(field) for field in fields[1:5])
    assert parent != os.getpid()
    assert session not in (os.getsid(0), kept.keeper_pid)  # it cannot get a terminal by opening one
    assert group != os.getpgid(0)
    assert terminal == 0
    assert os.readlink(f"/proc/{kept.keeper_pid}/cwd") == "/"
    assert {os.readlink(f"/proc/{kept.keeper_pid}/fd/{fd}") for fd in (0, 1, 2)} == {"/dev/null"}


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["no-such-command-here"], CommandNotFound),
        (["/no/such/file"], CommandNotFound),
        (["/etc/passwd"], CommandNotExecutable),
        (["/tmp"], CommandNotExecutable),
    ],
)
def test_start_program_that_cannot_run_fails_and_leaves_the_name_free(
    home: Path, argv: list[str], error: type[Exception]
) -> None:
    spec = make_spec(home / "sessions", "s", argv)
    with pytest.raises(error):
        start_session(spec)
    assert not list((home / "sessions").glob("*.sock")) + list((home / "sessions").glob("*.pid"))


def test_start_script_without_its_interpreter_is_not_found(home: Path) -> None:
    script = home / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(CommandNotFound):
        start_session(make_spec(home / "sessions", "s", [str(script)]))


def test_start_folder_of_the_program_missing_fails(home: Path) -> None:
    with pytest.raises(FolderUnusable):
        start_session(make_spec(home / "sessions", "s", SLEEP, cwd=str(home / "none")))


def test_start_folder_of_sessions_missing_is_made(start: Start, home: Path) -> None:
    kept = start("s", SLEEP, folder=home / "a" / "b" / "sessions")
    assert kept.paths.socket.is_socket()


def test_start_pid_file_has_keeper_and_child_on_two_lines(start: Start) -> None:
    kept = start("s", SLEEP)
    assert kept.paths.pid.read_text() == f"{kept.keeper_pid}\n{kept.child_pid}"
    holder = read_holder(kept.paths)
    assert holder is not None
    assert (holder.keeper_pid, holder.child_pid) == (kept.keeper_pid, kept.child_pid)


def test_start_name_taken_is_refused_with_pid_and_the_first_lives_on(start: Start) -> None:
    kept = start("s", SLEEP)
    with pytest.raises(SessionExists) as refused:
        start_session(make_spec(kept.folder, "s", ["true"]))
    assert "already running" in refused.value.message
    assert f"pid {kept.keeper_pid}" in refused.value.message
    assert kept.client().status().pid == kept.child_pid


@pytest.mark.parametrize("content", [b"2147483647\n2147483646", b"garbage\xff\n", b"", b"1\n1", b"\n\n\n"])
def test_start_stale_pid_file_and_socket_are_replaced(start: Start, home: Path, content: bytes) -> None:
    folder = home / "sessions"
    folder.mkdir()
    (folder / "s.pid").write_bytes(content)
    (folder / "s.sock").write_bytes(b"")
    assert start("s", SLEEP).client().status().alive == 1


def test_start_after_the_keeper_was_killed_hard_takes_over(start: Start) -> None:
    first = start("s", SLEEP)
    first.keeper.kill()
    assert first.paths.socket.exists()
    end_processes([first.child_pid])
    assert start("s", SLEEP).client().status().alive == 1


def test_start_with_a_huge_descriptor_limit_comes_up(start: Start) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        kept = start("s", SLEEP)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert kept.client().status().alive == 1


# ── listing ──


def test_live_names_hides_other_files_and_removes_stale_ones(start: Start) -> None:
    kept = start("live", SLEEP)
    folder = kept.folder
    for stale in ("dead.sock", "dead.pid"):
        (folder / stale).write_text("2147483647\n")
    (folder / "note.txt").write_text("")
    (folder / ".hidden.1.sock").write_text("")
    assert list(live_names(folder)) == ["live"]
    left = set(os.listdir(folder))
    assert not left & {"dead.sock", "dead.pid"}
    assert {"note.txt", "live.sock", "live.pid"} <= left


def test_live_names_no_folder_is_empty(home: Path) -> None:
    assert list(live_names(home / "none")) == []


def test_read_holder_without_one_is_none(home: Path) -> None:
    assert read_holder(SessionPaths(home, "none")) is None


# ── the end of others ──


def test_starter_is_killed_with_its_group_session_lives_on(start: Start) -> None:
    kept = start("outer", ["bash", "-i"], cols=80, rows=24)
    shell = kept.subscriber()
    script = kept.folder / "starter.py"
    script.write_text(f"import sys; sys.path[:0] = {sys.path!r}{STARTER}")
    shell.type(f"exec {sys.executable} {script} {kept.folder}\n".encode())
    inner = Process(number_after(b"in", shell.read_until(b";\r\n")))
    assert shell.exit_code() == 137
    with HeimdallClient(str(kept.folder / "inner.sock")) as client:
        assert client.status().alive == 1
        client.subscribe()
        client.kill()
        assert client.exit_code() == 143
    inner.gone()


def test_client_that_knows_more_sees_the_same_session(start: Start) -> None:
    kept = start("s", CAT)
    old, new = kept.subscriber(), kept.hello()
    old.read_until(b"READY")
    new.request("watch")
    new.send(frame(0x02))
    output_until(new, b"READY")
    old.kill()
    event_named(new, "state", state="dead")


def test_closed_is_raised_by_the_client_when_refused() -> None:
    """The client under all these tests tells an end from a broken frame."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = HeimdallClient.__new__(HeimdallClient)
        client.sock, client._unread = ours, bytearray()
        client.output, client.output_frames = bytearray(), []
        theirs.sendall(frame(0x81, b"x"))
        theirs.close()
        assert client.next_frame() == (0x81, b"x")
        with pytest.raises(Closed):
            client.next_frame()
