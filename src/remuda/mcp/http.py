"""MCP over streamable HTTP, at the boss. The boss loads it by name, at the first request with a token for it.

Each request is independent: nothing is kept between two, so that the boss may restart at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from remuda.untrusted import dump_json

from .rights import Caller
from .server import make_server, refusal_of
from .tools import AgentTools

BODY_BYTES = 4 << 20
_BODY_TIMEOUT = 60.0
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class McpEndpoint:
    """Open it in a loop, let it `serve` requests, and close it."""

    def __init__(self) -> None:
        self._tools: dict[str, AgentTools] = {}
        self._manager = StreamableHTTPSessionManager(
            make_server(lambda ctx: ctx.request.scope["state"]["mcp_tools"]),
            json_response=True,
            stateless=True,
        )
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self._opened

    async def _run(self) -> None:
        async with self._manager.run():
            self._opened.set_result(None)
            await self._closing.wait()

    async def close(self) -> None:
        """Cancel the calls that run, and wait for their end."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def serve(self, caller: Caller, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request of an agent."""
        if scope["method"] != "POST":  # no stream of our own to listen to, and no session to end
            await _answer(send, 405, _error("use POST"), [(b"allow", b"POST")])
            return
        body = await _read_body(receive)
        if body is None:
            await _answer(
                send, 413, _error(f"the body is larger than {BODY_BYTES} bytes, or came too slowly")
            )
            return
        error, _ = refusal_of(body.strip() or b"?")
        if error is not None:
            await _answer(send, 400, error)
            return
        tools = self._tools.get(caller.id)
        if tools is None:
            tools = self._tools[caller.id] = AgentTools(lambda: caller)
        scope = {**scope, "state": {**scope["state"], "mcp_tools": tools}}
        await self._manager.handle_request(scope, _once(body, receive), send)


def _once(body: bytes, receive: Receive) -> Receive:
    """Return what gives the body that was read, and then waits for the client's end."""
    is_given = False

    async def give() -> MutableMapping[str, Any]:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


async def _read_body(receive: Receive) -> bytes | None:
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            while True:
                message = await receive()
                data += message.get("body", b"")
                if len(data) > BODY_BYTES:
                    return None
                if not message.get("more_body"):
                    return bytes(data)
    except TimeoutError:
        return None


def _error(message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}


async def _answer(
    send: Send, status: int, document: dict[str, Any], more: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = dump_json(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers + (more or [])})
    await send({"type": "http.response.body", "body": body})
