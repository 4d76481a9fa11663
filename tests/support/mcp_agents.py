"""Agents that ask through MCP: their tools, in this process, on sessions of the scripted agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from remuda import Session
from remuda.errors import RemudaError
from remuda.keeper.record import SessionRecord
from remuda.mcp.caller import caller_of
from remuda.mcp.rights import Caller
from remuda.mcp.tools import AgentTools
from remuda.paths import SessionPaths, sessions_folder
from support.heimdall_client import PATIENCE


class Agent:
    """One that asks. A refusal is its code."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.tools = AgentTools(lambda: caller)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        async def call() -> dict[str, Any]:
            result = await self.tools.call(tool, arguments)
            await asyncio.sleep(0)  # a connection that was closed ends in the loop's next round
            return result

        return asyncio.run(call())

    def refused(self, tool: str, **arguments: Any) -> RemudaError:
        with pytest.raises(RemudaError) as caught:
            self.call(tool, **arguments)
        return caught.value

    def start(self, name: str = "a", **arguments: Any) -> str:
        """Start a scripted agent, and return its session."""
        return str(self.call("start", **{"name": name, "agent": "demo", **arguments})["session"])

    def requests(self) -> list[dict[str, Any]]:
        """Permission requests of the agents that it started."""
        return [one for item in self.call("queue")["waiting"] for one in item["requests"]]

    def waits(self, session: str, message: str) -> dict[str, Any]:
        return self.call("wait", session=session, message=message, timeout=PATIENCE)


class AgentBench:
    """Sessions of a user, agents in them, and the files that say what agents may do."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home, self.project = home, project

    def user_session(self, name: str, **options: Any) -> Session:
        given = {"agent": "demo", "cwd": self.project, **options}
        return Session.start(name, given.pop("command", ()), **given)

    def agent_in(self, name: str) -> Agent:
        record = SessionRecord.load(SessionPaths(sessions_folder(), name).record)
        assert record is not None
        return Agent(caller_of(record))

    def outside(self, name: str = "ci") -> Agent:
        """One that has a token, and no session."""
        return Agent(Caller("token", name, folder=str(self.project)))

    def write(self, name: str, text: str) -> None:
        folder = self.home / "boss"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / name
        path.touch(0o600)
        path.write_text(text)


@contextmanager
def bench_in(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentBench]:
    monkeypatch.setenv("REMUDA_HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("REMUDA_SESSION", raising=False)
    (tmp_path / "project").mkdir()
    try:
        yield AgentBench(home, tmp_path / "project")
    finally:
        for session in Session.list():
            with suppress(RemudaError):
                session.kill(0.0)
