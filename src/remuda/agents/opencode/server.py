"""Requests to an opencode server, and its stream of events. A connection of its own for each.

The server is ours and listens on loopback. What it says may still be an agent's text: everything is bounded.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from remuda.agents.prompting import CallAddress, ChannelLost
from remuda.frozen import frozen
from remuda.untrusted import dump_json, parse_json

USER = "opencode"
_MAX_BYTES = 64 << 20
"""Of one answer or event. A tool's output is in several of them."""
_HEAD_BYTES = 1 << 16
START_TIMEOUT = 150.0
"""1.5 to 6 s on an idle machine, 12 s with two agents that start; a plugin without a network: 130 s.

The server listens at once, and answers its first request when the plugins are loaded (1.18.33).
"""


@frozen
class ServerAddress:
    """A server, the conversation that its terminal shows, and the folder for our records of it."""

    base: str
    conversation: str
    folder: str

    @property
    def url(self) -> str:
        return f"{self.base}/{self.conversation}#{quote(self.folder)}"

    @classmethod
    def read(cls, url: str) -> ServerAddress:
        from urllib.parse import unquote

        parts = urlsplit(url)
        return cls(f"http://{parts.netloc}", parts.path.strip("/"), unquote(parts.fragment))

    @property
    def port(self) -> int:
        return urlsplit(self.base).port or 0


def _authorization(secret: str) -> str:
    return "Basic " + base64.b64encode(f"{USER}:{secret}".encode()).decode()


def request_now(base: str, secret: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send one request and wait for its answer, before a loop runs. Raises `OSError`."""
    headers = {"Authorization": _authorization(secret), "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=START_TIMEOUT)
    try:
        connection.request(method, path, None if body is None else dump_json(body), headers)
        answer = connection.getresponse()
        return answer.status, _document(answer.read(_MAX_BYTES))
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


def _document(data: bytes) -> Any:
    """Return the JSON of a body; None for one that has none."""
    try:
        return parse_json(data) if data else None
    except ValueError:
        return None


class OpencodeServer:
    """Every method raises `ChannelLost` if the server cannot be reached or ends the connection."""

    def __init__(self, address: CallAddress) -> None:
        self._location = urlsplit(ServerAddress.read(address.url).base)
        self._secret = address.secret

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the document of the answer."""
        stream = await self._open(method, path, None if body is None else dump_json(body).encode())
        try:
            return stream.status, _document(await stream.read_all())
        finally:
            stream.close()

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the server's events, from the moment of the call on. The first one says that it listens."""
        stream = await self._open("GET", "/event", None)
        try:
            if stream.status != 200:
                raise ChannelLost(f"the server refused its events: status {stream.status}")
            pending = b""
            async for block in stream.blocks():
                *lines, pending = (pending + block).split(b"\n")
                if len(pending) > _MAX_BYTES:
                    raise ChannelLost("an event of the server is too large")
                for line in lines:
                    if line.startswith(b"data:") and isinstance(event := _document(line[5:].strip()), dict):
                        yield event
        finally:
            stream.close()
        raise ChannelLost("the server ended its events")

    async def _open(self, method: str, path: str, body: bytes | None) -> _Answer:
        host, port = self._location.hostname or "", self._location.port or 0
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=_HEAD_BYTES)
        except OSError as error:
            raise ChannelLost(f"{self._location.netloc}: {error}") from error
        try:
            lines = [
                f"{method} {path} HTTP/1.1",
                f"Host: {self._location.netloc}",
                f"Authorization: {_authorization(self._secret)}",
                "Connection: close",
                "Content-Type: application/json",
                f"Content-Length: {len(body or b'')}",
            ]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
            head = await reader.readuntil(b"\r\n\r\n")
            return _Answer(head, reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            writer.close()
            raise ChannelLost(f"{method} {path}: {error}") from error
        except BaseException:
            writer.close()
            raise


class _Answer:
    """The answer to a request: its head is read, its body is not."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        fields = dict(line.lower().split(":", 1) for line in lines if ":" in line)
        self._chunked = "chunked" in fields.get("transfer-encoding", "")
        length = fields.get("content-length")
        self._length = 0 if self.status == 204 else int(length) if length is not None else None
        self._reader = reader
        self._writer = writer

    async def read_all(self) -> bytes:
        body = b""
        async for block in self.blocks():
            body += block
            if len(body) > _MAX_BYTES:
                raise ChannelLost("an answer of the server is too large")
        return body

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, up to its end."""
        reader = self._reader
        try:
            if self._length is not None:
                if self._length > _MAX_BYTES:
                    raise ChannelLost("an answer of the server is too large")
                yield await reader.readexactly(self._length)
            elif self._chunked:
                while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    if size > _MAX_BYTES:
                        raise ChannelLost("an answer of the server is too large")
                    yield await reader.readexactly(size)
                    await reader.readexactly(2)
            else:
                while block := await reader.read(_HEAD_BYTES):
                    yield block
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            raise ChannelLost(f"the server ended the connection: {error}") from error

    def close(self) -> None:
        self._writer.close()
