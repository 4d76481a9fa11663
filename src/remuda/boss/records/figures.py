"""Figures in the database: states over time, usage, and statistics of the queue and of permissions.

Writing is statements for `Store.run`. Reading takes a connection of its own, in a thread: a month of figures
must not hold up the loop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from remuda.errors import StoreFailed

from .database import Connection, DatabaseError, connect_to_read
from .rows import Statement, save_note

QUARTER = 900
HOUR = 3600
STATES_KEPT = 25 * 3600.0
STATE_TIME_KEPT = 32 * 86400.0
TURNS_KEPT = 7 * 86400.0
USAGE_KEPT = 92 * 86400.0
_STATE_ROWS = 200_000
_USAGE_ROWS = 300_000
_READ_ROWS = 50_000
"""A request reads no more rows of items or permissions than this."""


class UsageKey(NamedTuple):
    session_id: str
    turn: str
    model: str
    hour: int


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """What to add to a row of usage."""

    key: UsageKey
    agent: str
    folder: str | None
    account: str | None
    at: float
    messages: int
    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Usage of one group of rows. `costed`: how many of its messages the agent itself gave a cost of."""

    session_id: str
    turn: str
    model: str
    hour: int
    agent: str
    folder: str | None
    account: str | None
    first: float
    last: float
    messages: int
    turns: int
    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    cost: float | None
    costed: int


_COLUMNS = ", ".join(UsageSum.__slots__)
_COUNTERS = ("input", "output", "cache_read", "cache_write", "cost")
_ADDED = ", ".join(
    f"{name} = CASE WHEN excluded.{name} IS NULL THEN {name} ELSE coalesce({name}, 0) + excluded.{name} END"
    for name in _COUNTERS
)
_ADD_USAGE = (
    f"INSERT INTO usage ({_COLUMNS}) VALUES ({', '.join('?' * 17)})"
    " ON CONFLICT (session_id, turn, model, hour) DO UPDATE SET"
    " first = min(first, excluded.first), last = max(last, excluded.last),"
    f" messages = messages + excluded.messages, costed = costed + excluded.costed, {_ADDED}"
)  # every name in it is ours


# ── writing ──


def add_usage(delta: UsageDelta) -> Statement:
    key, cost = delta.key, delta.cost
    values = (delta.input, delta.output, delta.cache_read, delta.cache_write, cost)
    costed = delta.messages if cost is not None else 0
    row = (*key, delta.agent, delta.folder, delta.account, delta.at, delta.at, delta.messages, 0)
    return _ADD_USAGE, (*row, *values, costed)


def save_usage_file(path: str, session_id: str, at: float, document: str) -> Statement:
    sql = "INSERT OR REPLACE INTO usage_file (path, session_id, at, document) VALUES (?, ?, ?, ?)"
    return sql, (path, session_id, at, document)


def add_states(
    changes: Iterable[tuple[str, float, str | None]],
    times: Iterable[tuple[int, str, float]],
    note: str,
    until: float,
) -> Iterator[Statement]:
    """Add changes of states, and how long they lasted. `note` gets the time up to which they are known."""
    yield save_note(note, repr(until))
    for change in changes:
        yield "INSERT OR REPLACE INTO state_change (session_id, at, state) VALUES (?, ?, ?)", change
    for one in times:
        yield (
            "INSERT INTO state_time (quarter, state, seconds) VALUES (?, ?, ?)"
            " ON CONFLICT (quarter, state) DO UPDATE SET seconds = seconds + excluded.seconds",
            one,
        )


def end_states(until: float) -> Iterator[Statement]:
    """End all states at that time: from then on nothing is known, as no boss ran."""
    yield (
        "INSERT OR IGNORE INTO state_change SELECT session_id, max(at + 0.001, ?), NULL FROM"
        " (SELECT session_id, max(at) AS at, state FROM state_change GROUP BY session_id)"
        " WHERE state IS NOT NULL AND state != 'dead'",
        (until,),
    )


