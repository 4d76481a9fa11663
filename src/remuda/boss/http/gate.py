"""Who may send requests. Pure: all checks that come before the request itself is read.

A web page in the user's browser can reach loopback too, and a host name can be made to point here. So the
Host must be one of our sites, an Origin must be ours, and the request must have a credential that no other
page knows. Programs send the token in a header; in the path only for events of a hook, which cannot send
headers. Trail Boss's clients cannot either; they have a token of their own, valid for Trail Boss's endpoints
only.

A browser that logged in has a cookie. It may do what the token may do, with three limits: it cannot manage
logins, a change needs the header `X-Remuda: 1` from our own page, and a WebSocket needs our Origin.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_ONCE = (b"host", b"origin", b"authorization", b"content-length", b"content-type", b"x-remuda")
# Links hold a secret that is valid once: for one request, or for a login.
_LINK = re.compile(r"/(?:v1/answer|login)/[A-Za-z0-9_-]{32}")
_ASSET = re.compile(
    r"/|/assets/[!-~]{1,300}|/(?:manifest\.webmanifest|favicon\.ico|(?:apple-touch-)?icon[\w.-]{0,60}|sw\.js)",
    re.ASCII,
)
_LOGINS = re.compile(r"/v1/logins(?:/.*)?", re.DOTALL)
_MCP = "/mcp"
_IN_PATH = re.compile(r"/t/([!-.0-~]{1,1024})(/.*)")
_NONE = "no token; send 'Authorization: Bearer TOKEN' ('remuda boss token' prints it)"
_WRONG = "the token in 'Authorization: Bearer TOKEN' is wrong; 'remuda boss token' prints the right one"
_WRONG_IN_PATH = (
    "the token in the path is wrong, or not valid here; 'remuda hooks show --trail-boss' prints it"
)
_NO_AGENT = "/mcp needs a token of its own; 'remuda mcp token NAME' makes one"
_LOGGED_OUT = "this login has ended; 'remuda open' makes a new login link"
_OTHER_SITE = "requests from other sites are refused"
_SAFE = ("GET", "HEAD")
_COOKIES = 8
"""A page on another port of this machine can add cookies to ours, but not make us read many."""


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Site:
    """An address under which a browser reaches us: scheme, host, and port unless it is the usual one."""

    origin: str

    @property
    def host(self) -> str:
        return self.origin.partition("://")[2]

    @property
    def is_secure(self) -> bool:
        return self.origin.startswith("https://")

    @property
    def cookie(self) -> str:
        """A browser sends cookies to all ports of a host, so the name has the port."""
        return "__Host-remuda" if self.is_secure else f"remuda-{self.host.rpartition(':')[2]}"


def loopback_sites(port: int) -> tuple[Site, ...]:
    return tuple(Site(f"http://{host}" if port == 80 else f"http://{host}:{port}") for host in _HOSTS)


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a request came: what its connection shows, and no client can choose."""

    unix: bool = False
    """By the socket in the file system: its peers are processes of this user."""
    tls: bool = False
    is_proxy: bool = False
    """From the proxy that the user trusts."""
    address: str = ""
    """Of the peer; empty on the socket."""
    is_own: Callable[[], bool | None] = lambda: None
    """Whether the peer is a process of this user or root on this machine; None if unknown."""

    @property
    def is_private(self) -> bool:
        """Whether it can be for a site with https."""
        return self.tls or self.is_proxy


@dataclass(frozen=True, slots=True)
class Passed:
    path: str
    """Without the token."""
    by_token: bool = True
    """Whether it has a credential. False for links and files of the page, which anyone can request."""
    login: str | None = None
    """The login of the cookie that is the credential."""
    site: Site | None = None
    """Where the browser believes to be; None on the socket."""
    agent: Any = None
    """Which agent has the token, of a request for MCP."""


Takes = Callable[[str, str], bool]
"""Whether a method and a path take that token."""


def _takes_nothing(_method: str, _path: str) -> bool:
    return False


def _knows_no_login(_cookie: str) -> str | None:
    return None


def _knows_no_agent(_token: str) -> Any:
    return None


