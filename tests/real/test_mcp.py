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
from support.boss import KEPT, RunningBoss
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import Start, until
from support.real_sessions import keep

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

USED = ("start", "send", "wait", "queue", "answer_permission", "kill")
ORDER = "ORCHESTRATE two agents"
ASK_BACK = "WRITE BACK before you end"
_SENT = re.compile(r'"session":"(c\.\w+)".*?"message":"(m[0-9a-f]+-[0-9a-f]+)"')
_HEADING = re.compile(r"\[message (m[0-9a-f]+-[0-9a-f]+) from session c;")
_REQUEST = re.compile(r'"request":"([^"]+)"')


def _callers(tool: str) -> list[str]:
    """Which sessions have used a tool."""
    return [one["who"].split(":")[1] for one in read_ledger(100) if one["tool"] == tool]


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
    """What the agent's tools returned, in order, as compact JSON."""
    blocks = [
        block
        for message in request.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return [json.dumps(block["content"]).replace("\\", "").replace('": ', '":') for block in blocks]


def _find(*tools: str) -> ToolUse:
    """The CLI offers the tools of a server by name only, until the model asks for them (2.1.325)."""
    return ToolUse("ToolSearch", {"query": "select:" + ",".join(f"mcp__remuda__{one}" for one in tools)})


def _lead(request: Request, _n: int) -> Reply:
    """What the model says to the agent that runs the others: a step for each result that it has seen."""
    # The boss may hear of the request after the agent does: then the queue is empty, and is asked for again.
    seen = [one for one in _results(request) if '"waiting":[]' not in one]
    sent = {name: message for text in seen for name, message in _SENT.findall(text)}
    two = {"session": "c.two", "message": sent.get("c.two", ""), "timeout": 200}
    requests = [found for text in seen for found in _REQUEST.findall(text)]
    steps = [
        (_find(*USED),),
        (_use("start", name="one"), _use("start", name="two")),
        (),  # two results at once
        (
            _use("send", session="c.one", text=ASK_BACK),
            _use("send", session="c.two", text="RUNBASH touch made"),
        ),
        (),
        (_use("wait", session="c.one", message=sent.get("c.one", ""), timeout=200),),
        (_use("wait", **two),),
        (_use("queue"),),
        (_use("answer_permission", request="".join(requests[-1:]), decision="allow"),),
        (_use("wait", **two),),
        (_use("kill", session="c.one"),),
    ]
    return Reply.of(*steps[len(seen)]) if len(seen) < len(steps) else Reply.of("ALL DONE")


def _one(request: Request, _n: int) -> Reply:
    """What the model says to the first of the others: it replies while its turn runs."""
    seen = _results(request)
    if any('"session":"c"' in text for text in seen):
        return Reply.of("I wrote back")
    if any("mcp__remuda__send" in text for text in seen):
        (asked,) = set(_HEADING.findall(json.dumps(request.body["messages"])))
        return Reply.of(_use("send", in_reply_to=asked, text="the blue one"))
    return Reply.of(_find("send"))


def test_real_agent_runs_two_others_and_the_human_gives_the_permission(
    home: Path, cli: RealCli, model: LoopbackModel, start: Start, boss: RunningBoss, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(cli.binary)
    env = {**cli.env, "REMUDA_HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}
    commands = Commands(home)
    commands("setup", "mcp", "--yes", env=env)
    (cli.home / ".claude").mkdir(exist_ok=True)
    (cli.home / ".claude" / "settings.json").write_text('{"permissions": {"allow": ["mcp__remuda"]}}')
    model.when(lambda request: request.is_main and ASK_BACK in json.dumps(request.body), _one)
    model.when(lambda request: request.is_main and ORDER in json.dumps(request.body), _lead)
    lead = keep(start, cli, env=env, asks=True)
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
    until(lambda: "c.one" in _callers("send"), "the reply of the first agent")
    until(lambda: "c" in _callers("answer_permission"), "its own decision")
    assert not (cli.project / "made").exists()
    Boss().approve("c.two", by="the human")
    done = session.wait(sent.id, PATIENCE)

    assert (done.answer or {})["text"] == "ALL DONE"
    assert (cli.project / "made").exists()
    last = next(one for one in reversed(model.main_requests) if ORDER in json.dumps(one.body))
    seen = _results(last)
    assert any("I wrote back" in text for text in seen)
    assert any("permission that the user must decide" in text for text in seen)
    assert any("PERMISSION_REFUSED: only the user can decide this request" in text for text in seen)
    assert any('"stage":"acked"' in text and "tool_result" in text for text in seen), "c.two's answer"
    # The CLI lists the resources of a server when it starts, also in the agents that were started.
    calls = [one for one in read_ledger(100) if one["tool"] not in ("wait", "list_agents", "queue")]
    assert [
        (one["tool"], one.get("session"), one["outcome"])
        for one in calls
        if one["who"].rpartition(":")[0] == "session:c"
    ] == [
        ("start", "c.one", "ok"),
        ("start", "c.two", "ok"),
        ("send", "c.one", "ok"),
        ("send", "c.two", "ok"),
        ("answer_permission", None, "PERMISSION_REFUSED"),
        ("kill", "c.one", "ok"),
    ]
    (reply,) = [one for one in calls if one["who"].startswith("session:c.one:")]
    assert (reply["tool"], reply["session"], reply["outcome"]) == ("send", "c", "ok")
    asked = next(one["message"] for one in calls if (one["tool"], one["session"]) == ("send", "c.one"))
    heading = f"[message {reply['message']} from session c.one, in reply to your message {asked}"
    back = session.wait(reply["message"], PATIENCE)
    assert back.stage == "acked"
    assert any(heading in json.dumps(one.body) for one in model.main_requests)
    assert [one.name for one in Session.list()] == ["c", "c.two"]
    Session("c.two").kill()
    commands("setup", "mcp", "--remove", "--yes", env=env)
    assert "remuda" not in json.loads((cli.home / ".claude.json").read_text()).get("mcpServers", {})
