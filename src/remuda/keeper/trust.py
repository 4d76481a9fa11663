"""The temporary trust of an agent's folder at its start: recorded and withdrawn by the keeper, in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from remuda.agents.base import TrustRecord
from remuda.errors import RemudaError

log = logging.getLogger("remuda.keeper")


class LentTrust:
    """Without `lends`, the trust that a session's folder is given stays."""

    def __init__(self, record: TrustRecord | None, session: str, *, lends: bool = False) -> None:
        self._record = record
        self._session = session
        self._lends = lends
        self._lent = self._answered = False
        self._tasks: list[asyncio.Task[bool]] = []
        if record is not None and record.has_loans():  # a keeper was killed, or another session starts now
            self._do(record.take_back, "the folder trust that a killed keeper left could not be removed")

    def _do(self, work: Callable[[], None], otherwise: str) -> asyncio.Task[bool]:
        """Run in a thread, since it may wait for a lock. Returns whether it was done."""

        async def do() -> bool:
            try:
                await asyncio.to_thread(work)
            except RemudaError as error:
                log.error("%s: %s", otherwise, error)
                return False
            return True

        task = asyncio.get_running_loop().create_task(do())
        self._tasks.append(task)
        return task

    async def lend(self) -> bool:
        """Return whether the folder may be trusted now: it is certain that this will be withdrawn."""
        record = self._record
        if record is None or not self._lends or self._lent:
            return True

        def note() -> None:
            record.lend(self._session)
            self._lent = True  # also when no one waits for it any more

        return await asyncio.shield(
            self._do(note, "cannot save that the trust is temporary, so the folder is not trusted")
        )

    def answered(self) -> None:
        """We answered the dialog, and no human who attached."""
        self._answered = True

    def agent_began(self) -> None:
        """Withdraw the trust: an agent that reports anything has read whether its folder is trusted."""
        record = self._record
        if record is not None and self._lent:
            self._lent = False
            self._do(
                lambda: record.take_back(self._session, accepted=not self._answered),
                "the folder stays trusted until the next start",
            )

    async def close(self) -> None:
        """Withdraw the trust, since the agent has ended."""
        await asyncio.gather(*self._tasks)
        self.agent_began()
        await asyncio.gather(*self._tasks)
