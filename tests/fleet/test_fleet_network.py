"""Three machines on networks of their own, and a link of 50 ms that stalls or is cut in the middle.

With root the machines are in network namespaces; without it they share loopback. The names of the tests say
which. What fails because of the link must say so, and must not be done later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple

import pytest

from remuda.boss.client import RemoteBoss
from remuda.errors import RemudaError
from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection
from support import counts
from support.attach import PRINTER, receive_until
from support.fleet import FleetBench, Machine, Relay
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.namespaces import KIND, Network, why_not

pytestmark = pytest.mark.timeout(300)

DELAY = 0.05
_WAIT = 4.0
"""How long a request to another host waits for its answer here. No timeout of the connection is shorter."""
_NUMBERS = count(1)


class Scene(NamedTuple):
    network: Network
    desk: Machine
    build: Machine
    third: Machine


@pytest.fixture(scope="module", params=sorted({KIND, "loopback"}) if counts.SOAK else [KIND])
def scene(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Scene]:
    network = Network(FleetBench(tmp_path_factory.mktemp("fleet")), DELAY, request.param)
    try:
        desk = network.machine("desk", "host", "operator")
        build, third = network.machine("build7", "host"), network.machine("build8", "host")
        for name in ("build7", "build8"):
            desk.until_host(name)
        yield Scene(network, desk, build, third)
    finally:
        network.close()


@pytest.fixture
def at_desk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Clients in this process are of the desk, and the fleet is whole."""
    monkeypatch.setenv("REMUDA_HOME", str(scene.desk.remuda.home))
    for relay in scene.network.relays.values():
        relay.mend()
    scene.desk.until_connected()
    scene.desk.until_host("build7")
    return scene


def test_machines_have_networks_of_their_own(scene: Scene) -> None:
    if scene.network.kind == "loopback":
        why = why_not() or "this is the variant without"
        pytest.skip(f"NOT TESTED: no network namespaces ({why}); the machines of this file share loopback")
    spaces = {os.readlink(f"/proc/{one.pid}/ns/net") for one in scene.network.spaces.values()}
    bosses = [one.boss_pid for one in (scene.desk, scene.build, scene.third)]
    assert {os.readlink(f"/proc/{pid}/ns/net") for pid in bosses} == spaces
    assert len(spaces | {os.readlink("/proc/self/ns/net")}) == 4


def open_request(machine: Machine, session: str) -> dict[str, Any]:
    """Wait for the permission request of a session there."""

    def look() -> dict[str, Any]:
        known = machine.client.get("sessions", session)["session"]["id"]
        listed = machine.client.get("approvals", state="open")["approvals"]
        return next((one for one in listed if one["session_id"] == known), {})

    return until(look, f"the permission request of {session}")


def test_everything_is_done_from_another_host_over_a_slow_link(at_desk: Scene) -> None:
    _, desk, build, third = at_desk
    build.start("work")
    third.start("also")
    desk.until_session("build7", "work")
    desk.until_session("build8", "also")
    assert desk.status()["latency"] > 2 * DELAY
    # A message, with its receipt.
    assert desk.remuda("send", "build8/also", "hello", "--wait").out == "REPLY#1 to: hello\n"
    message = desk.send("build7/work", "hello")
    receipt = desk.until_stage(message, "acked")
    stages = [one["stage"] for one in receipt["steps"]]
    assert stages == ["sent", "accepted", "written", "submitted", "recorded", "ended", "acked"]
    # A permission request, with another input.
    message = desk.send("build7/work", "RUNBASH touch made")
    until(lambda: [one["reason"] for one in desk.remuda.json("queue")["items"]].count("permission"), "it")
    edited = json.dumps({"command": "touch edited"})
    desk.remuda("approve", "build7/work", "--edit", edited, "--yes")
    desk.until_stage(message, "acked")
    assert [(build.remuda.cwd / name).exists() for name in ("edited", "made")] == [True, False]
    # A reply to an agent that waits in the queue.
    assert desk.remuda("reply", "build7/work", "go on", "--wait").out.endswith(" to: go on\n")
    # A terminal.
    with KeeperClient.connect_elsewhere("build7", "work") as client:
        client.send(ClientConnection.subscribe())
        assert b"go on" in receive_until(client, b"go on")
        client.send(ClientConnection.input(b"a draft"))
        receive_until(client, b"a draft")
        client.send(ClientConnection.input(b"\x7f" * 7))
    # An interrupt, and the end.
    message = desk.send("build7/work", "SLOW 600")
    until(lambda: desk.receipt(message)["stage"] in ("submitted", "recorded"), "the turn to run")
    assert "turn interrupted" in desk.remuda("cancel", "build7/work").out
    until(lambda: desk.receipt(message)["ended"], "the end of the message")
    assert desk.remuda("kill", "build7/work", "build8/also").out.count("ended") == 2
    assert build.remuda.json("ls", "--local") == third.remuda.json("ls", "--local") == []


