"""A served pool whose agents do as the prompt says, as a process: `python fake_pool.py SOCKET`.

HANG waits for ever, CRASH ends the agent, FAIL is an error of the agent's, SLEEP n answers late, WHERE tells
folder and environment, USE asks for a permission, LATE has its usage behind the answer; all else is repeated.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator

from remuda.errors import AgentError, SessionCrashed
from remuda.pool.client import Client
from remuda.pool.serve import serving
from remuda.pool.types import (
    Allow,
    Answered,
    PermissionRequest,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.testing.pool import FakeAgent, FakeSession

USAGE = Usage(3, 4)


async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    word, _, rest = request.prompt.partition(" ")
    usage: Usage | None = USAGE
    text = f"REPLY to: {request.prompt}"
    if word == "HANG":
        yield Token("…")
        await asyncio.Event().wait()
    if word == "CRASH":
        raise SessionCrashed("gone", detail="exit:1")
    if word == "FAIL":
        raise AgentError("API Error: 400 no")
    if word == "SLEEP":
        await asyncio.sleep(float(rest))
    if word == "WHERE":
        profile = session.profile
        text = json.dumps({"cwd": profile.cwd, "env": dict(profile.env), "model": profile.model})
    if word == "USE":
        asked = PermissionRequest("p1", "Bash", {"command": rest}, request.id)
        yield asked
        decision = await request.decide(asked)
        yield ToolUse("t1", "Bash", {"command": rest})
        yield ToolResult("t1", "x", is_error=not isinstance(decision, Allow))
        text = type(decision).__name__
    if word == "LATE":
        usage = None
    for piece in (text[:3], text[3:]):
        yield Token(piece)
    yield Answered(text, conversation_id="c1", usage=usage, entrypoint="fake")


async def main(path: str) -> None:
    agent = FakeAgent(answer)
    agent.late_usage = USAGE
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    client = Client(session_factory=agent, pool_size=4, inherit_env=False, close_timeout=0.0)
    async with serving(client, path, default_timeout=30.0, claude_binary="claude") as server:
        print("serving", flush=True)
        steps = [asyncio.create_task(ended.wait()), asyncio.create_task(server.asked_to_stop.wait())]
        await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
