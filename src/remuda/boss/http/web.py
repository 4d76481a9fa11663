"""The routes as a web application. Only this module imports starlette.

starlette finds the operation for a path with parameters. Operations read and answer by themselves: what a
framework does around that takes longer than taking an event.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import StreamingResponse
from starlette.routing import Route as WebRoute
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from remuda.boss.ports import BossParts
from remuda.errors import InvalidOptions, RemudaError
from remuda.untrusted import BadJson, parse_json

from . import schema
from .assets import HARDENING
from .elsewhere import forward
from .gate import Arrival, Gate, Passed, Refusal, Site, without_token
from .mcp_door import McpDoor, mcp_caller
from .openapi import needs_body
from .page import POLICY, error_page
from .route import ApiRequest, ApiResponse, Route, error_document, status_of
from .terminal import serve_terminal
from .trail_boss import refused

log = logging.getLogger("remuda.boss.http")

BODY_TIMEOUT = 60.0
DRAIN_BYTES = 64 << 20
"""A body that is too large is read up to this size: if cut off, its sender would not read our answer."""
_QUIET = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_PAGE = ((b"content-security-policy", POLICY.encode()), *HARDENING)
_WANTED = {
    b"accept-encoding",
    b"content-length",
    b"content-type",
    b"if-none-match",
    b"last-event-id",
    b"sec-fetch-site",
    b"user-agent",
    b"x-tmux-pane",
}


_TERMINAL = re.compile(r"/v1/sessions/([^/]{1,256})/terminal")


class _Refused(Exception):  # never leaves this module
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message


class Application:
    """The server calls `admits` for each request, and then the application itself."""

    def __init__(
        self,
        boss: BossParts,
        routes: Sequence[Route],
        token: str,
        sites: Sequence[Site],
        trail_token: Callable[[], str] = str,
    ) -> None:
        self._boss = boss
        operations = [(route, _Operation(boss, route)) for route in routes]
        self._plain = {(route.method, route.path): one for route, one in operations if "{" not in route.path}
        places: dict[str, dict[str, _Operation]] = {}
        for route, one in operations:
            places.setdefault(route.path, {})[route.method] = one
        web = [WebRoute(path, _Place(by_method)) for path, by_method in places.items()]
        self._router = Router(web, redirect_slashes=False, default=_not_found)
        in_path = {(route.method, route.path) for route in routes if route.token_in_path}
        old = {(route.method, route.path) for route in routes if route.old}
        self._gate = Gate(
            token,
            sites,
            lambda method, path: (method, path) in in_path,
            lambda method, path: (method, path) in old,
            trail_token,
            boss.logins.login_of if boss.logins is not None else lambda _: None,
            mcp_caller,
        )
        self.mcp = McpDoor()

    def admits(self, scope: Scope) -> bool:
        """Whether the request has the token. Nothing else of it is read before."""
        state = scope["state"]
        arrival: Arrival = state["arrival"]
        judged = self._gate.judge(scope["method"], scope["path"], scope["headers"], arrival)
        if isinstance(judged, Passed) and judged.by_token and not state["trust"]():
            judged = Refusal(503, "BUSY", "too many connections are open; close some, or try again later")
        state["judged"] = judged
        return isinstance(judged, Passed) and judged.by_token

    def upgrades(self, scope: Scope) -> bool:
        """Whether the request may become a WebSocket. If not, it is answered as any other."""
        return _TERMINAL.fullmatch(scope["path"]) is not None and self.admits(scope)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        judged: Passed | Refusal = scope["state"]["judged"]
        if scope["type"] == "websocket":
            assert isinstance(judged, Passed)
            matched = _TERMINAL.fullmatch(judged.path)
            assert matched is not None
            abort = scope["state"]["abort"]
            await serve_terminal(self._boss, matched[1], judged.login, receive, send, abort)
            return
        if isinstance(judged, Refusal):
            if not scope["state"].get("whole") and not any(name == b"expect" for name, _ in scope["headers"]):
                await _drain(receive)
            await _refuse(judged, scope["path"], send)
            return
        if judged.agent is not None:
            await self._serve_mcp(judged.agent, scope, receive, send)
            return
        operation = self._plain.get((scope["method"], judged.path))
        if operation is not None:
            await operation(scope, receive, send)
        else:
            await self._router({**scope, "path": judged.path}, receive, send)

    async def _serve_mcp(self, agent: Any, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.mcp.serve(agent, scope, receive, send)
        except ImportError:
            await _drain(receive)
            why = "MCP needs packages that are not installed; in a clone of Remuda: pip install '.[mcp]'"
            await _send_json(send, error_document("COMMAND_NOT_FOUND", why), 501)


async def _refuse(refusal: Refusal, path: str, send: Send) -> None:
    if refusal.status == 404:
        await _send_json(send, {"error": refusal.message}, 404)
        return
    more = [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
    document = refused(without_token(path), refusal.message)
    await _send_json(send, document or error_document(refusal.code, refusal.message), refusal.status, more)


async def _drain(receive: Receive) -> None:
    """Close the connection after the answer. A sender reads the answer only after it sent all of its body."""
    size = 0
    while size <= DRAIN_BYTES and (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            return


async def _not_found(scope: Scope, _receive: Receive, send: Send) -> None:
    ours = str(scope["path"]).startswith("/v1/")
    document = (
        error_document("NOT_FOUND", "not found; /v1/openapi.json lists all paths")
        if ours
        else {"error": "Not found"}
    )
    await _send_json(send, document, 404)


async def _send_json(
    send: Send, document: Any, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    await _send(send, status, b"application/json", _encode(document).encode(), headers)


async def _send(
    send: Send, status: int, media: bytes | None, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    given = {name for name, _ in headers}
    head = [(b"content-length", str(len(body)).encode()), *(one for one in _QUIET if one[0] not in given)]
    head += [*([(b"content-type", media)] if media is not None else []), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


# ── one operation ──


class _Place:
    """All operations of one path."""

    def __init__(self, operations: Mapping[str, _Operation]) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations.get(scope["method"])
        if operation is not None:
            await operation(scope, receive, send)
            return
        document = error_document("BAD_METHOD", "this path does not have that method")
        await _send_json(send, document, 405, [(b"allow", ", ".join(sorted(self._operations)).encode())])


class _Operation:
    """One operation, as an ASGI application."""

    def __init__(self, boss: BossParts, route: Route) -> None:
        self._boss = boss
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._route
        try:
            request = await self._read(scope, receive)
            reply = await forward(self._boss, route, request) or await route.handler(self._boss, request)
        except _Refused as refused:
            await self._fail(send, refused.status, refused.code, refused.message)
        except RemudaError as error:
            await self._fail(send, status_of(error), error.code, error.message, error.hint)
        except _Disconnected:
            pass
        except Exception:
            log.exception("%s %s failed", route.method, route.path)
            await self._fail(send, 500, "FAILED", "internal error (a bug); see the log of the boss")
        else:
            if scope["state"]["judged"].login is not None:  # pages compare their clock with ours
                reply = replace(reply, headers=(*reply.headers, (b"date", formatdate(usegmt=True).encode())))
            await self._answer(reply, scope, receive, send)

    async def _fail(self, send: Send, status: int, code: str, message: str, hint: str | None = None) -> None:
        if self._route.is_page:
            await _send(send, status, self._route.media.encode(), error_page(message, hint).encode(), _PAGE)
            return
        document = {"error": message} if self._route.old else error_document(code, message, hint)
        # The rest of a body that was too large is not waited for.
        await _send_json(send, document, status, [(b"connection", b"close")] if status == 413 else ())

    async def _answer(self, reply: ApiResponse, scope: Scope, receive: Receive, send: Send) -> None:
        media = self._route.media
        if reply.stream is not None:
            headers = {name.decode(): value.decode() for name, value in (*_QUIET, *reply.headers)}
            await StreamingResponse(reply.stream, reply.status, headers, media)(scope, receive, send)
        elif reply.body is not None:
            await _send(send, reply.status, None, reply.body, reply.headers)
        elif reply.text is not None:
            is_bare = self._route.is_page and not any(one == _PAGE[0][0] for one, _ in reply.headers)
            more = (*reply.headers, *(_PAGE if is_bare else ()))
            await _send(send, reply.status, media.encode(), reply.text.encode(), more)
        else:
            await _send_json(send, reply.document, reply.status, reply.headers)

    # ── reading ──

    async def _read(self, scope: Scope, receive: Receive) -> ApiRequest:
        route = self._route
        headers = {
            name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _WANTED
        }
        body = b""
        if route.method == "POST":
            complete = bool(scope.get("state", {}).get("whole"))
            body = await _body(receive, headers.get("content-length", ""), route, complete=complete)
        if route.old:
            return ApiRequest(headers=headers, body=body)
        # Chat programs add parameters of their own to a link.
        parameters = {} if route.is_page else _query(scope["query_string"])
        query = schema.read_query(parameters, route.query)
        document = _document(headers, body, route) if route.body is not None else None
        state = scope["state"]
        judged: Passed = state["judged"]
        return ApiRequest(
            scope.get("path_params", {}),
            query,
            headers,
            document,
            lambda: _gone(receive),
            scope["path"],
            scope["query_string"].decode("latin-1"),
            judged.by_token,
            judged.login,
            judged.site,
            lambda: _client(state["arrival"], scope["headers"]),
        )


def _client(arrival: Arrival, headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return who is at the other end: by the proxy that is trusted, or by the connection itself."""
    if arrival.is_proxy:
        forwarded = [value for name, value in headers if name == b"x-forwarded-for"]
        if forwarded:
            return forwarded[-1].decode("latin-1").rpartition(",")[2].strip()[:64]
    other = " (another user)" if arrival.is_own() is False else ""
    return f"{arrival.address}{other}"


