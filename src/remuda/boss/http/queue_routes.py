"""Sessions and the queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from remuda.async_session import AsyncSession
from remuda.boss.answers.decided import decision_document
from remuda.boss.attention.display import label
from remuda.boss.attention.model import Approval, BossSession, Item, Origin, document
from remuda.boss.evidence.limits import limits_and_held
from remuda.boss.ports import BossParts
from remuda.boss.session_details import NOTHING
from remuda.errors import NotInQueue, NotSafe, RemudaError
from remuda.paths import accounts_folder, sessions_folder

from . import elsewhere
from .brief import MOST, brief
from .route import ApiRequest, ApiResponse, Route
from .schema import BOOLEAN, LIMIT, LIMITED, TEXT, TIME, nullable, record, ref, several

_MOST = 7 * 86400.0
_ASKED_AT_ONCE = 8
_AT_ONCE = 100
_Value = TypeVar("_Value")
_EVIDENCE = ("source", "state", "age", "detail", "decides", "counts")
_LONG_OF_ITEM = ("message", "detail")
_LONG_OF_APPROVAL = ("tool", "input", "suggestions", "detail", "answer", "proof")
_LONG_OF_SESSION = ("title", "cwd", "repo", "last_message")
_ITEM = ref("Item")
_HUB = record({"connected": BOOLEAN, "since": TIME, "error": nullable(TEXT)})
_QUEUE = record(
    {
        "items": several(_ITEM),
        "count": {"type": "integer"},
        "hidden": {"type": "integer"},
        "limits": several(LIMITED),
        "last_event_id": TEXT,
    },
    {"hub": nullable(_HUB)},
)
_SECONDS = {"type": "number", "minimum": 0, "maximum": _MOST}


def session_document(boss: BossParts, session: BossSession, most: int | None = None) -> dict[str, Any]:
    """`state` has the older words of the boss, `agent_state` those of `remuda ls`."""
    fields: dict[str, Any] = document(session)
    details = boss.service.details(session.id)
    if details.state is not None and session.ended is None:
        fields["since"] = details.since
    fields |= {
        "agent_state": boss.service.agent_state(session),
        "label": label(session.name, session.repo or session.cwd, session.id),
        "source": boss.service.state_source(session),
        "detail": details.detail,
        "last_message": boss.service.last_message(session.id),
        "messages_waiting": details.waiting,
        "degraded": list(details.degraded),
        "tokens": None if details.tokens is None else asdict(details.tokens),
    }
    return brief(fields, _LONG_OF_SESSION, most)


def approval_document(approval: Approval, most: int | None = None) -> dict[str, Any]:
    """Return a permission request, with who decided it first."""
    fields: dict[str, Any] = document(approval)
    return brief(fields | {"decision": decision_document(approval)}, _LONG_OF_APPROVAL, most)


def item_document(boss: BossParts, item: Item, most: int | None = None) -> dict[str, Any]:
    """Return an item with its session: clients need to know where it runs."""
    try:
        session = session_document(boss, boss.service.session(item.session_id), most)
    except NotInQueue:
        session = None
    return {**bare_item_document(boss, item, most), "session": session}


def bare_item_document(boss: BossParts, item: Item, most: int | None = None) -> dict[str, Any]:
    """Return an item without its session."""
    fields: dict[str, Any] = document(item)
    return brief(fields | {"decision": _decision(boss, item)}, _LONG_OF_ITEM, most)


def _decision(boss: BossParts, item: Item) -> dict[str, Any] | None:
    """Return who decided the request that this item was about."""
    if not isinstance(ask := item.detail.get("ask"), str):
        return None
    try:
        return decision_document(boss.service.approval(ask))
    except (NotInQueue, NotSafe):
        return None


def change_document(boss: BossParts, value: Any, most: int | None = None) -> Any:
    """Return a change as the stream and the lists show it."""
    if isinstance(value, BossSession):
        return session_document(boss, value, most)
    if isinstance(value, Approval):
        return approval_document(value, most)
    return brief(document(value), _LONG_OF_ITEM, most) if isinstance(value, Item) else document(value)


async def _each(make: Callable[[_Value], dict[str, Any]], values: Sequence[_Value]) -> list[dict[str, Any]]:
    """Return a document for each value. Others have the loop in between: 10,000 items take 2 s."""
    documents = []
    for number, value in enumerate(values, 1):
        documents.append(make(value))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return documents


async def _others(
    boss: BossParts, request: ApiRequest, *, only_waiting: bool = True
) -> tuple[elsewhere.Listed, dict[str, Any] | None]:
    """Return sessions and items of other hosts, if the request wants them."""
    if not request.query.get("hosts"):
        return [], None
    return await elsewhere.others(boss, only_waiting=only_waiting, wait=bool(request.query.get("wait")))


async def get_sessions(boss: BossParts, request: ApiRequest) -> ApiResponse:
    listed, _ = await _others(boss, request, only_waiting=False)
    await boss.service.settled()
    # Together: what changes while the documents are made comes again after this id.
    sessions, last_id = boss.service.sessions(), boss.service.feed.last_id
    if not request.query.get("all"):
        sessions = [session for session in sessions if session.ended is None]
    if request.query.get("evidence"):
        at_once = asyncio.Semaphore(_ASKED_AT_ONCE)
        explained = await asyncio.gather(*(explain(boss, one, at_once) for one in sessions))
        documents = [one | {"evidence": evidence} for one, evidence in explained]
    else:
        documents = await _each(lambda one: session_document(boss, one, request.query.get("cut")), sessions)
    documents += [session for session, _ in listed]
    return ApiResponse({"sessions": documents, "last_event_id": last_id})


async def get_session(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    session = boss.service.session(request.path["session"])
    shown, evidence = await explain(boss, session)
    item = boss.service.item_of(session.id)
    return ApiResponse(
        {
            "session": shown,
            "item": item_document(boss, item) if item else None,
            "evidence": evidence,
        }
    )


async def explain(
    boss: BossParts, session: BossSession, at_once: asyncio.Semaphore | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a session and its evidence, of the same moment.

    Its keeper is asked; without a keeper that answers, the events say it.
    """
    if session.origin is Origin.KEPT and session.name and session.ended is None:
        try:
            async with at_once or contextlib.nullcontext():
                status = await AsyncSession(session.name).status(explain=True)
            evidence = [{name: row[name] for name in _EVIDENCE} for row in status["votes"]]
            told = NOTHING.with_state(status)
            state = {"agent_state": told.state, "source": told.source, "since": told.since}
            return session_document(boss, session) | state | {"detail": told.detail}, evidence
        except (RemudaError, EOFError, OSError, KeyError, TypeError):
            pass
    return session_document(boss, session), boss.service.evidence(session.id)


