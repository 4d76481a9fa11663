"""Waiting for the end of processes that are not our children."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from remuda.proctree import is_alive

_LOOK_INTERVAL = 0.02


async def outliving(pids: Iterable[int], timeout: float) -> list[int]:
    """Those that live when the time is over; none as soon as all have ended."""
    waits = [asyncio.ensure_future(_ended(pid)) for pid in pids]
    if not waits:
        return []
    try:
        await asyncio.wait(waits, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()
    return [pid for pid in pids if is_alive(pid)]


async def _ended(pid: int) -> None:
    if not hasattr(os, "pidfd_open"):
        while is_alive(pid):  # noqa: ASYNC110  # no event tells of it there
            await asyncio.sleep(_LOOK_INTERVAL)
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has ended
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _settle, ended)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
