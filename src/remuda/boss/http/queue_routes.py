"""Sessions and the queue."""

from __future__ import annotations

from typing import Any

from remuda.boss.attention.model import Item, Session, document
from remuda.boss.evidence.limits import limits_and_held
from remuda.boss.ports import BossParts
from remuda.errors import NotInQueue
from remuda.paths import accounts_folder, sessions_folder

from .route import ApiRequest, ApiResponse, Route
from .schema import BOOLEAN, LIMIT, LIMITED, TEXT, TIME, nullable, record, ref, several

_MOST = 7 * 86400.0
_ITEM = ref("Item")
_QUEUE = record(
    {
        "items": several(_ITEM),
        "count": {"type": "integer"},
        "hidden": {"type": "integer"},
        "limits": several(LIMITED),
        "last_event_id": TEXT,
    }
)
_SECONDS = {"type": "number", "minimum": 0, "maximum": _MOST}


def session_document(boss: BossParts, session: Session) -> dict[str, Any]:
    """`state` has the older words of the boss, `agent_state` those of `remuda ls`."""
    fields: dict[str, Any] = document(session)
    return fields | {"agent_state": boss.service.agent_state(session)}


def item_document(boss: BossParts, item: Item) -> dict[str, Any]:
    """An item with its session: clients need to know where it runs."""
    try:
        session = session_document(boss, boss.service.session(item.session_id))
    except NotInQueue:
        session = None
    fields: dict[str, Any] = document(item)
    return fields | {"session": session}


async def get_sessions(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    sessions = boss.service.sessions()
    if not request.query.get("all"):
        sessions = [session for session in sessions if session.ended is None]
    return ApiResponse(
        {
            "sessions": [session_document(boss, one) for one in sessions],
            "last_event_id": boss.service.feed.last_id,
        }
    )


async def get_session(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    session = boss.service.session(request.path["session"])
    item = boss.service.item_of(session.id)
    return ApiResponse(
        {"session": session_document(boss, session), "item": item_document(boss, item) if item else None}
    )


async def get_queue(boss: BossParts, request: ApiRequest) -> ApiResponse:
    # First: nothing may happen between the list and the id of the last change.
    limited = await limits_and_held(accounts_folder(), sessions_folder(), boss.service.clock())
    await boss.service.settled()
    shown, everything = boss.service.queue(), boss.service.queue(hidden=True)
    items = everything if request.query.get("hidden") else shown
    return ApiResponse(
        {
            "items": [item_document(boss, item) for item in items],
            "count": len(shown),
            "hidden": len(everything) - len(shown),
            "limits": limited,
            "last_event_id": boss.service.feed.last_id,
        }
    )


async def get_next(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    first = next(iter(boss.service.queue()), None)
    return ApiResponse({"item": item_document(boss, first) if first else None})


async def get_history(boss: BossParts, request: ApiRequest) -> ApiResponse:
    items = boss.service.store.history(int(request.query.get("limit", 100)), request.query.get("before"))
    return ApiResponse({"items": [item_document(boss, item) for item in items]})


async def get_item(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    return ApiResponse(item_document(boss, boss.service.item(request.path["item"])))


async def post_skip(boss: BossParts, request: ApiRequest) -> ApiResponse:
    item = await boss.service.skip(request.path["item"], float(request.body.get("cooldown", 30.0)))
    return ApiResponse(item_document(boss, item))


async def post_snooze(boss: BossParts, request: ApiRequest) -> ApiResponse:
    until = request.body.get("until")
    if until is None:
        until = boss.service.clock() + float(request.body["seconds"])
    item = await boss.service.snooze(request.path["item"], float(until))
    return ApiResponse(item_document(boss, item))


async def post_dismiss(boss: BossParts, request: ApiRequest) -> ApiResponse:
    return ApiResponse(item_document(boss, await boss.service.dismiss(request.path["item"])))


_CHANGES = (400, 404, 409, 413, 415, 507)

ROUTES = (
    Route(
        "GET",
        "/v1/sessions",
        get_sessions,
        "All known agents; with all=true also those that ended recently.",
        query={"all": BOOLEAN},
        answer=record({"sessions": several(ref("Session")), "last_event_id": TEXT}),
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/sessions/{session}",
        get_session,
        "One agent by id, name, pane or the beginning of its id, with its waiting item.",
        answer=record({"session": ref("Session"), "item": nullable(_ITEM)}),
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/v1/queue",
        get_queue,
        "The queue: agents that are waiting, in order; with hidden=true also hidden items.",
        query={"hidden": BOOLEAN},
        answer=_QUEUE,
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/queue/next",
        get_next,
        "The first item of the queue.",
        answer=record({"item": nullable(_ITEM)}),
    ),
    Route(
        "GET",
        "/v1/queue/history",
        get_history,
        "Resolved items, newest first.",
        query={"limit": LIMIT, "before": TIME},
        answer=record({"items": several(_ITEM)}),
        errors=(400,),
    ),
    Route("GET", "/v1/queue/{item}", get_item, "One item, open or resolved.", answer=_ITEM, errors=(404,)),
    Route(
        "POST",
        "/v1/queue/{item}/skip",
        post_skip,
        "Move an item to the end of the queue, and hide it for 'cooldown' seconds (default 30).",
        body=record({}, {"cooldown": _SECONDS}),
        answer=_ITEM,
        errors=_CHANGES,
    ),
    Route(
        "POST",
        "/v1/queue/{item}/snooze",
        post_snooze,
        "Hide an item until a time, or for a number of seconds.",
        body={"anyOf": [record({"until": TIME}), record({"seconds": _SECONDS})]},
        answer=_ITEM,
        errors=_CHANGES,
    ),
    Route(
        "POST",
        "/v1/queue/{item}/dismiss",
        post_dismiss,
        "Remove an item from the queue, until its agent waits for something new.",
        body=record({}),
        answer=_ITEM,
        errors=_CHANGES,
    ),
)
