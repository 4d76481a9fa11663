"""A served pool whose agents do as the prompt says, as a process: `python fake_pool.py SOCKET [BACKEND]`.

HANG waits forever, CRASH ends the agent, FAIL is an error of the agent's, SLEEP n answers late, WHERE tells
folder and environment, USE asks for a permission, LATE has its usage behind the answer; all else is repeated.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from typing import cast

from remuda.errors import AgentError, SessionCrashed
from remuda.pool.client import Client
from remuda.pool.serve import serving
from remuda.pool.types import (
    Allow,
    Answered,
    BackendName,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.testing.pool import FakeAgent, FakeSession

USAGE = Usage(3, 4)


def messages(request: Request, text: str, *, is_error: bool) -> list[dict[str, object]]:
    """As the CLI prints them, and what it only prints when asked."""
    if not request.raw:
        return []
    return [
        {"type": "system", "subtype": "init", "session_id": "c1"},
        {"type": "system", "subtype": "status", "status": "requesting"},
        {"type": "stream_event", "event": {"type": "message_start"}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}},
        {"type": "result", "subtype": "success", "is_error": is_error, "result": text, "result_index": 7},
    ]


async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    word, _, rest = request.prompt.partition(" ")
    if word in ("HANG", "CRASH", "FAIL"):
        async for event in _failing(word, request):
            yield event
    text = f"REPLY to: {request.prompt}"
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
    for message in messages(request, text, is_error=False):
        yield Raw(message)
    for piece in (text[:3], text[3:]):
        yield Token(piece)
    usage = None if word == "LATE" else USAGE
    yield Answered(text, conversation_id="c1", usage=usage, entrypoint="fake")


async def _failing(word: str, request: Request) -> AsyncIterator[SessionEvent]:
    if word == "HANG":
        yield Token("…")
        await asyncio.Event().wait()
    if word == "CRASH":
        raise SessionCrashed("gone", detail="exit:1")
    for message in messages(request, "API Error: 400 no", is_error=True):
        yield Raw(message)
    raise AgentError("API Error: 400 no")


async def main(path: str, backend: BackendName) -> None:
    agent = FakeAgent(answer)
    agent.late_usage = USAGE
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    FakeSession.backend = backend
    client = Client(backend=backend, session_factory=agent, pool_size=4, inherit_env=False, close_timeout=0.0)
    async with serving(client, path, default_timeout=30.0, claude_binary="claude") as server:
        print("serving", flush=True)
        steps = [asyncio.create_task(ended.wait()), asyncio.create_task(server.asked_to_stop.wait())]
        await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], "terminal" if len(sys.argv) < 3 else cast(BackendName, sys.argv[2])))
