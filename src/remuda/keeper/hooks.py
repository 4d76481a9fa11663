"""The endpoint that an agent's http hooks post to: loopback only, one token per session.

Small on purpose: requests come from the agent that we started, in one known shape. Anything else gets an
error, and the connection is closed. A hook that fails never stops the agent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from typing import Any

from remuda.admission.acceptor import AcceptedConnection, Acceptor, fitting, stream_protocol
from remuda.admission.rule import Limits
from remuda.agents.events import ConversationStarted, Report
from remuda.frozen import replaced
from remuda.proctree import is_alive
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, parse_object

log = logging.getLogger("remuda.keeper.hooks")

MAX_HEAD_BYTES = 64 * 1024
LIMITS = Limits(pending=64, trusted=128)
HEAD_TIMEOUT = 5.0
BODY_TIMEOUT = 60.0
MAX_BODY_BYTES = 64 << 20  # a hook carries the complete output of a tool
_LENGTH_DIGITS = 18
TOKEN_HEADER = "x-remuda-token"  # noqa: S105  # the name of a header

Payload = dict[str, Any]
Answer = Payload | None
Handler = Callable[[Payload], Answer | asyncio.Future[Answer]]

_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Too Large",
    503: "Service Unavailable",
}


class _RefusedHook(Exception):  # never leaves this module
    def __init__(self, status: int, why: str = "") -> None:
        self.status = status
        self.why = why
        """For the log. Empty for a request without the token: other users could fill the log with these."""


class HookServer:
    """Serves hooks. `handler` gets each payload and returns a decision, None for no opinion, or an awaitable.

    With an awaitable the agent waits; when it no longer does, the awaitable is cancelled.
    """

    def __init__(self, handler: Handler, listener: socket.socket | None, token: str) -> None:
        self._handler = handler
        self._listener = listener
        self._token = token
        self._acceptor: Acceptor | None = None
        self._tasks = TaskSet()

    def open(self) -> None:
        """Serve requests, also those that came before."""
        if self._listener is not None:
            [limits] = fitting(LIMITS)
            protocol = stream_protocol(self._serve, MAX_HEAD_BYTES, self._tasks)
            self._acceptor = Acceptor(self._listener, limits, protocol)
            self._acceptor.open()

    async def close(self) -> None:
        """End all connections at once: an agent that still waits for an answer goes on without it."""
        if self._acceptor is not None:
            self._acceptor.close()
        await self._tasks.aclose()

    async def _serve(
        self, connection: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        trusted = False
        while await self._one(connection, reader, writer, trusted=trusted):
            trusted = True

    async def _one(
        self,
        connection: AcceptedConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        trusted: bool,
    ) -> bool:
        """Serve one request.

        Returns whether the connection may carry another. `trusted`: it has shown the token before.
        """
        try:
            headers = await self._head(reader, trusted=trusted)
            if not connection.trust():
                raise _RefusedHook(503, "too many connections are open")
            payload = await self._body(reader, headers)
        except _RefusedHook as refused:
            if refused.why:
                log.warning("refused a hook request with status %d: %s", refused.status, refused.why)
            writer.write(_response(refused.status, b"", keep=False))
            await writer.drain()
            return False
        answer = self._handler(payload)
        if isinstance(answer, asyncio.Future):
            answer = await self._held(reader, answer)
        keep = headers.get("connection", "").lower() != "close"
        writer.write(_response(200, json.dumps(answer or {}).encode(), keep=keep))
        await writer.drain()
        return keep

    @staticmethod
    async def _held(reader: asyncio.StreamReader, answer: asyncio.Future[Answer]) -> Answer:
        """Return the answer, or stop when the agent no longer waits.

        Nothing but the end may come before the answer.
        """
        gone = asyncio.ensure_future(reader.read(1))
        waits: set[asyncio.Future[Any]] = {answer, gone}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionResetError("the agent is no longer waiting")
            return answer.result()
        finally:
            answer.cancel()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _head(self, reader: asyncio.StreamReader, *, trusted: bool) -> dict[str, str]:
        try:
            # A connection may be silent for as long as the agent has nothing to report.
            first = await reader.readexactly(1) if trusted else b""
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _RefusedHook(413) from None
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        if rest.partition(" ")[0] != "/hook":
            raise _RefusedHook(404)
        if method != "POST":
            raise _RefusedHook(405)
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if not _same(headers.get(TOKEN_HEADER, "").encode(), self._token.encode()):
            raise _RefusedHook(403)
        return headers

    @staticmethod
    async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> Payload:
        length = headers.get("content-length", "")
        if not length.isdecimal():
            raise _RefusedHook(400, f"its Content-Length is {length[:20]!r}")
        if len(length) > _LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
            raise _RefusedHook(413, f"its body has more than {MAX_BODY_BYTES} bytes")
        async with asyncio.timeout(BODY_TIMEOUT):
            body = await reader.readexactly(int(length))
        try:
            return parse_object(body)
        except BadJson as error:
            raise _RefusedHook(400, f"its body cannot be read: {error}") from None


def _same(shown_token: bytes, token: bytes) -> bool:
    """Compare in a time that does not depend on the token.

    The library's own loads OpenSSL: 3 MB per keeper.
    """
    different = len(shown_token) ^ len(token)
    for one, other in zip(shown_token, token, strict=False):
        different |= one ^ other
    return different == 0


def _response(status: int, body: bytes, *, keep: bool) -> bytes:
    connection = "keep-alive" if keep else "close"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n".encode() + body


# ── which process a hook is of ──

# The view of agents starts an empty conversation again in another process, and one more in reserve. Both have
# our hooks, and both report that they start. Which of them is ours now shows when it is given a prompt; the
# other may start after that.


class AgentProcessFilter:
    """Only the hook that reports a start says which process it is of."""

    def __init__(self, lives: Callable[[int], bool] = is_alive) -> None:
        self._lives = lives
        self._agent: int | None = None
        """The process of the agent, if a start was reported."""
        self._started: dict[str | None, int] = {}

    def is_program(self, pid: int) -> bool | None:
        """Return whether the agent is the program itself, and not a child of it; None if that is unknown."""
        return None if self._agent is None else self._agent == pid

    def starts_another(self, report: Report) -> bool:
        """Whether an agent starts next to the one we keep: it is not ours before it reports more."""
        if report.pid is None:
            return False
        is_new = self._agent is not None and report.pid != self._agent and _is_startup(report)
        if is_new and self._agent is not None and self._lives(self._agent):
            self._started[report.session_id] = report.pid
            return True
        self._agent = report.pid
        return False

    def attributed(self, report: Report) -> Report:
        """Add the process to the first report of a new agent, which is ours from now on."""
        pid = self._started.pop(report.session_id, None)
        if pid is None:
            return report
        self._agent = pid
        return replaced(report, pid=pid)


def _is_startup(report: Report) -> bool:
    return any(isinstance(event, ConversationStarted) and event.how == "startup" for event in report.events)
