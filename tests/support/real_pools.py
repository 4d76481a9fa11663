"""Workers of the pool on real agents, as the conformance suite makes and ends them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from pathlib import Path
from typing import Any, Protocol

from remuda.agents.claude.stream.workers import StreamWorker
from remuda.errors import AgentError
from remuda.pool.terminal_worker import TerminalWorker
from remuda.pool.types import Allow, Decision, PermissionRequest
from remuda.pool.worker import Profile, Worker
from remuda.proctree import descendants
from remuda.testing.loopback_model import LoopbackModel
from support.pool_conformance import PATIENCE, answer_of, events_of, opened, profile_of, run_steps
from support.pool_terminals import looking
from support.real_sessions import QUESTION, tool


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


def check_question(bench: StreamBench) -> None:
    """Check that a question of the agent is answered by the caller, and that its worker serves on."""

    async def decide(question: PermissionRequest) -> Decision:
        assert question.tool == "AskUserQuestion"
        return Allow({**question.input, "answers": {"Which colour?": "Blue"}})

    async def steps() -> None:
        async with opened(bench, asks=True) as session:
            answered = await answer_of(session, f"TOOL {json.dumps(QUESTION)}", decide)
            assert "tool_result Your questions have been answered" in answered.text
            await session.renew(PATIENCE)

    run_steps(steps)


def check_fresh_conversations(
    bench: StreamBench, model: LoopbackModel, tools: tuple[str, ...], *prompts: str
) -> None:
    """Check that nothing of a conversation, in prompts, tools and files, is in requests of the next one."""
    file = bench.folder / "notes.txt"
    file.write_text("SECRET-in-file\n")
    asked = (
        "SECRET-in-prompt",
        tool("Read", file_path=str(file)),
        "RUNBASH cd /tmp; echo SECRET-of-a-tool",
        *prompts,
        "err 400",
        "and now something else",
    )

    async def steps() -> None:
        async with opened(bench, allowed_tools=("Bash", "Read", *tools)) as session:
            assert not model.requests
            for prompt in asked:
                try:
                    await events_of(session, prompt)
                except AgentError:
                    assert prompt == "err 400"
                await session.renew(PATIENCE)
                file.write_text("SECRET-in-file, changed\n")
            assert (await answer_of(session, "RUNBASH pwd")).text.endswith(bench.folder.name)

    run_steps(steps)
    *earlier, last = model.main_requests
    assert b"SECRET" in b"".join(request.raw for request in earlier)
    assert b"SECRET" not in last.raw
    other = next(request for request in earlier if "something else" in request.prompt)
    assert b"SECRET" not in other.raw
    assert len({request.session_id for request in model.main_requests}) == len(asked) + 1