def _query(text: bytes) -> dict[str, str]:
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}


class _Disconnected(Exception):  # never leaves this module
    pass


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive, length: str, route: Route, *, complete: bool) -> bytes:
    """Read a body; `complete`: it has arrived."""
    if length.isdecimal() and int(length) > DRAIN_BYTES:
        raise _too_large(route)
    if complete:
        return await _parts(receive, route)
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _parts(receive, route)
    except TimeoutError:
        raise _Refused(408, "TOO_SLOW", "the body of the request did not arrive in time") from None


async def _parts(receive: Receive, route: Route) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size <= route.limit:
            parts.append(part)
        if not message.get("more_body") or size > DRAIN_BYTES:
            break
    if size > route.limit:
        raise _too_large(route)
    return b"".join(parts)


def _too_large(route: Route) -> _Refused:
    return _Refused(413, "TOO_LARGE", f"the body must have at most {route.limit} bytes")


def _document(headers: Mapping[str, str], body: bytes, route: Route) -> Any:
    assert route.body is not None
    if not body and not needs_body(route):
        return {}
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise _Refused(415, "NOT_JSON", "send JSON, with 'Content-Type: application/json'")
    try:
        document = parse_json(body)
    except BadJson as error:
        raise InvalidOptions(f"the body is not JSON: {error}") from None
    schema.check(document, route.body)
    return document


# Made once: making one takes as long as using it.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
