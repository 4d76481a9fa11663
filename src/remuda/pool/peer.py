"""One peer of a served pool, on its connection: what he says, and what he is told, each within its bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from .protocol import Conversation, Message, encode

MAX_UNREAD_BYTES = 1 << 20
_READ_BYTES = 1 << 16


class Hung(ConnectionError):
    """He has closed the connection, or ended his sending."""


class Peer:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        max_bytes: int,
        slow_timeout: float,
        alive_interval: float,
    ) -> None:
        self.asked = False
        """Whether he has said what he wants."""
        self.begun = False
        """Whether something was done for him that takes its time."""
        self.refused = False
        """Whether he was one too many: he is only heard to the end."""
        self.over = False
        """Whether he was told what is wrong, behind which nothing comes."""
        self._reader, self._writer = reader, writer
        self._slow_timeout, self._alive_interval = slow_timeout, alive_interval
        self._conversation = Conversation(server=True, max_bytes=max_bytes)
        self._waiting: deque[Message] = deque()
        self._loop = asyncio.get_running_loop()
        self._beat: asyncio.TimerHandle | None = None
        writer.transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)

    async def receive(self) -> Message:
        """What he says next. Raises `Hung` or `RemoteProtocolError`."""
        while not self._waiting:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise Hung("closed the connection")
            self._waiting.extend(self._conversation.receive(data))
        return self._waiting.popleft()

    async def ignore(self, timeout: float) -> None:
        """Whatever he still says, until he hangs up: one who cannot send to the end may never read."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(timeout):
                while await self._reader.read(_READ_BYTES):
                    pass

    async def send(self, message: Message) -> None:
        """Returns when not much is unread. Raises `ConnectionError` when he is gone or reads too slowly."""
        if self._writer.is_closing():
            raise Hung("disconnected")
        self.over = message["type"] == "error"
        self._writer.write(encode(message))
        if self._writer.transport.get_write_buffer_size() > 0:
            await self._drained()
        if self._beat is not None:
            self.keep_alive()

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(self._slow_timeout):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise Hung("does not read its answer") from None

    def keep_alive(self) -> None:
        """From now on, whenever he has heard nothing for a while, he is told that we live."""
        if self._beat is not None:
            self._beat.cancel()
        self._beat = self._loop.call_later(self._alive_interval, self._tell_alive)

    def _tell_alive(self) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() == 0:
            self._writer.write(encode({"type": "alive"}))
        self.keep_alive()

    async def close(self) -> None:
        """What was said is sent first, within its bound."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        self._writer.close()
        try:
            async with asyncio.timeout(self._slow_timeout):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()
