"""Keys and status line of tmux. Handled in the boss, where everything is loaded, because a user waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from remuda.boss.navigator import Item, QueueNavigator, label, navigation_text
from remuda.boss.ports import BossParts
from remuda.errors import InvalidOptions, NotInQueue, RemudaError, TmuxError
from remuda.tmux.address import Address
from remuda.tmux.bindings import segment
from remuda.tmux.command import Tmux, literal
from remuda.untrusted import one_line

from . import elsewhere
from .queue_routes import item_document, waiting
from .route import ApiRequest, ApiResponse, Route
from .schema import NUMBER, TEXT, nullable, record

_NAME = {"type": "string", "minLength": 1, "maxLength": 1024}


class _ServiceQueue:
    """The queue, for a thread outside of the event loop."""

    def __init__(self, boss: BossParts) -> None:
        self._boss = boss
        self._loop = asyncio.get_running_loop()

    def waiting(self) -> list[Item]:
        async def look() -> list[Item]:
            return [*await waiting(self._boss)]

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result()

    def skip(self, item_id: str, cooldown: float | None) -> Item:
        async def skip() -> Item:
            if (there := elsewhere.split(self._boss, item_id)) is not None:
                host, item = there
                body = {} if cooldown is None else {"cooldown": cooldown}
                path = f"/v1/queue/{quote(item, safe='')}/skip"
                skipped: Item = await elsewhere.ask(self._boss, host, "POST", path, body)
                return skipped
            return item_document(self._boss, await self._boss.service.skip(item_id, cooldown or 30.0))

        return asyncio.run_coroutine_threadsafe(skip(), self._loop).result()


async def post_navigate(boss: BossParts, request: ApiRequest) -> ApiResponse:
    path, client, action = request.body["tmux"], request.body["client"], request.body["action"]
    if not os.path.isabs(path) or "\0" in path + client:
        raise InvalidOptions(
            "'tmux' must be the path of a tmux socket, and 'client' the name of a tmux client"
        )
    navigator = QueueNavigator(_ServiceQueue(boss), os.environ, client, Address.of(path))
    return ApiResponse({"told": await asyncio.to_thread(_press, navigator, client, _ACTIONS[action])})


def _press(navigator: QueueNavigator, client: str, action: Callable[[QueueNavigator], str]) -> str:
    """Do it, and show the result or the error in the status line of the client."""
    tmux = navigator.tmux(navigator.here)
    try:
        text = action(navigator)
    except RemudaError as error:
        _tell(tmux, client, str(error))
        raise
    if text:
        _tell(tmux, client, text)
    return text


def _tell(tmux: Tmux, client: str, text: str) -> None:
    # tmux expands formats and strftime in it.
    shown = literal(one_line(text)).replace("%", "%%")
    try:
        tmux.command("display-message", "-c", client, "--", shown)
    except TmuxError:
        pass  # the client of the user is gone


def _next(navigator: QueueNavigator) -> str:
    return navigation_text(navigator.next())


def _skip(navigator: QueueNavigator) -> str:
    """Skip this item and go to the next one."""
    skipped = label(navigator.skip())
    try:
        return f"skipped {skipped}; {navigation_text(navigator.next())}"
    except NotInQueue:
        return f"skipped {skipped}; no other agent is waiting"


def _return(navigator: QueueNavigator) -> str:
    navigator.back()
    return ""


_ACTIONS: dict[str, Callable[[QueueNavigator], str]] = {"next": _next, "skip": _skip, "return": _return}


async def get_segment(boss: BossParts, _request: ApiRequest) -> ApiResponse:
    shown, now = boss.service.queue(), boss.service.clock()
    listed, _ = await elsewhere.others(boss)
    there = elsewhere.items(listed, now, hidden=False)
    first = min((*(one.place for one in shown[:1]), *map(elsewhere.place, there)), default=None)
    count, age = len(shown) + len(there), None if first is None else now - first[0]
    document: dict[str, Any] = {"waiting": count, "age": age, "text": segment(count, age)}
    return ApiResponse(document)


ROUTES = (
    Route(
        "POST",
        "/v1/navigate",
        post_navigate,
        "What a tmux key does: move the client to the next waiting agent, skip this one, or go back.",
        body=record({"action": {"type": "string", "enum": sorted(_ACTIONS)}, "client": _NAME, "tmux": _NAME}),
        answer=record({"told": TEXT}),
        errors=(400, 403, 404, 413, 415, 502, 504, 507),
    ),
    Route(
        "GET",
        "/v1/segment",
        get_segment,
        "The status line: how many agents are waiting, and how long the first has waited.",
        answer=record({"waiting": {"type": "integer"}, "age": nullable(NUMBER), "text": TEXT}),
    ),
)
