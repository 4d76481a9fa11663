"""Trail Boss's endpoints, as its emitters, detector and clients know them. Times are milliseconds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from remuda.boss.attention.model import Event, EventKind, Item, Reason, Session, Source
from remuda.boss.ports import Boss
from remuda.errors import InvalidOptions
from remuda.untrusted import BadJson, parse_object

from .events import read_hook
from .route import EVENT_BYTES, Call, Reply, Route
from .schema import ANYTHING, ID, PAYLOAD, TEXT, Schema, check

_PANE = re.compile(r"%[0-9]{1,9}")
_SHOWN = 50
_NO_MESSAGE = "[no message]"
_PERMISSION = "[permission request]"
_EMPTY = "queue empty"
_ASKING = (Reason.PERMISSION, Reason.QUESTION, Reason.PLAN)
_LONGEST = 100
_NOT_TAKEN = ("transcript_path", "pid", "name", "tmux", "entrypoint", "title")
_KINDS = {
    "stuck": EventKind.STOPPED,
    "unstuck": EventKind.PROMPTED,
    "registered": EventKind.REGISTERED,
    "ended": EventKind.ENDED,
}
_MILLISECONDS = {"type": "number", "minimum": 1, "maximum": 2e13}
_OPTIONAL = {"cwd": TEXT, "transcriptPath": TEXT, "message": TEXT}
_PANE_ID = {"type": "string", "pattern": "^%[0-9]{1,9}$"}
_STUCK = {
    "sessionId": ID,
    "paneId": _PANE_ID,
    "reason": {"type": "string", "enum": ["stopped", "permission"]},
}
_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stuck": ({**_STUCK, "timestamp": _MILLISECONDS}, _OPTIONAL),
    "unstuck": ({"sessionId": ID, "timestamp": _MILLISECONDS}, {}),
    "registered": ({"sessionId": ID, "paneId": _PANE_ID, "timestamp": _MILLISECONDS}, _OPTIONAL),
    "ended": ({"sessionId": ID, "timestamp": _MILLISECONDS}, {}),
}


def _schema(kind: str) -> Schema:
    required, optional = _FIELDS[kind]
    names = {"type": {"type": "string", "enum": [kind]}, **required}
    return {
        "type": "object",
        "properties": {**names, **optional},
        "required": list(names),
        "additionalProperties": True,
    }


async def post_event(boss: Boss, call: Call) -> Reply:
    """What a hook was given, with the pane in a header."""
    pane = call.headers.get("x-tmux-pane", "")
    if not pane:
        raise InvalidOptions("Missing X-Tmux-Pane header")
    if not _PANE.fullmatch(pane):
        raise InvalidOptions("Invalid X-Tmux-Pane header")
    payload = _parsed(call.body)
    check(payload, PAYLOAD, "the payload")
    events = await read_hook(payload, boss.desk.clock(), env={"TMUX_PANE": pane})
    await boss.desk.take(*map(_hearsay, events))
    return Reply({"ok": True})


def _hearsay(event: Event) -> Event:
    """Others can see its token: no rule answers what is asked so, and the agent's own word counts more.

    No file and no process that it names is looked at.
    """
    kept = {name: one for name, one in event.facts.items() if name not in _NOT_TAKEN}
    return replace(event, facts={**kept, "hearsay": True})


async def post_normalized(boss: Boss, call: Call) -> Reply:
    event = _parsed(call.body)
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise InvalidOptions("Missing or invalid event type")
    check(event, _schema(kind), "the event")
    await boss.desk.take(_hearsay(_normalized(kind, event)))
    return Reply({"ok": True})


def _normalized(kind: str, event: dict[str, Any]) -> Event:
    meant = _KINDS[kind]
    if event.get("reason") == "permission" and kind == "stuck":
        meant = EventKind.ASKED
    names = {"paneId": "pane", "cwd": "cwd", "transcriptPath": "transcript_path", "message": "message"}
    facts = {ours: event[theirs] for theirs, ours in names.items() if event.get(theirs)}
    if meant is EventKind.ASKED:
        facts["reason"] = "permission"
    at = event["timestamp"] / 1000
    number = f"normalized:{kind}:{at}"
    return Event(
        meant, event["sessionId"], at, Source.HOOK, number, facts | {"agent": "other", "origin": "tmux"}
    )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        return parse_object(body)
    except BadJson as error:
        raise InvalidOptions("Invalid JSON", hint=str(error)) from None


# ── the queue ──


async def get_next(boss: Boss, _call: Call) -> Reply:
    await boss.desk.settled()
    return Reply(_next(boss, _EMPTY))


async def post_skip(boss: Boss, _call: Call) -> Reply:
    if (first := _first(boss)) is None:
        return Reply(_next(boss, _EMPTY))
    await boss.desk.skip(first[0].id)
    return Reply(_next(boss, "queue empty after skip"))


def _next(boss: Boss, otherwise: str) -> dict[str, Any]:
    first = _first(boss)
    if first is None:
        return {"paneId": None, "reason": otherwise}
    item, session = first
    return {"paneId": session.pane, "sessionId": item.session_id, "reason": None}


def _first(boss: Boss) -> tuple[Item, Session] | None:
    return next(iter(_in_panes(boss)), None)


def _in_panes(boss: Boss) -> list[tuple[Item, Session]]:
    """Its clients know of panes alone."""
    found = [(item, boss.desk.session(item.session_id)) for item in boss.desk.queue()]
    return [(item, session) for item, session in found if session.pane]


async def get_queue(boss: Boss, _call: Call) -> Reply:
    await boss.desk.settled()
    found = _in_panes(boss)
    return Reply({"items": [_item(*one) for one in found[:_SHOWN]], "count": len(found)})


def _item(item: Item, session: Session) -> dict[str, Any]:
    return {
        "id": int(item.id, 16),
        "session_id": item.session_id,
        "pane_id": session.pane,
        "cwd": session.cwd or "",
        "reason": "permission" if item.reason in _ASKING else "stopped",
        "last_message": _message(item),
        "stuck_at": round(item.since * 1000),
        "skip_cooldown_until": round(item.skip_until * 1000) if item.skip_until else None,
    }


def _message(item: Item) -> str:
    if not item.detail.get("tool"):
        return item.message or (_PERMISSION if item.reason in _ASKING else _NO_MESSAGE)
    given = json.dumps(item.detail.get("input"), ensure_ascii=False, separators=(",", ":"))
    cut = given if len(given) <= _LONGEST else given[: _LONGEST - 3] + "..."
    return f"[{item.detail['tool']}] {cut}"


async def get_status(boss: Boss, _call: Call) -> Reply:
    return Reply({"status": "ok", "stuckCount": len(_in_panes(boss))})


def refused(path: str, why: str) -> dict[str, Any] | None:
    """What a client is told that is not let in, in the shape that it reads; None for other paths.

    Its clients do not look at the status: a queue without items would be "all clear" to them.
    """
    if path in ("/next", "/skip"):
        return {"error": why, "paneId": None, "reason": f"refused: {why}"}
    if path == "/queue":
        item = {
            "id": 0, "session_id": "refused", "pane_id": "", "cwd": "", "reason": "permission",
            "last_message": f"refused: {why}", "stuck_at": 0, "skip_cooldown_until": None,
        }  # fmt: skip
        return {"error": why, "items": [item], "count": 1}
    return {"error": why} if path in ("/status", "/event", "/event/normalized") else None


_OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
_TEXT_OF = "Trail Boss: "

ROUTES = (
    Route(
        "POST",
        "/event",
        post_event,
        f"{_TEXT_OF}report the input of a hook, with the pane in X-Tmux-Pane.",
        body=PAYLOAD,
        answer=_OK,
        errors=(400, 413, 507),
        limit=EVENT_BYTES,
        old=True,
        token_in_path=True,
    ),
    Route(
        "POST",
        "/event/normalized",
        post_normalized,
        f"{_TEXT_OF}report stuck, unstuck, registered or ended.",
        body={"anyOf": [_schema(kind) for kind in _FIELDS]},
        answer=_OK,
        errors=(400, 413, 507),
        old=True,
        token_in_path=True,
    ),
    Route("GET", "/next", get_next, f"{_TEXT_OF}the pane to go to.", answer=ANYTHING, old=True),
    Route(
        "POST",
        "/skip",
        post_skip,
        f"{_TEXT_OF}move the first item to the end.",
        answer=ANYTHING,
        errors=(507,),
        old=True,
    ),
    Route("GET", "/queue", get_queue, f"{_TEXT_OF}the queue.", answer=ANYTHING, old=True),
    Route(
        "GET", "/status", get_status, f"{_TEXT_OF}the number of waiting agents.", answer=ANYTHING, old=True
    ),
)
