"""Conversations, changes in git, states, usage and statistics. All are read in threads."""

from __future__ import annotations

import asyncio
import os
from itertools import chain
from typing import Any

from remuda.boss.attention.display import label
from remuda.boss.attention.model import BossSession, Origin
from remuda.boss.conversation_page import read_page, reader_of, transcript_of
from remuda.boss.git_changes import find_changes
from remuda.boss.ports import BossParts
from remuda.boss.state_history import segments
from remuda.boss.statistics import RANGES, begin_of, permissions, states_over_time, waits
from remuda.boss.usage_report import Prices, group_usage, usage_over_time
from remuda.config import load_own_config
from remuda.errors import InvalidOptions, NotInQueue, NotSafe, RemudaError, SessionNotFound
from remuda.keeper.record import SessionRecord
from remuda.keeper.worktree import Worktree
from remuda.names import is_name
from remuda.paths import SessionPaths, sessions_folder
from remuda.pool.pool_connection import default_socket
from remuda.pool.pool_connection import request as request_pool
from remuda.tasks import in_thread
from remuda.untrusted import bounded, finite

from . import page_schema as shapes
from .route import ApiRequest, ApiResponse, Route
from .schema import LIMIT, TIME

_DEFAULT_USAGE = 30 * 86400.0
_FOLDERS = 20
_POOL_TIMEOUT = 2.0
_CLOCKS_DIFFER = 1.0

# ── conversation ──


async def get_conversation(boss: BossParts, request: ApiRequest) -> ApiResponse:
    session = boss.service.session(request.path["session"])
    found: dict[str, Any] = {
        "conversation": session.id,
        "entries": [],
        "before": None,
        "after": None,
        "note": None,
    }
    reader, path = reader_of(session), await asyncio.to_thread(transcript_of, session)
    if reader is None:
        found |= {"conversation": None, "note": f"{session.agent} does not record its conversation"}
    elif path is None:
        found["note"] = "the conversation has no record yet"
    else:
        limit = int(request.query.get("limit", 100))
        before, after = request.query.get("before"), request.query.get("after")
        try:
            page = await asyncio.to_thread(
                read_page, reader, path, session.id, limit, before=before, after=after
            )
        except OSError as error:
            found["note"] = f"the record cannot be read: {error.strerror}"
        else:
            found |= {"entries": page.entries, "before": page.before, "after": page.after}
    return ApiResponse(bounded(found))


async def get_changes(boss: BossParts, request: ApiRequest) -> ApiResponse:
    session = boss.service.session(request.path["session"])
    base = str(request.query.get("base", "start"))
    # A thread of its own: a repository can make git wait until its timeout.
    changes = await in_thread(
        lambda _: find_changes(session.cwd, base, session.first_seen, _start_commit(session))
    )
    return ApiResponse(bounded(changes))


def _start_commit(session: BossSession) -> str | None:
    """Return the commit that the session's own worktree began at."""
    if session.origin is not Origin.KEPT or not session.name or not is_name(session.name):
        return None
    record = SessionRecord.load(SessionPaths.of(session.name).record)
    made = Worktree.read(record.worktree) if record is not None else None
    return made.commit if made is not None else None


# ── states ──


async def get_states(boss: BossParts, request: ApiRequest) -> ApiResponse:
    return await _states(boss, request, None)


async def get_session_states(boss: BossParts, request: ApiRequest) -> ApiResponse:
    return await _states(boss, request, boss.service.session(request.path["session"]).id)


async def _states(boss: BossParts, request: ApiRequest, session_id: str | None) -> ApiResponse:
    await boss.service.write_states()
    now = boss.service.clock()
    since = now - float(request.query.get("hours", 8)) * 3600
    figures = boss.service.store.figures
    changes = await asyncio.to_thread(figures.state_changes, since, now, session_id)
    sessions = list(segments(changes, since, now))
    return ApiResponse({"from": since, "to": now, "sessions": sessions, "cut": figures.is_cut(changes)})


# ── usage ──


def _prices() -> Prices:
    """Read the prices from the user's own file; one in a working folder cannot set them."""
    try:
        config = load_own_config(os.environ)
    except RemudaError:  # commands report what is wrong with it
        return Prices()
    return Prices(config.currency, config.prices)


async def get_usage(boss: BossParts, request: ApiRequest) -> ApiResponse:
    now = boss.service.clock()
    by = str(request.query.get("by", "session"))
    until = float(request.query.get("until", now))
    since = float(request.query.get("since", until - _DEFAULT_USAGE))
    word, name = request.query.get("session"), request.query.get("kept")
    if by == "turn" and word is None:
        raise InvalidOptions("by=turn needs 'session'")
    session_id = boss.service.session(str(word)).id if word is not None else None

    def read() -> dict[str, Any]:
        prices, figures = _prices(), boss.service.store.figures
        if name is None:
            rows = figures.usage(since, until, session_id)
        else:
            ids = sorted(_conversations(boss, str(name)))
            rows = chain.from_iterable(figures.usage(since, until, one) for one in ids)
        groups, total, is_cut = group_usage(rows, by, prices, int(request.query.get("limit", 100)))
        return {"rows": groups, "total": total, "cut": is_cut, "currency": prices.currency}

    found = await asyncio.to_thread(read)
    for row in found["rows"]:
        row["label"] = _label(boss, row)
    unknown = [_name(one) for one in boss.service.sessions() if one.ended is None and reader_of(one) is None]
    return ApiResponse(
        bounded({"by": by, "since": since, "until": until, **found, "unknown": sorted(set(unknown))[:100]})
    )


