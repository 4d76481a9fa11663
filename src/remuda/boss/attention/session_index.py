"""All sessions, the queue and the permission requests, in memory: takes an event and says what it changes.
Pure.

The store writes `Changes` to disk, those of one event in one transaction, and loads the same index again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import cast

from remuda.agents.permission import read_refusals

from . import identity, redate
from .event_log import EventLog
from .identity import PlaceClaim
from .model import (
    Activity,
    Approval,
    ApprovalState,
    BossSession,
    Event,
    EventKind,
    Item,
    Reason,
    Source,
    Wait,
    digest,
)
from .projection import OVER, Ask, SessionProjection
from .rules import SAME_MOMENT

_MOMENT = 2.0**-20
"""Between two events whose dates cannot be right: they stay in the order in which they arrived."""
_SAVED_EVERY = 3600.0
_RESOLVED = 2
_APPROVALS = 64
"""A dialog, and what was waiting before it."""
_SAVED = tuple(
    one.name
    for one in fields(BossSession)
    if one.name not in ("last_seen", "first_seen", "dated", "state", "since")
)


@dataclass(slots=True)
class SessionEntry:
    """Everything that is known about one session."""

    session: BossSession
    event_log: EventLog = field(default_factory=EventLog)
    item: Item | None = None
    """The open one."""
    approvals: dict[str, Approval] = field(default_factory=dict)
    """Of the dialogs in its event log."""
    saved: BossSession | None = None
    """The session as it is on disk, without what its events say."""
    resolved: tuple[Item, ...] = ()
    """The items that were resolved last, newest first."""


@dataclass(slots=True)
class Changes:
    """What an event changes. Empty for a known event."""

    event: Event | None = None
    redated: dict[str, list[Event]] = field(default_factory=dict)
    """Sessions whose events all have new dates, with those events."""
    folded: list[Event] = field(default_factory=list)
    """Events that a snapshot holds now: they need not be kept."""
    snapshots: dict[str, tuple[float, SessionProjection]] = field(default_factory=dict)
    """Sessions with a new snapshot, and from when on their events are replayed."""
    sessions: dict[str, BossSession] = field(default_factory=dict)
    to_save: set[str] = field(default_factory=set)
    """Sessions with changes that their events do not hold."""
    items: dict[str, Item] = field(default_factory=dict)
    revived: set[str] = field(default_factory=set)
    """Items that are written in any case: their row on disk is wrong now."""
    approvals: dict[str, Approval] = field(default_factory=dict)
    claims: dict[str, PlaceClaim] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Notes to store as well."""

    def __bool__(self) -> bool:
        found = (self.event, self.sessions, self.items, self.approvals, self.claims, self.notes)
        return any(found)


