"""A client of a keeper for programs with an event loop: it delivers events, and sends requests.

It changes nothing in the process that it runs in, and works in any loop of any thread. `client` is the
blocking one.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from remuda._version import __version__
from remuda.errors import ProtocolError, RemoteProtocolError, RemudaError, SessionUnreachable
from remuda.paths import SessionPaths, connect_own
from remuda.untrusted import OWN_DEPTH, BadJson, parse_json
from remuda.wire import connection as wire
from remuda.wire.connection import ANSWER_TIMEOUT, ClientConnection, result_of
from remuda.wire.messages import PROTOCOL_VERSION

from .client import RETRY_INTERVAL, absent, unreachable

Document = dict[str, Any]
TerminalEvent = wire.OutputReceived | wire.RepaintReceived | wire.ExitReceived


class AsyncKeeperClient(asyncio.Protocol):
    """Calls `on_event` for each event of the keeper, and `on_end` once when the keeper is gone or hung up.

    Both are called in the loop and must not wait. Close the client when it is no longer needed.
    """

    def __init__(
        self,
        name: str,
        on_event: Callable[[Document], None],
        on_end: Callable[[], None],
        on_terminal: Callable[[TerminalEvent], None] | None = None,
    ) -> None:
        self.name = name
        self.welcome: Document = {}
        """What the keeper reported about the session when the client connected."""
        self.fault = ""
        """Why we hung up: what the keeper sent that cannot be read."""
        self._on_event = on_event
        self._on_end = on_end
        self._on_terminal = on_terminal
        self._hello: Document = {}
        self._connection = ClientConnection()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Document]] = {}
        self._greeted: asyncio.Future[Document] = self._loop.create_future()
        self._behind: deque[Document] = deque()  # events that wait until an earlier one is complete
        self._fetching: asyncio.Task[None] | None = None
        self._ended = False

    @classmethod
    async def connect(
        cls,
        name: str,
        folder: Path,
        on_event: Callable[[Document], None],
        on_end: Callable[[], None],
        *,
        on_terminal: Callable[[TerminalEvent], None] | None = None,
        read_only: bool = False,
        window_bytes: int = 0,
        raw: bool = False,
        timeout: float = ANSWER_TIMEOUT,  # noqa: ASYNC109  # the caller's bound
        sock: socket.socket | None = None,
    ) -> Self:
        """Connect to the keeper. Raises `SessionNotFound`, `SessionDead` or `SessionUnreachable`.

        `sock` is a connection that there is, such as that of a `Tunnel`.

        `on_terminal` gets what `subscribe` requests. `window_bytes` limits how much output the keeper sends
        before it is acknowledged; 0 means unlimited. `raw`: a terminal shows it, and will answer its queries.
        """
        client = cls(name, on_event, on_end, on_terminal)
        client._hello = {"window_bytes": window_bytes, "raw": raw}
        try:
            async with asyncio.timeout(timeout):
                sock = sock or await reach(SessionPaths.of(name, folder))
                await client._loop.create_unix_connection(lambda: client, sock=sock)
                client.set_read_only(read_only)
                client.welcome = await client._greeted
        except BaseException as error:
            client.close()
            if sock is not None and client._transport is None:
                sock.close()
            if isinstance(error, TimeoutError):
                raise SessionUnreachable(f"the keeper of '{name}' does not answer") from None
            raise
        if client.welcome.get("version") != PROTOCOL_VERSION:
            client.close()
            raise SessionUnreachable(f"the keeper of '{name}' has another version; restart the session")
        return client

    # ── asking ──

    async def request(self, op: str, *, within: float = ANSWER_TIMEOUT, **args: Any) -> Document:
        """Send a request and return its result.

        Raises the error that the keeper reports, and `SessionUnreachable` if the keeper ends or is silent.
        """
        request_id = next(self._numbers)
        answer = self._waiting[request_id] = self._loop.create_future()
        try:
            self._send(ClientConnection.request(request_id, op, args))
            async with asyncio.timeout(within):
                document = await answer
        except TimeoutError:
            raise SessionUnreachable(f"the keeper of '{self.name}' does not answer") from None
        finally:
            self._waiting.pop(request_id, None)
        result = result_of(document)
        return await self._whole(result) if "parcel" in result else result

    def type(self, data: bytes) -> None:
        """Type into the session's terminal, as its user would."""
        self._send(ClientConnection.input(data))

    # ── the terminal ──

    def set_read_only(self, read_only: bool) -> None:
        """Give up the right to type and to set the size, or take it."""
        hello = ClientConnection.hello(f"remuda {__version__}", read_only=read_only, **self._hello)
        self._send(hello)

    def subscribe(self) -> None:
        """Request the screen as it is now, and all output from then on."""
        self._send(ClientConnection.subscribe())

    def acknowledge(self, byte_count: int) -> None:
        self._send(ClientConnection.ack(byte_count))

    def resize(self, cols: int, rows: int) -> None:
        self._send(ClientConnection.resize(cols, rows))

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes wait for the keeper, which does not read while the program does not."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause_reading(self) -> None:
        """Read nothing from the keeper. It drops what we miss, and sends the screen afterwards."""
        if self._transport is not None and not self._ended:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._ended:
            self._transport.resume_reading()

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._ended:
            raise self._gone()
        self._transport.write(data)

    def _gone(self) -> SessionUnreachable:
        why = f": {self.fault}" if self.fault else ""
        return SessionUnreachable(f"the keeper of '{self.name}' has ended{why}")

    # ── hearing ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._connection.receive(data):
                self._hear(event)
        except ProtocolError as error:
            self.fault = error.message
            self._hang_up()

    def _hear(self, event: wire.ClientEvent) -> None:
        match event:
            case wire.EventReceived(document):
                if self._behind or "parcel" in document:
                    self._behind.append(document)
                    self._fetch_next()
                else:
                    self._on_event(document)
            case wire.ResponseReceived(number, document):
                answer = self._waiting.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(document)
            case wire.WelcomeReceived(document) if not self._greeted.done():
                self._greeted.set_result(document)
            case wire.OutputReceived() | wire.RepaintReceived() | wire.ExitReceived():
                if self._on_terminal is not None:
                    self._on_terminal(event)

    def _fetch_next(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = self._loop.create_task(self._fetch())

    async def _fetch(self) -> None:
        """Deliver events in their order: what follows an event that is being fetched waits."""
        while self._behind and not self._ended:
            document = self._behind[0]
            if "parcel" in document:
                try:
                    document = await self._whole(document)
                except RemudaError:  # the keeper has dropped it since: only its short fields are left
                    pass
            self._behind.popleft()
            self._on_event(document)

    async def _whole(self, document: Document) -> Document:
        pieces: list[str] = []
        offset: int | None = 0
        while offset is not None:
            piece = await self.request("parcel", id=document["parcel"]["id"], offset=offset)
            pieces.append(str(piece["data"]))
            offset = piece["next"]
        try:
            whole: Document = parse_json("".join(pieces), depth=OWN_DEPTH, keep_surrogates=True)
        except BadJson as error:
            raise RemoteProtocolError(f"the keeper of '{self.name}' sent invalid JSON: {error}") from None
        return whole

    # ── the end ──

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended:
            self._end()
            self._on_end()

    def _end(self) -> None:
        self._ended = True
        for answer in [self._greeted, *self._waiting.values()]:
            if not answer.done():
                answer.set_exception(self._gone())
                answer.exception()  # retrieved, in case no one waits any more
        if self._fetching is not None:
            self._fetching.cancel()
        while self._behind:  # as far as they are known
            self._on_event(self._behind.popleft())

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection. No callback is called after this."""
        if not self._ended:
            self._behind.clear()
            self._end()
        self._hang_up()


async def reach(paths: SessionPaths) -> socket.socket:
    """Connect to the socket of a keeper. Raises as `AsyncKeeperClient.connect`."""
    try:
        while (sock := connect_own(paths.socket)) is None:  # noqa: ASYNC110  # no event reports room
            await asyncio.sleep(RETRY_INTERVAL)
        return sock
    except (FileNotFoundError, ConnectionRefusedError):
        raise absent(paths) from None
    except OSError as error:
        raise unreachable(paths, error) from error