def _conversations(boss: BossParts, name: str) -> set[str]:
    """Return the ids of all conversations of a kept session: `/clear` and a resume begin new ones."""
    record = SessionRecord.load(SessionPaths(sessions_folder(), name).record) if is_name(name) else None
    if record is None:
        raise SessionNotFound(f"session '{name}' not found", hint="'remuda ls' lists all")
    # Another session had that name before. This one may be seen a moment before its keeper notes its start.
    since = finite(record.first_started_at or record.started_at) - _CLOCKS_DIFFER
    current = record.conversation.get("session_id")
    known = set(boss.service.store.figures.conversations(name, since))
    return known | ({current} if isinstance(current, str) else set())


async def get_budget(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    if boss.service.budgets is None:
        raise NotSafe("the boss does not count budgets", hint="'remuda boss status' says why")
    return ApiResponse(bounded(await boss.service.budgets.document()))


def _label(boss: BossParts, row: dict[str, Any]) -> str | None:
    if row["session_id"] is None:
        return None
    try:
        return _name(boss.service.session(row["session_id"]))
    except (NotInQueue, InvalidOptions):
        return label(None, row["folder"], row["session_id"])


def _name(session: BossSession) -> str:
    return label(session.name, session.repo or session.cwd, session.id)


# ── statistics ──


async def get_statistics(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await boss.service.write_states()
    name = str(request.query.get("range", "day"))
    length, step = RANGES[name]
    until = boss.service.clock()
    since = begin_of(until, length, step)
    return ApiResponse(bounded(await asyncio.to_thread(_statistics, boss, name, since, until, step)))


def _statistics(boss: BossParts, name: str, since: float, until: float, step: float) -> dict[str, Any]:
    figures, prices = boss.service.store.figures, _prices()
    waited, asked = figures.waits(since, until), figures.permissions(since, until)
    rows = list(figures.usage(since, until))
    models, _, _ = group_usage(rows, "model", prices, _FOLDERS)
    folders, _, more_folders = group_usage(rows, "folder", prices, _FOLDERS)
    return {
        "range": name,
        "from": since,
        "to": until,
        "step": step,
        "states": states_over_time(figures.state_times(since, until), since, until, step),
        "waits": waits(waited, since, step),
        "usage": {
            "currency": prices.currency,
            "models": models,
            "folders": folders,
            "over_time": usage_over_time(rows, prices, since, step),
        },
        "permissions": permissions(asked),
        "pool": _pool(),
        "known_since": figures.first_state_time(),
        "cut": more_folders or figures.is_cut(waited) or figures.is_cut(asked),
    }


def _pool() -> dict[str, int] | None:
    """Ask the pool at the usual place, if one runs."""
    path = default_socket()
    if not os.path.exists(path):
        return None
    try:
        status = request_pool(path, {"type": "status"}, silence_timeout=_POOL_TIMEOUT).get("status") or {}
        pool = status.get("pool") or {}
        return {"requests": int(pool["handovers"]), "warm_hits": int(pool["warm_hits"])}
    except (RemudaError, OSError, EOFError, KeyError, TypeError, ValueError):
        return None


_HOURS = {"type": "number", "minimum": 0.1, "maximum": 24}
_ONE = (400, 404)

ROUTES = (
    Route(
        "GET",
        "/v1/sessions/{session}/conversation",
        get_conversation,
        "A page of the conversation as the agent recorded it: the newest, or that before or after a cursor.",
        query={
            "limit": {"type": "integer", "minimum": 1, "maximum": 500},
            "before": shapes.CURSOR,
            "after": shapes.CURSOR,
        },
        answer=shapes.CONVERSATION,
        errors=_ONE,
    ),
    Route(
        "GET",
        "/v1/sessions/{session}/changes",
        get_changes,
        "What changed in the git folder of an agent since it began, or since another base.",
        query={"base": {"type": "string", "enum": list(shapes.BASES)}},
        answer=shapes.CHANGES,
        errors=_ONE,
    ),
    Route(
        "GET",
        "/v1/sessions/{session}/states",
        get_session_states,
        "The states of an agent in the last 'hours' (default 8) as segments.",
        query={"hours": _HOURS},
        answer=shapes.STATES,
        errors=_ONE,
    ),
    Route(
        "GET",
        "/v1/states",
        get_states,
        "The states of all agents in the last 'hours' (default 8) as segments.",
        query={"hours": _HOURS},
        answer=shapes.STATES,
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/usage",
        get_usage,
        "Tokens and cost in groups (default by session), of the last 30 days or of another time.",
        query={
            "by": {"type": "string", "enum": list(shapes.BY)},
            "since": TIME,
            "until": TIME,
            "session": {"type": "string", "minLength": 1, "maxLength": 256},
            "kept": {"type": "string", "minLength": 1, "maxLength": 256},
            "limit": LIMIT,
        },
        answer=shapes.USAGE,
        errors=_ONE,
    ),
    Route(
        "GET",
        "/v1/budget",
        get_budget,
        "The limits of budget.toml, and what is used of each.",
        answer=shapes.BUDGET,
        errors=(409,),
    ),
    Route(
        "GET",
        "/v1/statistics",
        get_statistics,
        "Figures over a day (default), a week or a month.",
        query={"range": {"type": "string", "enum": list(shapes.RANGES)}},
        answer=shapes.STATISTICS,
        errors=(400,),
    ),
)
