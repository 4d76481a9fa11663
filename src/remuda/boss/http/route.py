"""Requests, responses and routes, without a web framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda import errors
from remuda.boss.ports import BossParts
from remuda.errors import RemudaError

from .gate import Site

EVENT_BYTES = 16 << 20
"""A hook carries the complete input of a tool."""
BODY_BYTES = 1 << 20

_STATUS: dict[type[RemudaError], int] = {
    errors.InvalidOptions: 400,
    errors.PermissionRefused: 403,
    errors.NotInQueue: 404,
    errors.SessionNotFound: 404,
    errors.MessageNotFound: 404,
    errors.AlreadyAnswered: 409,
    errors.NotSafe: 409,
    errors.SessionExists: 409,
    errors.SessionDead: 409,
    errors.StoreFailed: 507,
    errors.SessionUnreachable: 502,
    errors.NotInFleet: 409,
    errors.HubUnreachable: 502,
    errors.HubRefused: 502,
    errors.HostUnreachable: 502,
    errors.WaitTimeout: 504,
    errors.TmuxError: 502,
}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that passed the gate, and whose parts fit the route's schemas."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    gone: Callable[[], Awaitable[None]] | None = None
    """Returns when the client is gone."""
    full_path: str = ""
    query_string: str = ""
    by_token: bool = True
    """Whether the request has a credential; False only at routes that are `open`."""
    login: str | None = None
    """The login of a browser; None for a program with the token."""
    site: Site | None = None
    """Where a browser believes to be; None on the socket."""
    client: Callable[[], str] = str
    """Returns the address of the client. Finding out takes longer than most requests."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    document: Any = None
    status: int = 200
    text: str | None = None
    """Plain text, instead of a document."""
    stream: AsyncIterator[bytes] | None = None
    """Server-sent events, instead of both."""
    body: bytes | None = None
    """Bytes, instead of all of these; their media type is one of the headers."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Instead of the usual ones of that name."""


Handler = Callable[[BossParts, ApiRequest], Awaitable[ApiResponse]]
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. The OpenAPI document is made of these, and requests are checked against them."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: Schema | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)
    answer: Schema = field(default_factory=dict)
    status: int = 200
    """Of the answer; 101 for a WebSocket."""
    errors: tuple[int, ...] = ()
    limit: int = BODY_BYTES
    media: str = "application/json"
    """Media type of the answer."""
    old: bool = False
    """An endpoint of Trail Boss: its errors are strings, and its handler reads the body."""
    token_in_path: bool = False
    open: bool = False
    """Needs no credential, or a secret in its path is one: a link, or a file of the page."""

    @property
    def is_page(self) -> bool:
        """For people: its errors are pages as well."""
        return self.media.startswith("text/html")


def status_of(error: RemudaError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def error_document(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    return {"error": error | ({"hint": hint} if hint else {})}
