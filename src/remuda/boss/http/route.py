"""What a request is to those who answer it, and what they say: no web framework here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda import errors
from remuda.boss.ports import Boss
from remuda.errors import RemudaError

EVENT_BYTES = 16 << 20
"""A hook carries what a tool was given, whole."""
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
    errors.WaitTimeout: 504,
    errors.TmuxError: 502,
}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that was let in, and whose parts are as the route's schemas want them."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    gone: Callable[[], Awaitable[None]] | None = None
    """Returns when nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    document: Any = None
    status: int = 200
    text: str | None = None
    """In place of a document: plain text."""
    stream: AsyncIterator[bytes] | None = None
    """In place of both: server-sent events."""


Handler = Callable[[Boss, ApiRequest], Awaitable[ApiResponse]]
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
    errors: tuple[int, ...] = ()
    limit: int = BODY_BYTES
    media: str = "application/json"
    """Of the answer."""
    old: bool = False
    """One of Trail Boss's: its errors are texts, and its body is read by its handler."""
    token_in_path: bool = False
    open: bool = False
    """What lets one in is a secret in its path: an answer link."""

    @property
    def is_page(self) -> bool:
        """For people: its errors are pages as well."""
        return self.media.startswith("text/html")


def status_of(error: RemudaError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def error_document(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"code": code, "message": message}
    return {"error": found | ({"hint": hint} if hint else {})}
