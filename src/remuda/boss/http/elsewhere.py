"""Sessions, items and requests of other hosts in `/v1`, for clients that show all hosts.

Their ids are `HOST:ID`. A request about such an id goes to the boss of that host, and ids in its answer get
the same form. So a client uses the same paths for all hosts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

from remuda.boss.ports import BossParts
from remuda.errors import RemudaError

from .route import ApiRequest, ApiResponse, Route

Document = dict[str, Any]

HUB = ("connected", "since", "error")
_WORD = re.compile(r"([a-z0-9][a-z0-9-]{0,31}):(.+)", re.DOTALL)
_TIMEOUT = 60.0
_LIST_TIMEOUT = 5.0
_LOOKS, _LOOK_INTERVAL = 50, 0.02
_QUEUE_CHANGE = re.compile(r"/v1/queue/([^/]+)/")
_PUT_OFF = ("skip_until", "skipped_at", "snooze_until")
_PLACE = re.compile(r"\{(\w+)\}")


def split(boss: BossParts, word: str) -> tuple[str, str] | None:
    """Return the host and the id there; None for an id of this machine."""
    found = _WORD.fullmatch(word)
    if found is None or boss.fleet is None or not boss.fleet.is_other(found[1]):
        return None
    return found[1], found[2]


async def forward(boss: BossParts, route: Route, request: ApiRequest) -> ApiResponse | None:
    """Let another host answer a request that names something of it. None for one of this machine.

    Raises as `Fleet.request`.
    """
    words = request.path
    if boss.fleet is None or not any(":" in one for one in words.values()):
        return None
    places = {name: split(boss, word) for name, word in words.items()}
    hosts = {found[0] for found in places.values() if found is not None}
    if len(hosts) != 1:
        return None
    (host,) = hosts
    meant = {name: found[1] if (found := places[name]) else words[name] for name in words}
    path = _PLACE.sub(lambda one: quote(meant[one[1]], safe=""), route.path)
    if request.query_string:
        path += f"?{request.query_string}"
    return ApiResponse(await ask(boss, host, route.method, path, request.body))


async def ask(
    boss: BossParts,
    host: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None,
    timeout: float = _TIMEOUT,  # noqa: ASYNC109
) -> Any:
    """Ask the boss of another host; ids in its answer have the form that they have here.

    Returns when the queue here has a change of its queue: a user who put an item off asks for the next one.
    """
    assert boss.fleet is not None
    changed = _QUEUE_CHANGE.match(path) if method == "POST" else None
    item_id = f"{host}:{unquote(changed[1])}" if changed else ""
    before = await _put_off(boss, item_id) if changed else None
    answer = _named(host, await boss.fleet.request(host, method, path, body, timeout))
    for _ in range(_LOOKS if changed else 0):
        if await _put_off(boss, item_id) != before:
            break
        await asyncio.sleep(_LOOK_INTERVAL)
    return answer


async def _put_off(boss: BossParts, item_id: str) -> list[Any] | None:
    """Return what the list here says of an item that was put off; None if it is not there."""
    listed, _ = await others(boss)
    found = (item for _, item in listed if item is not None and item["id"] == item_id)
    return next(([item[name] for name in _PUT_OFF] for item in found), None)


async def approvals(
    boss: BossParts, query: Mapping[str, Any], *, only_open: bool
) -> tuple[list[Document], dict[str, str]]:
    """Return the permission requests of other hosts, and why some hosts did not send theirs."""
    listed, _ = await others(boss, only_waiting=only_open)
    hosts = {str(session["host"]) for session, _ in listed if session["reachable"]}
    path = "/v1/approvals?" + urlencode(query)

    async def look(host: str) -> list[Document] | str:
        try:
            found: list[Document] = (await ask(boss, host, "GET", path, None, _LIST_TIMEOUT))["approvals"]
        except RemudaError as error:
            return str(error)
        return found

    names = sorted(hosts)
    answers = dict(zip(names, await asyncio.gather(*map(look, names)), strict=True))
    found = [one for answer in answers.values() if not isinstance(answer, str) for one in answer]
    away = {str(session["host"]) for session, item in listed if item and item["detail"].get("ask")} - hosts
    failed = {host: answer for host, answer in answers.items() if isinstance(answer, str)}
    return found, failed | dict.fromkeys(sorted(away), "it cannot be reached")


def _named(host: str, value: Any) -> Any:
    """Give ids of sessions, items and requests the form that they have here."""
    if isinstance(value, list):
        return [_named(host, one) for one in value]
    if not isinstance(value, dict):
        return value
    whole = {name: _named(host, one) for name, one in value.items()}
    if "session_id" in whole and "id" in whole:
        whole |= {"id": f"{host}:{whole['id']}", "session_id": f"{host}:{whole['session_id']}", "host": host}
        detail = whole.get("detail")
        if isinstance(detail, dict) and isinstance(detail.get("ask"), str):
            whole["detail"] = {**detail, "ask": f"{host}:{detail['ask']}"}
    elif "agent_state" in whole and "id" in whole:
        whole |= {"id": f"{host}:{whole['id']}", "host": host}
    return whole


# ── lists ──


Listed = list[tuple[Document, Document | None]]
"""Sessions of other hosts with their items, as the lists of this boss have its own."""


async def others(
    boss: BossParts, *, only_waiting: bool = True, wait: bool = False
) -> tuple[Listed, Document | None]:
    """Return those of other hosts, and the connection to the hub; None without a fleet.

    `wait`: a moment for the connection to the hub.
    """
    if boss.fleet is None:
        return [], None
    found = await boss.fleet.sessions(wait=wait, only_waiting=only_waiting)
    return [shown(one) for one in found["sessions"]], {name: found[name] for name in HUB}


def items(listed: Listed, now: float, *, hidden: bool) -> list[Document]:
    found = [item for _, item in listed if item is not None]
    return [one for one in found if hidden or max(one["skip_until"] or 0, one["snooze_until"] or 0) <= now]


def place(item: Mapping[str, Any]) -> tuple[float, str]:
    """Return the sort key of the queue, as `Item.place`."""
    return max(item["since"], item["skipped_at"] or 0.0), item["id"]


_SESSION: Document = {
    "origin": "kept",
    "agent": "unknown",
    "state": "idle",
    "agent_state": None,
    "since": 0.0,
    "first_seen": 0.0,
    "last_seen": 0.0,
    "label": "",
    "degraded": [],
    "cut": [],
    **dict.fromkeys(("name", "pane", "tmux", "pid", "cwd", "repo", "transcript_path", "entrypoint")),
    **dict.fromkeys(("title", "ended", "replaced_by", "source", "detail", "last_message")),
    **dict.fromkeys(("messages_waiting", "tokens")),
}
_ITEM: Document = {
    "reason": "stopped",
    "since": 0.0,
    "message": "",
    "detail": {},
    "cut": [],
    **dict.fromkeys(("skip_until", "skipped_at", "snooze_until", "resolved_at", "resolution", "decision")),
}


def shown(one: Mapping[str, Any]) -> tuple[Document, Document | None]:
    """Return a session of another host and its item. One that cannot be reached is never shown as idle."""
    host, reachable = str(one["host"]), bool(one["reachable"])
    session: Document = _named(host, {**_SESSION, **one["session"]})
    session |= {"reachable": reachable, "unreachable_since": one["unreachable_since"]}
    if not reachable:
        session |= {"agent_state": "unreachable", "since": one["unreachable_since"]}
    if one["item"] is None:
        return session, None
    item = _named(host, {"id": one["session"]["id"], **_ITEM, "session_id": "", **one["item"]})
    return session, {**item, "session": session}
