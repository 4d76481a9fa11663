"""One agent that speaks ACP on its standard streams: calls to it, and what it reports."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.errors import RemoteProtocolError, SessionCrashed
from remuda.supervised.child_process import SupervisedProcess

from . import protocol
from .protocol import Call, LineReader, Notice, Reply


class CallFailed(Exception):
    """The agent answered a call with an error."""


class AcpClient:
    """`on_incoming` gets calls and notifications of the agent as they come. `on_end`: the process has ended.

    Every wait lasts until the answer or the end of the process: the caller sets a timeout.
    """

    def __init__(self, on_incoming: Callable[[Call | Notice], None], on_end: Callable[[], None]) -> None:
        self.process = SupervisedProcess(self._take_output, self._end)
        self._on_incoming, self._on_end = on_incoming, on_end
        self._lines = LineReader()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Raises `SpawnFailed`."""
        self.process.start(argv, cwd, env, asyncio.get_running_loop())

    async def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result. Raises `CallFailed`, and `SessionCrashed` if the agent ends first.

        A cancelled call is not taken back: the agent goes on with it.
        """
        self.check_running()
        number = next(self._ids)
        waiting: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            self.process.write(protocol.call(number, method, params))
            return await waiting
        finally:
            del self._waiting[number]

    def send(self, line: bytes) -> None:
        self.process.write(line)

    def check_running(self) -> None:
        if self.process.ended:
            raise SessionCrashed("the agent exited", detail=self.process.detail())

    # ── what comes ──

    def _take_output(self, data: bytes) -> None:
        for message in self._lines.feed(data):
            if isinstance(message, Reply):
                self._take_reply(message)
            else:
                self._on_incoming(message)
        if self._lines.too_long:
            self._fail_all(
                lambda: RemoteProtocolError(
                    f"the agent sent a message of more than {protocol.MAX_LINE_BYTES} bytes"
                )
            )

    def _take_reply(self, reply: Reply) -> None:
        waiting = self._waiting.get(reply.id)
        if waiting is None or waiting.done():
            return
        if reply.error:
            waiting.set_exception(CallFailed(reply.error))
        else:
            waiting.set_result(reply.result)

    def _end(self) -> None:
        self._fail_all(lambda: SessionCrashed("the agent exited", detail=self.process.detail()))
        self._on_end()

    def _fail_all(self, error: Callable[[], Exception]) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error())
