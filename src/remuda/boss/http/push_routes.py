"""Browsers that are notified by Web Push: subscribe, list, remove, try."""

from __future__ import annotations

from remuda.boss.attention.model import BossSession, Item, Reason
from remuda.boss.notices.notification import Notice, words
from remuda.boss.notices.push import PushSubscriptions, document
from remuda.boss.notices.webpush import HOW_TO_INSTALL
from remuda.boss.ports import BossParts
from remuda.errors import InvalidOptions, NotSafe

from .route import ApiRequest, ApiResponse, Route
from .schema import BOOLEAN, NUMBER, TEXT, nullable, record, several

_BROWSER = {"id": TEXT, "client": TEXT, "host": TEXT, "created_at": NUMBER}

_RESULT = {"status": nullable({"type": "integer"}), "error": nullable(TEXT), "advice": nullable(TEXT)}


async def get_push(boss: BossParts, request: ApiRequest) -> ApiResponse:
    push = _push(boss)
    key = await push.public_key()
    return ApiResponse(
        {
            "installed": key is not None,
            "install": HOW_TO_INSTALL,
            "key": key,
            "own": request.login,
            "browsers": [document(one) for one in push.all()],
        }
    )


async def post_subscribe(boss: BossParts, request: ApiRequest) -> ApiResponse:
    if request.login is None:
        raise InvalidOptions(
            "only a browser that is logged in can subscribe", hint="'remuda open' opens the page"
        )
    keys = request.body["keys"]
    added = await _push(boss).add(request.login, request.body["endpoint"], keys["p256dh"], keys["auth"])
    return ApiResponse(document(added))


async def post_unsubscribe(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await _push(boss).remove(request.path["login"])
    return ApiResponse({"removed": 1})


async def post_test(boss: BossParts, request: ApiRequest) -> ApiResponse:
    item = Item("", "", Reason.STOPPED, 0.0, "This is a test notice from Remuda.")
    notice = Notice(words(item, BossSession("", name="test")))
    return ApiResponse({"browsers": await _push(boss).test(notice, request.login)})


def _push(boss: BossParts) -> PushSubscriptions:
    if boss.push is None:
        raise NotSafe("this boss notifies no browsers")
    return boss.push


_KEY = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[A-Za-z0-9_=-]+$"}

ROUTES = (
    Route(
        "GET",
        "/v1/push",
        get_push,
        "Browsers that are notified, and the key that a browser needs to subscribe; null without the extra.",
        answer=record(
            {
                "installed": BOOLEAN,
                "install": TEXT,
                "key": nullable(TEXT),
                "own": nullable(TEXT),
                "browsers": several(record(_BROWSER)),
            }
        ),
        errors=(400, 409),
    ),
    Route(
        "POST",
        "/v1/push/subscribe",
        post_subscribe,
        "Notify the browser of this cookie, until its login ends. With the token: 400.",
        body=record(
            {
                "endpoint": {"type": "string", "minLength": 1, "maxLength": 1000},
                "keys": record({"p256dh": _KEY, "auth": _KEY}),
            },
            {"expirationTime": nullable(NUMBER)},
        ),
        answer=record(_BROWSER),
        errors=(400, 404, 409, 413, 415, 507),
    ),
    Route(
        "POST",
        "/v1/push/test",
        post_test,
        "Send a test notice to the browser of this cookie; with the token to all.",
        body=record({}),
        answer=record({"browsers": several(record({**_BROWSER, **_RESULT}))}),
        errors=(400, 409, 413, 415),
    ),
    Route(
        "POST",
        "/v1/push/{login}/remove",
        post_unsubscribe,
        "Notify the browser of that login no longer.",
        answer=record({"removed": {"type": "integer"}}),
        errors=(404, 409, 413, 507),
    ),
)
