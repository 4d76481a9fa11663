"""Calls to codex's app-server, and their answers. No I/O: `send` writes a message, `take` gets what came."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from remuda.agents.prompting import ChannelLost
from remuda.untrusted import as_object, dump_json

CLIENT = {"name": "remuda", "title": "Remuda", "version": "1"}


class CallError(Exception):
    """The server refused a call."""


class RpcPeer:
    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._ids = itertools.count(1)
        self._answers: dict[object, asyncio.Future[dict[str, Any]]] = {}
        self._lost: str | None = None

    async def begin(self) -> None:
        """Introduce ourselves, as the server requires before any other call."""
        await self.call("initialize", clientInfo=CLIENT, capabilities={"experimentalApi": True})
        await self._send(dump_json({"method": "initialized"}))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result. Raises `CallError`, and `ChannelLost` if none comes."""
        if self._lost is not None:
            raise ChannelLost(self._lost)
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._send(dump_json({"id": number, "method": method, "params": params}))
            return await answer
        finally:
            self._answers.pop(number, None)

    async def answer(self, wire_id: object, result: Mapping[str, Any]) -> None:
        """Answer a request of the server."""
        await self._send(dump_json({"id": wire_id, "result": dict(result)}))

    async def refuse(self, wire_id: object, why: str) -> None:
        """Answer a request of the server that no one here can serve."""
        await self._send(dump_json({"id": wire_id, "error": {"code": -32601, "message": why}}))

    def take(self, message: Mapping[str, Any]) -> bool:
        """Take an answer to a call. Returns False for any other message."""
        if "method" in message or "id" not in message:
            return False
        answer = self._answers.get(message["id"])
        if answer is not None and not answer.done():
            if "error" in message:
                error = as_object(message["error"])
                answer.set_exception(CallError(str(error.get("message", "no reason was given"))))
            else:
                answer.set_result(as_object(message.get("result")))
        return True

    def lose(self, why: str) -> None:
        """Fail all calls: the connection is gone."""
        self._lost = why
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ChannelLost(why))
                answer.exception()  # retrieved: a call whose sending failed does not wait for it
