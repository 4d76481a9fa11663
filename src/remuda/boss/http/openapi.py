"""All routes, and the OpenAPI document made of them. Requests are checked against the same schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from remuda._version import __version__
from remuda.boss.ports import BossParts

from . import (
    change_routes,
    event_routes,
    figure_routes,
    fleet_routes,
    login_routes,
    metric_routes,
    navigation_routes,
    page_schema,
    permission_routes,
    push_routes,
    queue_routes,
    schema,
    session_routes,
    terminal,
    trail_boss,
)
from .route import ApiRequest, ApiResponse, Route

_MEANINGS = {
    400: "The request is not valid.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site, or is for another host.",
    404: "Not found.",
    409: "Already decided, or not safe.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "The program cannot be started.",
    503: "Too many connections are open.",
    502: "The session or tmux cannot be reached.",
    504: "Timeout.",
    507: "Writing to disk failed; nothing was changed.",
}
_OF_THE_GATE = (401, 403, 503)
_OLD_ERROR = {**schema.record({"error": schema.TEXT}), "additionalProperties": True}


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Remuda boss",
            "version": __version__,
            "description": "Agents that are waiting for a human, and how to answer them. "
            "'remuda boss token' prints the token; browsers log in with 'remuda open'.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schema.COMPONENTS, **page_schema.COMPONENTS},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.handler.__name__ + ("_trail_boss" if route.old else ""),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {
            str(route.status): _answer(route),
            **{str(status): _error(route, status) for status in _errors(route)},
        },
    }
    if route.open:
        made["security"] = []
    if route.body is not None:
        content = {"application/json": {"schema": route.body}}
        made["requestBody"] = {"required": needs_body(route), "content": content}
    return made


def needs_body(route: Route) -> bool:
    return route.body is not None and ("anyOf" in route.body or bool(route.body.get("required")))


def _errors(route: Route) -> list[int]:
    # 404 and 405 of a framework are not answers of an operation.
    return sorted({*route.errors, *_OF_THE_GATE})


def _answer(route: Route) -> dict[str, Any]:
    if route.status == 101:
        return {"description": "The WebSocket is open."}
    content = {route.media: {"schema": route.answer or {"type": "string"}}}
    return {"description": "Done.", "content": content}


def _error(route: Route, status: int) -> dict[str, Any]:
    # Refusals of the gate have our own shape, except at Trail Boss's endpoints.
    own = status in _OF_THE_GATE
    if route.is_page and not own:
        return {"description": _MEANINGS[status], "content": {route.media: {"schema": schema.TEXT}}}
    shape = _OLD_ERROR if route.old else schema.ref("Error")
    return {"description": _MEANINGS[status], "content": {"application/json": {"schema": shape}}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "schema": shape}
        for name, shape in route.query.items()
    ]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    if route.path == "/event":
        shape = {"type": "string", "pattern": "^%[0-9]{1,9}$"}
        return [{"name": "X-Tmux-Pane", "in": "header", "required": True, "schema": shape}]
    if route.media == "text/event-stream":
        return [{"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}}]
    return []


def openapi_route(routes: Sequence[Route]) -> Route:
    described: dict[str, Any] = {}

    async def get_openapi(_boss: BossParts, _request: ApiRequest) -> ApiResponse:
        return ApiResponse(described)

    made = Route("GET", "/v1/openapi.json", get_openapi, "This document.", answer=schema.ANYTHING)
    described |= describe([*routes, made])
    return made


# Those that are called most come first.
_OWN: tuple[Route, ...] = (
    *event_routes.ROUTES,
    *permission_routes.WAIT_ROUTES,
    *trail_boss.ROUTES,
    *change_routes.ROUTES,
    *queue_routes.ROUTES,
    *permission_routes.ROUTES,
    *navigation_routes.ROUTES,
    *session_routes.ROUTES,
    *figure_routes.ROUTES,
    *metric_routes.ROUTES,
    *fleet_routes.ROUTES,
    *login_routes.ROUTES,
    *push_routes.ROUTES,
    *terminal.ROUTES,
)
ROUTES: tuple[Route, ...] = (*_OWN, openapi_route(_OWN))
