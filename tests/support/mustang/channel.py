"""The connection to the invented agent's server: JSON lines on a Unix socket, with a secret first."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from remuda.agents.events import Report
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.prompting import CallAddress, ChannelLost, Past, PromptCall

from .notes import read_note, read_past


class StableChannel:
    def __init__(self, address: CallAddress) -> None:
        self._address = address
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)

    async def connect(self, conversation: Mapping[str, Any]) -> None:
        try:
            reader, self._writer = await asyncio.open_unix_connection(self._address.url)
        except OSError as error:
            raise ChannelLost(f"{self._address.url}: {error}") from error
        self._send({"knock": self._address.secret, "trail": conversation.get("session_id")})
        line = await reader.readline()
        if not line:
            raise ChannelLost("the stable did not let us in")
        self._reports.put_nowait(read_note(json.loads(line)))
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                document = json.loads(line)
                if "gait" in document:
                    self._reports.put_nowait(read_note(document))
                elif (answer := self._answers.pop(document["to"], None)) is not None and not answer.done():
                    answer.set_result(document)
        except OSError:
            pass
        finally:
            self._reports.put_nowait(None)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ChannelLost("the stable closed the connection"))

    async def reports(self) -> AsyncIterator[Report]:
        while (report := await self._reports.get()) is not None:
            yield report
        raise ChannelLost("the stable closed the connection")

    async def submit(self, call: PromptCall) -> str:
        return str((await self._ask("ask", words=call.prompt, call=call.id))["turn"])

    async def find(self, call: PromptCall) -> Past:
        return read_past(await self._ask("search", call=call.id, trail=call.conversation))

    async def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        await self._ask("rein", kick=request.tool_use_id, loose=decision.allow, words=decision.message)

    async def interrupt(self, turn_id: str | None) -> None:
        await self._ask("halt", turn=turn_id)

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    async def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        if self._reading is None or self._reading.done():
            raise ChannelLost("the stable is not connected")
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._send({"id": number, "do": what, **arguments})
        return await answer

    def _send(self, document: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(document).encode() + b"\n")
