"""Sessions of Heimdall's supervisor: attached to, resized, ended, and sent nothing that no one delivers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import Session
from remuda.errors import InvalidOptions
from remuda.keeper.client import KeeperClient
from remuda.proctree import descendants
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from support import heimdall_double
from support.commands import COMMAND, SIZER, Commands
from support.heimdall_client import PATIENCE, HeimdallClient
from support.keeper import Process, end_processes, until
from support.tmux import Tmux

REMUDA = " ".join(COMMAND)
STUBBORN = "trap '' TERM HUP; echo ready; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


class Supervisors:
    """Starts doubles of `hm run`."""

    def __init__(self, remuda: Commands) -> None:
        self._remuda = remuda
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, name: str, *command: str, hold_back: str = "", claim_pid: int = 0) -> HeimdallClient:
        """Returns a client that is subscribed."""
        words = [sys.executable, heimdall_double.__file__, str(self._remuda.sessions), name]
        words += ["--hold-back", hold_back] if hold_back else []
        words += ["--claim-pid", str(claim_pid)] if claim_pid else []
        self._running.append(subprocess.Popen([*words, "--", *command], env=self._remuda.env))
        socket = self._remuda.sessions / f"{name}.sock"
        client = until(lambda: _connected(socket), "its answer")
        assert client is not None
        client.subscribe()
        return client

    def exit_code(self) -> int:
        """Of the last one, which ends as its program does."""
        return self._running[-1].wait(PATIENCE)

    def close(self) -> None:
        for one in self._running:
            left = end_processes([one.pid, *descendants(one.pid)])
            assert not left, left
            one.wait(PATIENCE)


def _connected(path: Path) -> HeimdallClient | None:
    try:
        return HeimdallClient(str(path))
    except (FileNotFoundError, ConnectionRefusedError):  # the file is there before anyone listens
        return None


@pytest.fixture
def hm(remuda: Commands) -> Iterator[Supervisors]:
    remuda.sessions.mkdir(mode=0o700)
    made = Supervisors(remuda)
    yield made
    made.close()


@pytest.mark.parametrize("count", [1, 5000])
def test_attach_to_a_session_that_ends_shows_its_last_output_and_its_code(
    remuda: Commands, hm: Supervisors, count: int
) -> None:
    program = f"echo ready; read go; seq {count}; echo LAST WORDS; exit 5"
    with hm.run("a", "sh", "-c", program, hold_back="LAST"), Tmux(remuda.env, remuda.cwd, 60, 12) as tmux:
        pane = tmux.first()
        pane.until_shows("$")
        pane.enter(f"{REMUDA} attach a; echo rc=$?")
        pane.until_shows("ready")
        pane.send(b"\r")
        lines = pane.until_shows("rc=5")
        assert "LAST WORDS" in lines
        assert "[session a exited with code 5]" in lines


def test_client_hears_the_unframed_tail_and_the_code(remuda: Commands, hm: Supervisors) -> None:
    with hm.run("a", "sh", "-c", "read go; echo TAIL; exit 7", hold_back="TAIL") as other:
        with KeeperClient.connect("a", remuda.sessions) as client:
            client.send(ClientConnection.subscribe() + ClientConnection.input(b"\n"))
            output, code = b"", None
            while code is None:
                for event in client.receive(PATIENCE):
                    output += event.data if isinstance(event, wire.OutputReceived) else b""
                    code = event.code if isinstance(event, wire.ExitReceived) else code
        other.close()
    assert (code, output.endswith(b"TAIL\r\n")) == (7, True)


@pytest.mark.parametrize(
    ("program", "grace", "code"),
    [(DEAF, ["--grace", "2"], 129), (STUBBORN, ["--grace", "1"], 137)],
    ids=["deaf", "stubborn"],
)
def test_kill_ends_a_program_that_ignores_term_and_what_it_started(
    remuda: Commands, hm: Supervisors, program: str, grace: list[str], code: int
) -> None:
    helper = "setsid sh -c 'trap \"\" TERM HUP; echo helper $$; while :; do sleep 0.05; done' & "
    with hm.run("a", "sh", "-c", helper + program) as client:
        client.read_until(b"ready")
        while not (helper_pid := re.search(rb"helper (\d+)\r", client.output)):
            client.next_frame()
        kin = [Process(client.status().pid), Process(int(helper_pid[1]))]
        assert remuda("kill", "a", *grace).out.startswith("a ended")
        assert hm.exit_code() == code
        assert all(one.ended() for one in kin)
        for one in kin:
            one.close()


def test_kill_ends_no_process_that_is_not_the_supervisor_s(remuda: Commands, hm: Supervisors) -> None:
    innocent = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        hm.run("a", "cat", claim_pid=innocent.pid).close()
        assert remuda("kill", "a", "--grace", "0").out.startswith("a ended")
        assert hm.exit_code() == 143
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize(
    "words", [["send", "a", "hello"], ["inbox", "put", "a", "hello"]], ids=["send", "put"]
)
def test_message_to_a_session_that_no_one_delivers_to_is_refused_and_makes_no_folder(
    remuda: Commands, hm: Supervisors, words: list[str]
) -> None:
    hm.run("a", "cat").close()
    said = remuda.refused(*words, code=2)
    assert "kept by another program (hm), which delivers no messages" in said
    assert "remuda attach a" in said
    remuda.start("plain", "--", "cat")
    assert "runs a plain command" in remuda.refused(words[0], *words[1:-2], "plain", "x", code=2)
    assert not list(remuda.sessions.glob("*.inbox"))


def test_session_class_sends_nothing_that_no_one_delivers(remuda: Commands, hm: Supervisors) -> None:
    hm.run("a", "cat").close()
    with pytest.raises(InvalidOptions, match="delivers no messages"):
        Session("a", folder=remuda.sessions).send("hello")
    for words in (["status"], ["ls"], ["dead"]):
        assert "delivers no messages" in remuda.refused("inbox", *words, "a", code=2)
    assert not list(remuda.sessions.glob("*.inbox"))


def test_session_class_ends_a_program_that_ignores_term(remuda: Commands, hm: Supervisors) -> None:
    with hm.run("a", "sh", "-c", STUBBORN) as client:
        client.read_until(b"ready")
        assert Session("a", folder=remuda.sessions).kill(grace=0.5) == 137
    assert hm.exit_code() == 137


def test_message_is_refused_where_hm_took_the_name_of_an_ended_session(
    remuda: Commands, hm: Supervisors
) -> None:
    remuda.start("a", "--agent", "demo")
    remuda("kill", "a")
    hm.run("a", "cat").close()
    assert "delivers no messages" in remuda.refused("send", "a", "hello", code=2)


def test_resize_gives_the_program_its_size(remuda: Commands, hm: Supervisors) -> None:
    with hm.run("a", sys.executable, "-c", SIZER) as client:
        client.read_until(b"50 220")
        assert remuda("resize", "a", "90x25").out == "a is 90x25\n"
        client.read_until(b"25 90")
    remuda.refused("resize", "a", "0x25", code=2)


def test_status_explains_that_the_status_byte_is_all_there_is(remuda: Commands, hm: Supervisors) -> None:
    hm.run("a", "cat").close()
    plain, explained = remuda("status", "a").out, remuda("status", "a", "--explain").out
    assert "evidence" not in explained
    assert explained.count("\n") == plain.count("\n")


def test_logs_of_a_session_without_history_say_so(remuda: Commands, hm: Supervisors) -> None:
    hm.run("a", "cat").close()
    assert "has no history" in remuda.refused("logs", "a", code=3)