class SessionIndex:
    def __init__(self) -> None:
        self.entries: dict[str, SessionEntry] = {}
        self.claims: dict[str, PlaceClaim] = {}
        self._at: dict[str, set[str]] = {}  # place → sessions that claim to be there
        self._now = 0.0

    # ── making it again ──

    def restore(self, entries: Iterable[SessionEntry], claims: dict[str, PlaceClaim]) -> None:
        self.claims = dict(claims)
        for entry in entries:
            self._place(entry)
        for entry in self.entries.values():
            self._describe(entry)

    def add(self, entry: SessionEntry) -> None:
        self._place(entry)
        self._describe(entry)

    def _describe(self, entry: SessionEntry) -> None:
        entry.session = self._described(entry, entry.session.last_seen)
        wait = None if entry.session.replaced_by else entry.event_log.projection.wait()
        if wait is None:
            entry.item = None
        elif entry.item is None or not _same(entry.item, wait, entry.event_log.projection):
            entry.item = enqueued(entry.session.id, wait)
        else:
            entry.item = _updated(entry.item, wait)

    def _place(self, entry: SessionEntry) -> None:
        """Add an entry from disk: its events say more than its saved session."""
        entry.saved = entry.session
        entry.event_log.replay()
        self.entries[entry.session.id] = entry
        for event in entry.event_log.events:
            place_facts = identity.place_facts(event)
            entry.session = identity.merge(entry.session, event, place_facts)
            self._claim(identity.claims(event, place_facts), Changes())
        self._stand(entry.session, [])

    # ── events ──

    def take(self, event: Event, now: float) -> Changes:
        """Take an event. If `now` is earlier than before, all dates move with it."""
        set_back = now < self._now - redate.AHEAD
        changes = self.redate(now - self._now - redate.UNSEEN) if set_back else Changes()
        self._now = now
        entry = self.entries.get(event.session_id) or SessionEntry(BossSession(event.session_id))
        if event.at > now + redate.AHEAD:  # else it would shut out everything that happens until then
            event = replace(event, at=max(now, entry.event_log.last_at + _MOMENT))
        fresh = entry.event_log.take(event) if event.kind is not EventKind.SEEN else True
        if not fresh and event.session_id in self.entries:
            return changes
        self.entries[event.session_id] = entry
        if event.kind is not EventKind.SEEN:
            changes.event = event
            if trimmed := entry.event_log.trim():
                changes.folded = trimmed
                changes.snapshots[event.session_id] = (entry.event_log.snapshot_at, entry.event_log.snapshot)
        place_facts = identity.place_facts(event)
        before, entry.session = entry.session, identity.merge(entry.session, event, place_facts)
        claims = identity.claims(event, place_facts)
        places = {*identity.places(before), *identity.places(entry.session), *claims}
        self._stand(entry.session, identity.places(before))
        self._claim(claims, changes)
        for one in self._affected(event.session_id, places):
            self._settle(self.entries[one], event.at, changes)
        if entry.item is not None and _is_new_stop(event, entry.item):
            entry.item = replace(entry.item, skip_until=None, skipped_at=None)
            changes.items[entry.item.id] = entry.item
            changes.revived.add(entry.item.id)
        if changes.event is not None or _differs(before, entry.session):
            changes.sessions[event.session_id] = entry.session
        for one in changes.sessions:
            if _must_be_saved(self.entries[one]):
                changes.to_save.add(one)
                self.entries[one].saved = self.entries[one].session
        return changes

    def newest(self, entries: Iterable[SessionEntry] | None = None) -> float:
        """Return the latest date of anything known; 0 for nothing."""
        ones = list(self.entries.values() if entries is None else entries)
        claims = [claim.at for claim in self.claims.values()] if entries is None else []
        dates = [max(one.session.last_seen, one.event_log.last_at) for one in ones]
        return max([*dates, *claims], default=0.0)

    def redate(self, by: float, entries: Iterable[SessionEntry] | None = None) -> Changes:
        """Move every date of all sessions, or of these: the clock was set by `by` seconds."""
        by, changes = redate.step(by), Changes()
        if entries is None:
            self._now += by
            self.claims = {place: redate.move_claim(claim, by) for place, claim in self.claims.items()}
            changes.claims.update(self.claims)
        for one in list(self.entries.values() if entries is None else entries):
            _redate(one, by, changes)
        return changes

    def _claim(self, claims: Mapping[str, PlaceClaim], changes: Changes) -> None:
        for place, claim in claims.items():
            held = self.claims.get(place)
            if identity.newer(claim, held):
                self.claims[place] = claim
                if held is None or (held.session_id, held.pid) != (claim.session_id, claim.pid):
                    changes.claims[place] = claim

    def _affected(self, session_id: str, places: set[str]) -> list[str]:
        """Return the sessions that may be replaced or come back.

        Placeholders are last: they depend on the others.
        """
        first = {session_id, *self._beside(places)}
        if len(first) == 1:
            return [session_id]
        real = {one for one in first if not identity.is_stand_in(one)}
        beside = self._beside(place for one in real for place in identity.places(self.entries[one].session))
        return sorted(first | {one for one in beside if identity.is_stand_in(one)}, key=identity.is_stand_in)

    def _beside(self, places: Iterable[str]) -> set[str]:
        """Return the sessions that claim to be there."""
        return {one for place in places for one in self._at.get(place, ())}

    def _stand(self, session: BossSession, before: list[str]) -> None:
        for place in before:
            self._at.get(place, set()).discard(session.id)
        for place in identity.places(session):
            self._at.setdefault(place, set()).add(session.id)

    def _replaced_by(self, session: BossSession) -> str | None:
        for place in identity.rivals(session):
            if (held := self.claims.get(place)) is None:
                continue
            holder = self.entries.get(held.session_id)
            if identity.is_replaced(session, place, held, holder.session if holder else None):
                return held.session_id
        return None

    # ── what follows ──

    def _settle(self, entry: SessionEntry, at: float, changes: Changes) -> None:
        projection, session = entry.event_log.projection, entry.session
        settled = self._described(entry, at)
        replaced_by = settled.replaced_by
        if settled != session:
            entry.session = changes.sessions[session.id] = settled
        self._settle_item(entry, None if replaced_by else projection.wait(), at, changes)
        asks = (*projection.asks, *([projection.hold] if projection.hold is not None else []))
        for ask in asks:
            if ask.key and not ask.facts.get("at_terminal"):
                self._settle_approval(entry, projection, ask, replaced_by, changes)
        dialog_ids = {ask.id for ask in asks}
        self._withdraw(entry, dialog_ids, at, changes)
        if len(entry.approvals) > _APPROVALS:  # the older ones are on disk
            newest = {*list(entry.approvals)[-_APPROVALS:], *dialog_ids}
            entry.approvals = {
                one.id: one
                for one in entry.approvals.values()
                if one.id in newest or one.state is ApprovalState.OPEN
            }

    def _described(self, entry: SessionEntry, at: float) -> BossSession:
        projection, session = entry.event_log.projection, entry.session
        replaced_by = self._replaced_by(session)
        over = replaced_by is not None or projection.activity in OVER
        return replace(
            session,
            state=Activity.ENDED if replaced_by and projection.activity not in OVER else projection.state,
            since=projection.state_since,
            ended=(session.ended or at) if over else None,
            replaced_by=replaced_by,
        )

    def _settle_item(self, entry: SessionEntry, wait: Wait | None, at: float, changes: Changes) -> None:
        item, projection = entry.item, entry.event_log.projection
        if item is not None and wait is not None and _same(item, wait, projection):
            entry.item = _updated(item, wait)
            if entry.item != item:
                changes.items[item.id] = entry.item
            return
        if item is not None:
            resolution = "replaced" if entry.session.replaced_by else _resolution(item, wait, projection)
            resolved = changes.items[item.id] = replace(
                item, resolved_at=max(at, item.since), resolution=resolution
            )
            entry.resolved = (resolved, *entry.resolved)[:_RESOLVED]
            entry.item = None
        if wait is not None:
            revived = (_revived(one, wait, projection) for one in entry.resolved)
            earlier = next(filter(None, revived), None)
            entry.item = earlier or enqueued(entry.session.id, wait)
            changes.items[entry.item.id] = entry.item
            if earlier is not None:
                changes.revived.add(earlier.id)

    def _settle_approval(
        self,
        entry: SessionEntry,
        projection: SessionProjection,
        ask: Ask,
        replaced_by: str | None,
        changes: Changes,
    ) -> None:
        is_hold = ask is projection.hold
        is_shut = ask is not projection.open_hold if is_hold else ask.asked_at <= projection.shut_at
        is_open = ask.ended_at is None and not is_shut and not replaced_by
        before = entry.approvals.get(ask.id)
        after = before or _approval(entry.session.id, ask)
        if is_open and after.state is ApprovalState.ENDED:
            after = replace(after, state=ApprovalState.OPEN, at=None)
        elif not is_open and after.state is ApprovalState.OPEN:
            after = replace(after, state=ApprovalState.ENDED, at=ask.ended_at or projection.shut_at)
        if ask.proof != after.proof:
            after = replace(after, proof=ask.proof)
        over = projection.over_budget if is_open and not is_hold else ""
        if over != after.detail.get("over_budget", ""):
            others = {name: value for name, value in after.detail.items() if name != "over_budget"}
            after = replace(after, detail=others | ({"over_budget": over} if over else {}))
        if after != before:
            entry.approvals[ask.id] = changes.approvals[ask.id] = after

    def _withdraw(self, entry: SessionEntry, dialog_ids: set[str], at: float, changes: Changes) -> None:
        """End open requests whose dialog does not count any more, because of a late event."""
        for approval in list(entry.approvals.values()):
            if approval.id not in dialog_ids and approval.state is ApprovalState.OPEN:
                ended = replace(approval, state=ApprovalState.ENDED, at=at)
                entry.approvals[approval.id] = changes.approvals[approval.id] = ended

    # ── what humans do ──

    def change_item(self, item: Item) -> Changes:
        """Store an item that was skipped or snoozed."""
        self.entries[item.session_id].item = item
        return Changes(items={item.id: item})

    def change_approval(self, approval: Approval) -> Changes:
        entry = self.entries.get(approval.session_id)
        if entry is not None:
            entry.approvals[approval.id] = approval
        return Changes(approvals={approval.id: approval})

    def forget(self, session_id: str) -> None:
        """Drop a session that is over from memory; the store still has it, and its claims stay."""
        entry = self.entries.pop(session_id)
        self._stand(replace(entry.session, pane=None, pid=None, name=None), identity.places(entry.session))

    def queue(self) -> list[Item]:
        """Return all open items in order."""
        items = (entry.item for entry in self.entries.values() if entry.item is not None)
        return sorted(items, key=lambda item: item.place)


