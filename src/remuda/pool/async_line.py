"""One connection to `remuda pool serve`, in an event loop: as `line`, with the same errors and bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from remuda._version import __version__
from remuda.errors import RemoteProtocolError, RemudaError

from .line import FULL_PAUSE, broken, check_begun, full, hung_up, late, refused, silent, try_connect
from .protocol import Conversation, Message, encode, hello

_READ_BYTES = 1 << 16


class AsyncLine:
    """Use as a context manager, or `close` it; either cancels a request that runs."""

    def __init__(
        self, path: str, silence_timeout: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.greeting: Message = {}
        self._path, self._silence = path, silence_timeout
        self._reader, self._writer = reader, writer
        self._conversation = Conversation(server=False)
        self._waiting: deque[Message] = deque()
        self._told = False
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + silence_timeout
        self._reason: RemudaError | None = None

    @classmethod
    async def ask(cls, path: str, request: Message, *, silence_timeout: float) -> Self:
        """Say what is wanted to whoever serves there, and hear that he is the one."""
        data = encode(hello(client_version=__version__)) + encode(request)
        line = await cls._open(path, silence_timeout)
        try:
            line._writer.write(data)
            await line._sent()
            first = await line.next()
            if first["type"] == "error":
                raise refused(first)
        except BaseException:
            line.close()
            raise
        line.greeting, line._deadline = first, float("inf")
        return line

    @classmethod
    async def _open(cls, path: str, timeout: float) -> Self:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while (sock := try_connect(path)) is None:
            if loop.time() > deadline:
                raise full(path)
            await asyncio.sleep(FULL_PAUSE)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(path, timeout, reader, writer)

    def expect(self, within: float) -> None:
        """The answer is there in so many seconds, however often the server says that it lives."""
        self._deadline = self._loop.time() + within

    async def send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))
            await self._sent()

    async def _sent(self) -> None:
        """What cannot be sent because the other end hung up is told when it is read: it may have said why."""
        try:
            async with asyncio.timeout(self._silence):
                await self._writer.drain()
        except TimeoutError:
            raise silent(self._path, self._silence) from None
        except ConnectionError:
            pass

    async def next(self) -> Message:
        """The next message but for signs of life."""
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if message["type"] != "alive":
                    self._told = check_begun(message, told=self._told)
                    return message
            if self._loop.time() > self._deadline:
                raise late(self._path)
            await self._receive()

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(self._silence):
                data = await self._reader.read(_READ_BYTES)
        except TimeoutError:
            raise silent(self._path, self._silence) from None
        except ConnectionError:
            data = b""
        if not data:
            raise self._reason or hung_up(self._path, self._conversation)
        try:
            self._waiting.extend(self._conversation.receive(data))
        except RemoteProtocolError as error:
            raise broken(self._path, error) from None

    def leave(self, reason: RemudaError) -> None:
        """Hang up; whoever waits for a message is told why."""
        self._reason = self._reason or reason
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
