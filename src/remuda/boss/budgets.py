"""Budgets: limits on what agents may use, what was used of each, and which sessions are paused. Pure.

A limit is decided by what is known. Usage that no source reports counts as unknown, never as zero: then the
account says so, and no session is paused for what was not seen.
"""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from os.path import normpath
from typing import Any

from remuda.agents.permission import Refusals
from remuda.duration import as_seconds, show_duration
from remuda.errors import InvalidOptions
from remuda.names import did_you_mean

from .records.figures import UsageSum
from .usage_report import KINDS, Prices


class BudgetAction(StrEnum):
    WARN = "warn"
    PAUSE = "pause"
    STOP = "stop"


_SEVERITY = {BudgetAction.WARN: 0, BudgetAction.PAUSE: 1, BudgetAction.STOP: 2}
MEASURES = ("output_tokens", "tokens", "cost", "turns", "time")
PERIODS = ("session", "folder", "day")
_KEYS = ("name", "per", "session", "folder", "action", "step", "cache_reads", *MEASURES)
_MOST = 1e15
_LEAST_STEP = 1e-6
_BY_STEP = "a budget is raised by its step alone; to allow another amount, edit budget.toml"
BUDGET_REFUSES = Refusals(edit=_BY_STEP, always=_BY_STEP)
"""As a part of the amount. A sum with less may not be a greater number."""


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    name: str
    measure: str
    most: float
    per: tuple[str, ...]
    """What it counts for itself: each session, each folder, each day, or several of these together."""
    action: BudgetAction = BudgetAction.PAUSE
    step: float = 0.0
    """By how much `approve` raises it."""
    sessions: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    cache_reads: bool = False

    def takes(self, session: LiveSession) -> bool:
        """Whether it is about that session."""
        names = [session.id, *([session.name] if session.name else [])]
        named = not self.sessions or any(fnmatchcase(one, word) for one in names for word in self.sessions)
        return named and self.takes_folder(session.folder)

    def takes_folder(self, folder: str | None) -> bool:
        return not self.folders or (folder is not None and any(_below(folder, one) for one in self.folders))

    def show(self, value: float, currency: str = "") -> str:
        """Format an amount with its unit."""
        if self.measure == "time":
            return show_duration(value)
        if self.measure == "cost":
            return f"{value:.2f} {currency}".rstrip()
        return f"{value:,.0f} {self.measure.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A running session, as far as budgets are concerned."""

    id: str
    name: str | None
    folder: str | None
    label: str
    reports: bool
    """Whether its agent reports what it uses."""
    earlier: tuple[str, ...] = ()
    """The conversations that its kept session had before, oldest first: `/clear` begins a new one."""


