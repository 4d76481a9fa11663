"""Convert what the boss knows to rows of its database, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from remuda.untrusted import OWN_DEPTH, BadJson, bounded, parse_json

from ..attention import projection
from ..attention.event_log import EventLog
from ..attention.identity import PlaceClaim, without_stored_hearsay
from ..attention.model import (
    Activity,
    Approval,
    ApprovalState,
    BossSession,
    Event,
    EventKind,
    Item,
    Origin,
    Reason,
    Source,
)
from ..attention.session_index import Changes, SessionEntry, make_item_id

SCHEMA = """
CREATE TABLE session (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, last_seen REAL NOT NULL, ended REAL, document TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE base (
    session_id TEXT PRIMARY KEY, at REAL NOT NULL, document TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE event (
    session_id TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, source INTEGER NOT NULL, kind TEXT NOT NULL,
    facts TEXT NOT NULL, PRIMARY KEY (session_id, id)
) WITHOUT ROWID;
CREATE TABLE item (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL, resolved_at REAL, document TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX item_resolved ON item (resolved_at);
CREATE INDEX item_session ON item (session_id, resolved_at);
CREATE TABLE approval (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL, state TEXT NOT NULL, asked_at REAL NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX approval_asked ON approval (asked_at);
CREATE INDEX approval_session ON approval (session_id, asked_at);
CREATE TABLE claim (
    place TEXT PRIMARY KEY, session_id TEXT NOT NULL, at REAL NOT NULL, pid INTEGER
) WITHOUT ROWID;
CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
"""Version 1: that of the first release. Never changed."""

_FIGURES = """
CREATE TABLE state_change (
    session_id TEXT NOT NULL, at REAL NOT NULL, state TEXT, PRIMARY KEY (session_id, at)
) WITHOUT ROWID;
CREATE INDEX state_change_at ON state_change (at);
CREATE TABLE state_time (
    quarter INTEGER NOT NULL, state TEXT NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (quarter, state)
) WITHOUT ROWID;
CREATE TABLE usage (
    session_id TEXT NOT NULL, turn TEXT NOT NULL, model TEXT NOT NULL, hour INTEGER NOT NULL,
    agent TEXT NOT NULL, folder TEXT, account TEXT, first REAL NOT NULL, last REAL NOT NULL,
    messages INTEGER NOT NULL, turns INTEGER NOT NULL,
    input INTEGER, output INTEGER, cache_read INTEGER, cache_write INTEGER,
    cost REAL, costed INTEGER NOT NULL,
    PRIMARY KEY (session_id, turn, model, hour)
) WITHOUT ROWID;
CREATE INDEX usage_hour ON usage (hour);
CREATE TABLE usage_file (
    path TEXT PRIMARY KEY, session_id TEXT NOT NULL, at REAL NOT NULL, document TEXT NOT NULL
) WITHOUT ROWID;
"""
_OPEN_FIRST = """
CREATE INDEX approval_state ON approval (state, asked_at);
"""
"""Open requests are few among the decided ones, and every face asks for them."""
MIGRATIONS: tuple[str, ...] = (_FIGURES, _OPEN_FIRST)
"""What each version adds to the one before. A new database goes through all of them too."""
VERSION = 1 + len(MIGRATIONS)

Statement = tuple[str, tuple[Any, ...]]


def statements(changes: Changes) -> Iterator[Statement]:
    """Yield the statements for everything that one event changes."""
    for session_id, events in changes.redated.items():
        yield "DELETE FROM event WHERE session_id = ?", (session_id,)
        yield from map(_insert, events)
    if changes.event is not None:
        yield _insert(changes.event)
    for event in changes.folded:
        yield "DELETE FROM event WHERE session_id = ? AND id = ?", (event.session_id, event.id)
    for session_id, (at, snapshot) in changes.snapshots.items():
        yield (
            "INSERT OR REPLACE INTO base (session_id, at, document) VALUES (?, ?, ?)",
            (session_id, at, _json(projection.save(snapshot))),
        )
    for session in (changes.sessions[session_id] for session_id in changes.to_save):
        yield (
            "INSERT OR REPLACE INTO session (id, state, last_seen, ended, document) VALUES (?, ?, ?, ?, ?)",
            (session.id, str(session.state), session.last_seen, session.ended, _json(_plain(session))),
        )
    for item in (one for one in changes.items.values() if _is_kept(one) or one.id in changes.revived):
        yield (
            "INSERT OR REPLACE INTO item (id, session_id, resolved_at, document) VALUES (?, ?, ?, ?)",
            (item.id, item.session_id, item.resolved_at, _json(_plain(item))),
        )
    for one in changes.approvals.values():
        yield (
            "INSERT OR REPLACE INTO approval (id, session_id, state, asked_at, document)"
            " VALUES (?, ?, ?, ?, ?)",
            (one.id, one.session_id, str(one.state), one.asked_at, _json(_plain(one))),
        )
    for place, claim in changes.claims.items():
        yield (
            "INSERT OR REPLACE INTO claim (place, session_id, at, pid) VALUES (?, ?, ?, ?)",
            (place, claim.session_id, claim.at, claim.pid),
        )
    yield from (save_note(name, value) for name, value in changes.notes.items())


def save_note(name: str, value: str) -> Statement:
    return "INSERT OR REPLACE INTO note (name, value) VALUES (?, ?)", (name, value)


def _insert(event: Event) -> Statement:
    return (
        "INSERT OR IGNORE INTO event (session_id, id, at, source, kind, facts) VALUES (?, ?, ?, ?, ?, ?)",
        (event.session_id, event.id, event.at, int(event.source), str(event.kind), _json(event.facts)),
    )


def _is_kept(item: Item) -> bool:
    """Whether an item needs a row. Events rebuild an open item, but not what humans did with it."""
    handled = item.resolved_at or item.skip_until or item.skipped_at or item.snooze_until
    return bool(handled) or item.id != make_item_id(item.session_id, item.reason, item.since)


_PRUNE = (
    "DELETE FROM item WHERE resolved_at < ?",
    "DELETE FROM approval WHERE asked_at < ? AND state != 'open'",
)
_FORGET = (
    "DELETE FROM session WHERE coalesce(ended, last_seen) < ? AND id NOT IN (SELECT value FROM json_each(?))"
)
_ORPHANS = (
    "DELETE FROM event WHERE session_id NOT IN (SELECT id FROM session)",
    "DELETE FROM base WHERE session_id NOT IN (SELECT id FROM session)",
    "DELETE FROM claim WHERE session_id NOT IN (SELECT id FROM session)",
)
_SURPLUS = (
    "DELETE FROM item WHERE resolved_at IS NOT NULL AND id NOT IN"
    " (SELECT id FROM item WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC LIMIT ?)"
)


def pruning(before: float, history: int, keep: list[str]) -> Iterator[Statement]:
    """Yield statements that delete what ended before `before`, and all but `history` resolved items."""
    yield from ((sql, (before,)) for sql in _PRUNE)
    yield _FORGET, (before, _json(keep))
    yield from ((sql, ()) for sql in _ORPHANS)
    yield _SURPLUS, (history,)


_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _plain(value: BossSession | Item | Approval) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


# ── back ──


def _read(text: str) -> Any:
    """Versions before 0.2 wrote numbers that JSON does not have."""
    try:
        return parse_json(text, depth=OWN_DEPTH)
    except BadJson:
        return _read_old(text)


def _read_old(text: str) -> Any:
    try:
        return bounded(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadJson(str(error)) from None


def read_item(document: str) -> Item:
    fields_known = _known(Item, _read(document))
    return Item(**fields_known | {"reason": Reason(fields_known["reason"])})


def read_session(document: str) -> BossSession:
    fields_known = _known(BossSession, _read(document))
    session = BossSession(
        **fields_known | {"state": Activity(fields_known["state"]), "origin": Origin(fields_known["origin"])}
    )
    return without_stored_hearsay(session)


def read_approval(document: str) -> Approval:
    fields_known = _known(Approval, _read(document))
    return Approval(
        **fields_known
        | {
            "reason": Reason(fields_known["reason"]),
            "state": ApprovalState(fields_known["state"]),
            "suggestions": tuple(fields_known["suggestions"]),
        }
    )


def read_event(session_id: str, event_id: str, at: float, source: int, kind: str, facts: str) -> Event:
    return Event(EventKind(kind), session_id, at, Source(source), event_id, _read(facts))


def read_entry(
    session: str,
    snapshot: tuple[float, str] | None,
    events: list[Event],
    item: Item | None,
    approvals: list[str],
) -> SessionEntry:
    event_log = EventLog(events=events)
    if snapshot is not None:
        event_log.snapshot_at, event_log.snapshot = snapshot[0], projection.load(_read(snapshot[1]))
    ledger = [read_approval(one) for one in approvals]
    return SessionEntry(read_session(session), event_log, item, {one.id: one for one in reversed(ledger)})


def read_claims(rows: Iterable[tuple[str, str, float, int | None]]) -> dict[str, PlaceClaim]:
    return {place: PlaceClaim(session_id, at, pid) for place, session_id, at, pid in rows}


def _known(kind: type, document: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields that a later version has added."""
    return {one.name: document[one.name] for one in fields(kind) if one.name in document}
