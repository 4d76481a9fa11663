"""Trail Boss's endpoints, as its emitters, detector and clients know them. Times are milliseconds."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.admission.credentials import load_token
from remuda.boss.attention.model import BossSession, Event, EventKind, Item, Reason, Source
from remuda.boss.ports import BossParts
from remuda.durable import replace_file
from remuda.errors import FolderUnusable, InvalidOptions, RemudaError
from remuda.untrusted import BadJson, parse_object

from .event_routes import read_hook
from .route import EVENT_BYTES, ApiRequest, ApiResponse, Route
from .schema import ANYTHING, ID, PAYLOAD, TEXT, Schema, check

log = logging.getLogger("remuda.boss.http.trail_boss")

_PANE = re.compile(r"%[0-9]{1,9}")
_SHOWN = 50
_NO_MESSAGE = "[no message]"
_PERMISSION = "[permission request]"
_EMPTY = "queue empty"
_ASKING = (Reason.PERMISSION, Reason.QUESTION, Reason.PLAN)
_LONGEST = 100
_NOT_TAKEN = ("pid", "name", "tmux", "entrypoint", "title")
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


async def post_event(boss: BossParts, request: ApiRequest) -> ApiResponse:
    """Take the input of a hook, with the pane in a header."""
    pane = request.headers.get("x-tmux-pane", "")
    if not pane:
        raise InvalidOptions("Missing X-Tmux-Pane header")
    if not _PANE.fullmatch(pane):
        raise InvalidOptions("Invalid X-Tmux-Pane header")
    payload = _parsed(request.body)
    check(payload, PAYLOAD, "the payload")
    events = await read_hook(payload, boss.service.clock(), env={"TMUX_PANE": pane})
    await boss.service.take(*map(_hearsay, events))
    return ApiResponse({"ok": True})


def _hearsay(event: Event) -> Event:
    """Mark an event as hearsay: others can see the token, so no rule decides such a request, and the agent's
    own report counts more. A transcript that it names is read only if it is the user's own; no process that
    it names is looked at.
    """
    kept = {name: value for name, value in event.facts.items() if name not in _NOT_TAKEN}
    return replace(event, facts={**kept, "hearsay": True})


async def post_normalized(boss: BossParts, request: ApiRequest) -> ApiResponse:
    event = _parsed(request.body)
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise InvalidOptions("Missing or invalid event type")
    check(event, _schema(kind), "the event")
    await boss.service.take(_hearsay(_normalized(kind, event)))
    return ApiResponse({"ok": True})


def _normalized(kind: str, event: dict[str, Any]) -> Event:
    meant = _KINDS[kind]
    if event.get("reason") == "permission" and kind == "stuck":
        meant = EventKind.ASKED
    names = {"paneId": "pane", "cwd": "cwd", "transcriptPath": "transcript_path", "message": "message"}
    facts = {ours: event[theirs] for theirs, ours in names.items() if event.get(theirs)}
    if meant is EventKind.ASKED:
        facts["reason"] = "permission"
    at = event["timestamp"] / 1000
    event_id = f"normalized:{kind}:{at}"
    return Event(
        meant, event["sessionId"], at, Source.HOOK, event_id, facts | {"agent": "other", "origin": "tmux"}
    )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        return parse_object(body)
    except BadJson as error:
        raise InvalidOptions("Invalid JSON", hint=str(error)) from None


# ── the queue ──


async def get_next(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    return ApiResponse(_next(boss, _EMPTY))


async def post_skip(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    if (first := _first(boss)) is None:
        return ApiResponse(_next(boss, _EMPTY))
    await boss.service.skip(first[0].id)
    return ApiResponse(_next(boss, "queue empty after skip"))


def _next(boss: BossParts, otherwise: str) -> dict[str, Any]:
    first = _first(boss)
    if first is None:
        return {"paneId": None, "reason": otherwise}
    item, session = first
    return {"paneId": session.pane, "sessionId": item.session_id, "reason": None}


def _first(boss: BossParts) -> tuple[Item, BossSession] | None:
    return next(iter(_in_panes(boss)), None)


def _in_panes(boss: BossParts) -> list[tuple[Item, BossSession]]:
    """Return the items of sessions in panes: Trail Boss's clients know no others."""
    items = [(item, boss.service.session(item.session_id)) for item in boss.service.queue()]
    return [(item, session) for item, session in items if session.pane]


async def get_queue(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    items = _in_panes(boss)
    return ApiResponse({"items": [_item(*one) for one in items[:_SHOWN]], "count": len(items)})


def _item(item: Item, session: BossSession) -> dict[str, Any]:
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
    tool_input = json.dumps(item.detail.get("input"), ensure_ascii=False, separators=(",", ":"))
    cut = tool_input if len(tool_input) <= _LONGEST else tool_input[: _LONGEST - 3] + "..."
    return f"[{item.detail['tool']}] {cut}"


async def get_status(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    return ApiResponse({"status": "ok", "stuckCount": len(_in_panes(boss))})


def refused(path: str, why: str) -> dict[str, Any] | None:
    """Return the error for a client without the token, in the shape that it reads; None for other paths.

    Its clients ignore the status: they would show a queue without items as "all clear".
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


# ── the token ──


class TokenFile:
    """The token that Trail Boss's own clients carry in their address. Read again when its file has changed.

    They cannot send headers. In a path other processes of the user may see the token, so it is good for Trail
    Boss's endpoints alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._seen: tuple[int, int] | None = None

    def load(self) -> str:
        """Return the token; create it if it is missing. Raises `FolderUnusable`, `InvalidOptions`."""
        return load_token(self._path)

    def current(self) -> str:
        """Return the current token; empty, which matches nothing, if the file is missing or unusable."""
        try:
            status = os.stat(self._path)
        except OSError:
            self._token, self._seen = "", None
            return ""
        seen = (status.st_ino, status.st_mtime_ns)
        if seen != self._seen:
            try:
                self._token = load_token(self._path)
            except RemudaError as error:
                log.warning("clients of Trail Boss are refused: %s", error)
                self._token = ""
            self._seen = seen
        return self._token

    def renew(self) -> str:
        """Replace the token: the old one is no longer valid."""
        try:
            replace_file(self._path, secrets.token_urlsafe(32).encode() + b"\n")
        except OSError as error:
            raise FolderUnusable(f"cannot write {self._path}: {error.strerror}") from error
        return self.load()
