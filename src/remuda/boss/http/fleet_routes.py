"""Other hosts over HTTP: what commands ask of this boss, which has the connection to the hub."""

from __future__ import annotations

from remuda.boss.ports import BossParts, Fleet
from remuda.errors import NotInFleet

from .route import EVENT_BYTES, ApiRequest, ApiResponse, Route
from .schema import ANYTHING, BOOLEAN, TEXT, Schema, nullable, record, several

_LONGEST = 600.0
_OPTIONS: dict[str, Schema] = {
    "delay": {"type": "number", "minimum": 0},
    "ttl": {"type": "number", "minimum": 0},
    "dedup": {"type": "string", "minLength": 1, "maxLength": 1000},
    "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
    "priority": {"type": "integer"},
    "command": BOOLEAN,
    "literal": BOOLEAN,
}
_SENDER: Schema = {"type": "string", "minLength": 1, "maxLength": 1000}
_RECEIPT = record(
    {
        "id": TEXT,
        "host": TEXT,
        "session": TEXT,
        "stage": TEXT,
        "ended": BOOLEAN,
        "steps": several(ANYTHING),
        "answer": nullable(ANYTHING),
        "where": TEXT,
        "sender": nullable(TEXT),
    }
)
_ERRORS = (400, 403, 404, 409, 413, 415, 500, 502, 504, 507)


def _fleet(boss: BossParts) -> Fleet:
    if boss.fleet is None:
        raise NotInFleet(
            "this machine has joined no fleet", hint="'remuda fleet join' joins one; see 'remuda help fleet'"
        )
    return boss.fleet