# ── the link breaks in the middle ──


_AT_WORK = ("thinking", "streaming")
"""States of the turn: its first word comes after some seconds."""


class Acts:
    """One of each kind: sessions on build7 for it, how it is done from the desk, and whether it was."""

    def __init__(self, scene: Scene) -> None:
        number = next(_NUMBERS)
        self.desk, self.build = scene.desk, scene.build
        self.wait = _WAIT
        kinds = ("ask", "reply", "turn", "end", "inbox", "attach")
        self.name = {kind: f"{kind}{number}" for kind in kinds}
        for kind in kinds[:-1]:
            self.build.start(self.name[kind])
        self.build.remuda.start(self.name["attach"], "--", "sh", "-c", PRINTER)
        for kind in kinds[:-1]:
            self.desk.until_session("build7", self.name[kind])
        self.made, self.edited = (self.build.remuda.cwd / f"{word}{number}" for word in ("made", "edited"))
        self.build.remuda("send", self.name["ask"], f"RUNBASH touch {self.made.name}")
        self.request = open_request(self.build, self.name["ask"])
        self.build.remuda("send", self.name["turn"], "SLOW 600")
        until(lambda: self.state("turn") in _AT_WORK, "the turn to run")
        self.terminal = KeeperClient.connect_elsewhere("build7", self.name["attach"])
        self.terminal.send(ClientConnection.subscribe())
        receive_until(self.terminal, b"ready")

    def state(self, kind: str) -> str:
        listed = self.build.remuda.json("ls", "--local")
        return next((str(one["state"]) for one in listed if one["name"] == self.name[kind]), "gone")

    # ── doing it ──

    @property
    def _boss(self) -> RemoteBoss:
        return RemoteBoss("build7", self.desk.client.folder, timeout=self.wait)

    def decide(self) -> Any:
        body = {"behavior": "allow", "updated_input": {"command": f"touch {self.edited.name}"}}
        return self._boss.post("approvals", self.request["id"], "answer", body=body)

    def reply(self) -> Any:
        return self._boss.post("sessions", self.name["reply"], "reply", body={"text": "a reply"})

    def interrupt(self) -> Any:
        return self._boss.post("sessions", self.name["turn"], "interrupt")

    def kill(self) -> Any:
        return self._boss.post("sessions", self.name["end"], "end", body={"grace": 1.0})

    def send(self) -> Any:
        where = ("fleet", "hosts", "build7", "sessions", self.name["inbox"], "messages")
        return self.desk.client.post(*where, body={"prompt": "a message", "options": {}})

    def type(self) -> None:
        self.terminal.send(ClientConnection.input(b"typed there\n"))

    @property
    def acts(self) -> dict[str, Callable[[], Any]]:
        """Those that the host answers."""
        return {"ask": self.decide, "reply": self.reply, "turn": self.interrupt, "end": self.kill}

    # ── what was done, by the host itself ──

    def has_happened(self) -> dict[str, bool]:
        ledger = self.build.client.get("approvals", self.request["id"])
        return {
            "ask": ledger["by"] == "api: fleet: desk" and self.edited.exists(),
            "reply": self.put("reply") == ["a reply"],
            "turn": self.state("turn") not in _AT_WORK,
            "end": self.state("end") == "gone",
        }

    def put(self, kind: str) -> list[str]:
        try:
            return self.build.prompts(self.name[kind])
        except FileNotFoundError:
            return []

    def shows(self, text: str) -> bool:
        return text in self.build.remuda("screen", self.name["attach"]).out

    def close(self) -> None:
        self.terminal.close()
        for kind, name in self.name.items():
            if self.state(kind) != "gone":
                self.build.remuda("kill", name)


