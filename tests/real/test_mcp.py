"""The real Claude Code runs two others through `remuda mcp`, as `remuda setup mcp` sets it up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import Boss, Session
from remuda.errors import NotInQueue
from remuda.mcp.ledger import read_ledger
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.loopback_model.model_request import Request
from remuda.testing.real_cli import RealCli
from remuda.testing.script import Reply, ToolUse
from support.boss import RunningBoss
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import Start, until
from support.real_sessions import keep

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

KEPT = "remuda.boss.evidence.kept:KeptSessions"
USED = ("start", "wait", "queue", "kill")
ORDER = "ORCHESTRATE two agents"
_MADE = re.compile(r'"session": ?"(c\.\w+)".*?"message": ?"(m[0-9a-f]+-[0-9a-f]+)"')


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, (KEPT,))
    one.start()
    yield one
    for session in Session.list():
        session.kill()
    one.close()


def _use(tool: str, /, **given: object) -> ToolUse:
    return ToolUse(f"mcp__remuda__{tool}", given)


def _results(request: Request) -> list[str]:
    """What the agent's tools returned, in order."""
    blocks = [
        block
        for message in request.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return [json.dumps(block["content"]).replace("\\", "") for block in blocks]


def _lead(request: Request, _n: int) -> Reply:
    """What the model says to the agent that runs the others: a step for each result that it has seen."""
    seen = _results(request)
    made = {name: message for text in seen for name, message in _MADE.findall(text)}
    two = {"session": "c.two", "message": made.get("c.two", ""), "timeout": 200}
    steps = [
        # The CLI offers the tools of a server by name only, until the model asks for them (2.1.325).
        (ToolUse("ToolSearch", {"query": "select:" + ",".join(f"mcp__remuda__{one}" for one in USED)}),),
        (
            _use("start", name="one", prompt="say hello"),
            _use("start", name="two", prompt="RUNBASH touch made"),
        ),
        (),  # two results at once
        (_use("wait", session="c.one", message=made.get("c.one", "")),),
        (_use("wait", **two),),
        (_use("queue"),),
        (_use("wait", **two),),
        (_use("kill", session="c.one"),),
    ]
    return Reply.of(*steps[len(seen)]) if len(seen) < len(steps) else Reply.of("ALL DONE")


def test_real_agent_runs_two_others_and_the_human_gives_the_permission(
    home: Path, cli: RealCli, model: LoopbackModel, start: Start, boss: RunningBoss, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(cli.binary)
    env = {**cli.env, "REMUDA_HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}
    commands = Commands(home)
    commands("setup", "mcp", "--yes", env=env)
    model.when(lambda request: request.is_main and ORDER in json.dumps(request.body), _lead)
    lead = keep(start, cli, "--allowedTools", "mcp__remuda", env=env, asks=True)
    session = Session(lead.spec.name)

    def has_tools() -> bool:
        session.ask("are you there?", timeout=PATIENCE)
        return "mcp__remuda__start" in json.dumps(model.main_requests[-1].body)

    until(has_tools, "the tools")
    sent = session.send(ORDER)

    def asked() -> object:
        try:
            return Boss().permission("c.two")
        except NotInQueue:
            return None

    until(asked, "the request of the second agent")
    until(lambda: any(one["tool"] == "queue" for one in read_ledger(100)), "the agent's look at the queue")
    assert not (cli.project / "made").exists()
    Boss().approve("c.two", by="the human")
    done = session.wait(sent.id, PATIENCE)

    assert (done.answer or {})["text"] == "ALL DONE"
    assert (cli.project / "made").exists()
    last = next(one for one in reversed(model.main_requests) if ORDER in json.dumps(one.body))
    seen = _results(last)
    assert any("REPLY#1 to: [message" in text and "say hello" in text for text in seen)
    assert any("permission that the user must decide" in text for text in seen)
    # The CLI lists the resources of a server when it starts, also in the agents that were started.
    calls = [one for one in read_ledger(100) if one["tool"] not in ("wait", "list_agents")]
    assert [(one["tool"], one.get("session"), one["outcome"]) for one in calls] == [
        ("start", "c.one", "ok"),
        ("start", "c.two", "ok"),
        ("queue", None, "ok"),
        ("kill", "c.one", "ok"),
    ]
    assert {one["who"].rpartition(":")[0] for one in calls} == {"session:c"}
    assert [one.name for one in Session.list()] == ["c", "c.two"]
    Session("c.two").kill()
    commands("setup", "mcp", "--remove", "--yes", env=env)
    assert "remuda" not in json.loads((cli.home / ".claude.json").read_text()).get("mcpServers", {})