@dataclass(frozen=True, slots=True)
class CountedUsage:
    """Everything that was counted: rows of all time and of today, by session, folder and model."""

    rows: Sequence[UsageSum] = ()
    today: Sequence[UsageSum] = ()
    worked: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds at work, by session and day."""
    folders: Mapping[str, str | None] = field(default_factory=dict)
    """The folders of the sessions in `worked`."""


@dataclass(frozen=True, slots=True)
class LimitAccount:
    """What was used of one limit: by one session, in one folder, on one day."""

    limit: BudgetLimit
    key: str
    used: float | None
    """None: not known."""
    allowed: float
    sessions: tuple[LiveSession, ...] = ()
    """The running sessions that it is about."""
    unknown: tuple[str, ...] = ()
    """Whose usage is not known, and is not counted."""
    session_id: str | None = None
    folder: str | None = None
    day: str | None = None

    @property
    def is_over(self) -> bool:
        return self.used is not None and self.used >= self.allowed

    @property
    def next_allowed(self) -> float:
        """Return the limit after `approve`: as many steps more as are needed to go on."""
        over = max(0.0, (self.used or 0.0) - self.allowed)
        return self.allowed + self.limit.step * (math.floor(over / self.limit.step) + 1)


def find_accounts(
    limits: Iterable[BudgetLimit],
    sessions: Sequence[LiveSession],
    usage: CountedUsage,
    raised: Mapping[str, float],
    prices: Prices,
    now: float,
) -> list[LimitAccount]:
    """Return what was used of every limit. `raised` has what humans allowed since, by key."""
    day = time.strftime("%Y-%m-%d", time.localtime(now))
    return [one for limit in limits for one in _accounts(limit, sessions, usage, raised, prices, day)]


def _accounts(
    limit: BudgetLimit,
    sessions: Sequence[LiveSession],
    usage: CountedUsage,
    raised: Mapping[str, float],
    prices: Prices,
    day: str,
) -> Iterable[LimitAccount]:
    live = [one for one in sessions if limit.takes(one)]
    daily = "day" in limit.per
    rows = [one for one in (usage.today if daily else usage.rows) if limit.takes_folder(one.folder)]
    worked = {
        key: seconds
        for key, seconds in usage.worked.items()
        if (not daily or key[1] == day) and limit.takes_folder(usage.folders.get(key[0]))
    }
    by_session, by_folder = "session" in limit.per, "folder" in limit.per
    parts: dict[tuple[str | None, str | None], list[LiveSession]] = {}
    for one in live:
        part = (one.id if by_session else None, one.folder if by_folder else None)
        parts.setdefault(part, []).append(one)
    if not by_session and not by_folder:
        parts.setdefault((None, None), [])
    elif not by_session:
        for row in rows:
            parts.setdefault((None, row.folder), [])
    for (session_id, folder), own in parts.items():
        conversations = () if session_id is None else (*own[0].earlier, session_id)
        # With the amount: what was allowed ends when that is edited.
        amount = f"{limit.measure}={limit.most}"
        first = conversations and f"session={conversations[0]}"
        names = (amount, first, by_folder and f"folder={folder}")
        key = "|".join([limit.name, *(one for one in names if one), *([f"day={day}"] if daily else [])])
        mine = [
            row
            for row in rows
            if (session_id is None or row.session_id in conversations)
            and (not by_folder or row.folder == folder)
        ]
        seconds = [
            value
            for (of, _), value in worked.items()
            if (session_id is None or of in conversations)
            and (not by_folder or usage.folders.get(of) == folder)
        ]
        used, partial = _used(limit, mine, seconds, prices)
        # What reports nothing is unknown. What reports and has done nothing yet is zero.
        silent = [] if limit.measure == "time" else [one.label for one in own if not one.reports]
        if used is None and not partial and (not own or len(silent) < len(own)):
            used = 0.0
        unknown = (*silent, *([f"the {limit.measure.replace('_', ' ')} of some messages"] if partial else []))
        allowed = max(limit.most, raised.get(key, 0.0))
        yield LimitAccount(
            limit, key, used, allowed, tuple(own), unknown, session_id, folder, day if daily else None
        )


def _used(
    limit: BudgetLimit, rows: Sequence[UsageSum], seconds: Sequence[float], prices: Prices
) -> tuple[float | None, bool]:
    """Return what is known, None for nothing, and whether something is missing."""
    if limit.measure == "time":
        return (sum(seconds) if seconds else None), False
    if limit.measure == "turns":
        return (float(sum(row.turns for row in rows)) if rows else None), False
    if limit.measure == "cost":
        costs = [prices.cost(row) for row in rows]
        known = [one for one in costs if one is not None]
        return (sum(known) if known else None), len(known) < len(costs)
    kinds = ["output"] if limit.measure == "output_tokens" else ["input", "output", "cache_write"]
    kinds += ["cache_read"] if limit.cache_reads else []
    counts = [getattr(row, kind) for row in rows for kind in kinds]
    known_counts = [one for one in counts if one is not None]
    return (float(sum(known_counts)) if known_counts else None), len(known_counts) < len(counts)


def cost_warnings(limits: Iterable[BudgetLimit], prices: Prices, unpriced: Iterable[str] = ()) -> list[str]:
    """Return why limits on cost may not hold. `unpriced`: models that were used, at an unknown cost."""
    names = [f"'{one.name}'" for one in limits if one.measure == "cost"]
    if not names:
        return []
    found = [
        f'[prices."{model}"] has no {" and no ".join(missing)}: a message that uses it has no known cost'
        for model, table in prices.models.items()
        if (missing := [kind for kind in KINDS if kind not in table])
    ]
    if models := sorted(set(unpriced)):
        found.append(f"these models were used, and their cost is not known: {', '.join(models)}")
    elif not prices.models:
        found.append("[prices] is not set: only the cost that an agent itself reports in USD counts")
    return [f"{' and '.join(names)} may not hold: {one}" for one in found]


# ── what follows ──


@dataclass(frozen=True, slots=True)
class BudgetHold:
    """Why one session is paused."""

    session: LiveSession
    account: LimitAccount

    @property
    def mark(self) -> list[Any]:
        """Return what identifies the request: the same limit, at the same height."""
        return [self.account.key, self.account.allowed]

    def reason(self, currency: str = "") -> str:
        account = self.account
        show = account.limit.show
        used = show(account.used or 0.0, currency)
        return f"budget '{account.limit.name}': {used} used of {show(account.allowed, currency)}"


def holds(accounts: Iterable[LimitAccount]) -> dict[str, BudgetHold]:
    """Return the paused sessions by id, each with the hardest limit that it is over."""
    found: dict[str, BudgetHold] = {}
    for account in accounts:
        if not account.is_over or account.limit.action is BudgetAction.WARN:
            continue
        for session in account.sessions:
            other = found.get(session.id)
            if other is None or _weight(account) > _weight(other.account):
                found[session.id] = BudgetHold(session, account)
    return found


def _weight(account: LimitAccount) -> int:
    return _SEVERITY[account.limit.action]


def hold_entries(
    accounts: Iterable[LimitAccount], until_midnight: float, currency: str = ""
) -> list[dict[str, Any]]:
    """Return what keepers read. A limit for a folder or a day is also for sessions that start later."""
    entries: list[dict[str, Any]] = []
    accounts = list(accounts)
    counted: dict[str, set[str]] = {}
    for account in accounts:
        if account.folder is not None:
            counted.setdefault(account.limit.name, set()).add(account.folder)
    for account in accounts:
        if not account.is_over or account.limit.action is BudgetAction.WARN:
            continue
        until = until_midnight if account.day else None
        same = {"until": until, "limit": account.limit.name}
        nowhere = "folder" in account.limit.per and account.folder is None
        if account.session_id is not None or nowhere:
            for one in account.sessions:
                reason = BudgetHold(one, account).reason(currency)
                entries.append({"session": one.id, "name": one.name, "reason": reason, **same})
            continue
        nobody = LiveSession("", None, None, "", reports=True)
        reason = BudgetHold(nobody, account).reason(currency)
        if account.folder is None:
            entries += [{"folder": one, "reason": reason, **same} for one in account.limit.folders or ["/"]]
            continue
        # What is below counts for it too, unless it is a folder with an account of its own.
        others = sorted(
            one for one in counted[account.limit.name] - {account.folder} if _below(one, account.folder)
        )
        entries.append({"folder": account.folder, "except": others, "reason": reason, **same})
    return entries


# ── the file ──


def read_budget(text: str, home: str, resolve: Callable[[str], str] = normpath) -> tuple[BudgetLimit, ...]:
    """Raises `InvalidOptions` with the line, what is wrong and the right word. `home` is what ~ means.

    `resolve` follows symbolic links: most agents report the folder that a link leads to.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"not TOML: {error}") from None
    reader = _Reader(text, home, resolve)
    for key in document:
        if key != "limit":
            hint = did_you_mean(key, ["limit"]) or "it has [[limit]] tables"
            raise InvalidOptions(f"{reader.line(0, key)}unknown key '{key}'", hint=hint)
    tables = document.get("limit", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise InvalidOptions(f"{reader.line(0, 'limit')}limits must be [[limit]] tables")
    limits = tuple(reader.limit(number, one) for number, one in enumerate(tables, 1))
    for number, limit in enumerate(limits, 1):
        if any(limit.name == other.name for other in limits[: number - 1]):
            raise InvalidOptions(
                f"{reader.line(number, 'name')}two limits are called '{limit.name}'",
                hint='give each a name of its own: name = "…"',
            )
    return limits


class _Reader:
    def __init__(self, text: str, home: str, resolve: Callable[[str], str]) -> None:
        self._lines = text.splitlines()
        self._home = home
        self._resolve = resolve

    def line(self, table: int, key: str) -> str:
        """Return `line 3: ` of a key in a table; 0 is the top. Empty if it is written in another way."""
        at = 0
        wanted = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*(?:=|\]|\.)")
        for number, text in enumerate(self._lines, 1):
            at += bool(re.match(r"\s*\[\[\s*limit\s*\]\]", text))
            if (at == table or not table) and wanted.match(text):
                return f"line {number}: "
        return ""

    def head(self, table: int) -> str:
        heads = [
            number for number, text in enumerate(self._lines, 1) if re.match(r"\s*\[\[\s*limit\s*\]\]", text)
        ]
        return f"line {heads[table - 1]}: " if table <= len(heads) else f"limit {table}: "

    def limit(self, number: int, table: Mapping[str, Any]) -> BudgetLimit:
        def wrong(key: str, text: str, hint: str | None = None) -> InvalidOptions:
            return InvalidOptions(f"{self.line(number, key) or self.head(number)}{text}", hint=hint)

        for key in table:
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS) or f"known: {', '.join(_KEYS)}"
                raise wrong(key, f"unknown key '{key}'", hint)
        measures = [one for one in MEASURES if one in table]
        if len(measures) != 1:
            many = f"has {' and '.join(measures)}" if measures else "has no amount"
            hint = f"write one of {', '.join(MEASURES)} in each [[limit]]"
            raise InvalidOptions(f"{self.head(number)}the limit {many}", hint=hint)
        (measure,) = measures
        most = _amount(measure, measure, table[measure], wrong)
        per = _words("per", table.get("per", "session"), PERIODS, wrong)
        (action,) = _words("action", table.get("action", "pause"), tuple(BudgetAction), wrong, most=1)
        step = _amount(measure, "step", table["step"], wrong) if "step" in table else most
        if step < most * _LEAST_STEP:
            raise wrong(
                "step", f"step {step:g} is too small for {most:g}", "leave it out, or write a larger one"
            )
        sessions = _texts("session", table.get("session", []), wrong)
        if sessions and "session" not in per:
            raise wrong("session", 'session needs per = "session"')
        named = [self._path(one, wrong) for one in _texts("folder", table.get("folder", []), wrong)]
        folders = tuple(dict.fromkeys([*named, *map(self._resolve, named)]))
        cache_reads = table.get("cache_reads", False)
        if not isinstance(cache_reads, bool) or (cache_reads and measure != "tokens"):
            raise wrong("cache_reads", "cache_reads is true or false, and needs tokens")
        name = table.get("name", f"{measure.replace('_', ' ')} per {' and '.join(per)}")
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 80 or "|" in name:
            raise wrong("name", "name must be a text of 1 to 80 printable characters without '|'")
        return BudgetLimit(
            name, measure, most, per, BudgetAction(action), step, sessions, folders, cache_reads
        )

    def _path(self, text: str, wrong: Callable[..., InvalidOptions]) -> str:
        path = self._home + text[1:] if text == "~" or text.startswith("~/") else text
        if not path.startswith("/") or "\0" in path:
            raise wrong("folder", f"folder '{text[:80]}' must begin with / or ~")
        return normpath("/" + path.lstrip("/"))


