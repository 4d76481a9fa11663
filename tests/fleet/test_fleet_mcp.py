"""What an agent can do through MCP with sessions of other machines, and what it cannot."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from itertools import count

import pytest

from remuda.mcp.ledger import read_ledger
from support.fleet import Pair, two_machines
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.mcp_agents import AgentBench

READS = '[[agent]]\nname = "token:ci"\nreach = "build7/work*"\nmay = ["read", "send", "control"]\n'
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_machines(tmp_path_factory.mktemp("fleet")) as pair:
        yield pair


@pytest.fixture
def pair(machines: Pair, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """This test is a program on the machine to act from."""
    monkeypatch.setenv("REMUDA_HOME", str(machines.desk.remuda.home))
    return machines


@pytest.fixture
def bench(pair: Pair) -> AgentBench:
    home = pair.desk.remuda.home
    made = AgentBench(home, home)
    made.write("mcp.toml", READS)
    return made


@pytest.fixture
def work(pair: Pair) -> Iterator[str]:
    name = f"work{next(_NUMBERS)}"
    yield pair.start(name)
    pair.build.remuda("kill", name)


def test_agent_uses_a_session_of_another_host_that_the_file_names(
    pair: Pair, bench: AgentBench, work: str
) -> None:
    ci = bench.outside("ci")
    (listed,) = (one for one in ci.call("list_agents")["agents"] if one["session"] == work)
    assert (listed["agent"], listed["state"], listed["started_by"]) == ("demo", "idle", "not known")
    before = ci.call("whoami")["used"]["messages"]
    sent = ci.call("send", session=work, text="/count them")
    done = ci.waits(work, sent["message"])
    assert (done["ended"], done["stage"]) == (True, "acked")
    assert done["answer"] == "REPLY#1 to: [message from token:ci on host desk] /count them"
    assert ci.call("receipt", session=work, message=sent["message"])["stage"] == "acked"
    assert ci.call("wait", session=work, timeout=PATIENCE)["why"] == "the session is idle"
    assert any("count them" in line for line in ci.call("screen", session=work)["lines"])
    assert any("count them" in line for line in ci.call("history", session=work)["lines"])
    running = ci.call("send", session=work, text="SLOW 600")["message"]
    waiting = ci.call("send", session=work, text="never")["message"]
    until(lambda: ci.call("receipt", session=work, message=running)["stage"] == "recorded", "the turn")
    assert ci.call("cancel", session=work, message=waiting)["outcome"] == "taken_back"
    early = ci.call("wait", session=work, message=running, timeout=0.1)
    assert (early["ended"], "progress" in early) == (False, True)
    assert ci.call("interrupt", session=work)["message"] == running
    assert ci.waits(work, running)["ended"]
    assert not ci.call("interrupt", session=work)["interrupted"]
    assert ci.call("whoami")["used"]["messages"] == before + 3
    lines = [(one["who"], one["tool"], one["session"]) for one in read_ledger(100) if one.get("session")]
    assert {("token:ci", tool, work) for tool in ("send", "wait", "interrupt")} <= set(lines)


def test_agent_reaches_no_other_session_of_any_host_and_ends_and_starts_none_there(
    pair: Pair, bench: AgentBench, work: str
) -> None:
    ci, eve = bench.outside("ci"), bench.outside("eve")
    message = ci.call("send", session=work, text="mine")["message"]
    calls = [
        ("screen", {}),
        ("history", {}),
        ("wait", {"message": message}),
        ("receipt", {"message": message}),
        ("cancel", {"message": message}),
        ("send", {"text": "x"}),
        ("interrupt", {}),
        ("kill", {}),
    ]
    # Of another agent, of another host, absent: all the same. "*" is for this machine.
    bench.write("mcp.toml", f'{READS}[[agent]]\nname = "token:eve"\nreach = ["*", "other/*"]\nmay = "read"\n')
    for tool, more in calls:
        for name in (work, "build7/absent"):
            error = eve.refused(tool, session=name, **more)
            assert (error.code, error.message) == ("SESSION_NOT_FOUND", f"you reach no session '{name}'")
    assert eve.call("list_agents", ended=True)["agents"] == []
    assert ci.refused("kill", session=work).code == "SESSION_NOT_FOUND"
    refused = ci.refused("start", name="build7/more", agent="demo")
    assert (refused.code, "on this machine only" in refused.message) == ("PERMISSION_REFUSED", True)
    assert {one["name"] for one in pair.build.remuda.json("ls", "--local")} == {work.partition("/")[2]}
    # A folder finds an agent for people. It must not lead past the names in the file.
    folder = pair.build.remuda.cwd.name
    until(lambda: pair.build.client.get("sessions", folder)["session"]["name"], "the agent by its folder")
    bench.write("mcp.toml", f'[[agent]]\nname = "token:eve"\nreach = "build7/{folder}"\n')
    for tool in ("screen", "history", "wait"):
        assert eve.refused(tool, session=f"build7/{folder}").code == "SESSION_NOT_FOUND"


def test_agent_that_may_only_send_reads_its_own_message_and_nothing_else(
    bench: AgentBench, work: str
) -> None:
    bench.write("mcp.toml", '[[agent]]\nname = "token:*"\nreach = "*/work*"\nmay = "send"\n')
    ci, eve = bench.outside("ci"), bench.outside("eve")
    message = ci.call("send", session=work, text="SLOW 600")["message"]
    early = ci.call("wait", session=work, message=message, timeout=0.1)
    assert (early["ended"], "progress" in early) == (False, False)
    assert ci.refused("screen", session=work).code == "SESSION_NOT_FOUND"
    for message_id in (message, message[:-1]):
        assert eve.refused("receipt", session=work, message=message_id).code == "SESSION_NOT_FOUND"
    assert eve.refused("cancel", session=work, message=message).code == "SESSION_NOT_FOUND"
    assert ci.call("cancel", session=work, message=message)["message"] == message
    bench.write("mcp.toml", f"max_messages = 1\n{READS}")
    assert "used up" in ci.refused("send", session=work, text="one too many").message


def test_permission_of_another_host_is_shown_and_never_decided(
    pair: Pair, bench: AgentBench, work: str
) -> None:
    ci = bench.outside("ci")
    rule = '[[rule]]\ndecision = "ask"\ntool = "Bash"\ncommand = "touch *"\nmcp = "token:ci"\n'
    bench.write("policy.toml", rule)  # at home it would name the agent
    message = ci.call("send", session=work, text="RUNBASH touch made")["message"]
    stopped = ci.waits(work, message)
    assert not stopped["ended"]
    assert "permission that the user must decide" in stopped["why"]
    (item,) = until(lambda: ci.call("queue")["waiting"], "the request in the queue")
    assert (item["session"], item["reason"], item["requests"]) == (work, "permission", [])
    (request,) = pair.build.client.get("approvals", state="open")["approvals"]
    for word in (request["id"], f"build7:{request['id']}"):
        error = ci.refused("answer_permission", request=word, decision="allow")
        assert error.code == "NOT_IN_QUEUE"
    assert not (pair.build.remuda.cwd / "made").exists()
    assert bench.outside("eve").call("queue")["waiting"] == []
    pair.desk.remuda("deny", work)
    assert ci.waits(work, message)["ended"]


def test_host_that_is_away_is_named_and_gets_the_message_later(
    pair: Pair, bench: AgentBench, work: str
) -> None:
    ci = bench.outside("ci")
    pair.build.boss_end(signal.SIGKILL)
    try:
        sent = ci.call("send", session=work, text="while away")
        assert "has not taken it" in sent["note"]
        early = ci.call("wait", session=work, message=sent["message"], timeout=0.1)
        assert (early["stage"], early["why"]) == (
            "sent",
            "the session cannot be reached now; call wait again",
        )
        for tool in ("screen", "interrupt", "wait"):
            assert ci.refused(tool, session=work).code == "HOST_UNREACHABLE"
    finally:
        pair.build.boss_up()
    assert ci.waits(work, sent["message"])["answer"].endswith("while away")


def test_resources_lead_to_sessions_of_other_hosts(bench: AgentBench, work: str) -> None:
    ci = bench.outside("ci")
    message = ci.call("send", session=work, text="hello")["message"]
    ci.waits(work, message)
    assert asyncio.run(ci.tools.read(work))["session"] == work
    entries = asyncio.run(ci.tools.read(work, transcript=True))["entries"]
    assert [one["kind"] for one in entries][:2] == ["prompt", "answer"]
