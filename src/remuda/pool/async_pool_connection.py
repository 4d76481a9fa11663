"""A connection to `remuda pool serve` in an event loop: errors and limits as in `pool_connection`."""

from __future__ import annotations

import asyncio
from typing import Self

from remuda._version import __version__
from remuda.errors import RemudaError

from .pool_connection import (
    READ_BYTES,
    RETRY_INTERVAL,
    PoolReplies,
    backlog_full,
    late,
    server_error,
    silent,
    try_connect,
)
from .protocol import Message, encode, hello


class AsyncPoolConnection:
    """Use as a context manager, or `close` it; either cancels a running request."""

    def __init__(
        self, path: str, silence_timeout: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.greeting: Message = {}
        self._path, self._silence = path, silence_timeout
        self._reader, self._writer = reader, writer
        self._replies = PoolReplies(path)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + silence_timeout
        self._reason: RemudaError | None = None

    @classmethod
    async def ask(cls, path: str, request: Message, *, silence_timeout: float) -> Self:
        """Connect, send a hello and the request, and wait for the hello of the server."""
        data = encode(hello(client_version=__version__)) + encode(request)
        connection = await cls._open(path, silence_timeout)
        try:
            connection._writer.write(data)
            await connection._drain()
            first = await connection.next()
            if first["type"] == "error":
                raise server_error(first)
        except BaseException:
            connection.close()
            raise
        connection.greeting, connection._deadline = first, float("inf")
        return connection

    @classmethod
    async def _open(cls, path: str, timeout: float) -> Self:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while (sock := try_connect(path)) is None:
            if loop.time() > deadline:
                raise backlog_full(path)
            await asyncio.sleep(RETRY_INTERVAL)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(path, timeout, reader, writer)

    def expect(self, within: float) -> None:
        """Require the answer within this many seconds, however often the server says it is alive."""
        self._deadline = self._loop.time() + within

    async def send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))
            await self._drain()

    async def _drain(self) -> None:
        """If the server has closed, the next read raises, since it may have sent a reason."""
        try:
            async with asyncio.timeout(self._silence):
                await self._writer.drain()
        except TimeoutError:
            raise silent(self._path, self._silence) from None
        except ConnectionError:
            pass

    async def next(self) -> Message:
        """Wait for the next message other than `alive`."""
        while (message := self._replies.next()) is None:
            if self._loop.time() > self._deadline:
                raise late(self._path)
            data = await self._read()
            if not data and self._reason is not None:
                raise self._reason
            self._replies.feed(data)
        return message

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(self._silence):
                return await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise silent(self._path, self._silence) from None
        except ConnectionError:
            return b""

    def abort(self, reason: RemudaError) -> None:
        """Disconnect; a caller that waits for a message gets `reason`."""
        self._reason = self._reason or reason
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
