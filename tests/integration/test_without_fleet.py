"""On a machine that has joined no fleet, neither a command nor the boss imports anything of it."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE

IMPORTED = re.compile(r"^import time:.*\| +(nats|nkeys|remuda\.fleet)(\.\S+)?$", re.MULTILINE)
COMMANDS = [
    ("ls",),
    ("ls", "--all", "--json"),
    ("queue",),
    ("status",),
    ("start", "more", "--detach", "--", "cat"),
    ("show", "work"),
    ("logs", "work"),
    ("messages", "work"),
    ("send", "work", "hello"),
    ("kill", "more"),
]
PARTLY = [
    *(("attach", "work"), ("dash",), ("next",), ("cancel", "work"), ("approve", "work"), ("deny", "work")),
    *(("ask", ""), ("print", ""), ("pool", "serve", "--demo", "--detach", "--size", "1", "--prewarm", "0")),
    *(("run", "--demo", "hello"), ("pool", "stop")),
]
"""Some of these come only as far as they can without a terminal, a permission request or a prompt."""


def imported(report: str) -> list[str]:
    """Return what a process imported of a fleet; it reported every import."""
    assert "| remuda" in report or "| site" in report, report
    return [found[0].rpartition("|")[2].strip() for found in IMPORTED.finditer(report)]


def mcp_server(remuda: Commands) -> tuple[str, str]:
    """Have an MCP server list sessions and name another host; return what it says and what it imported."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked = [
        ("initialize", hello),
        ("tools/call", {"name": "list_agents", "arguments": {}}),
        ("tools/call", {"name": "screen", "arguments": {"session": "build7/work"}}),
    ]
    words = [*COMMAND, "mcp"]
    server = subprocess.Popen(words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=remuda.env, cwd=remuda.cwd)
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    with server, ThreadPoolExecutor(1) as beside:
        report = beside.submit(server.stderr.read)  # a pipe takes less than it prints
        answered = b""
        for number, (method, params) in enumerate(asked):
            document = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(document).encode() + b"\n")
            server.stdin.flush()
            answered = server.stdout.readline()
        server.stdin.close()
        return answered.decode(), report.result(PATIENCE).decode()


@pytest.mark.timeout(300)
def test_commands_and_boss_without_a_hub_import_nothing_of_a_fleet(home: Path) -> None:
    remuda = Commands(home)
    remuda.env["PYTHONPROFILEIMPORTTIME"] = "1"
    try:
        assert imported(remuda("up", "--detach", "--port", "0").err) == []
        remuda.start("work", "--agent", "demo", "--", "--permission-mode", "default")
        for words in COMMANDS:
            assert imported(remuda(*words).err) == [], words
        for words in PARTLY:
            report = remuda.begin(*words).communicate(timeout=PATIENCE)[1].decode()
            assert imported(report) == [], words
        answered, report = mcp_server(remuda)
        assert "has joined no fleet" in answered
        assert "remuda.mcp" in report
        assert imported(report) == []
        remuda("down")
        assert imported((home / "boss" / "boss.err").read_text()) == []
    finally:
        remuda.close()
