"""End a session when the process that started it goes away."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

# Two seconds after the end of its owner nothing is left of a session. Claude Code gives its last hooks 1.5 s.
CUT_SHORT_GRACE = 1.7
# The owner may know the answer before the agent has written it to its files, and must not lose it.
WRITING_PATIENCE = 2.0
_LOOK_INTERVAL = 0.02


class Owner:
    """Calls `kill` when the owner closes its end of a pipe, which happens at the latest when the owner ends.

    If the owner did not write `FAREWELL` first, it was killed, and the session ends quickly. Otherwise the
    session ends when no delivery runs, and may take its time.
    """

    def __init__(
        self,
        lifeline: int,
        kill: Callable[[float | None, str], None],
        is_delivering: Callable[[], bool],
        patience: float = WRITING_PATIENCE,
    ) -> None:
        self._lifeline = lifeline
        self._kill = kill
        self._is_delivering = is_delivering
        self._patience = patience
        self._closed = asyncio.Event()
        self._grace: float | None = CUT_SHORT_GRACE
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(lifeline, self._on_word)

    def _on_word(self) -> None:
        if os.read(self._lifeline, 64):
            self._grace = None
            return
        self._loop.remove_reader(self._lifeline)
        os.close(self._lifeline)
        self._closed.set()
        self._end(self._loop.time() + self._patience)

    def _end(self, deadline: float) -> None:
        if self._grace is None and self._is_delivering() and self._loop.time() < deadline:
            self._loop.call_later(_LOOK_INTERVAL, self._end, deadline)
            return
        self._kill(self._grace, "ended with its owner")

    async def gone(self, patience: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), patience)
