"""What a session does for the process that started it: end with it, wake it, withdraw lent trust."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from remuda.agents.base import TrustRecord
from remuda.errors import RemudaError

if TYPE_CHECKING:
    from .observe import Observation
    from .session import Session

# Two seconds after the end of its owner nothing is left of a session. Claude Code gives its last hooks 1.5 s.
CUT_SHORT_GRACE = 1.7
# The owner may know the answer before the agent has written it to its files, and must not lose it.
WRITING_PATIENCE = 2.0
_LOOK_INTERVAL = 0.02


class OwnerWatch:
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


# ── waking the owner ──

# Lines go over the pipe on which the start was reported; the end of the pipe means that the keeper is gone.
# Most lines are empty. One may have the answer, before it is on the disk. That is safe when the agent has
# stopped, no hook can make it continue, and the text on its screen is the text that it reported.

# A pipe writes this much in one piece or not at all. The owner reads a longer answer from the disk.
_LINE_BYTES = min(4096, select.PIPE_BUF)


class OwnerNotifier:
    """Called on each change, with the event that watching clients get."""

    def __init__(self, fd: int, session: Session, observation: Observation | None) -> None:
        self._fd = fd
        self._observation = observation
        self._stopped: Mapping[str, Any] | None = None
        self._due = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        session.add_listener(self)
        if observation is not None:
            observation.report_listeners.append(lambda _report: self())
        self()

    def __call__(self, event: Mapping[str, Any] | None = None) -> None:
        if event is not None and event.get("event") == "stopped":
            self._stopped = event
        if not self._due:
            self._due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        if self._fd < 0:
            return
        try:
            os.write(self._fd, self._answer() + b"\n")
        except BlockingIOError:  # the pipe is full: enough to wake it
            pass
        except OSError:  # the owner no longer reads
            os.close(self._fd)
            self._fd = -1

    def _answer(self) -> bytes:
        """Send the answer once, when it is proven. A hook reports it without surrounding blanks."""
        stopped, observation = self._stopped, self._observation
        # Once it is complete, this is the exact text.
        shown = observation.progress.last_shown if observation is not None else None
        if stopped is None or not stopped.get("final") or stopped.get("background"):
            return b""
        text = str(stopped.get("text") or "").strip()
        if stopped.get("end") != "answered" or not text or shown is None or shown.strip() != text:
            return b""
        self._stopped = None
        line = json.dumps({"answer": shown}).encode()
        return line if len(line) < _LINE_BYTES else b""


# ── lent trust ──

log = logging.getLogger("remuda.keeper")


class LentTrust:
    """Without `lends`, trust that a session's folder gets stays."""

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
            self._lent = True  # also if the caller has given up

        return await asyncio.shield(
            self._do(note, "cannot save that the trust is temporary, so the folder is not trusted")
        )

    def answered(self) -> None:
        """Note that we answered the dialog, and no attached user."""
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