def pruning(now: float) -> Iterator[Statement]:
    """Yield statements that keep the tables bounded. Turns older than a week are summed up by hour."""
    # The newest change before the range stays: it says in which state a session went into it.
    yield (
        "DELETE FROM state_change WHERE at < ?1 AND EXISTS (SELECT 1 FROM state_change AS later WHERE"
        " later.session_id = state_change.session_id AND later.at > state_change.at AND later.at <= ?1)",
        (now - STATES_KEPT,),
    )
    yield "DELETE FROM state_change WHERE at < ?", (now - STATE_TIME_KEPT,)
    yield _surplus("state_change", "at", _STATE_ROWS)
    yield "DELETE FROM state_time WHERE quarter < ?", (int(now - STATE_TIME_KEPT) // QUARTER,)
    hour = int(now - TURNS_KEPT) // HOUR
    sums = ", ".join(f"sum({name})" for name in _COUNTERS)
    yield (
        f"INSERT INTO usage ({_COLUMNS}) SELECT session_id, '', model, hour, max(agent), max(folder),"
        f" max(account), min(first), max(last), sum(messages), count(*), {sums}, sum(costed)"
        " FROM usage WHERE hour < ? AND turn != '' GROUP BY session_id, model, hour"
        " ON CONFLICT (session_id, turn, model, hour) DO UPDATE SET turns = turns + excluded.turns,"
        " first = min(first, excluded.first), last = max(last, excluded.last),"
        f" messages = messages + excluded.messages, costed = costed + excluded.costed, {_ADDED}",
        (hour,),
    )
    yield "DELETE FROM usage WHERE hour < ? AND turn != ''", (hour,)
    yield "DELETE FROM usage WHERE hour < ?", (int(now - USAGE_KEPT) // HOUR,)
    yield _surplus("usage", "hour", _USAGE_ROWS)
    yield "DELETE FROM usage_file WHERE at < ?", (now - USAGE_KEPT,)


def _surplus(table: str, column: str, most: int) -> Statement:
    return (
        f"DELETE FROM {table} WHERE {column} <"
        f" (SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT 1 OFFSET ?)",
        (most,),
    )


# ── reading ──


class Figures:
    """Reads the figures of the database at `path`. Every call may block for as long as the disk takes.

    Raises `StoreFailed` if it cannot be read now.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with closing(connect_to_read(self._path)) as connection:
                yield connection
        except DatabaseError as error:  # a lock or a descriptor that was not to be had: the next try may work
            raise StoreFailed(f"cannot read {self._path}: {error}") from error

    def _read(self, sql: str, *values: object) -> list[Any]:
        with self._connected() as connection:
            return connection.execute(sql, values).fetchall()

    def state_changes(self, since: float, until: float, session_id: str | None = None) -> list[Any]:
        """Return (session_id, at, state) in order, with the last one before `since` of each session."""
        return self._read(
            "SELECT session_id, at, state FROM state_change AS one WHERE at <= ?2 AND (?3 IS NULL OR"
            " session_id = ?3) AND (at >= ?1 OR at = (SELECT max(at) FROM state_change AS before WHERE"
            " before.session_id = one.session_id AND before.at < ?1)) ORDER BY session_id, at LIMIT ?4",
            since,
            until,
            session_id,
            _READ_ROWS,
        )

    def state_times(self, since: float, until: float) -> list[Any]:
        """Return (quarter, state, seconds)."""
        return self._read(
            "SELECT quarter, state, seconds FROM state_time WHERE quarter BETWEEN ? AND ? ORDER BY quarter",
            int(since) // QUARTER,
            int(until) // QUARTER,
        )

    def first_state_time(self) -> float | None:
        first = self._read("SELECT min(quarter) FROM state_time")[0][0]
        return None if first is None else float(first * QUARTER)

    def conversations(self, name: str, first_seen: float) -> dict[str, float]:
        """Return the ids of all sessions with that name which were first seen then or later, and when.

        The boss remembers those that ended an hour ago or more on the disk only.
        """
        found = self._read(
            "SELECT id, json_extract(document, '$.first_seen') AS seen FROM session"
            " WHERE json_valid(document) AND json_extract(document, '$.name') = ? AND seen >= ?",
            name,
            first_seen,
        )
        return dict(found)

    def usage(self, since: float, until: float, session_id: str | None = None) -> Iterator[UsageSum]:
        """Yield the rows of usage whose hour is in the range."""
        with self._connected() as connection:
            yield from (
                UsageSum(*row)
                for row in connection.execute(
                    f"SELECT {_COLUMNS} FROM usage WHERE hour BETWEEN ?1 AND ?2"
                    " AND (?3 IS NULL OR session_id = ?3) AND last >= ?4",
                    (int(since) // HOUR, int(until) // HOUR, session_id, since),
                )
            )

    def usage_sums(self, since: float) -> list[UsageSum]:
        """Return the usage since then by session, folder and model. A turn counts once, with any model."""
        sums = ", ".join(f"sum({name})" for name in _COUNTERS)
        found: list[UsageSum] = []
        counted: set[tuple[str, str | None]] = set()
        with self._connected() as connection:
            where = "FROM usage WHERE hour >= ?1 AND first >= ?2 GROUP BY session_id, folder"
            limits = (int(since) // HOUR, since)
            turns = {
                (session_id, folder): count
                for session_id, folder, count in connection.execute(
                    f"SELECT session_id, folder, count(DISTINCT nullif(turn, '')) + sum(turns) {where}",
                    limits,
                )
            }
            for session_id, model, agent, folder, *counts in connection.execute(
                "SELECT session_id, model, max(agent), folder, min(first), max(last), sum(messages), "
                f"{sums}, sum(costed) {where}, model",
                limits,
            ):
                first, last, messages, *values = counts
                of = (session_id, folder)
                own_turns = 0 if of in counted else turns.get(of, 0)
                counted.add(of)
                head = (session_id, "", model, 0, agent, folder, None, first, last, messages, own_turns)
                found.append(UsageSum(*head, *values))
        return found

    def waits(self, since: float, until: float) -> list[Any]:
        """Return (reason, since, resolved_at, resolution) of resolved items, the newest first."""
        return self._read(
            "SELECT json_extract(document, '$.reason'), json_extract(document, '$.since'), resolved_at,"
            " json_extract(document, '$.resolution') FROM item WHERE resolved_at BETWEEN ? AND ?"
            " ORDER BY resolved_at DESC LIMIT ?",
            since,
            until,
            _READ_ROWS,
        )

    def permissions(self, since: float, until: float) -> list[Any]:
        """Return (tool, state, by, behavior, expires_at, at, proof) of requests, the newest first."""
        fields = ", ".join(
            f"json_extract(document, '$.{name}')"
            for name in ("tool", "state", "by", "answer.behavior", "expires_at", "at", "proof")
        )
        rows = self._read(
            f"SELECT {fields} FROM approval WHERE asked_at BETWEEN ? AND ? ORDER BY asked_at DESC LIMIT ?",
            since,
            until,
            _READ_ROWS,
        )
        return [(*row[:6], json.loads(row[6]) if row[6] else None) for row in rows]

    def is_cut(self, rows: list[Any]) -> bool:
        return len(rows) >= _READ_ROWS
