"""The keeper's connection to the terminal of an ACP session: JSON lines on a private Unix socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.events import Report
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.prompting import CallAddress, CallRefused, ChannelLost, Past, PromptCall
from remuda.errors import InvalidOptions
from remuda.paths import SocketAddress
from remuda.untrusted import OWN_DEPTH, as_object, as_objects, dump_json, parse_json

from .asking import choose
from .notes import read_note
from .records import doubt_of

LINE_BYTES = 64 << 20
_LISTEN_PATIENCE = 8.0
_LOOK_INTERVAL = 0.02
_UNPROVEN = "the agent has the prompt, and has not reported anything about it yet"
_LOST = "the session's terminal closed the connection"


class AcpChannel:
    def __init__(self, address: CallAddress) -> None:
        self._address = address
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)

    async def connect(self, conversation: Mapping[str, Any]) -> None:
        reader, self._writer = await self._open()
        self._send({"secret": self._address.secret})
        self._reading = asyncio.create_task(self._read(reader))

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as soon as the terminal listens, which it does before it starts the agent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LISTEN_PATIENCE
        while True:
            try:
                with SocketAddress(Path(self._address.url)) as path:
                    return await asyncio.open_unix_connection(path, limit=LINE_BYTES)
            except OSError as error:
                if loop.time() >= deadline:
                    raise ChannelLost(f"{self._address.url}: {error}") from error
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                document = as_object(parse_json(line, depth=OWN_DEPTH))
                if "note" in document:
                    report = read_note(document)
                    if report is not None:
                        self._reports.put_nowait(report)
                else:
                    answer = self._answers.pop(document.get("to", 0), None)
                    if answer is not None and not answer.done():
                        answer.set_result(document)
        except (OSError, ValueError):
            pass
        finally:
            self._reports.put_nowait(None)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ChannelLost(_LOST))

    async def reports(self) -> AsyncIterator[Report]:
        while (report := await self._reports.get()) is not None:
            yield report
        raise ChannelLost(_LOST)

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    # ── calls ──

    async def _call(self, what: str, **arguments: Any) -> dict[str, Any]:
        if self._reading is None or self._reading.done():
            raise ChannelLost(_LOST)
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._send({"id": number, "do": what, **arguments})
            return await answer
        finally:
            self._answers.pop(number, None)

    def _send(self, document: Mapping[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(dump_json(document).encode() + b"\n")

    async def submit(self, call: PromptCall) -> str:
        answer = await self._call("submit", text=call.prompt, message=call.id)
        if "refused" in answer:
            raise CallRefused(str(answer["refused"]))
        if not answer.get("turn"):
            raise ChannelLost(_UNPROVEN)
        return str(answer["turn"])

    async def find(self, call: PromptCall) -> Past:
        answer = await self._call(
            "find", message=call.id, conversation=call.conversation or "", since=call.since
        )
        if answer.get("unproven"):
            raise ChannelLost(_UNPROVEN)
        turn = answer.get("turn")
        if not isinstance(turn, str):
            return Past()
        text = str(answer.get("text") or "")
        answered, interrupted = answer.get("answered") is True, answer.get("interrupted") is True
        usages = tuple(as_objects(answer.get("usages")))
        return Past(True, answered, text, turn, interrupted, usages=usages, doubt=doubt_of(text))

    async def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        try:
            option = choose(request, decision)
        except InvalidOptions:  # it was checked before; the agent goes on waiting for its user
            return
        await self._call("decide", ask=request.tool_use_id, option=option, reason=decision.message)
        if decision.interrupt and not decision.allow:
            await self.interrupt(None)

    async def interrupt(self, turn_id: str | None) -> None:
        await self._call("cancel", turn=turn_id)
