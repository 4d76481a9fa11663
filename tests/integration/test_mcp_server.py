"""`remuda mcp` as clients see it: that of the `mcp` package, one that sends garbage, and one at the boss."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from remuda import Session
from remuda.mcp.caller import make_token, remove_token
from remuda.mcp.ledger import read_ledger
from remuda.mcp.tool_list import TOOLS
from support.boss import KEPT, Answer, RunningBoss
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.mcp_agents import AgentBench, bench_in

SERVER = [sys.executable, "-P", "-m", "remuda", "mcp"]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.fixture
def bench(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentBench]:
    with bench_in(home, tmp_path, monkeypatch) as made:
        yield made


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
    with RunningBoss(home, (KEPT,)) as one:
        yield one


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


GARBAGE = (
    b"\0",
    b"{",
    b"\xff",
    b"[1]",
    b'{"a": NaN}',
    b'{"id": 5}',
    b"[" * 9000,
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"a":' * 9000 + b"1" + b"}" * 9001,
    b'{"jsonrpc": "2.0", "id": 1, "method": 7}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}',
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
)
"""None of it is a message."""
BAD_CALLS: tuple[dict[str, Any], ...] = (
    {"name": "no\x1b[2Jtool", "arguments": {}},
    {"name": "screen", "arguments": {"session": 7}},
    {"name": "screen", "arguments": {"session": "x" * 10_000}},
    {"name": "screen", "arguments": {"session": "../../etc/passwd"}},
    {"name": "screen", "arguments": {"session": "a", "more": 1}},
    {"name": "start", "arguments": {"cwd": "\0"}},
    {"name": "wait", "arguments": {"session": "a", "timeout": 1e9}},
)
BAD_REQUESTS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("tools/call", {"name": 7}, -32602),
    ("tools/call", {"name": "whoami", "arguments": [1]}, -32602),
    ("resources/read", {"uri": "remuda://sessions/a/b/c"}, -32602),
    ("resources/read", {"uri": 7}, -32602),
    ("no/method", {}, -32601),
)


def test_garbage_gets_an_error_and_does_not_end_the_server(bench: AgentBench) -> None:
    client = RawClient(bench.project)
    try:
        for line in GARBAGE:
            client.send(line + b"\n")
            assert "error" in client.read(), line[:80]
        client.send(b"\n \n")
        client.send(b"x" * (10 << 20) + b"\n")
        assert client.read()["error"]["code"] == -32600
        client.ask(1, "initialize", **HELLO)
        assert client.read()["result"]["serverInfo"]["name"] == "remuda"
        client.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        for number, params in enumerate(BAD_CALLS, 10):
            client.ask(number, "tools/call", **params)
            answer = client.read()
            assert answer["id"] == number
            assert answer["result"]["isError"], answer
            assert "\x1b" not in json.dumps(answer, ensure_ascii=False)
        for number, (method, params, code) in enumerate(BAD_REQUESTS, 50):
            client.ask(number, method, **params)
            answer = client.read()
            assert (answer["id"], answer["error"]["code"]) == (number, code), answer
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


def test_server_whose_standard_input_is_no_pipe_says_so_and_ends(remuda: Commands) -> None:
    assert "standard input is no pipe" in remuda.refused("mcp", code=2)


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


@asynccontextmanager
async def connected(boss: RunningBoss, token: str) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{boss.port}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        yield session


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


def post(boss: RunningBoss, token: str, method: str, **params: Any) -> Answer:
    document = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return boss.ask("POST", "/mcp", document, {"Accept": "application/json, text/event-stream"}, token=token)


def test_garbage_at_the_boss_gets_an_error_and_the_next_request_an_answer(boss: RunningBoss) -> None:
    token = make_token("ci")

    for body in (*GARBAGE, b"", b" "):
        answer = boss.ask("POST", "/mcp", body, token=token)
        assert (answer.status, answer.json["error"]["code"]) in ((400, -32700), (400, -32600)), body[:80]
    assert boss.ask("POST", "/mcp", b"x" * (5 << 20), token=token).status == 413
    for method in ("GET", "DELETE", "PUT"):
        assert boss.ask(method, "/mcp", token=token).status == 405
    for params in BAD_CALLS:
        answer = post(boss, token, "tools/call", **params)
        assert answer.json["result"]["isError"], answer
        assert b"\x1b" not in answer.body
    for method, params, code in BAD_REQUESTS:
        assert post(boss, token, method, **params).json["error"]["code"] == code
    assert (
        post(boss, token, "tools/call", name="whoami").json["result"]["structuredContent"]["you"]
        == "token:ci"
    )


def test_agent_that_floods_the_boss_is_refused_and_nobody_else_waits(
    bench: AgentBench, boss: RunningBoss
) -> None:
    flooder, other, enough = make_token("eve"), make_token("ci"), Event()
    refused: list[str] = []
    bench.user_session("work")
    bench.write("mcp.toml", f'folders = ["{bench.project}"]')
    given = {"agent": "demo", "cwd": str(bench.project), "prompt": "SLOW 600 words"}
    started = post(boss, flooder, "tools/call", name="start", arguments=given).json["result"]
    wanted = {**started["structuredContent"], "timeout": 0.5}
    wait = {name: wanted[name] for name in ("session", "message", "timeout")}

    def flood() -> None:
        while not enough.is_set():
            result = post(boss, flooder, "tools/call", name="wait", arguments=wait).json["result"]
            refused.extend([result["content"][0]["text"]] * result["isError"])

    # More than may run at once: on a slow machine too, some are refused.
    with ThreadPoolExecutor(40) as threads:
        flooding = [threads.submit(flood) for _ in range(40)]
        try:
            until(lambda: refused, "a refusal")
            for number in range(5):
                before = len(refused)
                hook = {"session_id": "a", "hook_event_name": "Stop", "cwd": f"/p{number}"}
                assert boss.ask("POST", "/v1/hooks", {"payload": hook}).status == 200
                assert "a" in [one["session"]["id"] for one in boss.client.get("queue")["items"]]
                assert b"remuda open" in boss.ask("GET", "/", token=None).body
                who = post(boss, other, "tools/call", name="whoami").json["result"]["structuredContent"]
                assert who["you"] == "token:ci"
                assert Session("work").ask(f"number {number}", timeout=PATIENCE)
                until(lambda before=before: len(refused) > before, "more of the flood")  # type: ignore[misc]
        finally:
            enough.set()
    for one in flooding:
        one.result()
    assert {one.partition(":")[0] for one in refused} == {"NOT_SAFE"}
    # Those refused are not recorded: they would push out all else.
    assert {one["outcome"] for one in read_ledger(10_000) if one["who"] == "token:eve"} == {"ok"}


# ── every tool ──


class Tour:
    """Uses tools over a connection, and notes which."""

    def __init__(self, session: ClientSession, project: Path) -> None:
        self._session = session
        self._project = str(project)
        self.used: set[str] = set()

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        self.used.add(tool)
        result = await self._session.call_tool(tool, arguments)
        assert not result.is_error, (tool, result.content)
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def go(self, made: str) -> None:
        await self._session.initialize()
        agent = await self.call("start", agent="demo", name="a", cwd=self._project, prompt="hello")
        name = agent["session"]
        assert (await self.call("wait", session=name, message=agent["message"]))["answer"].endswith("hello")
        assert [one["session"] for one in (await self.call("list_agents"))["agents"]] == [name]
        assert any("hello" in line for line in (await self.call("screen", session=name))["lines"])
        assert any("hello" in line for line in (await self.call("history", session=name))["lines"])
        slow = await self.call("send", session=name, text="SLOW 600 words")
        later = await self.call("send", session=name, text="later")
        while (await self.call("receipt", **slow))["stage"] != "recorded":
            await asyncio.sleep(0.02)
        assert (await self.call("cancel", **later))["outcome"] == "taken_back"
        assert (await self.call("interrupt", session=name))["message"] == slow["message"]
        assert (await self.call("wait", **slow))["ended"]
        asks = await self.call("send", session=name, text=f"RUNBASH touch {made}")
        assert (await self.call("wait", **asks))["state"] == "waiting_permission"
        while not (waiting := (await self.call("queue"))["waiting"]):
            await asyncio.sleep(0.02)
        (request,) = waiting[0]["requests"]
        assert request["may_answer"]
        await self.call("answer_permission", request=request["request"], decision="allow")
        assert (await self.call("wait", **asks))["ended"]
        ran = await self.call("run", prompt="one question", cwd=self._project)
        assert ran["answer"] == "REPLY#1 to: one question"
        assert (await self.call("whoami"))["used"]["messages"] == 5
        assert (await self.call("kill", session=name))["killed"]


@pytest.mark.usefixtures("remuda", "boss")
def test_every_tool_works_over_standard_input_and_over_http(
    bench: AgentBench, remuda: Commands, boss: RunningBoss
) -> None:
    bench.write("mcp.toml", f'folders = ["{bench.project}"]')
    rule = '[[rule]]\ndecision = "ask"\ntool = "Bash"\ncommand = "touch *"\nmcp = ["token:ci", "folder:*"]\n'
    bench.write("policy.toml", rule)
    token = make_token("ci")

    async def over_stdio() -> set[str]:
        server = StdioServerParameters(
            command=SERVER[0], args=SERVER[1:], env=dict(os.environ), cwd=bench.project
        )
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            tour = Tour(session, bench.project)
            await tour.go("by-stdio")
            return tour.used

    async def over_http() -> set[str]:
        async with connected(boss, token) as session:
            tour = Tour(session, bench.project)
            await tour.go("by-http")
            return tour.used

    async def both() -> list[set[str]]:
        return list(await asyncio.gather(over_stdio(), over_http()))

    remuda("pool", "serve", "--detach", "--demo", "--warm", "0")
    try:
        assert asyncio.run(both()) == [set(TOOLS), set(TOOLS)]
    finally:
        remuda("pool", "stop")
    assert {one.name for one in bench.project.iterdir()} >= {"by-stdio", "by-http"}
    remove_token("ci")
    assert post(boss, token, "ping").status == 401
