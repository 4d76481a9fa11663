"""Accept events over HTTP: as documents of their own, or as the input of an agent's hook."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.agents import DEFAULT_AGENT, all_sources
from remuda.boss.attention.model import Approval, Event, EventKind, Source
from remuda.boss.ports import BossParts
from remuda.durable import read_regular
from remuda.names import check_name

from .route import EVENT_BYTES, ApiRequest, ApiResponse, Route
from .schema import ID, PAYLOAD, TEXT, TIME, nullable, record, ref

_AGENTS = {sources.agent: sources for sources in all_sources()}
_SOURCES = {source.label: source for source in Source}
_READ_BYTES = 1 << 20

TAKEN = record({"taken": {"type": "integer"}, "repeated": {"type": "integer"}})
_HOOKED = record({"taken": {"type": "integer"}, "repeated": {"type": "integer"}, "approval": nullable(TEXT)})
_EVENTS = record({"events": {"type": "array", "items": ref("Event"), "minItems": 1, "maxItems": 1000}})
HOOK_FIELDS = {
    "agent": {"type": "string", "enum": sorted(_AGENTS)},
    "at": TIME,
    "id": ID,
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
}
_HOOK = record({"payload": PAYLOAD}, HOOK_FIELDS)


async def post_events(boss: BossParts, request: ApiRequest) -> ApiResponse:
    now = boss.service.clock()
    events = [_event(one, now) for one in request.body["events"]]
    taken = await boss.service.take(*events)
    return ApiResponse({"taken": taken, "repeated": len(events) - taken})


def _event(given: dict[str, Any], now: float) -> Event:
    if isinstance(name := given.get("facts", {}).get("name"), str) and name:
        check_name(name)
    return Event(
        EventKind(given["kind"]),
        given["session_id"],
        float(given.get("at", now)),
        _SOURCES[given.get("source", "hook")],
        given.get("id", ""),
        given.get("facts", {}),
    )


async def post_hook(boss: BossParts, request: ApiRequest) -> ApiResponse:
    events, taken = await take_hook(boss, request.body)
    approval = asked_of(boss, events)
    document = {
        "taken": taken,
        "repeated": len(events) - taken,
        "approval": approval.id if approval else None,
    }
    return ApiResponse(document)


async def take_hook(boss: BossParts, body: dict[str, Any]) -> tuple[list[Event], int]:
    """Take the input of a hook. Return its events, and how many of them were new."""
    events = await read_hook(
        body["payload"],
        float(body.get("at", boss.service.clock())),
        number=body.get("id", ""),
        env=body.get("env", {}),
        agent=body.get("agent", DEFAULT_AGENT),
    )
    if any(event.kind is EventKind.ASKED for event in events):
        await boss.service.catch_up()  # the prompt that led to it may still be in the spool
    return events, await boss.service.take(*events)


def asked_of(boss: BossParts, events: list[Event]) -> Approval | None:
    """Return the open permission request that one of the events reported; None if there is none."""
    asked = next((event for event in events if event.kind is EventKind.ASKED), None)
    return boss.service.approval_of(asked) if asked else None


async def read_hook(
    payload: dict[str, Any],
    at: float,
    *,
    number: str = "",
    env: dict[str, str] | None = None,
    agent: str = DEFAULT_AGENT,
) -> list[Event]:
    """Return the events of a hook. A diff is made in a thread, which may read the file to be changed."""
    sources = _AGENTS[agent]
    is_quick = getattr(sources, "is_quick", None)
    if is_quick is not None and is_quick(payload):
        return sources.hook_events(payload, at, id=number, env=env)
    return await asyncio.to_thread(sources.hook_events, payload, at, id=number, env=env, read=read_text)


def read_text(path: str) -> str | None:
    """Return the text of a file; None if it is missing, too large or not UTF-8."""
    try:
        return read_regular(path, _READ_BYTES).decode()
    except (OSError, ValueError):
        return None


ROUTES = (
    Route(
        "POST",
        "/v1/hooks",
        post_hook,
        "Report the input of an agent's hook. It is on disk when this returns.",
        body=_HOOK,
        answer=_HOOKED,
        errors=(400, 413, 415, 507),
        limit=EVENT_BYTES,
        token_in_path=True,
    ),
    Route(
        "POST",
        "/v1/events",
        post_events,
        "Report events. They are on disk when this returns. Duplicates change nothing.",
        body=_EVENTS,
        answer=TAKEN,
        errors=(400, 413, 415, 507),
        limit=EVENT_BYTES,
        token_in_path=True,
    ),
)
