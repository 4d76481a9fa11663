"""Budgets at work: count what is used of each limit, pause sessions that are over, and ask a human.

`boss/budgets` decides. The pause is a file that keepers read (`turns/holds`), so that it outlives this boss.
It is written before the request is in the queue: a session that asks for more is paused for certain.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from remuda.agents import find_sources
from remuda.agents.state import AT_REST, WORKING, State
from remuda.config import load_own_config
from remuda.errors import InvalidOptions, RemudaError
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths, config_home, sessions_folder
from remuda.tasks import TaskSet
from remuda.turns.holds import holds_file, load_holds, save_holds
from remuda.untrusted import dump_json, finite, parse_object

from ..attention.display import label
from ..attention.model import Approval, BossSession, Event, EventKind, Item, Reason, Source, digest
from ..budgets import (
    BUDGET_REFUSES,
    BudgetAction,
    BudgetHold,
    BudgetLimit,
    CountedUsage,
    LimitAccount,
    LiveSession,
    as_document,
    find_accounts,
    hold_entries,
    holds,
    read_budget,
)
from ..folder import BossFolder, read_own
from ..records.figures import USAGE_KEPT
from ..service import BossService
from ..usage_report import Prices
from .watches import report

log = logging.getLogger("remuda.boss.evidence.spending")

_NOTE = "budget"
_FILE_NOTE = "budget.toml"
"""The last text of the file without a mistake: its limits stay also for the next boss."""
_INTERVAL = 5.0
_SETTLE = 0.2
_LEAST = 1.0
_SHARE = 10
"""Seconds between two looks, at least, and as a multiple of what a look takes."""
_KEEPER_TIMEOUT = 10.0
_NO_TURN = AT_REST | {State.DEAD}
_KEPT_DAYS = 92
_CLOCKS_DIFFER = 1.0
"""Seconds. A session may be seen a moment before its keeper has noted its start."""


def budget_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    """Return that in the folder of the boss if it exists, else that in the folder of the configuration."""
    own = folder.path / "budget.toml"
    return own if own.exists() else config_home(environ) / "remuda" / "budget.toml"


def load_budget(path: Path) -> tuple[BudgetLimit, ...]:
    """Return the limits; none without a file. Raises `InvalidOptions` that names the file and the line."""
    return _load_budget(path)[0]


def _load_budget(path: Path) -> tuple[tuple[BudgetLimit, ...], str]:
    """Return the limits, and the text of the file."""
    try:
        text = read_own(path).decode()
        return _parse_budget(text), text
    except FileNotFoundError:
        return (), ""
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidOptions(f"{path} is not UTF-8") from None
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


def _parse_budget(text: str) -> tuple[BudgetLimit, ...]:
    return read_budget(text, os.path.expanduser("~"), os.path.realpath)


class Spending:
    """A `BudgetDesk`, and a source: it reports which sessions are held."""

    name = "budgets"

    def __init__(
        self,
        service: BossService,
        folder: BossFolder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._folder = folder or BossFolder.default()
        self._clock = clock
        self._file = holds_file()
        self._limits: tuple[BudgetLimit, ...] = ()
        self._error = ""
        self._text = ""
        self._stored_text = ""
        self._raised: dict[str, float] = {}
        self._warned: dict[str, float] = {}
        self._worked: dict[tuple[str, str], float] = {}
        self._folders: dict[str, str | None] = {}
        self._at_work: dict[str, float] = {}
        """Since when sessions at work are counted, by our own clock."""
        self._is_idle = False
        """Whether all limits are gone, and every session that earlier ones held is released."""
        self._named: dict[str, dict[str, float]] = {}
        """All conversations of live sessions by name, and when each was first seen.

        The service forgets one an hour after its end.
        """
        self._stopping: dict[str, str] = {}
        """Sessions whose running turn is still to be interrupted, with what went wrong at the last try."""
        self._asked: set[str] = set()
        """Those of them whose keeper is asked now."""
        self._stored = ""
        self._entries: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._tasks = TaskSet()

    async def start(self) -> None:
        self._load()
        self._service.budgets = self
        self._tasks.start(self._hear())
        self._tasks.start(self._run())

    async def close(self) -> None:
        self._service.budgets = None
        await self._tasks.aclose()
        await self._store()

    # ── what is remembered ──

    def _load(self) -> None:
        try:
            stored = parse_object(self._service.store.note(_NOTE) or "{}")
            self._raised = {str(key): float(most) for key, most in stored.get("raised", {}).items()}
            self._warned = {str(key): float(most) for key, most in stored.get("warned", {}).items()}
            for session_id, day, folder, seconds in stored.get("worked", []):
                self._worked[str(session_id), str(day)] = float(seconds)
                self._folders[str(session_id)] = folder
            self._stopping = {str(session_id): "" for session_id in stored.get("stopping", [])}
        except (ValueError, TypeError, AttributeError) as error:
            log.warning("cannot read what was raised before: %s", error)
        self._text = self._stored_text = self._service.store.note(_FILE_NOTE) or ""
        try:
            self._limits = _parse_budget(self._text)
        except InvalidOptions as error:  # another version wrote it
            log.warning("cannot read the last good limits: %s", error)

    async def _store(self) -> None:
        oldest = _day(self._service.clock() - _KEPT_DAYS * 86400.0)
        self._worked = {key: seconds for key, seconds in self._worked.items() if key[1] >= oldest}
        worked = [[*key, self._folders.get(key[0]), round(one)] for key, one in self._worked.items()]
        document = {"raised": self._raised, "warned": self._warned, "worked": worked}
        text = dump_json(document | {"stopping": [*self._stopping]})
        if text != self._stored:
            try:
                await self._service.store.save_note(_NOTE, text)
                self._stored = text
            except RemudaError as error:
                log.warning("cannot store what is used of budgets: %s", error)
        if self._text != self._stored_text:
            try:
                await self._service.store.save_note(_FILE_NOTE, self._text)
                self._stored_text = self._text
            except RemudaError as error:
                log.warning("cannot store the limits: %s", error)

    # ── rounds ──

    async def _hear(self) -> None:
        watcher = self._service.feed.watch()
        try:
            async for change in watcher:
                if isinstance(change.value, BossSession):
                    self._changed.set()
        finally:
            watcher.close()

    async def _run(self) -> None:
        while True:
            began = self._clock()
            try:
                await self.look()
            except (OSError, RemudaError) as error:
                log.warning("cannot look at budgets: %s", error)
            # A long history takes longer to add up: then it is looked at less often.
            next_at = began + max(_LEAST, _SHARE * (self._clock() - began))
            try:
                async with asyncio.timeout(_INTERVAL):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(max(_SETTLE, next_at - self._clock()))  # usage comes in several events
            self._changed.clear()

    async def look(self) -> None:
        """Read the file, count, and carry out what follows."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self._read_limits)
            if not self._limits and (self._error or self._is_idle):
                # With an error, what was decided before stays until the file can be read.
                self._at_work.clear()
                return
            self._count_time()
            accounts, prices = await self._accounts()
            await self._carry_out(accounts, prices)
            await self._store()
            self._is_idle = not self._limits

    def _read_limits(self) -> None:
        try:
            (self._limits, self._text), error = _load_budget(budget_file(self._folder, os.environ)), ""
        except RemudaError as found:
            error = str(found)
        if error and error != self._error:
            log.warning("the budgets are not changed: %s", error)
        self._error = error
        self._entries = load_holds(self._file)  # each time: it may have been removed

    def _count_time(self) -> None:
        """Add the time that sessions were at work since the last round, as far as this boss saw it."""
        now, day = self._clock(), _day(self._service.clock())
        at_work = {}
        for session in self._live():
            if self._service.agent_state(session) in WORKING:
                since = self._at_work.get(session.id, now)
                key = (session.id, day)
                self._worked[key] = self._worked.get(key, 0.0) + now - since
                self._folders[session.id] = session.repo or session.cwd
                at_work[session.id] = now
        self._at_work = at_work

    def _live(self) -> list[BossSession]:
        return [one for one in self._service.sessions() if one.ended is None and one.replaced_by is None]

    async def _accounts(self) -> tuple[list[LimitAccount], Prices]:
        now = self._service.clock()
        rows, today, prices = await asyncio.to_thread(self._read_usage, now)
        usage = CountedUsage(rows, today, self._worked, self._folders)
        live = await asyncio.to_thread(self._find_live)
        return find_accounts(self._limits, live, usage, self._raised, prices, now), prices

    def _find_live(self) -> list[LiveSession]:
        live = self._live()
        names = {one.name for one in live if one.name is not None}
        figures = self._service.store.figures
        named = {name: dict(self._named.get(name) or figures.conversations(name, 0.0)) for name in names}
        for one in self._service.sessions():
            if one.name in names:
                named[one.name][one.id] = one.first_seen
        self._named = named
        return [_as_live(one, named.get(one.name or "", {})) for one in live]

    def _read_usage(self, now: float) -> tuple[list[Any], list[Any], Prices]:
        figures = self._service.store.figures
        counted = [one for one in self._limits if one.measure != "time"]
        ever = any("day" not in one.per for one in counted)
        daily = any("day" in one.per for one in counted)
        try:
            config = load_own_config(os.environ)
            prices = Prices(config.currency, config.prices)
        except RemudaError:  # commands report what is wrong with it
            prices = Prices()
        rows = figures.usage_sums(now - USAGE_KEPT) if ever else []
        return rows, figures.usage_sums(_midnight(now)) if daily else [], prices

    async def _carry_out(self, accounts: list[LimitAccount], prices: Prices) -> None:
        tomorrow = _midnight(self._service.clock(), 1)
        entries = hold_entries(accounts, tomorrow, prices.currency)
        if entries != self._entries:
            await asyncio.to_thread(save_holds, self._file, entries)
            self._entries = entries
        over = holds(accounts)
        for session in self._live():
            hold, asked = over.get(session.id), self._service.hold_of(session.id)
            if hold is None and asked is not None:
                await self._report(session, {})
            elif hold is not None and (asked is None or asked.facts.get("mark") != hold.mark):
                if hold.account.limit.action is BudgetAction.STOP:
                    self._stopping[session.id] = ""
                    await self._store()  # before the report: that says that it was seen to
                await self._report(session, _facts(hold, prices.currency))
        self._stop_turns(over)
        for account in accounts:
            self._warn(account, prices.currency)

    async def _report(self, session: BossSession, facts: dict[str, Any]) -> None:
        at = self._service.clock()
        log.info("session %s: %s", session.id, facts.get("message") or "no budget holds it any more")
        event_id = f"budget:{session.id}:{at}"
        await report(self._service, [Event(EventKind.HELD, session.id, at, Source.PROCESS, event_id, facts)])

    def _warn(self, account: LimitAccount, currency: str) -> None:
        """Notify once for each limit and height."""
        if account.limit.action is not BudgetAction.WARN or not account.is_over:
            return
        if self._warned.get(account.key) == account.allowed:
            return
        self._warned[account.key] = account.allowed
        session = account.sessions[0] if account.sessions else LiveSession("budget", None, None, "", True)
        message = BudgetHold(session, account).reason(currency)
        log.warning("%s", message)
        now = self._service.clock()
        item_id = digest(account.key, [account.allowed])[:10]
        self._service.warnings.append(Item(item_id, session.id, Reason.BUDGET, now, message))

    # ── turns that are stopped ──

    def _stop_turns(self, over: Mapping[str, BudgetHold]) -> None:
        """Ask keepers again, until each has agreed or the turn is over.

        A keeper may be busy, or refuse: no key may close a question that is open in a turn without a message.
        """
        stopped = {one: hold for one, hold in over.items() if hold.account.limit.action is BudgetAction.STOP}
        live = {one.id: one for one in self._live() if self._service.agent_state(one) not in _NO_TURN}
        for session_id in [*self._stopping]:
            session, hold = live.get(session_id), stopped.get(session_id)
            if session is None or session.name is None or hold is None:
                del self._stopping[session_id]
            elif session_id not in self._asked:
                self._asked.add(session_id)
                how = f"by budget '{hold.account.limit.name}'"
                self._tasks.start(self._interrupt(session_id, session.name, how))

    async def _interrupt(self, session_id: str, name: str, how: str) -> None:
        try:
            client = await AsyncKeeperClient.connect(
                name, sessions_folder(), lambda _event: None, lambda: None, timeout=_KEEPER_TIMEOUT
            )
            try:
                await client.request("interrupt", within=_KEEPER_TIMEOUT, turn=True, how=how)
            finally:
                client.close()
            self._stopping.pop(session_id, None)
        except (OSError, RemudaError) as error:
            if session_id in self._stopping and self._stopping[session_id] != str(error):
                self._stopping[session_id] = str(error)
                log.warning("cannot interrupt the turn of session %s yet: %s", session_id, error)
        finally:
            self._asked.discard(session_id)

    # ── what humans do ──

    async def decide(self, approval: Approval, *, allow: bool) -> None:
        """Raise a limit to what the request said. Raises `StoreFailed`: then it is as before."""
        key, raise_to = str(approval.input.get("key")), float(approval.input.get("raise_to", 0.0))
        if not allow:
            return
        async with self._one_at_a_time:
            before = self._raised.get(key)
            self._raised[key] = max(raise_to, before or 0.0)
            try:
                document = parse_object(self._service.store.note(_NOTE) or "{}")
                await self._service.store.save_note(_NOTE, dump_json(document | {"raised": self._raised}))
            except RemudaError:
                self._raised = {one: most for one, most in self._raised.items() if one != key}
                if before is not None:
                    self._raised[key] = before
                raise
        log.info("%s raised the budget %s to %g", approval.by, key, raise_to)
        self._changed.set()

    async def document(self) -> dict[str, Any]:
        path = budget_file(self._folder, os.environ)
        async with self._one_at_a_time:
            await asyncio.to_thread(self._read_limits)
            accounts, prices = await self._accounts()
        held = {
            account.key: [one.label for one in account.sessions] for account in accounts if _holds(account)
        }
        rows = [
            as_document(one, prices.currency) | {"paused": held.get(one.key, [])[:100]} for one in accounts
        ]
        return {"file": str(path), "exists": path.exists(), "error": self._error or None, "limits": rows}