def _redate(entry: SessionEntry, by: float, changes: Changes) -> None:
    entry.event_log = redate.move_log(entry.event_log, by)
    entry.session = entry.saved = redate.move_session(entry.session, by)
    entry.item = redate.move_item(entry.item, by) if entry.item is not None else None
    entry.resolved = tuple(redate.move_item(item, by) for item in entry.resolved)
    entry.approvals = {one.id: redate.move_approval(one, by) for one in entry.approvals.values()}
    session_id, event_log = entry.session.id, entry.event_log
    changes.sessions[session_id] = entry.session
    changes.to_save.add(session_id)
    changes.redated[session_id] = list(event_log.events)
    if event_log.snapshot_at:
        changes.snapshots[session_id] = (event_log.snapshot_at, event_log.snapshot)
    if entry.item is not None:
        changes.items[entry.item.id] = entry.item
        changes.revived.add(entry.item.id)
    changes.approvals.update(entry.approvals)


def _differs(before: BossSession, after: BossSession) -> bool:
    """Whether more has changed than the time when it was last seen."""
    return replace(after, last_seen=before.last_seen, dated=before.dated) != before


def _must_be_saved(entry: SessionEntry) -> bool:
    """What its events say need not be saved as well."""
    now, then = entry.session, entry.saved
    if then is None or now.last_seen > then.last_seen + _SAVED_EVERY:
        return True
    return any(getattr(now, name) != getattr(then, name) for name in _SAVED)