class Gate:
    """`posts_events` says where the token may be in the path, `is_trail` where that of Trail Boss may.

    `trail_token` returns the latter; an empty one matches nothing. `login_of` returns the login of a cookie,
    `agent_of` the agent of a token for MCP: no other token is valid there, and that one nowhere else.
    """

    def __init__(
        self,
        token: str,
        sites: Sequence[Site],
        posts_events: Takes,
        is_trail: Takes = _takes_nothing,
        trail_token: Callable[[], str] = str,
        login_of: Callable[[str], str | None] = _knows_no_login,
        agent_of: Callable[[str], Any] = _knows_no_agent,
    ) -> None:
        self._token = token.encode()
        self._is_trail = is_trail
        self._trail_token = trail_token
        self._login_of = login_of
        self._agent_of = agent_of
        self._sites = {site.host: site for site in sites}
        self._origins = frozenset(site.origin for site in sites)
        self._posts_events = posts_events

    def judge(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], arrival: Arrival
    ) -> Passed | Refusal:
        values: dict[bytes, str] = {}
        for name, value in headers:
            if name in values and name in _ONCE:
                return Refusal(400, "BAD_REQUEST", f"duplicate {name.decode()} header")
            values[name] = value.decode("latin-1")
        if method == "OPTIONS":
            return Refusal(404, "NOT_FOUND", "Not found")
        site = None if arrival.unix else self._sites.get(values.get(b"host", "").lower())
        if not arrival.unix and (site is None or (site.is_secure and not arrival.is_private)):
            return Refusal(403, "FOREIGN_HOST", "the Host header is not this machine and port")
        if self._is_foreign(method, path, values):
            return Refusal(403, "FOREIGN_ORIGIN", _OTHER_SITE)
        if path == _MCP:
            return self._agent_shown(values)
        return self._credential_shown(method, path, values, arrival, site)

    def _is_foreign(self, method: str, path: str, headers: Mapping[bytes, str]) -> bool:
        site = headers.get(b"sec-fetch-site", "none")
        ours = b"origin" not in headers or headers[b"origin"].lower() in self._origins
        if _LINK.fullmatch(path) and method == "POST" and site == "same-origin":
            return False  # its own page, by whatever name a proxy gives it: a browser says so, no page can
        is_opened = method == "GET" and headers.get(b"sec-fetch-dest", "document") == "document"
        if is_opened and (path == "/" or _LINK.fullmatch(path)):
            return not ours  # opened from a chat; a frame in another page is not
        return not ours or site not in ("same-origin", "none")

    def _credential_shown(
        self, method: str, path: str, headers: Mapping[bytes, str], arrival: Arrival, site: Site | None
    ) -> Passed | Refusal:
        scheme, _, token = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _is_same(token.strip(), self._token):
            return Passed(path, site=site)
        if _LINK.fullmatch(path):
            return self._not_of_another(arrival, Passed(path, by_token=False, site=site))
        if (matched := _IN_PATH.fullmatch(path)) is not None:
            if self._takes(method, matched[2], matched[1]):
                return Passed(matched[2])
            return Refusal(401, "UNAUTHORIZED", _WRONG_IN_PATH)
        cookies = list(_cookies(headers.get(b"cookie", ""), site.cookie)) if site is not None else []
        if site is not None and b"authorization" not in headers:
            for cookie in cookies:
                if (login := self._login_of(cookie)) is not None:
                    passed = Passed(path, login=login, site=site)
                    return _why_not(method, headers, site, path) or self._not_of_another(arrival, passed)
        if method in _SAFE and _ASSET.fullmatch(path):
            return Passed(path, by_token=False, site=site)
        if cookies and b"authorization" not in headers:
            return Refusal(401, "LOGGED_OUT", _LOGGED_OUT)
        return Refusal(401, "UNAUTHORIZED", _WRONG if b"authorization" in headers else _NONE)

    def _agent_shown(self, headers: Mapping[bytes, str]) -> Passed | Refusal:
        scheme, _, token = headers.get(b"authorization", "").partition(" ")
        agent = self._agent_of(token.strip()) if scheme.lower() == "bearer" else None
        return Refusal(401, "UNAUTHORIZED", _NO_AGENT) if agent is None else Passed(_MCP, agent=agent)

    def _not_of_another(self, arrival: Arrival, passed: Passed) -> Passed | Refusal:
        """Another user of this machine can see a link in a process list.

        A browser sends our cookie to that user's server on another port as well.
        """
        if passed.site is None or passed.site.is_secure or passed.path.startswith("/v1/answer/"):
            return passed
        if arrival.is_own() is False:
            return Refusal(403, "OTHER_USER", "this login belongs to another user of this machine")
        return passed

    def _takes(self, method: str, path: str, token: str) -> bool:
        """Compares all bytes, so that the duration says nothing about the token."""
        is_main = _is_same(token, self._token) & self._posts_events(method, path)
        is_trail = _is_same(token, self._trail_token().encode()) & self._is_trail(method, path)
        return is_main or is_trail


def _why_not(method: str, headers: Mapping[bytes, str], site: Site, path: str) -> Refusal | None:
    """Return why a cookie is not enough for this request.

    SameSite keeps other sites from sending it; but other ports of this machine are the same site.
    """
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() != site.origin:
        return Refusal(403, "FOREIGN_ORIGIN", _OTHER_SITE)
    if headers.get(b"upgrade", "").lower() == "websocket" and origin is None:
        return Refusal(403, "FOREIGN_ORIGIN", "a WebSocket with a cookie needs an Origin header")
    if method not in _SAFE:
        if headers.get(b"x-remuda") != "1":
            return Refusal(403, "NO_CSRF_HEADER", "a change with a cookie needs the header 'X-Remuda: 1'")
        if origin is None and headers.get(b"sec-fetch-site") != "same-origin":
            return Refusal(403, "FOREIGN_ORIGIN", "a change with a cookie needs an Origin header")
    if _LOGINS.fullmatch(path):
        return Refusal(403, "NEEDS_TOKEN", "a browser cannot manage logins; use 'remuda open --logins'")
    return None


def _cookies(header: str, name: str) -> Iterator[str]:
    """Yield each cookie of that name as `NAME=VALUE`; there may be several, for different paths."""
    pairs = (pair.strip() for pair in header.split(";")[: 16 * _COOKIES])
    found = [pair for pair in pairs if pair.startswith(f"{name}=") and len(pair) <= len(name) + 128]
    yield from found[:_COOKIES]


def _is_same(text: str, token: bytes) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), token) and bool(token)


def without_token(path: str) -> str:
    """Return the path without a token in front of it."""
    matched = _IN_PATH.fullmatch(path)
    return matched[2] if matched is not None else path
