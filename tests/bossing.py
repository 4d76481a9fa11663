"""Events, and a desk to tell them to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from remuda.agents.state import Source
from remuda.boss.desk import Desk
from remuda.boss.model import Event, EventKind
from remuda.boss.store import Store

T = TypeVar("T")


def event(kind: str, at: float, source: Source = Source.HOOK, session: str = "s", **facts: Any) -> Event:
    """One that is the same whenever it is made with the same words."""
    number = f"{kind}:{at}:{source}:{session}:{facts.get('tool_use_id')}"
    return Event(EventKind(kind), session, at, source, number, facts)


class Clock:
    """Stands still."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_desk(folder: Path, clock: Callable[[], float] | None = None) -> AsyncIterator[Desk]:
    desk = Desk(Store(folder / "boss.db"), clock or Clock())
    await desk.open()
    try:
        yield desk
    finally:
        await desk.close()


def with_desk(
    folder: Path, work: Callable[[Desk], Awaitable[T]], clock: Callable[[], float] | None = None
) -> T:
    """Do that at a desk of its own, from open to close."""

    async def whole() -> T:
        async with open_desk(folder, clock) as desk:
            return await work(desk)

    return asyncio.run(whole())
