"""What the page and the dashboard show of other machines: lists, changes, requests and terminals in `/v1`."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest

from remuda import Boss
from remuda.errors import NotInFleet, RemudaError
from support.attach import COLS, DETACH, REMUDA
from support.boss_stream import Stream
from support.fleet import Machine, Pair, two_machines
from support.keeper import until
from support.page import PageTerminal, open_socket
from support.tmux import Tmux

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A machine whose page is open, and one that runs agents."""
    with two_machines(tmp_path_factory.mktemp("fleet"), "operator") as pair:
        yield pair


@pytest.fixture
def work(pair: Pair) -> Iterator[str]:
    """A session of an agent on the other machine; the name."""
    name = f"work{next(_NUMBERS)}"
    pair.build.start(name)
    pair.desk.until_session("build7", name)
    yield name
    pair.build.remuda("kill", name)
    until(lambda: pair.desk.remuda.json("ls") == [], "the session to be gone")


def listed(machine: Machine, name: str) -> dict[str, Any]:
    sessions = machine.client.get("sessions", hosts=True)["sessions"]
    return next((one for one in sessions if one["name"] == name), {})


def waiting(machine: Machine, reason: str) -> dict[str, Any]:
    items = machine.client.get("queue", hosts=True)["items"]
    return next((one for one in items if one["reason"] == reason), {})


def test_lists_have_all_hosts_only_if_they_are_asked_for(pair: Pair, work: str) -> None:
    desk = pair.desk
    session = listed(desk, work)
    assert (session["host"], session["id"].partition(":")[0]) == ("build7", "build7")
    assert (session["agent_state"], session["reachable"]) == ("idle", True)
    assert desk.client.get("sessions")["sessions"] == []
    assert desk.client.get("queue")["items"] == []
    found = desk.client.get("sessions", session["id"])
    assert found["session"]["id"] == session["id"]
    assert desk.client.get("sessions", session["id"], "screen")["alive"] is True
    assert desk.client.get("sessions", session["id"], "conversation") is not None


def test_changes_of_other_hosts_come_with_the_stream(pair: Pair, work: str) -> None:
    desk = pair.desk
    stream = Stream(cast("Any", desk))
    try:
        session = listed(desk, work)["id"]
        desk.client.post("sessions", session, "reply", body={"text": "hello"})
        while (told := stream.until("host_item").document)["session_id"] != session or told["resolved_at"]:
            pass
        assert told["session"]["host"] == "build7"
        desk.client.post("queue", told["id"], "dismiss")
        while not (told := stream.until("host_item").document)["resolved_at"]:
            pass
        assert told["session_id"] == session
    finally:
        stream.close()


def test_a_permission_request_elsewhere_is_read_and_decided_by_the_same_paths(pair: Pair, work: str) -> None:
    desk, build = pair.desk, pair.build
    message = desk.send(f"build7/{work}", "RUNBASH touch from-the-page")

    def request_of_the_item() -> Any:
        # The screen may report a dialog before the hook says what it is about: then the item changes.
        item = waiting(desk, "permission")
        with contextlib.suppress(RemudaError):
            return item and desk.client.get("approvals", item["detail"]["ask"])

    request = until(request_of_the_item, "the request")
    assert request["input"]["command"] == "touch from-the-page"
    decided = desk.client.post("approvals", request["id"], "answer", body={"behavior": "allow"})
    assert decided["id"] == request["id"]
    desk.until_stage(message, "acked")
    assert (build.remuda.cwd / "from-the-page").exists()
    shown = desk.client.get("sessions", listed(desk, work)["id"], "messages")["messages"]
    assert [one["stage"] for one in shown] == ["acked"]


def test_the_terminal_of_a_session_elsewhere_is_shown_and_typed_into(pair: Pair, work: str) -> None:
    desk = pair.desk
    session = listed(desk, work)["id"]
    headers = {"Authorization": f"Bearer {desk.token}"}
    with PageTerminal(
        open_socket(cast("Any", desk), f"/v1/sessions/{session}/terminal", headers)
    ) as terminal:
        assert terminal.until_said("hello")["session"] == f"build7/{work}"
        terminal.say("take")
        assert terminal.until_said("control")["held"] is True
        terminal.type(b"typed in the page")
        terminal.until_output(b"typed in the page")
        terminal.say("history", lines=100)
        assert terminal.until_said("history")["lines"]


def test_the_dashboard_lists_the_agent_elsewhere_and_enter_attaches_it(pair: Pair, work: str) -> None:
    desk = pair.desk
    with Tmux(desk.remuda.env, desk.remuda.cwd, 2 * COLS, 30) as server:
        pane = server.first()
        pane.until_shows("$")
        pane.enter(f"{REMUDA} dash")
        pane.until_shows(f"build7/{work}")
        pane.send(b"\r")
        pane.until_shows("Ctrl-\\ detaches")
        pane.send(DETACH)
        pane.until_shows("? keys")
        pane.send(b"q")
        pane.until_shows("$")
        desk.start("athome")
        for words in ("dash --local", "queue -i --local"):
            pane.enter(f"clear; {REMUDA} {words}")
            assert not any(work in line for line in pane.until_shows("athome"))
            pane.send(b"q")
            pane.until_shows("$")
        desk.remuda("kill", "athome")


def test_a_host_that_is_gone_is_shown_as_unreachable_and_not_as_idle(pair: Pair, work: str) -> None:
    desk, build = pair.desk, pair.build
    stream = Stream(cast("Any", desk))
    try:
        with Tmux(desk.remuda.env, desk.remuda.cwd, 2 * COLS, 30) as server:
            pane = server.first()
            pane.until_shows("$")
            pane.enter(f"{REMUDA} dash")
            pane.until_shows(f"build7/{work}")
            session = listed(desk, work)["id"]
            build.boss_end(signal.SIGKILL)
            while (told := stream.until("host_session").document)["agent_state"] != "unreachable":
                pass
            assert told["id"] == session
            assert told["unreachable_since"]
            assert listed(desk, work)["agent_state"] == "unreachable"
            row = re.compile(rf"build7/{work} +unreachable +\d")  # and since when
            pane.until(lambda lines: any(row.search(line) for line in lines))
    finally:
        stream.close()
        build.boss_up()
        build.until_connected()
        desk.until_session("build7", work)


def test_a_program_uses_the_boss_of_another_host(
    pair: Pair, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(pair.desk.remuda.home))
    boss = Boss(host="build7")
    assert boss.reply(work, "RUNBASH touch by-a-program").via == "inbox"
    (request,) = until(boss.permissions, "the request")
    assert request.input["command"] == "touch by-a-program"
    assert boss.deny(work, "not now").state == "answered"
    until(lambda: [one.reason for one in boss.queue()] == ["stopped"], "the end of its turn")
    with pytest.raises(NotInFleet, match="host 'never' not found"):
        Boss(host="never").queue()
