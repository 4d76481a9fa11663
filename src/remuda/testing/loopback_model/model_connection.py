"""Answers the requests of one connection, in order."""

from __future__ import annotations

import asyncio
import http
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..script import Fail, Hold, Reply
from .model_request import Outcome, Request, RequestLog
from .reply_stream import Action, Break, EventStream, Pause, Send, error_body, waits, whole_message
from .responses_stream import ResponsesStream, responses_error

# ── HTTP/1.1, as much of it as an agent's client library speaks to the model ──

MAX_HEAD_BYTES = 1 << 20


class BadRequest(Exception):
    """The client sent what this server does not understand."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came off the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Incoming | None:
    """Return the next request of the connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise BadRequest("the connection ended inside a request's head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequest("the request's head is too long") from error
    method, path, headers = _parse_head(head)
    if "transfer-encoding" in headers:
        raise BadRequest("a request body needs a content-length")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Incoming(method, path, headers, await _read_body(reader, headers))


def response(
    status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, *, head_only: bool = False
) -> bytes:
    """Return a complete answer with its length."""
    fields = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    return head(status, fields) + (b"" if head_only else body)


def json_response(status: int, value: Any, headers: Mapping[str, str] | None = None) -> bytes:
    return response(status, json.dumps(value).encode(), headers)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the status line and the headers."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return a part of a chunked body; without data, its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise BadRequest(f"content-length is {length!r}")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as error:
        raise BadRequest("the connection ended inside a request's body") from error


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(f"not a request: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(f"not a header: {line[:80]!r}")
        headers[name.strip().lower()] = value.strip()
    return words[0], words[1], headers


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:  # 529 is the API's own
        return "Error"


# ── a connection ──


class ClientReader(asyncio.StreamReader):
    """A reader that reports, without taking a byte, that the client has left."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.left.set()


class ModelConnection:
    """``decide`` gives the reply to a Messages request; ``given`` is called for one that is sent in full.

    It is called before the last bytes: who has read them may ask again at once, on another connection.
    """

    def __init__(
        self,
        reader: ClientReader,
        writer: asyncio.StreamWriter,
        log: RequestLog,
        decide: Callable[[Request], Reply],
        given: Callable[[Request], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._log = log
        self._decide = decide
        self._given = given
        # With no room above the socket's own, drain() returns only when all was handed to the kernel.
        writer.transport.set_write_buffer_limits(high=0)

    async def serve(self) -> None:
        """Until the client leaves or the script cuts it off."""
        try:
            while incoming := await read_request(self._reader, self._writer):
                request = self._log.add(incoming)
                if not await self._serve_one(request):
                    break
        except BadRequest as error:
            fail = Fail(400, "invalid_request_error", str(error))
            self._writer.write(json_response(400, error_body(fail), {"connection": "close"}))
        except ConnectionError:
            pass
        finally:
            self._writer.close()

    async def _serve_one(self, request: Request) -> bool:
        """Whether the connection can go on."""
        outcome: Outcome = "abandoned"
        try:
            outcome = await self._unless_abandoned(self._answer(request))
        finally:
            self._log.close(request, outcome)
        return outcome in ("answered", "failed")

    async def _unless_abandoned(self, answering: Coroutine[Any, Any, Outcome]) -> Outcome:
        answer = asyncio.ensure_future(answering)
        leaving = asyncio.ensure_future(self._reader.left.wait())
        try:
            await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else "abandoned"
        finally:
            for task in (answer, leaving):
                task.cancel()
            await asyncio.gather(answer, leaving, return_exceptions=True)

    async def _answer(self, request: Request) -> Outcome:
        if request.is_message:
            return await self._answer_message(request, self._decide(request))
        if request.method == "POST" and request.path.startswith("/v1/messages/count_tokens"):
            await self._send(json_response(200, {"input_tokens": len(request.raw) // 4}))
        else:
            await self._send(response(200, b"{}", head_only=request.method == "HEAD"))
        return "answered"

    async def _answer_message(self, request: Request, reply: Reply) -> Outcome:
        if request.streams:
            return await self._stream(request, reply)
        if not await self._play(waits(reply)):
            await self._send(head(200, {"content-type": "application/json", "content-length": "1000"}) + b"{")
            return "cut"
        fail = next((step for step in reply.steps if isinstance(step, Fail)), None)
        if fail:
            return await self._fail(fail, request)
        self._given(request)
        await self._send(json_response(200, whole_message(reply, request.model)))
        return "answered"

    async def _stream(self, request: Request, reply: Reply) -> Outcome:
        holds, rest = _leading_holds(reply)
        await self._play(holds)
        if rest.steps and isinstance(rest.steps[0], Fail):
            return await self._fail(rest.steps[0], request)
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        await self._send(head(200, {**fields, "transfer-encoding": "chunked"}))
        stream = ResponsesStream if request.is_response else EventStream
        if not await self._play(stream(rest, request.model)):
            return "cut"
        failed = any(isinstance(step, Fail) for step in rest.steps)
        if not failed:
            self._given(request)
        await self._send(chunk(b""))
        return "failed" if failed else "answered"

    async def _fail(self, fail: Fail, request: Request) -> Outcome:
        body = responses_error(fail) if request.is_response else error_body(fail)
        await self._send(json_response(fail.status, body, fail.headers))
        return "failed"

    async def _play(self, actions: Iterable[Action]) -> bool:
        """Whether it came to its end, and the connection was not to be broken."""
        for action in actions:
            match action:
                case Send(data):
                    await self._send(chunk(data))
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Hold():
                    await _opened(action)
                case Break():
                    return False
        return True

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


def _leading_holds(reply: Reply) -> tuple[list[Hold], Reply]:
    """A gate before the first word keeps the answer's head back as well, and an error may still follow."""
    holds: list[Hold] = []
    for step in reply.steps:
        if not isinstance(step, Hold):
            break
        holds.append(step)
    return holds, Reply(reply.steps[len(holds) :], reply.stop_reason, reply.usage)


async def _opened(hold: Hold) -> None:
    loop = asyncio.get_running_loop()
    opened = asyncio.Event()

    def go_on() -> None:
        try:
            loop.call_soon_threadsafe(opened.set)
        except RuntimeError:  # the model was closed before its gate was opened
            pass

    hold.gate.reached(go_on)
    await opened.wait()
