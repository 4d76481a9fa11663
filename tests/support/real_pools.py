"""Workers of the pool on real agents, as the conformance suite makes and ends them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path
from typing import Any, Protocol

from remuda.agents.claude.stream.workers import StreamWorker
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.worker import Profile, Worker
from remuda.proctree import descendants
from support.pool_conformance import profile_of
from support.pool_terminals import looking


class _Cli(Protocol):
    project: Path
    env: dict[str, str]

    @property
    def binary(self) -> Path: ...

    def running(self) -> dict[int, str]: ...


class StreamBench:
    """On a stream of Claude Code; subclasses are other agents and other workers."""

    warm = tools = raw = True
    agent = "claude"

    def __init__(self, cli: _Cli) -> None:
        self._cli = cli
        self.folder = cli.project

    def make(self, **profile: Any) -> Worker:
        binary = profile.pop("binary", self._cli.binary)
        made = profile_of(binary, self.folder, self._cli.env, agent=self.agent, **profile)
        worker: Worker = self.make_worker(f"s_{secrets.token_hex(6)}", made)
        return worker

    def make_worker(self, name: str, profile: Profile) -> Any:
        """Return a `Worker`. Those of agents declare narrower types."""
        return StreamWorker(name, profile)

    async def at_work(self, session: Worker) -> None:
        await asyncio.Event().wait()

    def kill(self, session: Worker) -> None:
        holder = next(pid for pid in descendants(os.getpid()) if pid in self._cli.running())
        os.kill(descendants(holder)[0], signal.SIGKILL)

    def processes(self) -> list[int]:
        return list(self._cli.running())


class TerminalBench(StreamBench):
    """In a kept session."""

    def __init__(self, cli: _Cli, home: Path) -> None:
        super().__init__(cli)
        self.sessions = home / "sessions"

    def make_worker(self, name: str, profile: Profile) -> Any:
        return TerminalWorker(name, profile, self.sessions)

    async def at_work(self, session: Worker) -> None:
        assert isinstance(session, TerminalWorker)
        async with looking(session, self.sessions) as look:
            await look.state("streaming")

    def kill(self, session: Worker) -> None:
        assert isinstance(session, TerminalWorker)
        os.kill(session.agent_pid, signal.SIGKILL)
