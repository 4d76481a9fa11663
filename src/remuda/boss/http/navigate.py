"""A key in tmux, and its status line. Done in the boss, where all is loaded: whoever pressed a key waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from remuda.boss.guide import Guide, Item, label, told
from remuda.boss.ports import Boss
from remuda.errors import InvalidOptions, NotInQueue, RemudaError, TmuxError
from remuda.tmux.address import Address
from remuda.tmux.bindings import segment
from remuda.tmux.command import Tmux, literal
from remuda.untrusted import one_line

from .queue import item_document
from .route import Call, Reply, Route
from .schema import NUMBER, TEXT, nullable, record

_NAME = {"type": "string", "minLength": 1, "maxLength": 1024}


class _DeskQueue:
    """The queue, for a thread beside the loop."""

    def __init__(self, boss: Boss) -> None:
        self._boss = boss
        self._loop = asyncio.get_running_loop()

    def waiting(self) -> list[Item]:
        async def look() -> list[Item]:
            await self._boss.desk.settled()
            return [item_document(self._boss, item) for item in self._boss.desk.queue()]

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result()

    def skip(self, number: str, cooldown: float | None) -> Item:
        async def skip() -> Item:
            return item_document(self._boss, await self._boss.desk.skip(number, cooldown or 30.0))

        return asyncio.run_coroutine_threadsafe(skip(), self._loop).result()


async def post_navigate(boss: Boss, call: Call) -> Reply:
    path, client, action = call.body["tmux"], call.body["client"], call.body["action"]
    if not os.path.isabs(path) or "\0" in path + client:
        raise InvalidOptions(
            "'tmux' must be the path of a tmux socket, and 'client' the name of a tmux client"
        )
    guide = Guide(_DeskQueue(boss), os.environ, client, Address.of(path))
    return Reply({"told": await asyncio.to_thread(_press, guide, client, _ACTIONS[action])})


def _press(guide: Guide, client: str, action: Callable[[Guide], str]) -> str:
    """What happened is told in the client's status line, also when it could not be done."""
    tmux = guide.tmux(guide.here)
    try:
        text = action(guide)
    except RemudaError as error:
        _tell(tmux, client, str(error))
        raise
    if text:
        _tell(tmux, client, text)
    return text


def _tell(tmux: Tmux, client: str, text: str) -> None:
    # It is taken for a format, and for one of strftime.
    shown = literal(one_line(text)).replace("%", "%%")
    try:
        tmux.command("display-message", "-c", client, "--", shown)
    except TmuxError:
        pass  # whoever pressed the key has gone


def _next(guide: Guide) -> str:
    return told(guide.next())


def _skip(guide: Guide) -> str:
    """Past this one, and on to the next."""
    skipped = label(guide.skip())
    try:
        return f"skipped {skipped}; {told(guide.next())}"
    except NotInQueue:
        return f"skipped {skipped}; no other agent is waiting"


def _return(guide: Guide) -> str:
    guide.back()
    return ""


_ACTIONS: dict[str, Callable[[Guide], str]] = {"next": _next, "skip": _skip, "return": _return}


async def get_segment(boss: Boss, _call: Call) -> Reply:
    shown = boss.desk.queue()
    age = boss.desk.clock() - shown[0].since if shown else None
    document: dict[str, Any] = {"waiting": len(shown), "age": age, "text": segment(len(shown), age)}
    return Reply(document)


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
