"""Run a blocking call in a thread of its own and await its result."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """The task that awaited a call was cancelled: the call ends, and its result is dropped."""


Check = Callable[[], None]
"""Raises `Abandoned` once the awaiting task is cancelled. A call that waits long calls it now and then."""


async def in_thread(call: Callable[[Check], T]) -> T:
    """Return what `call` returns, or raise what it raises.

    Cancelling the task returns at once. The thread ends when the call ends or uses its `Check`. It is a
    daemon and not of the loop's executor: `asyncio.run` would wait at its end for each thread of that.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    abandoned = threading.Event()

    def check() -> None:
        if abandoned.is_set():
            raise Abandoned

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # without an error it is a T

    def run() -> None:
        result, error = None, None
        try:
            result = call(check)
        except BaseException as caught:  # noqa: BLE001  # raised again where it is awaited
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task awaits this
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="remuda call").start()
    try:
        return await future
    finally:
        abandoned.set()
