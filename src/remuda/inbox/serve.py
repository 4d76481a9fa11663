"""An inbox over HTTP, for feeders that can post and cannot run a command: loopback only, token always.

    POST /inject    a message; answered with 200 when it is on the disk
    POST /cancel    take a message back, or interrupt its turn; the answer has the outcome
    GET  /status    how many wait, what is in flight

Small on purpose: one request a connection, everything bounded. A web page that the user has open can reach
loopback too. It does not know the token. A request with an `Origin`, or for another host (a name that was
made to point here), is refused before anything else is checked.

It does not use starlette and uvicorn, as the boss does. Tried on uvicorn 0.54, it had more lines (the limits,
and reading on after a refusal, need a protocol class), 7 MB more memory and twice the processor time to
start; docs/why/design.md has the rest.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from remuda.admission.acceptor import AcceptedConnection, Acceptor, fitting, stream_protocol
from remuda.admission.rule import Limits
from remuda.errors import InvalidOptions, MessageNotFound, NotSafe, RemudaError
from remuda.frozen import fields_of
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, dump_json, parse_json

from .inject import read_injected
from .journal import Accepted, Inbox
from .message import DEFAULT_MAX_BYTES

TOKEN_NAME = ".inject-token"  # noqa: S105  # the name of a file
MAX_HEAD_BYTES = 16 * 1024
LIMITS = Limits(pending=64, trusted=64)
HEAD_TIMEOUT = 5.0
BODY_TIMEOUT = 60.0
CLOSE_TIMEOUT = 5.0
_LINGER_TIMEOUT = 10.0
_JSON_GROWTH = 6  # a byte of a prompt as \u00XX

_METHODS = {"/inject": "POST", "/cancel": "POST", "/status": "GET"}
_LONGEST_ID = 128
_ONCE = ("authorization", "content-length", "host", "origin")

T = TypeVar("T")


class _RefusedPost(Exception):  # never leaves this module
    def __init__(self, status: int, why: str, **headers: str) -> None:
        self.status = status
        self.why = why
        self.headers = headers


class _Request(NamedTuple):
    target: str
    headers: dict[str, str]
    body: bytes = b""


class InjectServer:
    """Serves one inbox from `open` to `close`.

    `check` raises `InvalidOptions` for a prompt, with its options, that the consumer of the inbox would
    refuse. `cancel` takes a message back by its id, and returns the outcome.
    """

    def __init__(
        self,
        folder: Path,
        token: str,
        *,
        max_prompt_bytes: int = DEFAULT_MAX_BYTES,
        check: Callable[[str, dict[str, Any]], None] | None = None,
        cancel: Callable[[str], dict[str, Any]],
    ) -> None:
        self._check = check
        self._cancel = cancel
        self._inbox = Inbox(folder, max_bytes=max_prompt_bytes)
        self._token = token.encode()
        self._max_prompt_bytes = max_prompt_bytes
        self._acceptor: Acceptor | None = None
        self._tasks = TaskSet()
        self._answering = TaskSet()
        """The tasks whose request is complete."""
        # One thread: the inbox has the messages in the order of their answers.
        self._disk = ThreadPoolExecutor(1, "inbox")
        # A turn takes a while to stop, and no message should wait for that.
        self._cancelling = ThreadPoolExecutor(4, "cancel")
        self.url = ""

    async def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises `InvalidOptions` for a host that is not loopback, or a port that is not free."""
        address = loopback(host)
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, port), family=family)
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise InvalidOptions(
                f"cannot listen on port {port} of {address}: {reason}", hint="choose another with --port"
            ) from error
        [limits] = fitting(LIMITS)
        self._acceptor = Acceptor(listener, limits, stream_protocol(self._serve, MAX_HEAD_BYTES, self._tasks))
        self._acceptor.open()
        port = listener.getsockname()[1]
        host_part = f"[{address}]" if ":" in address else address
        self.url = f"http://{host_part}:{port}"

    async def close(self) -> None:
        """Accept no more. Complete requests are still answered, for up to `CLOSE_TIMEOUT` seconds."""
        if self._acceptor is not None:
            self._acceptor.close()
        for task in {*self._tasks} - {*self._answering}:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering, timeout=CLOSE_TIMEOUT)
        await self._tasks.aclose()
        self._disk.shutdown(wait=False, cancel_futures=True)
        self._cancelling.shutdown(wait=False, cancel_futures=True)

    async def _serve(
        self, connection: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            request = await self._head(reader)
            if not connection.trust():
                raise _RefusedPost(503, "too many requests at once; try again")
            if _METHODS[request.target] == "POST":
                request = request._replace(body=await self._body(reader, writer, request.headers))
            answer = await self._answer_to_the_end(request)
        except _RefusedPost as refused:
            writer.write(_response(refused.status, {"ok": False, "error": refused.why}, refused.headers))
            await writer.drain()
            await _linger(reader, writer)
        else:
            writer.write(_response(200, {"ok": True, **answer}, {}))
            await writer.drain()

    async def _answer_to_the_end(self, request: _Request) -> dict[str, Any]:
        """Answer a complete request, also while the server closes."""
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        return await self._answer(request)

    # ── the request ──

    async def _head(self, reader: asyncio.StreamReader) -> _Request:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _RefusedPost(413, "the head of the request is too large") from None
        except TimeoutError:
            raise _RefusedPost(408, "the head of the request did not arrive in time") from None
        line, *fields = head.decode("latin-1").split("\r\n")[:-2]
        method, target = _parse_line(line)
        headers = _parse_headers(fields)
        _check_sender(headers)
        if target not in _METHODS:
            raise _RefusedPost(404, "unknown path; use POST /inject, POST /cancel or GET /status")
        if method != _METHODS[target]:
            raise _RefusedPost(405, f"{target} takes {_METHODS[target]}", Allow=_METHODS[target])
        self._check_token(headers)
        return _Request(target, headers)

    def _check_token(self, headers: dict[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        if scheme.lower() != "bearer" or not right:
            what = "the token is wrong" if "authorization" in headers else "no token was sent"
            raise _RefusedPost(
                401, f"{what}; send 'Authorization: Bearer TOKEN'", **{"WWW-Authenticate": "Bearer"}
            )

    async def _body(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]
    ) -> bytes:
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not length:
            raise _RefusedPost(411, "the request needs a Content-Length")
        if not re.fullmatch(r"[0-9]{1,18}", length):
            raise _RefusedPost(400, "the Content-Length is not a number")
        if int(length) > self._max_prompt_bytes * _JSON_GROWTH + MAX_HEAD_BYTES:
            raise self._too_large()
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                return await reader.readexactly(int(length))
        except TimeoutError:
            raise _RefusedPost(408, "the body of the request did not arrive in time") from None

    def _too_large(self) -> _RefusedPost:
        return _RefusedPost(413, f"a prompt can have at most {self._max_prompt_bytes} bytes")

    # ── the answer ──

    async def _answer(self, request: _Request) -> dict[str, Any]:
        if request.target == "/status":
            return await self._on_disk(self._status)
        if request.target == "/cancel":
            message = _read_id(request.body)
            return await self._on_disk(lambda: self._cancel(message), self._cancelling)
        content_type = request.headers.get("content-type", "")
        try:
            prompt, options = read_injected(request.body, content_type, datetime.now().astimezone())
        except InvalidOptions as error:
            raise _RefusedPost(400, str(error)) from None
        if len(prompt.encode("utf-8", "surrogatepass")) > self._max_prompt_bytes:
            raise self._too_large()
        accepted = await self._on_disk(lambda: self._put(prompt, options))
        return {"id": accepted.id, "duplicate": accepted.duplicate}

    def _put(self, prompt: str, options: dict[str, Any]) -> Accepted:
        if self._check is not None:
            self._check(prompt, options)
        return self._inbox.put(prompt, **options)

    def _status(self) -> dict[str, Any]:
        overview = fields_of(self._inbox.overview())
        if overview["in_flight"]:
            overview["in_flight"].pop("flight", None)  # the prompt stays here
        return overview

    async def _on_disk(self, work: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._disk, work)
        except InvalidOptions as error:
            raise _RefusedPost(400, str(error)) from error
        except MessageNotFound as error:
            raise _RefusedPost(404, "message not found") from error
        except NotSafe as error:
            raise _RefusedPost(409, str(error)) from error
        except (RemudaError, OSError) as error:
            raise _RefusedPost(503, str(error)) from error


def _read_id(body: bytes) -> str:
    """Return the id, which must be complete: the token alone does not allow to try beginnings of ids."""
    try:
        document = parse_json(body)
    except BadJson as error:
        raise _RefusedPost(400, f"the body is not JSON: {error}") from None
    message = document.get("id") if isinstance(document, dict) and document.keys() == {"id"} else None
    if not isinstance(message, str) or not 0 < len(message) <= _LONGEST_ID:
        raise _RefusedPost(400, "the body needs 'id', the id of a message, and nothing else")
    return message


def _parse_line(line: str) -> tuple[str, str]:
    match = re.fullmatch(r"([A-Z]+) (\S+) HTTP/1\.[01]", line)
    if match is None:
        raise _RefusedPost(400, "this is not an HTTP request")
    return match[1], match[2]


def _parse_headers(fields: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.partition(":")
        if not colon or not re.fullmatch(r"[!-9;-~]+", name):
            raise _RefusedPost(400, "a header is invalid")
        if name.lower() in headers and name.lower() in _ONCE:
            raise _RefusedPost(400, f"there are two {name} headers")
        headers[name.lower()] = value.strip()
    return headers


def _check_sender(headers: dict[str, str]) -> None:
    if "host" not in headers:
        raise _RefusedPost(400, "the request has no Host header")
    name = re.sub(r":[0-9]*$", "", headers["host"].lower())
    try:
        loopback(name.removeprefix("[").removesuffix("]"))
    except InvalidOptions:
        raise _RefusedPost(403, "the Host header does not name this machine") from None
    if "origin" in headers:
        raise _RefusedPost(403, "requests from web pages are refused")


def _response(status: int, document: dict[str, Any], headers: dict[str, str]) -> bytes:
    body = dump_json(document).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what a refused client still sends: after an early close it would get a reset and no answer."""
    try:
        writer.write_eof()
        async with asyncio.timeout(_LINGER_TIMEOUT):
            while await reader.read(1 << 16):
                pass
    except (OSError, TimeoutError):
        pass


def loopback(host: str) -> str:
    """Return the address of a host that only this machine can reach.

    Raises `InvalidOptions` for any other.
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise InvalidOptions(
        f"'{host}' is not a loopback address",
        hint="use 127.0.0.1 or ::1; for other machines, use an SSH tunnel or your own proxy",
    )
