"""All sessions, the queue and the ledger, in memory: takes an event and says what it changes. Pure.

The store carries `Changes` out on the disk, all of one event in one transaction, and makes the same roster
again from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from . import identity, redate
from .identity import Claim
from .model import (
    Approval,
    ApprovalState,
    Event,
    EventKind,
    Item,
    Reason,
    Session,
    Source,
    State,
    Wait,
    digest,
)
from .rules import SAME_MOMENT
from .standing import OVER, Ask, Standing
from .story import Story

_MOMENT = 2.0**-20
"""Between two events whose dates cannot be right: they stay in the order in which they came."""
_SAVED_EVERY = 3600.0
_RESOLVED = 2
_APPROVALS = 64
"""A dialog, and what it lay over."""
_SAVED = tuple(
    one.name
    for one in fields(Session)
    if one.name not in ("last_seen", "first_seen", "dated", "state", "since")
)


@dataclass(slots=True)
class Known:
    """All that is known of one session."""

    session: Session
    story: Story = field(default_factory=Story)
    item: Item | None = None
    """The open one."""
    approvals: dict[str, Approval] = field(default_factory=dict)
    """Of the dialogs that its story still tells of."""
    saved: Session | None = None
    """The session as it is on the disk; what its events say stands there in them."""
    resolved: tuple[Item, ...] = ()
    """The items that were resolved last, the newest first."""


@dataclass(slots=True)
class Changes:
    """What is different after an event. Empty for one that was known."""

    event: Event | None = None
    redated: dict[str, list[Event]] = field(default_factory=dict)
    """Sessions whose events all have new dates, with those events."""
    told: list[Event] = field(default_factory=list)
    """Events that the base of a story holds now: they need not be kept."""
    based: dict[str, tuple[float, Standing]] = field(default_factory=dict)
    """Sessions whose story has a new base, and from when on it is told."""
    sessions: dict[str, Session] = field(default_factory=dict)
    to_save: set[str] = field(default_factory=set)
    """Those whose events alone do not say all that has changed."""
    items: dict[str, Item] = field(default_factory=dict)
    revived: set[str] = field(default_factory=set)
    """Of the items those that are written in any case: their row on the disk is not true any more."""
    approvals: dict[str, Approval] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """What is to be remembered beside it."""

    def __bool__(self) -> bool:
        found = (self.event, self.sessions, self.items, self.approvals, self.claims, self.notes)
        return any(found)


class Roster:
    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.claims: dict[str, Claim] = {}
        self._at: dict[str, set[str]] = {}  # place → sessions that say they are there
        self._now = 0.0

    # ── making it again ──

    def restore(self, known: Iterable[Known], claims: dict[str, Claim]) -> None:
        self.claims = dict(claims)
        for one in known:
            self._place(one)
        for one in self.known.values():
            self._describe(one)

    def add(self, known: Known) -> None:
        self._place(known)
        self._describe(known)

    def _describe(self, known: Known) -> None:
        known.session = self._described(known, known.session.last_seen)
        wait = None if known.session.replaced_by else known.story.standing.wait()
        if wait is None:
            known.item = None
        elif known.item is None or not _same(known.item, wait, known.story.standing):
            known.item = enqueued(known.session.id, wait)
        else:
            known.item = _updated(known.item, wait)

    def _place(self, known: Known) -> None:
        """Put it where it was: its events say more than what is saved of it."""
        known.saved = known.session
        known.story.retell()
        self.known[known.session.id] = known
        for event in known.story.events:
            told = identity.told_by(event)
            known.session = identity.merge(known.session, event, told)
            self._claim(identity.claims(event, told), Changes())
        self._stand(known.session, [])

    # ── events ──

    def take(self, event: Event, now: float) -> Changes:
        """`now` may be earlier than before: then all dates move with it."""
        set_back = now < self._now - redate.AHEAD
        changes = self.redate(now - self._now - redate.UNSEEN) if set_back else Changes()
        self._now = now
        known = self.known.get(event.session_id) or Known(Session(event.session_id))
        if event.at > now + redate.AHEAD:  # it must not keep out all that happens until then
            event = replace(event, at=max(now, known.story.last_at + _MOMENT))
        fresh = known.story.take(event) if event.kind is not EventKind.SEEN else True
        if not fresh and event.session_id in self.known:
            return changes
        self.known[event.session_id] = known
        if event.kind is not EventKind.SEEN:
            changes.event = event
            if trimmed := known.story.trim():
                changes.told = trimmed
                changes.based[event.session_id] = (known.story.base_at, known.story.base)
        told = identity.told_by(event)
        before, known.session = known.session, identity.merge(known.session, event, told)
        claims = identity.claims(event, told)
        places = {*identity.places(before), *identity.places(known.session), *claims}
        self._stand(known.session, identity.places(before))
        self._claim(claims, changes)
        for one in self._affected(event.session_id, places):
            self._settle(self.known[one], event.at, changes)
        if known.item is not None and _is_new_stop(event, known.item):
            known.item = replace(known.item, skip_until=None, skipped_at=None)
            changes.items[known.item.id] = known.item
            changes.revived.add(known.item.id)
        if changes.event is not None or _differs(before, known.session):
            changes.sessions[event.session_id] = known.session
        for one in changes.sessions:
            if _must_be_saved(self.known[one]):
                changes.to_save.add(one)
                self.known[one].saved = self.known[one].session
        return changes

    def newest(self, known: Iterable[Known] | None = None) -> float:
        """The latest date of anything that has happened, as far as is known; 0 for nothing."""
        ones = list(self.known.values() if known is None else known)
        claims = [claim.at for claim in self.claims.values()] if known is None else []
        dates = [max(one.session.last_seen, one.story.last_at) for one in ones]
        return max([*dates, *claims], default=0.0)

    def redate(self, by: float, known: Iterable[Known] | None = None) -> Changes:
        """Move every date of all sessions, or of these: the clock was set by `by` seconds."""
        by, changes = redate.step(by), Changes()
        if known is None:
            self._now += by
            self.claims = {place: redate.move_claim(claim, by) for place, claim in self.claims.items()}
            changes.claims.update(self.claims)
        for one in list(self.known.values() if known is None else known):
            _redate(one, by, changes)
        return changes

    def _claim(self, claims: Mapping[str, Claim], changes: Changes) -> None:
        for place, claim in claims.items():
            held = self.claims.get(place)
            if identity.newer(claim, held):
                self.claims[place] = claim
                if held is None or (held.session_id, held.pid) != (claim.session_id, claim.pid):
                    changes.claims[place] = claim

    def _affected(self, session_id: str, places: set[str]) -> list[str]:
        """Who may be pushed out, or come back. Those who stand in for others are last: they look at them."""
        first = {session_id, *self._beside(places)}
        if len(first) == 1:
            return [session_id]
        real = {one for one in first if not identity.is_stand_in(one)}
        beside = self._beside(place for one in real for place in identity.places(self.known[one].session))
        return sorted(first | {one for one in beside if identity.is_stand_in(one)}, key=identity.is_stand_in)

    def _beside(self, places: Iterable[str]) -> set[str]:
        """Those that say they are there: which of them is may have changed."""
        return {one for place in places for one in self._at.get(place, ())}

    def _stand(self, session: Session, before: list[str]) -> None:
        for place in before:
            self._at.get(place, set()).discard(session.id)
        for place in identity.places(session):
            self._at.setdefault(place, set()).add(session.id)

    def _replaced_by(self, session: Session) -> str | None:
        for place in identity.rivals(session):
            if (held := self.claims.get(place)) is None:
                continue
            holder = self.known.get(held.session_id)
            if identity.is_replaced(session, place, held, holder.session if holder else None):
                return held.session_id
        return None

    # ── what follows ──

    def _settle(self, known: Known, at: float, changes: Changes) -> None:
        standing, session = known.story.standing, known.session
        settled = self._described(known, at)
        replaced_by = settled.replaced_by
        if settled != session:
            known.session = changes.sessions[session.id] = settled
        self._settle_item(known, None if replaced_by else standing.wait(), at, changes)
        for ask in standing.asks:
            if ask.key:
                self._settle_approval(known, standing, ask, replaced_by, changes)
        told = {ask.id for ask in standing.asks}
        self._withdraw(known, told, at, changes)
        if len(known.approvals) > _APPROVALS:  # the older ones are on the disk
            newest = {*list(known.approvals)[-_APPROVALS:], *told}
            known.approvals = {
                one.id: one
                for one in known.approvals.values()
                if one.id in newest or one.state is ApprovalState.OPEN
            }

    def _described(self, known: Known, at: float) -> Session:
        standing, session = known.story.standing, known.session
        replaced_by = self._replaced_by(session)
        over = replaced_by is not None or standing.under in OVER
        return replace(
            session,
            state=State.ENDED if replaced_by and standing.under not in OVER else standing.state,
            since=standing.state_since,
            ended=(session.ended or at) if over else None,
            replaced_by=replaced_by,
        )

    def _settle_item(self, known: Known, wait: Wait | None, at: float, changes: Changes) -> None:
        item, standing = known.item, known.story.standing
        if item is not None and wait is not None and _same(item, wait, standing):
            known.item = _updated(item, wait)
            if known.item != item:
                changes.items[item.id] = known.item
            return
        if item is not None:
            resolution = "replaced" if known.session.replaced_by else _resolution(item, wait, standing)
            resolved = changes.items[item.id] = replace(
                item, resolved_at=max(at, item.since), resolution=resolution
            )
            known.resolved = (resolved, *known.resolved)[:_RESOLVED]
            known.item = None
        if wait is not None:
            revived = (_revived(one, wait, standing) for one in known.resolved)
            found = next(filter(None, revived), None)
            known.item = found or enqueued(known.session.id, wait)
            changes.items[known.item.id] = known.item
            if found is not None:
                changes.revived.add(found.id)

    def _settle_approval(
        self, known: Known, standing: Standing, ask: Ask, replaced_by: str | None, changes: Changes
    ) -> None:
        is_open = ask.ended_at is None and ask.asked_at > standing.shut_at and not replaced_by
        before = known.approvals.get(ask.id)
        after = before or _approval(known.session.id, ask)
        if is_open and after.state is ApprovalState.ENDED:
            after = replace(after, state=ApprovalState.OPEN, at=None)
        elif not is_open and after.state is ApprovalState.OPEN:
            after = replace(after, state=ApprovalState.ENDED, at=ask.ended_at or standing.shut_at)
        if ask.proof != after.proof:
            after = replace(after, proof=ask.proof)
        if after != before:
            known.approvals[ask.id] = changes.approvals[ask.id] = after

    def _withdraw(self, known: Known, told: set[str], at: float, changes: Changes) -> None:
        """A dialog that does not count any more, now that we know what happened before it."""
        for approval in list(known.approvals.values()):
            if approval.id not in told and approval.state is ApprovalState.OPEN:
                ended = replace(approval, state=ApprovalState.ENDED, at=at)
                known.approvals[approval.id] = changes.approvals[approval.id] = ended

    # ── what humans do ──

    def change_item(self, item: Item) -> Changes:
        """Skipped or snoozed: the open item of its session, as the caller made it anew."""
        self.known[item.session_id].item = item
        return Changes(items={item.id: item})

    def change_approval(self, approval: Approval) -> Changes:
        known = self.known.get(approval.session_id)
        if known is not None:
            known.approvals[approval.id] = approval
        return Changes(approvals={approval.id: approval})

    def forget(self, session_id: str) -> None:
        """It is over; the store still has it, and its claims stay."""
        known = self.known.pop(session_id)
        self._stand(replace(known.session, pane=None, pid=None, name=None), identity.places(known.session))

    def queue(self) -> list[Item]:
        """All open items, the first to be answered first."""
        found = (known.item for known in self.known.values() if known.item is not None)
        return sorted(found, key=lambda item: item.place)


def _redate(known: Known, by: float, changes: Changes) -> None:
    known.story = redate.move_story(known.story, by)
    known.session = known.saved = redate.move_session(known.session, by)
    known.item = redate.move_item(known.item, by) if known.item is not None else None
    known.resolved = tuple(redate.move_item(item, by) for item in known.resolved)
    known.approvals = {one.id: redate.move_approval(one, by) for one in known.approvals.values()}
    number, story = known.session.id, known.story
    changes.sessions[number] = known.session
    changes.to_save.add(number)
    changes.redated[number] = list(story.events)
    if story.base_at:
        changes.based[number] = (story.base_at, story.base)
    if known.item is not None:
        changes.items[known.item.id] = known.item
        changes.revived.add(known.item.id)
    changes.approvals.update(known.approvals)


def _differs(before: Session, after: Session) -> bool:
    """Whether more is known of it than that it is still there."""
    return replace(after, last_seen=before.last_seen, dated=before.dated) != before


def _must_be_saved(known: Known) -> bool:
    """What its events say of it again when they are read again need not be."""
    now, then = known.session, known.saved
    if then is None or now.last_seen > then.last_seen + _SAVED_EVERY:
        return True
    return any(getattr(now, name) != getattr(then, name) for name in _SAVED)


def _same(item: Item, wait: Wait, standing: Standing) -> bool:
    """Whether it is the same wait, of which more is known now. One for another reason begins no later."""
    if _lay_over(item, wait, standing):
        return False
    later = wait.since - item.since
    return later <= SAME_MOMENT if item.reason == wait.reason else -SAME_MOMENT <= later <= 0


def _lay_over(item: Item, wait: Wait, standing: Standing) -> bool:
    """Whether it was a dialog that is over, and the session waits for what it lay over. We may yet hear that
    this was answered before: the item stays what it was."""
    if wait.since > item.since or (number := item.detail.get("ask")) in (None, wait.detail.get("ask")):
        return False
    is_open = {ask.id for ask in standing.open_asks}
    return number not in is_open and any(number == ask.id for ask in standing.asks)


def _is_new_stop(event: Event, item: Item) -> bool:
    """Whether its hook says once more, after the item was skipped, that a human is needed."""
    asks = event.kind in (EventKind.STOPPED, EventKind.ASKED) and event.source is Source.HOOK
    return asks and item.skipped_at is not None and event.at > item.skipped_at


def _resolution(item: Item, wait: Wait | None, standing: Standing) -> str:
    if wait is None:
        return standing.why or "working"
    return "answered" if _lay_over(item, wait, standing) else "moved_on"


def _revived(last: Item, wait: Wait, standing: Standing) -> Item | None:
    """The item that was resolved before we heard of all that happened; None if it was so rightly."""
    if last.resolved_at is None or wait.since > last.resolved_at or not _same(last, wait, standing):
        return None
    return _updated(replace(last, resolved_at=None, resolution=None), wait)


def _updated(item: Item, wait: Wait) -> Item:
    return replace(item, reason=wait.reason, since=wait.since, message=wait.message, detail=wait.detail)


def enqueued(session_id: str, wait: Wait) -> Item:
    """Whoever makes it again from the same events makes the same."""
    number = item_number(session_id, wait.reason, wait.since)
    return Item(number, session_id, wait.reason, wait.since, wait.message, wait.detail)


def item_number(session_id: str, reason: Reason, since: float) -> str:
    return digest(session_id, [reason, since])[:10]


_TOLD = ("diff", "options", "message", "permission_mode", "cwd", "hearsay")


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
        detail={name: facts[name] for name in _TOLD if name in facts},
        expires_at=expires if isinstance(expires, float) else None,
    )
