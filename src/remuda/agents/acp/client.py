"""One agent that speaks ACP on its standard streams: calls to it, and what it reports."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.errors import RemoteProtocolError, SessionCrashed
from remuda.supervised.child_process import SupervisedProcess

from . import protocol
from .protocol import Call, Notification, Response, RpcReader


class RpcRefused(Exception):
    """The agent answered a call with an error."""

    def __init__(self, words: str, code: int = 0) -> None:
        super().__init__(words)
        self.code = code


class AcpClient:
    """`on_incoming` gets calls and notifications of the agent as they come. `on_end`: the process has ended.

    `on_skipped` gets the beginning of each line that is not a message.

    Every wait lasts until the answer or the end of the process: the caller sets a timeout.
    """

    def __init__(
        self,
        on_incoming: Callable[[Call | Notification], None],
        on_end: Callable[[], None],
        on_skipped: Callable[[bytes], None] = lambda _line: None,
        most_bytes: int = protocol.MAX_LINE_BYTES,
    ) -> None:
        self.process = SupervisedProcess(self._take_output, self._end)
        self._on_incoming, self._on_end, self._on_skipped = on_incoming, on_end, on_skipped
        self._most_bytes = most_bytes
        self._lines = RpcReader(most_bytes)
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Raises `SpawnFailed`."""
        self.process.start(argv, cwd, env, asyncio.get_running_loop())

    async def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result. Raises `RpcRefused`, and `SessionCrashed` if the agent ends first.

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
        skipped = self._lines.skipped
        for message in self._lines.feed(data):
            if isinstance(message, Response):
                self._take_reply(message)
            else:
                self._on_incoming(message)
        if self._lines.skipped != skipped:
            self._on_skipped(self._lines.last_skipped)
        if self._lines.too_long:
            self._fail_all(
                lambda: RemoteProtocolError(f"the agent sent a message of more than {self._most_bytes} bytes")
            )

    @property
    def too_long(self) -> bool:
        """Whether the agent sent a message that was too long to read."""
        return self._lines.too_long

    def _take_reply(self, reply: Response) -> None:
        waiting = self._waiting.get(reply.id)
        if waiting is None or waiting.done():
            return
        if reply.error:
            waiting.set_exception(RpcRefused(reply.error, reply.code))
        else:
            waiting.set_result(reply.result)

    def _end(self) -> None:
        self._fail_all(lambda: SessionCrashed("the agent exited", detail=self.process.detail()))
        self._on_end()

    def _fail_all(self, error: Callable[[], Exception]) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error())
