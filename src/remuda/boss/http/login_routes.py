"""The page, how a browser logs in to it, and the logins.

Opening a login link changes nothing: programs that preview links open it. Only the button on its page spends
it.
"""

from __future__ import annotations

import html
from dataclasses import asdict
from typing import Any

from remuda.boss.logins import LINK_LIFE, LOGIN_LIFE, TRIES_WINDOW, Logins
from remuda.boss.ports import BossParts
from remuda.errors import InvalidOptions, NotInQueue

from .assets import HARDENING, Assets, digest64
from .gate import Site
from .route import ApiRequest, ApiResponse, Route
from .schema import NUMBER, TEXT, record, several

_STYLE = """:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:3em auto;
padding:0 1em;max-width:32em}h1{font-size:1.4em}
code{white-space:nowrap;background:#8882;padding:.1em .4em;border-radius:.3em}
button{font:inherit;font-weight:bold;padding:.7em 1.5em;color:#fff;background:#1a7f37;border:0;
border-radius:.4em}
"""
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{digest64(_STYLE.encode())}'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = ((b"content-security-policy", _POLICY.encode()), *HARDENING)
_FRAME = """<!doctype html><html lang=en><meta charset=utf-8>{head}
<meta name=viewport content="width=device-width,initial-scale=1"><title>Remuda</title>
<style>{style}</style>
<h1>{title}</h1>
{body}
"""
_HOW = """<p>Run this on the machine of the boss:</p><p><code>remuda open</code></p>
<p>It opens this page with a link that works once. <code>remuda open --qr</code> shows the link as a QR code
for a phone, <code>remuda open --print</code> prints it.</p>"""
_BUTTON = """<p>This browser will be logged in for 30 days.</p>
<form method=post><button autofocus>Log in</button></form>"""


