"""The way to MCP at `/mcp`. What serves it is loaded at the first request with a token for it."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Any

log = logging.getLogger("remuda.boss.http")

_CALLERS = "remuda.mcp.caller"
_ENDPOINT = "remuda.mcp.http"


def mcp_caller(token: str) -> Any:
    """Return the agent with that token; None if no agent has it."""
    return importlib.import_module(_CALLERS).caller_of_token(token)


class McpDoor:
    """Serves requests of agents, once it is loaded. Several may wait for that."""

    def __init__(self) -> None:
        self._endpoint: Any = None
        self._loading: asyncio.Lock = asyncio.Lock()

    async def serve(self, caller: Any, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request. Raises `ImportError` if the extra is not installed."""
        async with self._loading:
            if self._endpoint is None:
                module = await asyncio.to_thread(importlib.import_module, _ENDPOINT)
                endpoint = module.McpEndpoint()
                await endpoint.open()
                self._endpoint = endpoint
                log.info("serving MCP")
        await self._endpoint.serve(caller, scope, receive, send)

    async def close(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.close()
