"""`remuda mcp` as clients see it: that of the `mcp` package, one that sends garbage, and one at the boss."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from remuda.mcp.caller import make_token, remove_token
from remuda.mcp.ledger import read_ledger
from remuda.mcp.tool_list import TOOLS
from support.boss import RunningBoss
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.mcp_agents import AgentBench, bench_in

KEPT = "remuda.boss.evidence.kept:KeptSessions"
SERVER = [sys.executable, "-P", "-m", "remuda", "mcp"]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.fixture
def bench(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentBench]:
    made = bench_in(home, tmp_path, monkeypatch)
    yield made
    made.close()


class RawClient:
    """Sends bytes, and reads lines."""

    def __init__(self, cwd: Path) -> None:
        self.process = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, number: int, method: str, **params: Any) -> None:
        document = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.send(json.dumps(document).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


@pytest.fixture
def boss(home: Path, bench: AgentBench) -> Iterator[RunningBoss]:
    one = RunningBoss(home, (KEPT,))
    one.start()
    yield one
    one.close()


@pytest.mark.usefixtures("remuda", "boss")  # in this order: the boss ends first
def test_packages_own_client_runs_two_agents_and_the_human_gives_the_permission(
    bench: AgentBench, remuda: Commands, tmp_path: Path
) -> None:
    bench.user_session("user")
    result = tmp_path / "result.json"
    program = Path(__file__).parents[1] / "support" / "mcp_lead.py"
    lead = bench.user_session("lead", agent=None, command=[sys.executable, str(program), str(result)])

    def tried_to_decide() -> bool:
        return any(one["tool"] == "answer_permission" for one in read_ledger(100)) or not lead.alive

    until(tried_to_decide, "the agent's own decision")
    remuda("approve", "lead.two", "--yes")
    until(lambda: not lead.alive, "the agent's end")
    assert result.exists(), "\n".join(lead.history())

    did = json.loads(result.read_text())
    assert did["server"] == "remuda"
    assert "wait" in did["instructions"]
    assert did["tools"] == list(TOOLS)
    assert (did["who"]["session"], did["who"]["depth"], did["who"]["started_by"]) == ("lead", 0, "the user")
    assert [one["session"] for one in did["made"]] == ["lead.one", "lead.two"]
    assert (did["stopped"]["ended"], did["stopped"]["state"]) == (False, "waiting_permission")
    assert "tell the user" in did["stopped"]["why"]
    assert [(one["tool"], one["may_answer"]) for one in did["requests"]] == [("Bash", False)]
    assert did["decided"] == [
        True,
        "PERMISSION_REFUSED: only the user can decide this request; "
        "tell the user: 'remuda approve lead.two' decides it",
    ]
    assert not did["exists"]
    assert (bench.project / "made").exists()
    assert did["answers"][0].endswith("do one")
    assert "tool_result" in did["answers"][1]
    assert did["resources"][:3] == [
        "remuda://sessions",
        "remuda://sessions/lead.one",
        "remuda://sessions/lead.one/transcript",
    ]
    assert did["transcript"]["entries"][0]["text"].endswith("do one")
    assert did["refused"] == [
        True,
        "SESSION_NOT_FOUND: you reach no session 'user'; list_agents lists those that you reach",
    ]
    assert all(one["killed"] for one in did["killed"])


def test_garbage_gets_an_error_and_does_not_end_the_server(bench: AgentBench) -> None:
    client = RawClient(bench.project)
    try:
        for line in (
            b"\0\n",
            b"{\n",
            b"\xff\n",
            b"[1]\n",
            b'{"a": NaN}\n',
            b'{"id": 5}\n',
            b"[" * 9000 + b"\n",
        ):
            client.send(line)
            assert "error" in client.read()
        client.send(b"\n \n")
        client.send(b"x" * (10 << 20) + b"\n")
        assert client.read()["error"]["code"] == -32600
        client.ask(1, "initialize", **HELLO)
        assert client.read()["result"]["serverInfo"]["name"] == "remuda"
        client.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        for number, params in enumerate(
            [
                {"name": "no\x1b[2Jtool", "arguments": {}},
                {"name": "screen", "arguments": {"session": 7}},
                {"name": "screen", "arguments": {"session": "x" * 10_000}},
                {"name": "screen", "arguments": {"session": "../../etc/passwd"}},
                {"name": "screen", "arguments": {"session": "a", "more": 1}},
                {"name": "start", "arguments": {"cwd": "\0"}},
                {"name": "wait", "arguments": {"session": "a", "timeout": 1e9}},
            ],
            10,
        ):
            client.ask(number, "tools/call", **params)
            answer = client.read()
            assert answer["id"] == number
            assert answer["result"]["isError"], answer
            assert "\x1b" not in json.dumps(answer, ensure_ascii=False)
        client.ask(50, "tools/call", name=7)
        assert client.read()["error"]["code"] == -32602
        client.ask(51, "no/method")
        assert client.read()["error"]["code"] == -32601
        for number in range(100, 1100):
            client.ask(number, "tools/call", name="list_agents", arguments={})
        assert {client.read()["id"] for _ in range(1000)} == set(range(100, 1100))
        client.ask(2000, "ping")
        assert client.read()["id"] == 2000
    finally:
        code = client.close()
    assert code == 0


def test_error_that_names_a_path_which_is_not_utf8_does_not_end_the_server(bench: AgentBench) -> None:
    folder = Path(os.fsdecode(bytes(bench.project) + b"/caf\xe9"))
    folder.mkdir()
    client = RawClient(folder)
    try:
        client.ask(1, "initialize", **HELLO)
        client.read()
        client.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        client.ask(2, "tools/call", name="start", arguments={"agent": "demo", "cwd": ".."})
        refused = client.read()["result"]
        assert refused["isError"]
        assert "caf\N{REPLACEMENT CHARACTER}" in refused["content"][0]["text"]
        client.ask(3, "ping")
        assert client.read()["id"] == 3
    finally:
        code = client.close()
    assert code == 0


def test_tokens_rights_and_ledger_are_shown_and_a_mistake_is_an_error(remuda: Commands) -> None:
    assert "max_depth = 2" in remuda("mcp", "check").out
    assert len(remuda("mcp", "token", "ci").out.strip()) > 30
    assert remuda("mcp", "token").out == "ci\n"
    remuda("mcp", "token", "ci", "--remove")
    assert "no token 'ci'" in remuda.refused("mcp", "token", "ci", "--remove", code=3)
    assert remuda("mcp", "ledger").out == "no agent has called a tool\n"
    (remuda.home / ".config" / "remuda").mkdir(parents=True)
    (remuda.home / ".config" / "remuda" / "mcp.toml").write_text("max_dept = 1")
    assert "unknown key 'max_dept'" in remuda.refused("mcp", "check", code=2)
    reach = '[[agent]]\nname = "lead"\nreach = "build7/*"'
    (remuda.home / ".config" / "remuda" / "mcp.toml").write_text(f"max_sessions = 0\n{reach}")
    checked = remuda("mcp", "check")
    assert "max_sessions = 0" in checked.out
    assert "lead: reaches build7/* (read)" in checked.out
    assert "has joined no fleet" in checked.err


def test_setup_writes_the_agents_own_configuration_and_removes_it_to_the_byte(remuda: Commands) -> None:
    file = remuda.home / ".claude.json"
    before = '{"theme":"dark",\n   "mcpServers": {"x": {"command": "y"}}}'
    file.write_text(before)

    shown = remuda("setup", "mcp", "--dry-run").out
    assert '+    "remuda": {' in shown
    assert file.read_text() == before
    remuda("setup", "mcp", "--agent", "claude", "--yes")
    server = json.loads(file.read_text())["mcpServers"]["remuda"]
    assert [server["command"], *server["args"]] == SERVER
    remuda("setup", "mcp", "--remove", "--yes")
    assert file.read_text() == before
    remuda("setup", "mcp", "--yes")
    written = {**json.loads(file.read_text()), "numStartups": 5}  # as the agent writes it all the time
    file.write_text(json.dumps(written))
    remuda("setup", "--remove", "--yes")
    assert json.loads(file.read_text()) == {**json.loads(before), "numStartups": 5}
    file.write_text('{"mcpServers": {"remuda": {"command": "other"}}}')
    assert "another server" in remuda.refused("setup", "mcp", "--yes", code=2)


# ── at the boss ──


async def _over_http(boss: RunningBoss, token: str, project: Path) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{boss.port}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        who = (await session.call_tool("whoami", {})).structured_content
        started = await session.call_tool(
            "start", {"agent": "demo", "name": "a", "cwd": str(project), "prompt": "hello"}
        )
        assert not started.is_error, started
        made = started.structured_content
        done = await session.call_tool(
            "wait", {"session": made["session"], "message": made["message"], "timeout": 60}
        )
        killed = await session.call_tool("kill", {"session": made["session"]})
        return {"who": who, "done": done.structured_content, "killed": killed.structured_content}


def test_agent_with_a_token_runs_agents_at_the_boss(bench: AgentBench, boss: RunningBoss) -> None:
    bench.write("mcp.toml", f'folders = ["{bench.project}"]')
    token = make_token("ci")

    did = asyncio.run(_over_http(boss, token, bench.project))
    assert did["who"]["you"] == "token:ci"
    assert did["done"]["answer"].endswith("hello")
    assert did["killed"]["killed"]
    for bad in (b"\0", b"{", b"[]", b""):
        answer = boss.ask("POST", "/mcp", bad, token=token)
        assert (answer.status, answer.json["error"]["code"]) in ((400, -32700), (400, -32600))
    assert boss.ask("POST", "/mcp", b"x" * (5 << 20), token=token).status == 413
    assert boss.ask("GET", "/mcp", token=token).status == 405
    remove_token("ci")
    assert boss.ask("POST", "/mcp", b"{}", token=token).status == 401


@pytest.mark.usefixtures("own_interpreters")
def test_each_token_is_valid_in_its_own_place_only(bench: AgentBench, boss: RunningBoss) -> None:
    token = make_token("ci")

    assert boss.ask("POST", "/mcp", b"{}").status == 401
    assert boss.ask("POST", "/mcp", b"{}", token=None).status == 401
    assert boss.ask("GET", "/v1/queue", token=token).status == 401
    foreign = {"Origin": "http://evil.example"}
    assert boss.ask("POST", "/mcp", b"{}", foreign, token=token).status == 403
    assert boss.ask("POST", "/mcp", b"{}", {"Host": "evil.example"}, token=token).status == 403
    loaded = Path(f"/proc/{boss.process.pid if boss.process else 0}/maps").read_text()
    assert "pydantic_core" not in loaded, "the boss loads MCP without a client"
    assert os.stat(bench.home / "mcp" / "tokens" / "ci").st_mode & 0o077 == 0