def _holds(account: LimitAccount) -> bool:
    return account.is_over and account.limit.action is not BudgetAction.WARN


def _earlier(session: BossSession, named: Mapping[str, float]) -> tuple[str, ...]:
    """Return the earlier conversations of a kept session, also before it was resumed.

    `named`: all of that name, with the time when each was first seen.
    """
    if len(named) < 2 or session.name is None:
        return ()
    record = SessionRecord.load(SessionPaths(sessions_folder(), session.name).record)
    if record is None:
        return ()
    since = finite(record.first_started_at or record.started_at) - _CLOCKS_DIFFER
    others = (one for one in sorted(named, key=lambda one: named[one]) if one != session.id)
    return tuple(one for one in others if not one.startswith("kept:") and named[one] >= since)


def _as_live(session: BossSession, named: Mapping[str, float]) -> LiveSession:
    folder = session.repo or session.cwd
    sources = find_sources(session.agent)
    reports = sources is not None and sources.conversations is not None
    shown = label(session.name, folder, session.id)
    return LiveSession(session.id, session.name, folder, shown, reports, _earlier(session, named))


def _facts(hold: BudgetHold, currency: str) -> dict[str, Any]:
    account = hold.account
    show = account.limit.show
    more = {"folder": account.folder, "day": account.day}
    return {
        "tool": "budget",
        "mark": hold.mark,
        "over_budget": hold.reason(currency),
        "refuses": dict(BUDGET_REFUSES),
        "message": f"{hold.reason(currency)}; no message is delivered. Approve to allow up to "
        f"{show(account.next_allowed, currency)}",
        "input": {
            "limit": account.limit.name,
            "used": show(account.used or 0.0, currency),
            "allowed": show(account.allowed, currency),
            "approve": f"allows up to {show(account.next_allowed, currency)}",
            "action": str(account.limit.action),
            **{name: value for name, value in more.items() if value is not None},
            "key": account.key,
            "raise_to": account.next_allowed,
        },
    }


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _midnight(now: float, days: int = 0) -> float:
    here = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    return (here + timedelta(days=days)).timestamp()
