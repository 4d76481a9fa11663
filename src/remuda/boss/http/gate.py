"""Who is let in. Pure: everything that is decided before anybody looks at what a request wants.

A web page that the user has open can reach loopback too, and a name can be made to point here. So the Host
must be this machine with our port, an Origin must be ours, and the token must be shown, which no page knows.
It stands in a header; in the path only where a hook's emitter, which can carry no header, posts events.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_ONCE = (b"host", b"origin", b"authorization", b"content-length", b"content-type")
# An answer link: its secret is in it, is good for one request, and was sent to whoever has it.
_LINK = re.compile(r"/v1/answer/[A-Za-z0-9_-]{32}")
_IN_PATH = re.compile(r"/t/([!-.0-~]{16,1024})(/.*)")


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Passed:
    path: str
    """Without the token."""


class Gate:
    """`posts_events` says whether a path takes the token in the path."""

    def __init__(self, token: str, port: int, posts_events: Callable[[str, str], bool]) -> None:
        self._token = token.encode()
        self._hosts = frozenset(host if port == 80 else f"{host}:{port}" for host in _HOSTS)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)
        self._posts_events = posts_events

    def judge(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], *, unix: bool
    ) -> Passed | Refusal:
        """`unix` for the socket in the file system: its peers are this user's own."""
        found: dict[bytes, str] = {}
        for name, value in headers:
            if name in found and name in _ONCE:
                return Refusal(400, "BAD_REQUEST", f"there are two {name.decode()} headers")
            found[name] = value.decode("latin-1")
        if method == "OPTIONS":
            return Refusal(404, "NOT_FOUND", "Not found")
        if not unix and found.get(b"host", "").lower() not in self._hosts:
            return Refusal(403, "FOREIGN_HOST", "the Host is not this machine and port")
        if self._is_foreign(method, path, found):
            return Refusal(403, "FOREIGN_ORIGIN", "not for pages of other sites")
        return self._token_shown(method, path, found)

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
        scheme, _, given = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return Passed(path)
        if _LINK.fullmatch(path):
            return Passed(path)
        found = _IN_PATH.fullmatch(path)
        if found is not None and self._is_token(found[1]) and self._posts_events(method, found[2]):
            return Passed(found[2])
        return Refusal(401, "UNAUTHORIZED", "send the token as 'Authorization: Bearer TOKEN'")

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)
