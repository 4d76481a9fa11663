"""What the boss knows as rows of its database, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from remuda.untrusted import OWN_DEPTH, BadJson, bounded, parse_json

from ..attention import standing
from ..attention.identity import Claim, without_stored_hearsay
from ..attention.model import (
    Approval,
    ApprovalState,
    Event,
    EventKind,
    Item,
    Origin,
    Reason,
    Session,
    Source,
    State,
)
from ..attention.roster import Changes, Known, item_number
from ..attention.story import Story

VERSION = 1

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

Statement = tuple[str, tuple[Any, ...]]


def statements(changes: Changes) -> Iterator[Statement]:
    """All that one event changes. `based` stories are told by `bases`, which needs the story itself."""
    for session_id, events in changes.redated.items():
        yield "DELETE FROM event WHERE session_id = ?", (session_id,)
        yield from map(_insert, events)
    if changes.event is not None:
        yield _insert(changes.event)
    for told in changes.told:
        yield "DELETE FROM event WHERE session_id = ? AND id = ?", (told.session_id, told.id)
    for session_id, (at, base) in changes.based.items():
        yield (
            "INSERT OR REPLACE INTO base (session_id, at, document) VALUES (?, ?, ?)",
            (session_id, at, _json(standing.save(base))),
        )
    for session in (changes.sessions[number] for number in changes.to_save):
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
    """One that waits is made again from its events, but for what humans did with it."""
    handled = item.resolved_at or item.skip_until or item.skipped_at or item.snooze_until
    return bool(handled) or item.id != item_number(item.session_id, item.reason, item.since)


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
    """Forget what is over and older than that, and more of the queue's history than so many."""
    yield from ((sql, (before,)) for sql in _PRUNE)
    yield _FORGET, (before, _json(keep))
    yield from ((sql, ()) for sql in _ORPHANS)
    yield _SURPLUS, (history,)


_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _plain(value: Session | Item | Approval) -> dict[str, Any]:
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
    found = _known(Item, _read(document))
    return Item(**found | {"reason": Reason(found["reason"])})


def read_session(document: str) -> Session:
    found = _known(Session, _read(document))
    session = Session(**found | {"state": State(found["state"]), "origin": Origin(found["origin"])})
    return without_stored_hearsay(session)


def read_approval(document: str) -> Approval:
    found = _known(Approval, _read(document))
    return Approval(
        **found
        | {
            "reason": Reason(found["reason"]),
            "state": ApprovalState(found["state"]),
            "suggestions": tuple(found["suggestions"]),
        }
    )


def read_event(session_id: str, number: str, at: float, source: int, kind: str, facts: str) -> Event:
    return Event(EventKind(kind), session_id, at, Source(source), number, _read(facts))


def read_known(
    session: str, base: tuple[float, str] | None, events: list[Event], item: Item | None, approvals: list[str]
) -> Known:
    story = Story(events=events)
    if base is not None:
        story.base_at, story.base = base[0], standing.load(_read(base[1]))
    ledger = [read_approval(one) for one in approvals]
    return Known(read_session(session), story, item, {one.id: one for one in reversed(ledger)})


def read_claims(rows: Iterable[tuple[str, str, float, int | None]]) -> dict[str, Claim]:
    return {place: Claim(session_id, at, pid) for place, session_id, at, pid in rows}


def _known(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    """What a later version has added is left out."""
    return {one.name: found[one.name] for one in fields(kind) if one.name in found}
