"""The keeper's event loop: our own on Linux, where it makes an echo faster, else asyncio's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

_LINUX = sys.platform.startswith("linux")


def make_loop() -> asyncio.AbstractEventLoop:
    if _LINUX:
        from .quick_loop import KeeperLoop

        return KeeperLoop()
    return asyncio.new_event_loop()


def afterwards(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None]], object]:
    """Return a function that schedules a callback to run once, when it is quiet, before timers and tasks."""
    left_over: list[Any] | None = getattr(loop, "left_over", None)
    return loop.call_soon if left_over is None else left_over.append
