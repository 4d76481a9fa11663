"""What a call of a tool costs through `remuda mcp`, beyond the same call of `remuda.Session` in here."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from remuda.session import Session

_TIMES = 40
"""Of each tool in each round: a server takes 300 calls at once, then 50 a second."""
_LIMIT = Target("<=", 5.0)


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("a call of a tool through MCP")
    starts: list[float] = []
    through: dict[str, list[float]] = {}
    directly: dict[str, list[float]] = {}
    with bounded(120.0 * rounds, "MCP"):
        for number in range(rounds):
            asyncio.run(_round(scene, number, starts, through, directly))
    report.median("start of the server to its first answer", starts, "ms")
    for tool, some in through.items():
        own = statistics.median(directly[tool])
        over = statistics.median(some) - own
        note = f"{statistics.median(some):.2f} ms through MCP, {own:.2f} ms here"
        note += f"; at best {min(some) - min(directly[tool]):.2f} ms more"
        report.add(f"{tool}, overhead of MCP, p50", over, "ms", _LIMIT, note)


async def _round(
    scene: Scene,
    number: int,
    starts: list[float],
    through: dict[str, list[float]],
    directly: dict[str, list[float]],
) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "remuda", "mcp"], env=scene.env, cwd=scene.folder
    )
    began = time.perf_counter()
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        starts.append((time.perf_counter() - began) * 1e3)
        made = await _call(client, "start", agent="demo", name=f"b{number}", prompt="hello")
        name, message = made["session"], made["message"]
        await _call(client, "wait", session=name, message=message, timeout=60)
        session = Session(name, folder=scene.sessions)
        same: dict[str, tuple[dict[str, Any], Callable[[], object]]] = {
            "screen": ({"session": name}, session.screen),
            "receipt": ({"session": name, "message": message}, lambda: session.receipt(message)),
            "send": ({"session": name, "text": "hello"}, lambda: session.send("hello")),
        }
        for tool, (arguments, own) in same.items():
            for _ in range(_TIMES):
                begin = time.perf_counter()
                own()
                middle = time.perf_counter()
                await _call(client, tool, **arguments)
                directly.setdefault(tool, []).append((middle - begin) * 1e3)
                through.setdefault(tool, []).append((time.perf_counter() - middle) * 1e3)
        await _call(client, "kill", session=name)


async def _call(client: ClientSession, tool: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.content}")
    return result.structured_content