def _page(
    title: str, body: str, status: int = 200, head: str = "", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> ApiResponse:
    text = _FRAME.format(head=head, style=_STYLE, title=html.escape(title), body=body)
    return ApiResponse(text=text, status=status, headers=(*_HEADERS, *headers))


# ── the page ──

_ASSETS = Assets()


async def get_page(_boss: BossParts, request: ApiRequest) -> ApiResponse:
    if request.login is None and request.headers.get("sec-fetch-site") == "cross-site":
        # A browser that comes from another site does not send its cookie. It does when our own page leads.
        query = f"?{request.query_string}" if request.query_string else ""
        refresh = f'<meta http-equiv=refresh content="0;url=/{html.escape(query)}">'
        return _page("Remuda", '<p><a href="/">Open the page</a></p>', head=refresh)
    if request.login is None and not request.by_token:
        return _page("Log in to Remuda", _HOW, 401)
    served = _ASSETS.index(request.headers)
    if served is None:
        return _page("The page is not installed", "<p>Install Remuda again.</p>", 404)
    return ApiResponse(body=served.body, status=served.status, headers=served.headers)


async def get_asset(_boss: BossParts, request: ApiRequest) -> ApiResponse:
    served = _ASSETS.find(request.full_path, request.headers)
    if served is None:
        raise NotInQueue(f"{request.full_path} is not a file of the page")
    return ApiResponse(body=served.body, status=served.status, headers=served.headers)


# ── logging in ──


async def get_login(_boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return _page("Log in to Remuda", _BUTTON)


async def post_login(boss: BossParts, request: ApiRequest) -> ApiResponse:
    if request.site is None:
        raise InvalidOptions("a login link is for a browser", hint="open it there")
    logins, client = _logins(boss), request.client()
    browser = request.headers.get("user-agent", "")
    try:
        cookie = await logins.log_in(
            request.path["secret"],
            request.site.cookie,
            browser,
            client,
            is_local=not request.site.is_secure,
        )
    except NotInQueue as error:
        if not logins.is_limited(client):
            return _page("Not logged in", f"<p>{html.escape(error.message)}.</p>{_HOW}", 404)
        after = (b"retry-after", f"{TRIES_WINDOW:.0f}".encode())
        return _page(
            "Too many wrong login links",
            f"<p>A link that is right still works.</p>{_HOW}",
            429,
            headers=(after,),
        )
    given = _cookie(request.site, cookie, int(LOGIN_LIFE))
    return ApiResponse(text="", status=303, headers=(*_HEADERS, (b"location", b"/"), given))


async def post_logout(boss: BossParts, request: ApiRequest) -> ApiResponse:
    if request.login is None or request.site is None:
        raise InvalidOptions(
            "this request has no login to end", hint="a token has none; revoke a login by its id"
        )
    await _logins(boss).revoke(request.login)
    return ApiResponse({"revoked": 1}, headers=(_cookie(request.site, f"{request.site.cookie}=", 0),))


def _cookie(site: Site, cookie: str, life: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if site.is_secure else ""
    text = f"{cookie}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}"
    return (b"set-cookie", text.encode())


def _logins(boss: BossParts) -> Logins:
    if boss.logins is None:
        raise InvalidOptions("this boss has no page")
    return boss.logins


# ── managing logins: with the token only, see `gate` ──


async def post_login_link(boss: BossParts, request: ApiRequest) -> ApiResponse:
    """Make a link of its own for this machine.

    A browser gets it as an argument, which other users can see. Over https the gate cannot tell who they are.
    """
    life, (here, *elsewhere) = float(request.body.get("seconds", LINK_LIFE)), boss.urls
    path = f"/login/{_logins(boss).make_link(life)}"
    local = f"/login/{_logins(boss).make_link(life, local=True)}" if elsewhere else path
    urls = [f"{here}{local}", *(f"{url}{path}" for url in elsewhere)]
    return ApiResponse({"path": path, "urls": urls, "seconds": life})


async def get_logins(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return ApiResponse({"logins": [asdict(login) for login in _logins(boss).list()]})


async def post_revoke(boss: BossParts, request: ApiRequest) -> ApiResponse:
    return ApiResponse({"revoked": await _logins(boss).revoke(request.path["login"])})


_PAGE = "text/html; charset=utf-8"
PAGE_ROUTES = (
    Route("GET", "/", get_page, "The page.", media=_PAGE, open=True),
    Route("GET", "/assets/{name:path}", get_asset, "A file of the page.", open=True),
    Route("GET", "/login/{secret}", get_login, "The page of a login link.", media=_PAGE, open=True),
    Route("POST", "/login/{secret}", post_login, "Spend a login link.", media=_PAGE, open=True),
    *(
        Route("GET", path, get_asset, "A file of the page, where browsers look for it.", open=True)
        for path in (
            "/manifest.webmanifest",
            "/favicon.ico",
            "/sw.js",
            "/icon{rest}",
            "/apple-touch-icon{rest}",
        )
    ),
)
"""For browsers; not part of the API and its document."""

_REVOKED: dict[str, Any] = record({"revoked": {"type": "integer"}})
_LOGIN = record(
    {
        "id": TEXT,
        "created_at": NUMBER,
        "expires_at": NUMBER,
        "used_at": NUMBER,
        "client": TEXT,
        "address": TEXT,
    }
)
ROUTES = (
    Route(
        "POST",
        "/v1/logins/links",
        post_login_link,
        "Make a link that logs one browser in, once. Not with a cookie.",
        body=record({}, {"seconds": {"type": "number", "minimum": 0, "maximum": LINK_LIFE}}),
        answer=record({"path": TEXT, "urls": several(TEXT), "seconds": NUMBER}),
        errors=(400, 413, 415),
    ),
    Route(
        "GET",
        "/v1/logins",
        get_logins,
        "All logins, oldest first. Not with a cookie.",
        answer=record({"logins": several(_LOGIN)}),
    ),
    Route(
        "POST",
        "/v1/logins/{login}/revoke",
        post_revoke,
        "End a login, or 'all'; its streams and terminals are closed. Not with a cookie.",
        answer=_REVOKED,
        errors=(404, 413, 507),
    ),
    Route(
        "POST",
        "/v1/logout",
        post_logout,
        "End the login of this cookie. With the token: 400.",
        answer=_REVOKED,
        errors=(400, 413, 507),
    ),
)
