"""Who may send requests. Pure: all checks that come before the request itself is read.

A web page in the user's browser can reach loopback too, and a host name can be made to point here. So the
Host must be this machine with our port, an Origin must be ours, and the request must have the token, which no
page knows. It is in a header; in the path only for events of a hook, which cannot send headers. Trail Boss's
clients cannot either; they have a token of their own, valid for Trail Boss's endpoints only.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_ONCE = (b"host", b"origin", b"authorization", b"content-length", b"content-type")
# An answer link: it holds a secret that is valid for one request.
_LINK = re.compile(r"/v1/answer/[A-Za-z0-9_-]{32}")
_IN_PATH = re.compile(r"/t/([!-.0-~]{1,1024})(/.*)")
_NONE = "no token; send 'Authorization: Bearer TOKEN' ('remuda boss token' prints it)"
_WRONG = "the token in 'Authorization: Bearer TOKEN' is wrong; 'remuda boss token' prints the right one"
_WRONG_IN_PATH = (
    "the token in the path is wrong, or not valid here; 'remuda hooks show --trail-boss' prints it"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Passed:
    path: str
    """Without the token."""
    by_token: bool = True
    """False for an answer link, which anyone can make up."""


Takes = Callable[[str, str], bool]
"""Whether a method and a path take that token."""


def _takes_nothing(_method: str, _path: str) -> bool:
    return False


class Gate:
    """`posts_events` says where the token may be in the path, `is_trail` where that of Trail Boss may.

    `trail_token` returns the latter; an empty one matches nothing.
    """

    def __init__(
        self,
        token: str,
        port: int,
        posts_events: Takes,
        is_trail: Takes = _takes_nothing,
        trail_token: Callable[[], str] = str,
    ) -> None:
        self._token = token.encode()
        self._is_trail = is_trail
        self._trail_token = trail_token
        self._hosts = frozenset(host if port == 80 else f"{host}:{port}" for host in _HOSTS)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)
        self._posts_events = posts_events

    def judge(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], *, unix: bool
    ) -> Passed | Refusal:
        """`unix` for the socket in the file system: its peers are processes of this user."""
        values: dict[bytes, str] = {}
        for name, value in headers:
            if name in values and name in _ONCE:
                return Refusal(400, "BAD_REQUEST", f"duplicate {name.decode()} header")
            values[name] = value.decode("latin-1")
        if method == "OPTIONS":
            return Refusal(404, "NOT_FOUND", "Not found")
        if not unix and values.get(b"host", "").lower() not in self._hosts:
            return Refusal(403, "FOREIGN_HOST", "the Host header is not this machine and port")
        if self._is_foreign(method, path, values):
            return Refusal(403, "FOREIGN_ORIGIN", "requests from other sites are refused")
        return self._token_shown(method, path, values)

    def _is_foreign(self, method: str, path: str, headers: Mapping[bytes, str]) -> bool:
        site = headers.get(b"sec-fetch-site", "none")
        ours = b"origin" not in headers or headers[b"origin"].lower() in self._origins
        if _LINK.fullmatch(path):
            if method == "POST" and site == "same-origin":
                return (
                    False  # its own page, by whatever name a proxy gives it: a browser says so, no page can
                )
            if method == "GET" and headers.get(b"sec-fetch-dest", "document") == "document":
                return not ours  # opened from a chat; a frame in another page is not
        return not ours or site not in ("same-origin", "none")

    def _token_shown(self, method: str, path: str, headers: Mapping[bytes, str]) -> Passed | Refusal:
        scheme, _, token = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _is_same(token.strip(), self._token):
            return Passed(path)
        if _LINK.fullmatch(path):
            return Passed(path, by_token=False)
        if (matched := _IN_PATH.fullmatch(path)) is not None:
            if self._takes(method, matched[2], matched[1]):
                return Passed(matched[2])
            return Refusal(401, "UNAUTHORIZED", _WRONG_IN_PATH)
        return Refusal(401, "UNAUTHORIZED", _WRONG if b"authorization" in headers else _NONE)

    def _takes(self, method: str, path: str, token: str) -> bool:
        """Compares all bytes, so that the duration says nothing about the token."""
        is_main = _is_same(token, self._token) & self._posts_events(method, path)
        is_trail = _is_same(token, self._trail_token().encode()) & self._is_trail(method, path)
        return is_main or is_trail


def _is_same(text: str, token: bytes) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), token) and bool(token)


def without_token(path: str) -> str:
    """Return the path without a token in front of it."""
    matched = _IN_PATH.fullmatch(path)
    return matched[2] if matched is not None else path
