"""Attach to a session of another machine: what is shown and typed, rights, and the death of either end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from remuda.errors import PermissionRefused
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import open_tunnel
from remuda.wire.connection import ClientConnection
from support.attach import (
    DETACH,
    PRINTER,
    REMUDA,
    attach,
    find_attach,
    is_restored,
    open_shell,
    receive_until,
    tell,
)
from support.commands import SIZER
from support.fleet import FleetBench, Machine, Relay
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.tmux import Pane

_NUMBERS = count(1)
COLS, ROWS = 160, 12


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetBench]:
    made = FleetBench(tmp_path_factory.mktemp("fleet"))
    made.hub.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def relay(bench: FleetBench) -> Iterator[Relay]:
    """The link between the desk and the hub."""
    made = Relay(bench.hub.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def build(bench: FleetBench) -> Machine:
    return bench.machine("build7", "host")


@pytest.fixture(scope="module")
def far(bench: FleetBench, build: Machine, relay: Relay) -> Machine:
    machine = bench.machine("desk", "host", "operator", url=relay.url)
    machine.until_host("build7")
    return machine


@pytest.fixture
def desk(far: Machine, build: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine to act from; clients in this process are of it."""
    monkeypatch.setenv("REMUDA_HOME", str(far.remuda.home))
    until(lambda: far.status()["connected"], "the desk to be connected")
    far.until_host("build7")
    return far


@pytest.fixture
def pane(desk: Machine) -> Iterator[Pane]:
    with open_shell(desk.remuda, COLS, ROWS) as pane:
        yield pane


@pytest.fixture
def work(build: Machine) -> Iterator[str]:
    """A session on the other machine that prints what it is told to."""
    name = f"work{next(_NUMBERS)}"
    build.remuda.start(name, "--", "sh", "-c", PRINTER)
    yield name
    if build.remuda.json("ls", "--local"):
        build.remuda("kill", name)


def watchers(machine: Machine, name: str) -> int:
    return int(machine.remuda.json("status", name)["clients"])


def test_attach_shows_the_screen_resizes_and_detaches(desk: Machine, build: Machine, pane: Pane) -> None:
    build.remuda.start("sizes", "--", "python3", "-c", SIZER)
    attach(pane, name="build7/sizes")
    pane.until_shows(f"{ROWS - 1} {COLS}")
    pane.resize(70, 10)
    pane.until_shows("9 70")
    pane.send(DETACH)
    pane.until_shows("[detached from session build7/sizes]")
    assert is_restored(pane)
    until(lambda: watchers(build, "sizes") == 0, "the host to close its connection")
    build.remuda("kill", "sizes")


def test_the_size_is_that_of_who_typed_last_here_or_there(desk: Machine, build: Machine) -> None:
    build.remuda.start("two", "--", "sh", "-c", "exec cat")

    def until_size(cols: int) -> None:
        until(lambda: build.remuda.json("status", "two")["cols"] == cols, f"{cols} columns")

    with KeeperClient.connect("two", build.remuda.sessions) as near:
        near.send(ClientConnection.subscribe())
        near.send(ClientConnection.resize(90, 30))
        until_size(90)
        with KeeperClient.connect_elsewhere("build7", "two") as far:
            far.send(ClientConnection.subscribe())
            far.send(ClientConnection.resize(70, 20))
            until_size(70)
            near.send(ClientConnection.input(b"n\n"))
            until_size(90)
            far.send(ClientConnection.input(b"f\n"))
            until_size(70)
        until_size(90)  # it has gone
    build.remuda("kill", "two")


def test_typed_keys_reach_the_program_and_its_exit_code_comes_back(
    desk: Machine, build: Machine, pane: Pane
) -> None:
    build.remuda.start("short", "--", "sh", "-c", "stty -echo; echo ready; read x; echo [$x]; exit 7")
    attach(pane, name="build7/short")
    pane.until_shows("ready")
    pane.enter("typed here")
    lines = pane.until_shows("rc=7")
    assert any("[typed here]" in line for line in lines)
    assert any("session build7/short exited with code 7" in line for line in lines)
    pane.enter(f"clear; {REMUDA} attach build7/short; {REMUDA} attach build7/never")
    pane.until_shows("session 'short' has ended with exit code 7")
    pane.until_shows("session 'never' not found")


def test_a_client_that_is_killed_leaves_no_connection_at_the_host(
    desk: Machine, build: Machine, pane: Pane, work: str
) -> None:
    attach(pane, name=f"build7/{work}")
    until(lambda: watchers(build, work) == 1, "the client")
    find_attach(pane).signal(signal.SIGKILL)
    until(lambda: watchers(build, work) == 0, "the host to close its connection")


def test_a_cut_link_ends_the_attachment_with_a_message_and_not_the_agent(
    desk: Machine, build: Machine, relay: Relay, pane: Pane, work: str
) -> None:
    attach(pane, name=f"build7/{work}")
    pane.until_shows("ready")
    relay.cut()
    try:
        lines = pane.until_shows("rc=7")
        assert any(f"lost the connection to session build7/{work}, which keeps" in line for line in lines)
        assert is_restored(pane)
        tell(build.remuda, work, b"still here\n")
        until(lambda: "still here" in build.remuda("screen", work).out, "the session to go on")
        until(lambda: watchers(build, work) == 0, "the host to close its connection")
    finally:
        relay.mend()
    until(lambda: desk.status()["connected"], "the desk to be connected again")
    desk.until_host("build7")
    pane.enter("clear")
    attach(pane, name=f"build7/{work}")
    pane.until_shows("still here")


