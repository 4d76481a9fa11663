"""Move all stored dates after the clock was set. Pure.

Events are ordered by their dates, which are those of the wall clock. When that clock is set, every date moves
with it: the order and the age of events stay the same. Only the end of a limit stays: the service named it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .event_log import EventLog
from .identity import PlaceClaim
from .model import Approval, BossSession, Event, EventKind, Item
from .projection import Ask, SessionProjection
from .rules import make_ask_id

AHEAD = 2.0
"""Seconds. Clocks that differ by less are equal; a date further ahead of now cannot be right."""
UNSEEN = 60.0
"""Seconds. If it is not known when the clock was set, the newest date is moved this far before now: the next
event may have happened a moment ago.
"""
_STEP = 1024.0

Date = TypeVar("Date", float, float | None)


def step(by: float) -> float:
    """Round a number of seconds so that dates can be moved by it and back again without a change."""
    return round(by * _STEP) / _STEP


def move(at: Date, by: float) -> Date:
    """Move a time; None and 0 mean never, and stay."""
    return at + by if at else at


def move_event(event: Event, by: float) -> Event:
    """Move the time of an event.

    A dialog keeps the id made from its first time, because permission requests and links refer to it.
    """
    named = event.kind in (EventKind.ASKED, EventKind.HELD) and "ask" not in event.facts
    facts = {**event.facts, "ask": make_ask_id(event)} if named else event.facts
    return replace(event, at=event.at + by, facts=facts)


def move_log(event_log: EventLog, by: float) -> EventLog:
    moved = EventLog(
        move_projection(event_log.snapshot, by),
        move(event_log.snapshot_at, by),
        [move_event(event, by) for event in event_log.events],
    )
    moved.replay()
    return moved


def move_projection(projection: SessionProjection, by: float) -> SessionProjection:
    return replace(
        projection,
        since=move(projection.since, by),
        shut_at=move(projection.shut_at, by),
        continued_at=move(projection.continued_at, by),
        dismissed_at=move(projection.dismissed_at, by),
        asks=tuple(_move_ask(ask, by) for ask in projection.asks),
        hold=_move_ask(projection.hold, by) if projection.hold is not None else None,
        calls={
            tool_use_id: replace(call, at=move(call.at, by)) for tool_use_id, call in projection.calls.items()
        },
        earlier=tuple(_move_at(one, by) for one in projection.earlier),
        unrepeated=tuple((words, move(at, by)) for words, at in projection.unrepeated),
    )


def _move_ask(ask: Ask, by: float) -> Ask:
    return replace(
        ask,
        asked_at=move(ask.asked_at, by),
        ended_at=move(ask.ended_at, by),
        proof=_move_at(ask.proof, by) if ask.proof is not None else None,
    )


def _move_at(document: Mapping[str, Any], by: float) -> Mapping[str, Any]:
    at = document.get("at")
    return {**document, "at": move(float(at), by)} if isinstance(at, int | float) else document


def move_session(session: BossSession, by: float) -> BossSession:
    return replace(
        session,
        since=move(session.since, by),
        first_seen=move(session.first_seen, by),
        last_seen=move(session.last_seen, by),
        ended=move(session.ended, by),
        dated={name: move(at, by) for name, at in session.dated.items()},
    )


def move_item(item: Item, by: float) -> Item:
    """Move the times of an item. A skipped or snoozed one stays hidden for the time that was left."""
    return replace(
        item,
        since=move(item.since, by),
        skip_until=move(item.skip_until, by),
        skipped_at=move(item.skipped_at, by),
        snooze_until=move(item.snooze_until, by),
        resolved_at=move(item.resolved_at, by),
    )


def move_approval(approval: Approval, by: float) -> Approval:
    return replace(
        approval,
        asked_at=move(approval.asked_at, by),
        expires_at=move(approval.expires_at, by),
        at=move(approval.at, by),
        delivered_at=move(approval.delivered_at, by),
        proof=_move_at(approval.proof, by) if approval.proof is not None else None,
    )


def move_claim(claim: PlaceClaim, by: float) -> PlaceClaim:
    return replace(claim, at=move(claim.at, by))