def _same(item: Item, wait: Wait, projection: SessionProjection) -> bool:
    """Whether it is the same wait, with more known about it.

    A wait for another reason does not begin later.
    """
    if _lay_over(item, wait, projection):
        return False
    later = wait.since - item.since
    return later <= SAME_MOMENT if item.reason == wait.reason else -SAME_MOMENT <= later <= 0


def _lay_over(item: Item, wait: Wait, projection: SessionProjection) -> bool:
    """Whether the dialog is over, and the session waits for what was there before. That may have been
    answered before, as a later event may show: the item stays.
    """
    if wait.since > item.since or (dialog := item.detail.get("ask")) in (None, wait.detail.get("ask")):
        return False
    is_open = {ask.id for ask in projection.open_asks}
    return dialog not in is_open and any(dialog == ask.id for ask in projection.asks)


def _is_new_stop(event: Event, item: Item) -> bool:
    """Whether its hook reports again, after the item was skipped, that a human is needed."""
    asks = event.kind in (EventKind.STOPPED, EventKind.ASKED) and event.source is Source.HOOK
    return asks and item.skipped_at is not None and event.at > item.skipped_at


def _resolution(item: Item, wait: Wait | None, projection: SessionProjection) -> str:
    if wait is None:
        return projection.why or "working"
    return "answered" if _lay_over(item, wait, projection) else "moved_on"


def _revived(last: Item, wait: Wait, projection: SessionProjection) -> Item | None:
    """Return the item if it was resolved too early, before a late event arrived; else None."""
    if last.resolved_at is None or wait.since > last.resolved_at or not _same(last, wait, projection):
        return None
    return _updated(replace(last, resolved_at=None, resolution=None), wait)


def _updated(item: Item, wait: Wait) -> Item:
    return replace(item, reason=wait.reason, since=wait.since, message=wait.message, detail=wait.detail)


def enqueued(session_id: str, wait: Wait) -> Item:
    """The same events lead to the same id."""
    item_id = make_item_id(session_id, wait.reason, wait.since)
    return Item(item_id, session_id, wait.reason, wait.since, wait.message, wait.detail)


def make_item_id(session_id: str, reason: Reason, since: float) -> str:
    return digest(session_id, [reason, since])[:10]


_TOLD = ("diff", "options", "message", "permission_mode", "cwd", "hearsay")
_CALL_FOLDER = "call_cwd"
"""Where the tool would run. A request without it says that with the folder of the session."""


def _approval(session_id: str, ask: Ask) -> Approval:
    facts = ask.facts
    given, suggestions, expires = facts.get("input"), facts.get("suggestions"), facts.get("expires_at")
    return Approval(
        id=ask.id,
        session_id=session_id,
        reason=ask.reason,
        tool=str(facts.get("tool", "")),
        input=given if isinstance(given, dict) else {},
        asked_at=ask.asked_at,
        tool_use_id=ask.tool_use_id,
        suggestions=tuple(suggestions) if isinstance(suggestions, list) else (),
        detail={name: facts[name] for name in _TOLD if name in facts}
        | ({"cwd": facts[_CALL_FOLDER]} if _CALL_FOLDER in facts else {}),
        refuses=cast("Mapping[str, str]", read_refusals(facts.get("refuses"))),
        expires_at=expires if isinstance(expires, float) else None,
    )