Wrong = Callable[..., InvalidOptions]


def _amount(measure: str, key: str, value: object, wrong: Wrong) -> float:
    if measure == "time":
        try:
            seconds = as_seconds(key, value)
        except InvalidOptions as error:
            raise wrong(key, error.message, error.hint) from None
        if seconds <= 0:
            raise wrong(key, f"{key} must be more than 0")
        return seconds
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MOST:  # type: ignore[operator]
        raise wrong(key, f"{key} must be a number above 0, not {value!r:.40}")
    if measure != "cost" and not isinstance(value, int):
        raise wrong(key, f"{key} must be an integer, not {value!r:.40}")
    return float(value)  # type: ignore[arg-type]


def _words(key: str, value: object, known: Sequence[str], wrong: Wrong, most: int = 3) -> tuple[str, ...]:
    words = _texts(key, value, wrong)
    for one in words:
        if one not in known:
            hint = did_you_mean(one, known) or f"known: {', '.join(known)}"
            raise wrong(key, f"{key} '{one[:40]}' is not known", hint)
    if not 1 <= len(words) <= most:
        raise wrong(key, f"{key} needs one of: {', '.join(known)}")
    return tuple(one for one in known if one in words)


def _texts(key: str, value: object, wrong: Wrong) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
        raise wrong(key, f"{key} must be a text or a list of texts")
    return tuple(texts)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def as_document(account: LimitAccount, currency: str) -> dict[str, Any]:
    """Return what `remuda budget` lists."""
    limit = account.limit
    return {
        "limit": limit.name,
        "measure": limit.measure,
        "action": str(limit.action),
        "per": list(limit.per),
        "session_id": account.session_id,
        "session": account.sessions[0].label if account.session_id and account.sessions else None,
        "folder": account.folder,
        "day": account.day,
        "used": account.used,
        "allowed": account.allowed,
        "most": limit.most,
        "step": limit.step,
        "currency": currency if limit.measure == "cost" else None,
        "over": account.is_over,
        "unknown": list(account.unknown),
    }