def test_a_client_that_does_not_read_slows_no_one_and_gets_the_present_screen(
    desk: Machine, build: Machine, work: str
) -> None:
    flood = r"i=0; while [ $i -lt 20 ]; do head -c 1000000 /dev/zero | tr '\0' x; i=$((i+1)); done"
    script = f"stty -echo; read x; {flood}; echo; echo the-end; cat"
    build.remuda.start("flood", "--", "sh", "-c", script)
    with (
        KeeperClient.connect_elsewhere("build7", "flood", read_only=True) as slow,
        KeeperClient.connect_elsewhere("build7", "flood") as quick,
        KeeperClient.connect_elsewhere("build7", work) as other,
    ):
        for client in (slow, quick, other):
            client.send(ClientConnection.subscribe())
        quick.send(ClientConnection.input(b"go\n"))
        receive_until(quick, b"the-end")
        other.send(ClientConnection.input(b"not slowed\n"))
        receive_until(other, b"not slowed")
        quick.send(ClientConnection.input(b"after it\n"))
        receive_until(slow, b"after it")  # it missed most of it, and has what is shown now
    until(lambda: watchers(build, "flood") == 0, "the host to close its connections")
    build.remuda("kill", "flood")


BLOCK = b"x" * 100_000


def peak_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


def test_a_stalled_client_costs_a_second_watcher_nothing_and_its_host_no_memory(
    desk: Machine, build: Machine
) -> None:
    script = (
        "stty -echo; echo ready; while read -r n; do head -c 100000 /dev/zero | tr '\\0' x; echo $n; done"
    )
    build.remuda.start("stalled", "--", "sh", "-c", script)
    keeper = build.remuda.json("status", "stalled")["keeper_pid"]
    with (
        KeeperClient.connect_elsewhere("build7", "stalled", read_only=True) as stalled,
        KeeperClient.connect_elsewhere("build7", "stalled") as second,
    ):
        for client in (stalled, second):
            client.send(ClientConnection.subscribe())
            receive_until(client, b"ready")
        before = dict[int, int]()
        # From here on the first reads nothing. The second has each block whole before it asks for the next.
        for number in range(120):
            second.send(ClientConnection.input(b"%d\n" % number))
            assert receive_until(second, b"\r\n") == BLOCK + b"%d\r\n" % number
            if number == 60:  # by now all on the way to the first is full, also the 4 MiB of the keeper
                before = {pid: peak_kb(pid) for pid in (keeper, build.boss_pid, desk.boss_pid)}
        grown = {pid: peak_kb(pid) - before[pid] for pid in before}
        assert max(grown.values()) < 3000, grown
        receive_until(stalled, b"119")
    build.remuda("kill", "stalled")


def test_a_viewer_watches_and_cannot_type_whatever_it_sends(
    bench: FleetBench, build: Machine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = bench.machine("viewer", "viewer")
    viewer.until_host("build7")
    monkeypatch.setenv("REMUDA_HOME", str(viewer.remuda.home))
    with pytest.raises(PermissionRefused, match="may not act on other hosts"):
        KeeperClient.connect_elsewhere("build7", work)
    size = build.remuda.json("status", work)["cols"]
    with KeeperClient.connect_elsewhere("build7", work, read_only=True) as client:
        client.send(ClientConnection.hello("changed", read_only=False))
        client.send(ClientConnection.subscribe())
        client.send(ClientConnection.input(b"typed by a viewer\n"))
        client.send(ClientConnection.resize(33, 11))
        with pytest.raises(PermissionRefused, match="read-only"):
            client.request("kill")
        tell(build.remuda, work, b"from the host\n")
        assert b"typed by a viewer" not in receive_until(client, b"from the host")
        client.send(ClientConnection.kill())
        assert client.request("status")["cols"] == size
    # The same without a HELLO, as an older client would do it.
    with open_tunnel("build7", work).sock as sock:
        sock.sendall(ClientConnection.input(b"typed without a greeting\n") + ClientConnection.ask_status())
        assert sock.recv(1)
    assert "typed" not in build.remuda("screen", work).out
    viewer.remuda("fleet", "leave")


def test_the_boss_of_the_client_is_killed_and_both_sides_end(
    desk: Machine, build: Machine, pane: Pane, work: str
) -> None:
    attach(pane, name=f"build7/{work}")
    pane.until_shows("ready")
    desk.boss_end(signal.SIGKILL)
    text = "\n".join(pane.until_shows("rc=7"))
    desk.boss_up()
    desk.until_connected()
    # Its sockets are closed one after the other: it may still seem to take the question why.
    assert "the boss is not running" in text or "the boss ended while it was answering" in text
    until(lambda: watchers(build, work) == 0, "the host to close its connection")


def test_the_boss_of_the_host_is_killed_and_the_session_keeps_running(
    desk: Machine, build: Machine, pane: Pane, work: str
) -> None:
    attach(pane, name=f"build7/{work}")
    pane.until_shows("ready")
    build.boss_end(signal.SIGKILL)
    build.boss_up()
    lines = pane.until_shows("rc=7")
    assert f"lost the connection to session build7/{work}, which keeps running" in " ".join(
        line.strip() for line in lines
    )
    build.until_connected()
    desk.until_host("build7")
    pane.enter("clear")
    attach(pane, name=f"build7/{work}")
    tell(build.remuda, work, b"still here\n")
    pane.until_shows("still here")


def test_a_keeper_that_is_killed_is_reported_as_ended(desk: Machine, build: Machine) -> None:
    build.remuda.start("victim", "--", "sh", "-c", "echo ready; exec cat")
    keeper = build.remuda.json("status", "victim")["keeper_pid"]
    with KeeperClient.connect_elsewhere("build7", "victim") as client:
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(EOFError):
            until(lambda: list(client.receive(PATIENCE)) and None, "the end")
        assert client.end_reason() == "the keeper of session build7/victim has ended"
