"""The routes as a web application: the one module that knows starlette."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from remuda.boss.ports import Boss
from remuda.errors import InvalidOptions, RemudaError

from . import schema
from .gate import Gate, Passed, Refusal
from .openapi import needs_body
from .route import Call, Reply, Route, error_document, status_of

log = logging.getLogger("remuda.boss.http")

BODY_TIMEOUT = 60.0
DRAIN_BYTES = 64 << 20
"""So much of a body that is too large is read all the same: cut off, its sender would not hear our answer."""
_QUIET = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_HEADERS = ("x-tmux-pane", "last-event-id")


class _Refused(Exception):  # never leaves this module
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message


def make_app(boss: Boss, routes: Sequence[Route], token: str, port: int) -> ASGIApp:
    web = [WebRoute(route.path, _endpoint(boss, route), methods=[route.method]) for route in routes]
    app = Starlette(routes=web, exception_handlers={HTTPException: _unknown})
    app.router.redirect_slashes = False
    in_path = {(route.method, route.path) for route in routes if route.token_in_path}
    return _Guarded(app, Gate(token, port, lambda method, path: (method, path) in in_path))


class _Guarded:
    """Nothing of a request is looked at before it is known to be ours."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        unix = bool(scope.get("state", {}).get("unix"))
        judged = self._gate.judge(scope["method"], scope["path"], scope["headers"], unix=unix)
        if isinstance(judged, Refusal):
            await _refusal(judged)(scope, receive, send)
            return
        await self._app(_at(scope, judged), receive, send)


def _at(scope: Scope, passed: Passed) -> Scope:
    if passed.path == scope["path"]:
        return scope
    return {**scope, "path": passed.path, "raw_path": passed.path.encode()}


def _refusal(refusal: Refusal) -> Response:
    if refusal.status == 404:
        return _json({"error": refusal.message}, 404)
    more = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
    return _json(error_document(refusal.code, refusal.message), refusal.status, more)


def _json(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(document, separators=(",", ":")).encode()
    return Response(body, status, {**_QUIET, **(headers or {})}, "application/json")


async def _unknown(_request: Request, error: Exception) -> Response:
    """Trail Boss's words for what there is not; a wrong method is told as such."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _json({"error": "Not found"}, 404)
    return _json(
        error_document("BAD_METHOD", str(error.detail)), error.status_code, dict(error.headers or {})
    )


# ── one operation ──


def _endpoint(boss: Boss, route: Route) -> Any:
    async def answer(request: Request) -> Response:
        try:
            call = await _read(request, route)
            reply = await route.handler(boss, call)
        except _Refused as refused:
            return _failed(route, refused.status, refused.code, refused.message, None)
        except RemudaError as error:
            return _failed(route, status_of(error), error.code, error.message, error.hint)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("%s %s failed", route.method, route.path)
            return _failed(route, 500, "FAILED", "this is a bug: see the boss's log", None)
        return _response(route, reply)

    answer.__name__ = route.handler.__name__
    return answer


def _failed(route: Route, status: int, code: str, message: str, hint: str | None) -> Response:
    document = {"error": message} if route.old else error_document(code, message, hint)
    # The rest of a body that was too large is not waited for.
    return _json(document, status, {"connection": "close"} if status == 413 else None)


def _response(route: Route, reply: Reply) -> Response:
    if reply.stream is not None:
        return StreamingResponse(reply.stream, reply.status, _QUIET, route.media)
    if reply.text is not None:
        return Response(reply.text, reply.status, _QUIET, route.media)
    return _json(reply.document, reply.status)


async def _read(request: Request, route: Route) -> Call:
    headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
    body = await _body(request, route) if route.method == "POST" else None
    if route.old:
        return Call(headers=headers, body=body)
    query = schema.read_query(dict(request.query_params), route.query)
    document = _document(request.headers, body, route) if route.body is not None else None
    return Call(request.path_params, query, headers, document)


async def _body(request: Request, route: Route) -> bytes:
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > DRAIN_BYTES:
        raise _too_large(route)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in request.stream():
                size += len(part)
                if size <= route.limit:
                    parts.append(part)
                elif size > DRAIN_BYTES:
                    break
    except TimeoutError:
        raise _Refused(408, "TOO_SLOW", "the body of the request did not come") from None
    if size > route.limit:
        raise _too_large(route)
    return b"".join(parts)


def _too_large(route: Route) -> _Refused:
    return _Refused(413, "TOO_LARGE", f"the body may have {route.limit} bytes at most")


def _document(headers: Headers, body: bytes | None, route: Route) -> Any:
    assert route.body is not None
    if not body and not needs_body(route):
        return {}
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise _Refused(415, "NOT_JSON", "send JSON, with 'Content-Type: application/json'")
    try:
        document = json.loads(body or b"", parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidOptions("the body is not JSON") from None
    schema.check(document, route.body)
    return document


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