async def get_fleet(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return ApiResponse(await _fleet(boss).status())


async def post_fleet(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    if boss.reload_fleet is not None:
        await boss.reload_fleet()
    return ApiResponse({"joined": boss.fleet is not None})


async def get_fleet_sessions(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return ApiResponse(await _fleet(boss).sessions())


async def get_fleet_events(boss: BossParts, request: ApiRequest) -> ApiResponse:
    query = request.query
    after, wait = int(query.get("after", 0)), float(query.get("wait", 0.0))
    return ApiResponse(await _fleet(boss).events(after, wait, int(query.get("limit", 1000))))


async def post_fleet_run(boss: BossParts, request: ApiRequest) -> ApiResponse:
    body = request.body
    return ApiResponse(
        await _fleet(boss).run_anywhere(body["profile"], body["payload"], float(body["timeout"]))
    )


async def get_fleet_runs(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return ApiResponse({"requests": _fleet(boss).requests.listing()})


async def get_fleet_run(boss: BossParts, request: ApiRequest) -> ApiResponse:
    after, wait = int(request.query.get("after", 0)), float(request.query.get("wait", 0.0))
    return ApiResponse(await _fleet(boss).requests.follow(request.path["request"], after, wait))


async def post_fleet_run_cancel(boss: BossParts, request: ApiRequest) -> ApiResponse:
    return ApiResponse(await _fleet(boss).requests.cancel(request.path["request"]))


async def post_fleet_request(boss: BossParts, request: ApiRequest) -> ApiResponse:
    body = request.body
    answer = await _fleet(boss).request(
        request.path["host"], body["method"], body["path"], body.get("body"), float(body["timeout"])
    )
    return ApiResponse({"answer": answer})


async def post_fleet_message(boss: BossParts, request: ApiRequest) -> ApiResponse:
    body = request.body
    options, sender = body.get("options") or {}, body.get("sender")
    return ApiResponse(
        await _fleet(boss).send(
            request.path["host"], request.path["session"], body["prompt"], options, sender
        )
    )


async def get_fleet_messages(boss: BossParts, request: ApiRequest) -> ApiResponse:
    sent = await _fleet(boss).sent_to(request.path["host"], request.path["session"])
    return ApiResponse({"messages": sent})


async def get_fleet_message(boss: BossParts, request: ApiRequest) -> ApiResponse:
    wait, steps = float(request.query.get("wait", 0.0)), int(request.query.get("steps", 0))
    return ApiResponse(await _fleet(boss).receipt(request.path["message"], wait, steps))


ROUTES = (
    Route(
        "GET",
        "/v1/fleet",
        get_fleet,
        "The fleet that this machine has joined: hosts, and who can be reached.",
        answer={"type": "object"},
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/v1/fleet",
        post_fleet,
        "Read the membership of this machine again: join, or leave.",
        body=record({}),
        answer=record({"joined": BOOLEAN}),
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/v1/fleet/sessions",
        get_fleet_sessions,
        "The sessions of other hosts, with their queue items.",
        answer=record(
            {
                "name": TEXT,
                "connected": BOOLEAN,
                "since": {"type": "number"},
                "error": nullable(TEXT),
                "sessions": several({"type": "object"}),
            }
        ),
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/v1/fleet/events",
        get_fleet_events,
        "The last events of other hosts after position 'after'. Waits for one.",
        query={
            "after": {"type": "integer", "minimum": 0},
            "wait": {"type": "number", "minimum": 0, "maximum": 60},
            "limit": {"type": "integer", "minimum": 1, "maximum": 5000},
        },
        answer=record({"events": several({"type": "object"}), "position": {"type": "integer"}}),
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/v1/fleet/requests",
        post_fleet_run,
        "Send a request to any host with a free warm agent of that profile.",
        body=record(
            {
                "profile": {"type": "string", "minLength": 1, "maxLength": 64},
                "payload": {"type": "object"},
                "timeout": {"type": "number", "minimum": 0, "maximum": 86400},
            }
        ),
        answer={"type": "object"},
        errors=_ERRORS,
        limit=EVENT_BYTES,
    ),
    Route(
        "GET",
        "/v1/fleet/requests",
        get_fleet_runs,
        "Requests to any host that were sent from here, the newest first.",
        answer=record({"requests": several({"type": "object"})}),
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/v1/fleet/requests/{request}",
        get_fleet_run,
        "How far a request to any host got, with its events after position 'after'. Waits for one.",
        query={
            "after": {"type": "integer", "minimum": 0},
            "wait": {"type": "number", "minimum": 0, "maximum": 60},
        },
        answer={"type": "object"},
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/v1/fleet/requests/{request}/cancel",
        post_fleet_run_cancel,
        "End a request to any host. The host that runs it stops.",
        body=record({}),
        answer={"type": "object"},
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/v1/fleet/hosts/{host}/request",
        post_fleet_request,
        "Send a request to the boss of another host; 'answer' is what that one answers.",
        body=record(
            {
                "method": {"type": "string", "enum": ["GET", "POST"]},
                "path": {"type": "string", "maxLength": 4000},
                "timeout": {"type": "number", "minimum": 0, "maximum": _LONGEST},
            },
            {"body": nullable({"type": "object"})},
        ),
        answer=record({"answer": nullable(ANYTHING)}),
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/v1/fleet/hosts/{host}/sessions/{session}/messages",
        post_fleet_message,
        "Send a message to a session of another host. The hub has it on its disk when this answers.",
        body=record({"prompt": TEXT}, {"options": record({}, _OPTIONS), "sender": _SENDER}),
        answer=_RECEIPT,
        errors=_ERRORS,
        limit=EVENT_BYTES,
    ),
    Route(
        "GET",
        "/v1/fleet/hosts/{host}/sessions/{session}/messages",
        get_fleet_messages,
        "Messages that were sent from here to a session of another host, and that it has not taken.",
        answer=record({"messages": several(_RECEIPT)}),
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/v1/fleet/messages/{message}",
        get_fleet_message,
        "The receipt of a message that was sent from here. Waits for more than 'steps' steps.",
        query={
            "wait": {"type": "number", "minimum": 0, "maximum": 60},
            "steps": {"type": "integer", "minimum": 0, "maximum": 1000},
        },
        answer=_RECEIPT,
        errors=_ERRORS,
    ),
)