async def get_queue(boss: BossParts, request: ApiRequest) -> ApiResponse:
    limited = await limits_and_held(accounts_folder(), sessions_folder(), boss.service.clock())
    query = request.query
    listed, hub = await _others(boss, request)
    await boss.service.settled()
    shown, everything = boss.service.queue(), boss.service.queue(hidden=True)
    last_id = boss.service.feed.last_id  # together with the lists, as in `get_sessions`
    now = boss.service.clock()
    visible, put_off = (elsewhere.items(listed, now, hidden=hidden) for hidden in (False, True))
    items, there = (everything, put_off) if query.get("hidden") else (shown, visible)
    documents = await _each(lambda one: item_document(boss, one, query.get("cut")), items)
    return ApiResponse(
        {
            "items": in_order(documents, there),
            "count": len(shown) + len(visible),
            "hidden": len(everything) - len(shown) + len(put_off) - len(visible),
            "limits": limited,
            "last_event_id": last_id,
            **({"hub": hub} if query.get("hosts") else {}),
        }
    )


def in_order(here: list[dict[str, Any]], there: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of all hosts in the order of the queue."""
    return sorted([*here, *there], key=elsewhere.place) if there else here


async def waiting(boss: BossParts) -> list[dict[str, Any]]:
    """Return what waits on all hosts that are known, in order."""
    listed, _ = await elsewhere.others(boss)
    await boss.service.settled()
    here = [item_document(boss, item) for item in boss.service.queue()]
    return in_order(here, elsewhere.items(listed, boss.service.clock(), hidden=False))


async def get_next(boss: BossParts, request: ApiRequest) -> ApiResponse:
    listed, _ = await _others(boss, request)
    await boss.service.settled()
    first = next(iter(boss.service.queue()), None)
    here = [item_document(boss, first)] if first else []
    found = in_order(here, elsewhere.items(listed, boss.service.clock(), hidden=False))
    return ApiResponse({"item": found[0] if found else None})


async def get_history(boss: BossParts, request: ApiRequest) -> ApiResponse:
    items = boss.service.store.history(int(request.query.get("limit", 100)), request.query.get("before"))
    most = request.query.get("cut")
    return ApiResponse({"items": [item_document(boss, item, most) for item in items]})


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
        "All known agents; with all=true also those that ended recently, with evidence=true how we know.",
        query={"all": BOOLEAN, "evidence": BOOLEAN, "hosts": BOOLEAN, "cut": MOST},
        answer=record({"sessions": several(ref("Session")), "last_event_id": TEXT}),
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/sessions/{session}",
        get_session,
        "One agent by id, name, pane or the beginning of its id, with its waiting item and its evidence.",
        answer=record(
            {"session": ref("Session"), "item": nullable(_ITEM), "evidence": several(ref("Evidence"))}
        ),
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/v1/queue",
        get_queue,
        "The queue: agents that are waiting, in order; with hidden=true also hidden items.",
        query={"hidden": BOOLEAN, "hosts": BOOLEAN, "wait": BOOLEAN, "cut": MOST},
        answer=_QUEUE,
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/queue/next",
        get_next,
        "The first item of the queue.",
        query={"hosts": BOOLEAN},
        answer=record({"item": nullable(_ITEM)}),
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/queue/history",
        get_history,
        "Resolved items, newest first.",
        query={"limit": LIMIT, "before": TIME, "cut": MOST},
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
