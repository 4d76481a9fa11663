"""What a call of a tool costs through `remuda mcp`, beyond the same call of `remuda.Session` in here."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import httpx2
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder
from remuda.mcp.caller import make_token
from remuda.session import Session

_TIMES = 40
"""Of each tool in each round: a server takes 300 calls at once, then 50 a second."""
_LIMIT = Target("<=", 5.0)
_Way = AbstractAsyncContextManager[ClientSession]


@contextmanager
def _boss(scene: Scene) -> Iterator[str]:
    """A boss that serves MCP; gives the address."""
    folder = BossFolder(scene.folder / "boss")
    folder.path.mkdir(mode=0o700, exist_ok=True)
    rights = folder.path / "mcp.toml"
    rights.touch(0o600)
    rights.write_text(f'folders = ["{scene.folder}"]\n')
    started = start_detached(folder, 0, sources=())
    yield f"http://127.0.0.1:{started['port']}/mcp"
    scene.end(started["pid"])


@asynccontextmanager
async def _over_stdio(scene: Scene) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "remuda", "mcp"], env=scene.env, cwd=scene.folder
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        yield client


@asynccontextmanager
async def _over_http(url: str, token: str) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as client,
    ):
        yield client


def measure(scene: Scene, report: Report, rounds: int) -> None:
    with bounded(120.0 * rounds, "MCP"):
        ways = [_over_stdio(scene) for _ in range(rounds)]
        _measure_way(scene, report, "over stdio: 'remuda mcp'", ways)
        with _boss(scene) as url:
            # A token each round: the pace of calls is limited for each of them.
            ways = [_over_http(url, make_token(f"bench{number}")) for number in range(rounds)]
            _measure_way(scene, report, "over HTTP: /mcp of the boss", ways)


def _measure_way(scene: Scene, report: Report, how: str, ways: Sequence[_Way]) -> None:
    report.title(f"A call of a tool through MCP, {how}")
    starts: list[float] = []
    through: dict[str, list[float]] = {}
    directly: dict[str, list[float]] = {}
    for way in ways:
        asyncio.run(_round(scene, way, starts, through, directly))
    report.median("start of the server, or of its client, to its first answer", starts, "ms")
    for tool, some in through.items():
        own = statistics.median(directly[tool])
        over = statistics.median(some) - own
        note = f"{statistics.median(some):.2f} ms through MCP, {own:.2f} ms here"
        note += f"; at best {min(some) - min(directly[tool]):.2f} ms more"
        report.add(f"{tool}, overhead of MCP, p50", over, "ms", _LIMIT, note)


async def _round(
    scene: Scene,
    way: _Way,
    starts: list[float],
    through: dict[str, list[float]],
    directly: dict[str, list[float]],
) -> None:
    began = time.perf_counter()
    async with way as client:
        await client.initialize()
        starts.append((time.perf_counter() - began) * 1e3)
        given = {"agent": "demo", "name": scene.name("mcp"), "prompt": "hello", "cwd": str(scene.folder)}
        made = await _call(client, "start", **given)
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
