"""The store of the boss: SQLite with one writer. Nothing is acknowledged before it is on disk.

All changes of one event are in the same transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from remuda.errors import StoreFailed
from remuda.untrusted import BadJson

from ..attention.identity import PlaceClaim
from ..attention.model import Approval, Item
from ..attention.session_index import Changes, SessionEntry
from . import database, figures, rows
from .rows import Statement

log = logging.getLogger("remuda.boss.records.store")

T = TypeVar("T")

_BATCH = 256
_SLOW = 0.002
"""A slower disk is written in a thread, so that the event loop does not wait for it."""
_STALL = 1.0
"""A reader waits at most this long for the disk."""
_QUIET = 1.0
_COMMITS = 250
"""After a pause, or this many transactions, the log is copied into the database and restarted. Overwriting a
file is synced in half the time of one that grows.
"""
# Rows of sessions that ended are read from disk when they are asked for.
_REMEMBERED = 3600.0
_ASKS = 32
_EVER = 1e18


def _nothing() -> Iterator[Statement]:
    return iter(())


@dataclass(slots=True)
class _PendingWrite:
    epoch: int
    statements: Callable[[], Iterator[Statement]]
    done: asyncio.Future[None]
    is_remembered: bool
    """Whether the state in memory depends on it.

    If it fails, nothing later is written until that is reloaded.
    """


class Store:
    """Use from one event loop. `laid_aside` names a file that could not be used.

    Everything that arrives in one round of the loop, or while a transaction runs, is one transaction with one
    sync. A fast disk is written at once, a slow one in a thread: handing work to a thread and back takes as
    long as a fast disk does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer, self.laid_aside = database.open_database(path)
        database.lay_out_log(path, self._writer)
        self.epoch = 0
        """Incremented after a failure, when the state in memory has been reloaded from disk."""
        self._failed_epoch = -1
        self._reader = database.connect(path)
        self.figures = figures.Figures(path)
        self._tidier = database.connect(path)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_PendingWrite] = []
        self._scheduled = False
        self._took = 0.0
        """Recent duration of a transaction on this disk."""
        self._commits = 0
        self._beside = ThreadPoolExecutor(1, "store")
        self._tidies = ThreadPoolExecutor(1, "store-tidy")
        self._busy: Future[list[StoreFailed | None]] | None = None
        self._tidying: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Write what was submitted before, and close."""
        if self._tidying is not None:
            self._tidying.cancel()
        self._beside.shutdown()
        self._tidies.shutdown()
        while self._waiting:
            self._flush_here(self._next_batch())
        self._tidy()
        for connection in (self._tidier, self._reader, self._writer):
            connection.close()

    # ── writing ──

    async def write(self, changes: Sequence[Changes]) -> None:
        """Write all changes; returns when they are on disk. Raises `StoreFailed`: then none of them is."""
        await self.submit(changes)

    def submit(self, changes: Sequence[Changes]) -> asyncio.Future[None]:
        """As `write`, without waiting. Anything written later comes after it."""
        return self._hand_over(
            lambda: (one for change in changes for one in rows.statements(change)), remembered=True
        )

    async def run(self, statements: Callable[[], Iterator[Statement]]) -> None:
        await self._hand_over(statements, remembered=False)

    def _hand_over(
        self, statements: Callable[[], Iterator[Statement]], *, remembered: bool
    ) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(_PendingWrite(self.epoch, statements, done, remembered))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)
        return done

    async def settled(self) -> None:
        """Wait until everything submitted is on disk or has failed, or until the disk stalls."""
        if self._waiting or self._busy is not None:
            with contextlib.suppress(StoreFailed, TimeoutError):
                async with asyncio.timeout(_STALL):
                    await self.run(_nothing)

    def _flush(self) -> None:
        self._scheduled = False
        if self._busy is not None or not self._waiting:
            return
        batch = self._next_batch()
        if self._took < _SLOW:
            self._flush_here(batch)
        else:
            self._flush_beside(batch)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _next_batch(self) -> list[_PendingWrite]:
        batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        return batch

    def _flush_here(self, batch: list[_PendingWrite]) -> None:
        self._tell(batch, self._attempt(batch))

    def _flush_beside(self, batch: list[_PendingWrite]) -> None:
        def finished(future: Future[list[StoreFailed | None]]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._finished, batch, future)

        self._busy = self._beside.submit(self._attempt, batch)
        self._busy.add_done_callback(finished)

    def _finished(self, batch: list[_PendingWrite], future: Future[list[StoreFailed | None]]) -> None:
        self._busy = None
        self._tell(batch, future.result())
        self._flush()

    def _attempt(self, jobs: list[_PendingWrite]) -> list[StoreFailed | None]:
        """Write all in one transaction; if that fails, each alone, up to the one that cannot be written."""
        current = [job for job in jobs if job.epoch > self._failed_epoch]
        error = self._transaction(current) if len(current) == len(jobs) else StoreFailed("stale")
        if error is None:
            return [None] * len(jobs)
        outcomes: list[StoreFailed | None] = []
        for job in jobs:
            stale = job.epoch <= self._failed_epoch
            failed = StoreFailed("an earlier change could not be written") if stale else None
            failed = failed or self._transaction([job])
            if failed is not None and job.is_remembered:
                self._failed_epoch = max(self._failed_epoch, job.epoch)
            outcomes.append(failed)
        return outcomes

    def _transaction(self, jobs: list[_PendingWrite]) -> StoreFailed | None:
        execute = self._writer.execute
        try:
            execute("BEGIN IMMEDIATE")
            for job in jobs:
                for sql, values in job.statements():
                    execute(sql, values)
            begun = time.perf_counter()
            execute("COMMIT")
            # One slow write switches at once, one fast write does not switch back.
            self._took = max(time.perf_counter() - begun, 0.8 * self._took)
        except Exception as error:  # noqa: BLE001  # whatever it is: nothing of this was written
            log.warning("cannot write to %s: %s", self.path, error)
            if self._writer.in_transaction:
                self._writer.rollback()
            return StoreFailed(f"cannot write to {self.path}: {error}", hint="is the disk full?")
        return None

    def _tell(self, jobs: list[_PendingWrite], outcomes: list[StoreFailed | None]) -> None:
        for job, error in zip(jobs, outcomes, strict=True):
            if job.done.done():  # its caller has gone
                continue
            if error is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(error)
        self._commits += 1
        if self._commits == _COMMITS:
            self._tidy_beside()
        elif self._tidying is None:
            self._tidying = self._loop.call_later(_QUIET, self._tidy_at_rest, self._commits)

    def _tidy_at_rest(self, commits: int) -> None:
        self._tidying = None
        if commits == self._commits:
            self._tidy_beside()
        elif self._commits:
            self._tidying = self._loop.call_later(_QUIET, self._tidy_at_rest, self._commits)

    def _tidy_beside(self) -> None:
        self._commits = 0
        self._tidies.submit(self._tidy)

    def _tidy(self) -> None:
        """Read with a connection of its own, so that the writer does not wait."""
        try:
            self._tidier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            log.warning("cannot checkpoint %s: %s", self.path, error)

    # ── reading ──

    def load(self, now: float) -> tuple[list[SessionEntry], dict[str, PlaceClaim]]:
        """Load all sessions that are running or ended recently, and who holds which place."""
        results = self._read("SELECT id FROM session WHERE ended IS NULL OR ended > ?", now - _REMEMBERED)
        claims = rows.read_claims(self._read("SELECT place, session_id, at, pid FROM claim"))
        return [entry for (session_id,) in results if (entry := self.fetch(session_id))], claims

    def fetch(self, session_id: str) -> SessionEntry | None:
        try:
            return self._fetch(session_id)
        except BadJson as error:
            log.warning("cannot read session %s from %s: %s", session_id, self.path, error)
            return None

    def _fetch(self, session_id: str) -> SessionEntry | None:
        for (session,) in self._read("SELECT document FROM session WHERE id = ?", session_id):
            snapshot = self._read("SELECT at, document FROM base WHERE session_id = ?", session_id)
            events = self._read(
                "SELECT session_id, id, at, source, kind, facts FROM event WHERE session_id = ?", session_id
            )
            item = self._read(
                "SELECT document FROM item WHERE session_id = ? AND resolved_at IS NULL", session_id
            )
            approvals = self._read(
                "SELECT document FROM approval WHERE session_id = ? ORDER BY asked_at DESC LIMIT ?",
                session_id,
                _ASKS,
            )
            return rows.read_entry(
                session,
                snapshot[0] if snapshot else None,
                [rows.read_event(*event) for event in events],
                rows.read_item(item[0][0]) if item else None,
                [one for (one,) in approvals],
            )
        return None

    def history(self, limit: int, before: float | None = None) -> list[Item]:
        """Return resolved items, newest first."""
        results = self._read(
            "SELECT document FROM item WHERE resolved_at < ? ORDER BY resolved_at DESC, id LIMIT ?",
            before if before is not None else _EVER,
            limit,
        )
        return self._readable(rows.read_item, results)

    def item(self, item_id: str) -> Item | None:
        results = self._read("SELECT document FROM item WHERE id = ?", item_id)
        return next(iter(self._readable(rows.read_item, results)), None)

    def approval(self, approval_id: str) -> Approval | None:
        results = self._read("SELECT document FROM approval WHERE id = ?", approval_id)
        return next(iter(self._readable(rows.read_approval, results)), None)

    def _readable(self, read: Callable[[str], T], rows: list[Any]) -> list[T]:
        """Skip a row that cannot be read."""
        readable = []
        for (document,) in rows:
            try:
                readable.append(read(document))
            except BadJson as error:
                log.warning("cannot read a row of %s: %s", self.path, error)
        return readable

    def approvals(
        self, limit: int, *, state: str | None = None, before: float | None = None
    ) -> list[Approval]:
        """Return permission requests, newest first."""
        of_state = ("state = ? AND ", state) if state is not None else ("",)
        results = self._read(
            f"SELECT document FROM approval WHERE {of_state[0]}asked_at < ?"  # noqa: S608  # no text of others
            " ORDER BY asked_at DESC, id LIMIT ?",
            *of_state[1:],
            before if before is not None else _EVER,
            limit,
        )
        return self._readable(rows.read_approval, results)

    def note(self, name: str) -> str | None:
        """Return a small note of one of our sources, as `save_note` stored it."""
        rows = self._read("SELECT value FROM note WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    async def save_note(self, name: str, value: str) -> None:
        await self.run(lambda: iter([rows.save_note(name, value)]))

    async def prune(self, now: float, *, keep: list[str], days: float = 30.0, history: int = 10_000) -> None:
        """Delete old records and surplus history, but not these sessions."""
        await self.run(lambda: rows.pruning(now - days * 86400, history, keep))
        await self.run(lambda: figures.pruning(now))

    def usage_totals(self) -> dict[str, tuple[int | None, ...]]:
        """Return what each session used: input, output, cache_read and cache_write tokens."""
        results = self._read(
            "SELECT session_id, sum(input), sum(output), sum(cache_read), sum(cache_write) FROM usage"
            " GROUP BY session_id"
        )
        return {session_id: tuple(counts) for session_id, *counts in results}

    def usage_file(self, path: str) -> str | None:
        """Return how far a file was counted, as `figures.save_usage_file` stored it."""
        results = self._read("SELECT document FROM usage_file WHERE path = ?", path)
        return str(results[0][0]) if results else None

    def _read(self, sql: str, *values: object) -> list[Any]:
        return self._reader.execute(sql, values).fetchall()
