"""Benches for warm sessions: the scripted agent behind each backend, and the fake."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from remuda.errors import AgentError
from remuda.pool.types import Answered, BackendName, Request, SessionEvent, Token
from remuda.pool.worker import Worker, backend_factory
from remuda.proctree import descendants
from remuda.testing.pool import USAGE, FakeAgent, FakeSession
from support.pool_conformance import profile_of
from support.print_calls import scripted_agent, write_program


class ScriptedBench:
    """Sessions on the scripted agent, whose home is the test's."""

    warm = tools = raw = True
    backend: BackendName = "stream"

    def __init__(self, home: Path, **env: str) -> None:
        self.folder = home / "project"
        self.folder.mkdir()
        self.binary = scripted_agent(home)
        self.inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLAUDE")}
        self.env = {**self.inherited, "HOME": str(home), **env}
        self._made: list[Worker] = []

    def make(self, **profile: Any) -> Worker:
        made = profile_of(profile.pop("binary", self.binary), self.folder, self.env, **profile)
        session = backend_factory(self.backend, self.folder.parent)(f"s_{secrets.token_hex(6)}", made)
        self._made.append(session)
        return session

    async def at_work(self, session: Worker) -> None:
        await asyncio.Event().wait()

    def kill(self, session: Worker) -> None:
        os.kill(descendants(self.holder())[0], signal.SIGKILL)

    def holder(self) -> int:
        [holder] = [pid for pid in descendants(os.getpid()) if pid in self.processes()][:1]
        return holder

    def processes(self) -> list[int]:
        """All with this home, wherever they ended up."""
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and self._is_ours(entry)]

    def _is_ours(self, entry: str) -> bool:
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            return False
        return f"HOME={self.env['HOME']}".encode() in variables


class StreamBench(ScriptedBench):
    pass


class PrintBench(ScriptedBench):
    warm = False
    backend: BackendName = "print"


def waking(alarm: Path) -> str:
    """For `wicked`: it answers, and begins a turn by itself when someone opens `alarm` to write."""
    os.mkfifo(alarm)
    return f"""
        def wake():
            open({str(alarm)!r}).close()
            say({{"type": "system", "subtype": "init", "session_id": "own"}})

        result(message["uuid"], "well", f"c{{clears}}")
        threading.Thread(target=wake, daemon=True).start()
"""


def wicked(home: Path, script: str) -> Path:
    """A program that speaks the protocol so far that it comes up, and then does what the test says.

    `script` is Python, run for each line that is not part of that; `say(message)` prints a message.
    """
    program = f"""#!{sys.executable} -IS
import json, os, sys, threading, time
def say(message): print(json.dumps(message), flush=True)
def result(command, text, conversation):
    say({{"type": "system", "subtype": "init", "session_id": conversation}})
    say({{"type": "result", "subtype": "success", "result": text, "session_id": conversation,
          "user_message_uuid": command}})
clears = 0
for line in sys.stdin:
    message = json.loads(line)
    request = message.get("request", {{}})
    if request.get("subtype") == "initialize":
        say({{"type": "control_response", "response": {{"subtype": "success",
             "request_id": message["request_id"], "response": {{}}}}}})
    elif message.get("message", {{}}).get("content") == "/clear":
        clears += 1
        say({{"type": "conversation_reset", "user_message_uuid": message["uuid"]}})
        result(message["uuid"], "", f"c{{clears}}")
    else:
{script}
"""
    return write_program(home / "wicked", program)


class FakeBench:
    """The fake, taught the prompts of the checks."""

    warm = True
    tools = raw = False

    def __init__(self, home: Path) -> None:
        self.folder = home
        self._agent = FakeAgent(self._answer)

    def make(self, **profile: Any) -> Worker:
        made = profile_of(self.folder / "claude", self.folder, {}, **profile)
        return self._agent(f"s_{secrets.token_hex(6)}", made)

    async def at_work(self, session: Worker) -> None:
        await asyncio.Event().wait()

    def kill(self, session: Worker) -> None:
        assert isinstance(session, FakeSession)
        session.crash()

    def processes(self) -> list[int]:
        return [id(session) for session in self._agent.alive]

    @staticmethod
    async def _answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        if request.prompt.startswith("err"):
            raise AgentError(f"API Error: {request.prompt}")
        if request.prompt.startswith("SLOW"):
            yield Token("word0 ")
            await asyncio.sleep(600)
        text = f"REPLY#1 to: {request.prompt}"
        yield Token(text)
        yield Answered(text, conversation_id=session.conversation_id, usage=USAGE)
