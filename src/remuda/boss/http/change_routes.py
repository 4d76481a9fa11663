"""Changes as server-sent events, and the health of the boss."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from remuda._version import __version__
from remuda.boss.evidence.limits import limits_and_held
from remuda.boss.feed import Change, Watcher
from remuda.boss.ports import BossParts
from remuda.paths import accounts_folder, sessions_folder
from remuda.untrusted import dump_json

from .brief import MOST
from .queue_routes import change_document
from .route import ApiRequest, ApiResponse, Route
from .schema import LIMITED, NUMBER, TEXT, nullable, record, several

_SILENCE = 15.0
"""After this many seconds without a change a comment shows both ends that the other is alive."""


async def get_stream(boss: BossParts, request: ApiRequest) -> ApiResponse:
    watcher = boss.service.feed.watch(request.headers.get("last-event-id"), is_stream=True)
    return ApiResponse(stream=_lines(boss, watcher, request.login, request.query.get("cut")))


async def _lines(
    boss: BossParts, watcher: Watcher, login: str | None, most: int | None
) -> AsyncIterator[bytes]:
    is_over = asyncio.Event()

    def end() -> None:
        is_over.set()
        watcher.close()

    forget = boss.logins.on_end(login, end) if boss.logins is not None else watcher.close
    try:
        # The first line is not a change: a client that reconnects with its id has missed nothing.
        yield _written(boss, Change(boss.service.feed.last_id, "hello", {"version": __version__}))
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    change = await anext(watcher)
            except TimeoutError:
                yield b": still here\n\n"
            except StopAsyncIteration:
                return
            else:
                if is_over.is_set():  # the login ended: what waited is not for this client any more
                    return
                yield _written(boss, change, most)
    finally:
        forget()
        watcher.close()


def _written(boss: BossParts, change: Change, most: int | None = None) -> bytes:
    data = dump_json(change_document(boss, change.value, most))
    return f"id: {change.id}\nevent: {change.kind}\ndata: {data}\n\n".encode()


async def get_health(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    service = boss.service
    sources = [{"name": one.name, "state": one.state, "error": one.error} for one in boss.sources]
    document: dict[str, Any] = {
        "status": "degraded" if any(one.error for one in boss.sources) else "ok",
        "version": __version__,
        "pid": os.getpid(),
        "uptime": service.clock() - service.started_at,
        "port": boss.port,
        "sessions": sum(session.ended is None for session in service.sessions()),
        "waiting": len(service.queue()),
        "hidden": len(service.queue(hidden=True)) - len(service.queue()),
        "sources": sources,
        "limits": await limits_and_held(accounts_folder(), sessions_folder(), service.clock()),
        "database": str(service.store.path),
        "laid_aside": str(service.store.laid_aside) if service.store.laid_aside else None,
    }
    return ApiResponse(document)


_INTEGER = {"type": "integer"}
_SOURCE = record({"name": TEXT, "state": TEXT, "error": nullable(TEXT)})

ROUTES = (
    Route(
        "GET",
        "/v1/events",
        get_stream,
        "Changes as server-sent events: session, item, approval, message. After 'reset', read all again.",
        query={"cut": MOST},
        media="text/event-stream",
    ),
    Route(
        "GET",
        "/v1/health",
        get_health,
        "The state of the boss and of its sources of events.",
        answer=record(
            {
                "status": {"type": "string", "enum": ["ok", "degraded"]},
                "version": TEXT,
                "pid": _INTEGER,
                "uptime": NUMBER,
                "port": _INTEGER,
                "sessions": _INTEGER,
                "waiting": _INTEGER,
                "hidden": _INTEGER,
                "sources": several(_SOURCE),
                "limits": several(LIMITED),
                "database": TEXT,
                "laid_aside": nullable(TEXT),
            }
        ),
    ),
)
