"""Count what agents use, from their own records: what was appended, each message once.

A file is read when its session changes, and all are looked at every `CYCLE` seconds. What was counted and how
far the file was read are one transaction, so that a boss that is killed counts nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from remuda.agents import find_sources
from remuda.agents.conversation import MessageUsage, TurnBegun
from remuda.agents.sources import ConversationReader
from remuda.errors import StoreFailed
from remuda.jsonl_tail import JsonlTail
from remuda.keeper.record import SessionRecord
from remuda.names import is_name
from remuda.paths import SessionPaths, sessions_folder
from remuda.tasks import TaskSet

from ..attention.model import BossSession
from ..records import figures
from ..records.figures import UsageDelta
from ..records.rows import Statement
from ..service import BossService
from ..usage_account import FileAccount, Owner, count

log = logging.getLogger("remuda.boss.evidence.usage")

CYCLE = 30.0
SETTLE = 1.0
_WRITTEN_LATE = 0.25
"""Seconds after a change in which more may follow. Claude Code 2.1.280 and 2.1.300 often write an answer
milliseconds before the prompt of its turn. Read in between, it would count to the turn before."""
_RECORDS = 2000
"""Of one transaction. A long file is counted in steps, so that the boss goes on with other work."""


class UsageReader:
    name = "usage"

    def __init__(self, service: BossService, cycle: float = CYCLE, settle: float = SETTLE) -> None:
        self._service = service
        self._cycle = cycle
        self._settle = settle
        self._accounts: dict[str, FileAccount] = {}
        self._due: set[str] = set()
        self._put_off: set[str] = set()
        """Files that are read a moment later."""
        self._tasks = TaskSet()
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """A long backlog is counted while the boss serves."""
        self._tasks.start(self._hear())
        self._tasks.start(self._poll_forever())

    async def close(self) -> None:
        await self._tasks.aclose()

    async def _hear(self) -> None:
        watcher = self._service.feed.watch()
        try:
            async for change in watcher:
                if isinstance(change.value, BossSession) and change.value.transcript_path:
                    self._read_soon(change.value.id)
        finally:
            watcher.close()

    def _read_soon(self, session_id: str) -> None:
        if session_id not in self._due:
            self._due.add(session_id)
            asyncio.get_running_loop().call_later(self._settle, self._begin, session_id)

    def _begin(self, session_id: str) -> None:
        self._due.discard(session_id)
        self._tasks.start(self._read(session_id))

    async def _read(self, session_id: str) -> None:
        session = next((one for one in self._service.sessions() if one.id == session_id), None)
        if session is not None:
            await self._count(session)

    async def _poll_forever(self) -> None:
        while True:
            sessions = self._service.sessions()
            for session in sessions:
                await self._count(session)
            known = {path for one in sessions for path in self._paths(one)}
            self._accounts = {path: one for path, one in self._accounts.items() if path in known}
            await asyncio.sleep(self._cycle)

    def _reader(self, session: BossSession) -> ConversationReader | None:
        sources = find_sources(session.agent)
        return sources.conversations if sources is not None else None

    def _paths(self, session: BossSession) -> list[str]:
        reader, path = self._reader(session), session.transcript_path
        if reader is None or not path:
            return []
        return [path, *map(str, reader.usage_files(Path(path)))]

    async def _count(self, session: BossSession) -> None:
        reader = self._reader(session)
        if reader is None:
            return
        for path in self._paths(session):
            account = self._accounts.get(path) or self._load(path, session.id)
            if account.session_id == session.id and _has_grown(path, account):
                if self._is_too_early(path):
                    self._read_soon(session.id)
                    continue
                async with self._one_at_a_time:
                    try:
                        await self._count_file(session, reader, path)
                    except StoreFailed as error:  # nothing of it counts: it is read again
                        log.warning("cannot write what %s used: %s", session.id, error)

    def _is_too_early(self, path: str) -> bool:
        """Whether the file has just changed. Not twice in a row: some files are always written to."""
        if path in self._put_off or not _has_just_changed(path):
            self._put_off.discard(path)
            return False
        self._put_off.add(path)
        return True

    def _load(self, path: str, session_id: str) -> FileAccount:
        text = self._service.store.usage_file(path)
        try:
            account = FileAccount.load(session_id, text) if text is not None else FileAccount(session_id)
        except (ValueError, TypeError, KeyError):
            account = FileAccount(session_id)
        return self._accounts.setdefault(path, account)

    async def _count_file(self, session: BossSession, reader: ConversationReader, path: str) -> None:
        owner = await asyncio.to_thread(_owner, session)
        while True:
            account = self._accounts[path].copy()
            now = self._service.clock()
            deltas, is_all = await asyncio.to_thread(_read_file, account, reader, path, owner, now)
            await self._service.store.run(partial(_statements, path, account, deltas, now))
            self._accounts[path] = account
            if deltas:
                self._service.add_tokens(session.id, _sum(deltas))
            if is_all:
                return


def _has_grown(path: str, account: FileAccount) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_ino, found.st_size) != (account.inode, account.offset)


def _has_just_changed(path: str) -> bool:
    try:
        return 0.0 <= time.time() - os.stat(path).st_mtime < _WRITTEN_LATE
    except OSError:
        return False


def _is_another(path: str, account: FileAccount) -> bool:
    """Whether the file was replaced or cut: it is read again from its start."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_ino != account.inode or found.st_size < account.offset


def _owner(session: BossSession) -> Owner:
    """Only the record of a kept session says which account it uses."""
    account = None
    if session.name is not None and is_name(session.name):
        record = SessionRecord.load(SessionPaths(sessions_folder(), session.name).record)
        account = record.account[:8] if record is not None and record.account else None
    return Owner(session.agent, session.repo or session.cwd, account)


def _read_file(
    account: FileAccount, reader: ConversationReader, path: str, owner: Owner, now: float
) -> tuple[list[UsageDelta], bool]:
    """Return what to add, and whether that was all."""
    tail = JsonlTail(path, inode=account.inode, offset=account.offset, own=True, marks=reader.usage_marks)
    if account.inode and _is_another(path, account):
        account.skip_until = account.counted_until
    records = list(islice(tail.read(), _RECORDS))
    account.inode, account.offset = tail.inode, tail.offset
    reports = _in_order(reader, records, account.session_id)
    return count(account, reports, owner, now), len(records) < _RECORDS


def _in_order(
    reader: ConversationReader, records: list[dict[str, Any]], session_id: str
) -> Iterator[MessageUsage | TurnBegun]:
    order = reader.order(records)
    ordered = [one for record in records for one in order.take(record)]
    for record in (*ordered, *order.flush()):
        if (report := reader.usage(record, session_id)) is not None:
            yield report


def _statements(path: str, account: FileAccount, deltas: list[UsageDelta], now: float) -> Iterator[Statement]:
    yield from map(figures.add_usage, deltas)
    yield figures.save_usage_file(path, account.session_id, now, account.save())


def _sum(deltas: list[UsageDelta]) -> dict[str, int | None]:
    sums: dict[str, int | None] = {}
    for name in ("input", "output", "cache_read", "cache_write"):
        known = [value for one in deltas if (value := getattr(one, name)) is not None]
        sums[name] = sum(known) if known else None
    return sums