def begin(acts: Acts, beside: ThreadPoolExecutor) -> tuple[dict[str, Future[Any]], Future[Any]]:
    """Do all of them, next to this test."""
    acts.type()
    return {name: beside.submit(act) for name, act in acts.acts.items()}, beside.submit(acts.send)


def failures(begun: dict[str, Future[Any]]) -> dict[str, RemudaError]:
    """Wait for their ends; returns those that failed."""
    found = {}
    for name, one in begun.items():
        error = one.exception(PATIENCE)
        if error is not None:
            assert isinstance(error, RemudaError), (name, error)
            found[name] = error
    return found


BREAKS = [("stall", "build7", "down")]
if counts.SOAK:
    BREAKS += [
        ("cut", "build7", "up"),
        ("cut", "desk", "down"),
        ("stall", "build7", "up"),
        ("cut", "build7", "down"),
    ]
"""How, on whose link, and what does not get through. On the way down to build7: requests; else answers."""


@pytest.mark.soak
@pytest.mark.parametrize(("how", "whose", "way"), BREAKS)
def test_a_link_that_breaks_in_the_middle_gives_a_true_outcome_and_nothing_late(
    at_desk: Scene, how: str, whose: str, way: str
) -> None:
    with closing(Acts(at_desk)) as acts:
        is_known = break_in_the_middle(acts, at_desk.network.relays[whose], how, whose, way)
        at_desk.desk.until_connected()
        at_desk.desk.until_host("build7")
        assert is_known or whose == "desk"
        until(lambda: find_message(acts)["stage"] == "acked", "the message to be answered")
        assert acts.put("inbox") == ["a message"]
        acts.wait = PATIENCE
        if (whose, way) == ("build7", "down"):
            # What was asked came too late, or never: nothing was done. All of it can be done now.
            assert not any(acts.has_happened().values()), acts.has_happened()
            for name, act in acts.acts.items():
                assert act() is not None, name
            until(lambda: all(acts.has_happened().values()), "all of it to be done")
        assert not acts.made.exists()
        assert acts.put("reply") == ["a reply"]
        with pytest.raises(RemudaError, match="desk"):  # the first decision counts, and says whose it was
            acts.decide()
        check_terminal(acts, cut=how == "cut")


def break_in_the_middle(acts: Acts, relay: Relay, how: str, whose: str, way: str) -> bool:
    """Do all of it, and break the link meanwhile. Returns whether the fate of the message was known."""
    is_lost = (whose, way) == ("build7", "down")  # the host does not get what it is asked
    # The hub does not say that it lost a host. A cut of its own link is known to the desk at once.
    acts.wait = PATIENCE if whose == "desk" else _WAIT
    with ThreadPoolExecutor(5) as beside:
        relay.stall(way)
        begun, sending = begin(acts, beside)
        if is_lost:
            until(lambda: relay.held[way] > 1000, "the requests to be on the link")
        else:
            until(lambda: all(acts.has_happened().values()), "all of it to be done")
            until(lambda: acts.shows("typed there"), "the keys")
            if whose == "desk":  # a host that cannot reach the hub cannot fetch messages either
                until(lambda: acts.put("inbox"), "the message")
        if how == "cut":
            relay.cut()
        failed = failures(begun)
        # None of them is taken for done, or for not done.
        assert failed.keys() == begun.keys()
        for name, error in failed.items():
            certain = "is not connected to the hub" in error.message and is_lost
            assert certain or "not known whether it was done" in error.message, (name, error)
        is_known = sending.exception(PATIENCE) is None
    relay.mend()
    return is_known


def find_message(acts: Acts) -> dict[str, Any]:
    """Return the message as the desk lists it."""
    (one,) = acts.desk.remuda.json("messages", f"build7/{acts.name['inbox']}")
    return dict(one)


def check_terminal(acts: Acts, *, cut: bool) -> None:
    """A terminal goes on after a stall, or has ended and says why, as after a cut. The session runs on."""
    try:
        receive_until(acts.terminal, b"typed there")
        assert not cut
    except EOFError:
        assert acts.terminal.end_reason()
    with KeeperClient.connect_elsewhere("build7", acts.name["attach"]) as client:
        client.send(ClientConnection.subscribe())
        client.send(ClientConnection.input(b"and again\n"))
        receive_until(client, b"and again")
