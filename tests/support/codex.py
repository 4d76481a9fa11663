"""The real codex under test: sessions of it, and what it is asked."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from websockets.asyncio.client import unix_connect

from remuda.agents.codex.notices import find_turn
from remuda.agents.codex.rpc import RpcPeer
from remuda.keeper.environment import session_environment
from remuda.proctree import descendants, send_signal
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support.keeper import Process, Start, until
from support.messages import Post


class MakeCodex(Protocol):
    """Makes further benches, each with a home of its own."""

    def __call__(self, *, trust: bool = True) -> RealCodex: ...


def keep(start: Start, cli: RealCodex, *words: str, name: str = "c", **more: Any) -> Post:
    """codex in a session; `env` is laid over the bench's own, the rest is the spec's.

    `program` stands in for the binary.
    """
    env = session_environment({**cli.env, **more.pop("env", {})}, name, "HEIMDALL_SESSION_ID", {})
    given: dict[str, Any] = {"agent": "codex", "cols": 120, "rows": 40, "asks": True, **more}
    program = str(given.pop("program", cli.binary))
    kept = start(name, [program, *words], cwd=str(cli.project), env=env, **given)
    cli.sockets.add(kept.paths.scratch / "s")
    return Post(kept)


def kill(post: Post, *names: str) -> None:
    """Kill processes of a session outright, those that run. The server ends with its keeper, by itself."""
    keeper = post.kept.keeper_pid
    pids = {"keeper": keeper, "terminal": post.kept.child_pid, "server": _server_of(keeper)}
    held: dict[str, Process] = {}
    for name in {*names} | ({"server"} if "keeper" in names else set()):
        with suppress(ProcessLookupError):
            held[name] = Process(pids[name])
    for name in names:
        if name in held:
            held[name].signal(signal.SIGKILL)
    for process in held.values():
        process.gone()


def _server_of(keeper: int) -> int:
    """The server of a session; a number that no process has while it is started again."""
    for pid in descendants(keeper):
        with suppress(OSError):
            if b"app-server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    return 1 << 30


async def call(path: str, method: str, **params: Any) -> dict[str, Any]:
    """Call codex's server as another client does."""
    async with unix_connect(path, uri="ws://localhost/", compression=None, max_size=None) as socket:
        peer = RpcPeer(socket.send)

        async def listen() -> None:
            async for data in socket:
                peer.take(json.loads(data))

        listening = asyncio.create_task(listen())
        await peer.begin()
        answer = await peer.call(method, **params)
        listening.cancel()
        return answer


def stored_turns_with(post: Post, message: str) -> list[str]:
    """Return the ids of the turns of its conversation that have this message, by its app-server."""
    thread = post.client.describe()["conversation"]["session_id"]
    path = str(post.kept.paths.scratch / "s")
    found = asyncio.run(call(path, "thread/turns/list", threadId=thread, limit=20, itemsView="full"))
    return [str(turn["id"]) for turn in found["data"] if find_turn([turn], message)]


def escalated(command: str) -> str:
    """A prompt that lets codex ask whether it may run a command outside its sandbox."""
    return RealCodex.plan.tool_prompt(command)


def turns_with(model: LoopbackModel, prompt: str) -> set[str]:
    """The turns that began with this prompt."""
    return {
        json.loads(request.headers["x-codex-turn-metadata"])["turn_id"]
        for request in model.main_requests
        if request.said == prompt
    }


def end_shared_server(cli: RealCodex) -> None:
    """End the server that plainly started terminals share, and what updates it: both outlive them."""
    for pid, command in cli.running().items():
        if "daemon" in command:
            send_signal(pid, signal.SIGKILL)


def press_until_gone(post: Post, keys: bytes, text: str) -> None:
    """Answer a dialog as a user does: again, if it is still there a moment later.

    codex drops keys that come while it draws the dialog.
    """
    pressed = 0.0

    def is_gone() -> bool:
        nonlocal pressed
        if not any(text in line for line in post.lines()):
            return True
        if time.monotonic() > pressed + 1.0:
            post.watcher.press(keys)
            pressed = time.monotonic()
        return False

    until(is_gone, f"the end of the dialog {text!r}")
