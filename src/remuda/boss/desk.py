"""The boss's desk: all events come here, and all that is asked about sessions, queue and ledger.

An event is taken when it is on the disk, and only then does anybody hear of what it changed. When the disk
fails nothing of it counts: what is in memory is made anew from what was written, and whoever told the event
is told that it was not taken.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, StoreFailed

from .attention.model import Approval, ApprovalState, Event, EventKind, Item, Session, Source
from .attention.naming import beginnings, label
from .attention.roster import Changes, Known, Roster
from .attention.rules import ask_number
from .evidence.repository import Repositories
from .feed import Feed
from .records.store import Store

log = logging.getLogger("remuda.boss.desk")

SKIP_COOLDOWN = 30.0
_FORGET_AFTER = 3600.0
_UPKEEP_INTERVAL = 600.0
_MAX_ID = 256


class Desk:
    """Use from one event loop; nothing here is for other threads."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock
        self.feed = Feed(secrets.token_hex(4))
        self.started_at = clock()
        self.taken = 0
        self.repeated = 0
        self.listeners: list[Callable[[Event], None]] = []
        """Hear of every event that is news, when it is on the disk."""
        self.catching_up: list[Callable[[], Coroutine[Any, Any, object]]] = []
        """Of sources that take what has happened a moment later: take it now."""
        self._roster = Roster()
        self._repositories = Repositories()
        self._tasks: set[asyncio.Task[None]] = set()
        self._load()

    async def open(self) -> None:
        self._begin(self._keep_up())

    async def close(self) -> None:
        """What was taken is on the disk; nobody is told anything any more."""
        self.feed.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.store.close()

    def _load(self) -> None:
        self._roster = Roster()
        self._roster.restore(*self.store.load(self.clock()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── events ──

    async def take(self, *events: Event) -> int:
        """Returns when they are on the disk: how many were news. Raises `StoreFailed`: then none is taken."""
        for event in events:
            _check(event)
        now = self.clock()
        changes = [self._take(event, now) for event in events]
        await self._carry_out(changes)
        news = [change.event for change in changes if change.event is not None]
        self.taken += len(events)
        self.repeated += len(events) - len(news)
        if self.listeners:
            self._tell(news)
        return len(news)

    async def catch_up(self) -> None:
        """For one who tells what has just happened: what came before it comes before it."""
        for take_now in list(self.catching_up):
            await take_now()

    def _tell(self, news: list[Event]) -> None:
        for event in news:
            for listener in list(self.listeners):
                listener(event)

    def _take(self, event: Event, now: float) -> Changes:
        self._recall(event.session_id)
        if not event.id or type(event.at) is not float:
            event = replace(event, id=event.id or f"ours:{secrets.token_hex(8)}", at=float(event.at))
        return self._roster.take(self._with_repository(event), now)

    def _recall(self, session_id: str) -> Known | None:
        """A session that is over is not kept in memory for ever."""
        if session_id not in self._roster.known and (known := self.store.fetch(session_id)) is not None:
            self._roster.add(known)
        return self._roster.known.get(session_id)

    async def _carry_out(self, changes: list[Changes]) -> None:
        changes = [change for change in changes if change]
        if not changes:
            return
        epoch = self.store.epoch
        try:
            await self.store.write(changes)
        except StoreFailed:
            if self.store.epoch == epoch:  # the first of those that failed together
                self._load()
                self.store.epoch += 1
            raise
        for change in changes:
            self._publish(change)

    def _publish(self, change: Changes) -> None:
        found: tuple[tuple[str, Mapping[str, Session | Item | Approval]], ...] = (
            ("session", change.sessions),
            ("item", change.items),
            ("approval", change.approvals),
        )
        for kind, all_of_it in found:
            for one in all_of_it.values():
                self.feed.publish(kind, one)

    def _with_repository(self, event: Event) -> Event:
        cwd = event.facts.get("cwd")
        if not isinstance(cwd, str) or "repo" in event.facts:
            return event
        if not self._repositories.is_known(cwd):
            self._begin(self._tell_repository(event.session_id, cwd, event.at))
        repo = self._repositories.known(cwd)
        return replace(event, facts={**event.facts, "repo": repo}) if repo else event

    async def _tell_repository(self, session_id: str, cwd: str, at: float) -> None:
        repo = await self._repositories.find(cwd)
        if repo:
            await self.take(Event(EventKind.SEEN, session_id, at, Source.PROCESS, facts={"repo": repo}))

    async def settled(self) -> None:
        """For one who shows what is known: it is on the disk then, unless the disk stalls."""
        await self.store.settled()

    # ── sessions ──

    def sessions(self) -> list[Session]:
        """All that are there, and those that were a while ago; the last that was heard of first."""
        found = (known.session for known in self._roster.known.values())
        return sorted(found, key=lambda session: (-session.last_seen, session.id))

    def session(self, word: str) -> Session:
        """By id, the name of a kept session, pane, the id of its place in the queue, a beginning of its id
        that no other has, or the folder that it alone works in."""
        if (known := self._recall(word)) is not None:
            return known.session
        here = [session for session in self.sessions() if session.replaced_by is None]
        for is_meant in (
            lambda one: word == one.name,
            lambda one: word == one.pane,
            lambda one: (item := self.item_of(one.id)) is not None and word == item.id,
            lambda one: len(word) >= 4 and one.id.startswith(word),
            lambda one: self._is_about(one) and word == label(None, one.repo or one.cwd, one.id),
        ):
            found = [session for session in here if is_meant(session)]
            # One that has ended there, and waits for nothing, is not who is meant.
            found = [session for session in found if self._is_about(session)] or found
            if len(found) == 1:
                return found[0]
            if found:
                raise InvalidOptions(f"'{word}' means {len(found)} sessions", hint=_which(found))
        raise NotInQueue(f"there is no session '{word}'", hint="'remuda queue --all' lists who waits")

    def last_event(self, session_id: str) -> str:
        """The id of the last thing that happened in it, as far as anybody has told."""
        known = self._roster.known.get(session_id)
        return known.story.events[-1].id if known is not None and known.story.events else ""

    def is_in_call(self, session_id: str) -> bool:
        """Whether a call of a tool has begun in it that has not ended."""
        known = self._roster.known.get(session_id)
        return known is not None and bool(known.story.standing.calls)

    def _is_about(self, session: Session) -> bool:
        return session.ended is None or self.item_of(session.id) is not None

    # ── queue ──

    def queue(self, *, hidden: bool = False) -> list[Item]:
        """What waits, the first to be answered first; `hidden` with those that were skipped or snoozed."""
        now = self.clock()
        return [item for item in self._roster.queue() if hidden or item.is_shown(now)]

    def item(self, number: str) -> Item:
        """Also one that is resolved."""
        found = self._open_item(number) or self.store.item(number)
        if found is None:
            raise NotInQueue(f"there is no item '{number}' in the queue")
        return found

    def item_of(self, session_id: str) -> Item | None:
        known = self._roster.known.get(session_id)
        return known.item if known else None

    def _open_item(self, number: str) -> Item | None:
        return next((item for item in self._roster.queue() if item.id == number), None)

    def _must_be_open(self, number: str) -> Item:
        found = self._open_item(number)
        if found is None:
            resolution = self.item(number).resolution
            raise AlreadyAnswered(f"item '{number}' is resolved already: {resolution}")
        return found

    async def skip(self, number: str, cooldown: float = SKIP_COOLDOWN) -> Item:
        """To the end of the queue, and out of sight for a moment."""
        now = self.clock()
        item = replace(self._must_be_open(number), skip_until=now + cooldown, skipped_at=now)
        await self._carry_out([self._roster.change_item(item)])
        return item

    async def snooze(self, number: str, until: float) -> Item:
        """Out of sight until then; it keeps its place. A time that has come wakes it, also from a skip."""
        item = self._must_be_open(number)
        if until <= self.clock():
            item = replace(item, snooze_until=None, skip_until=None)
        else:
            item = replace(item, snooze_until=until)
        await self._carry_out([self._roster.change_item(item)])
        return item

    async def dismiss(self, number: str) -> Item:
        """Out of the queue, until its session waits for something new."""
        item = self._must_be_open(number)
        at = max(self.clock(), item.since)
        await self.take(Event(EventKind.DISMISSED, item.session_id, at, Source.PROCESS))
        return self.item(number)

    # ── ledger ──

    def approval(self, number: str) -> Approval:
        for known in self._roster.known.values():
            if number in known.approvals:
                return known.approvals[number]
        if (found := self.store.approval(number)) is None:
            raise NotInQueue(f"there is no approval '{number}'")
        return found

    def open_approvals(self) -> list[Approval]:
        found = (one for known in self._roster.known.values() for one in known.approvals.values())
        return sorted(
            (one for one in found if one.state is ApprovalState.OPEN), key=lambda one: (one.asked_at, one.id)
        )

    def unproven(self, session_id: str) -> list[Approval]:
        """Those of its requests that are over, and of which nobody has told what happened then."""
        known = self._roster.known.get(session_id)
        over = (
            (one for one in known.approvals.values() if one.state is not ApprovalState.OPEN) if known else ()
        )
        return [one for one in over if one.tool_use_id and "ran" not in (one.proof or {})]

    def approval_of(self, event: Event) -> Approval | None:
        """The open one that this event asked for."""
        known = self._roster.known.get(event.session_id)
        own = known.approvals.get(ask_number(event)) if known else None
        if own is not None and own.state is ApprovalState.OPEN:
            return own
        asked = (event.facts.get("tool"), event.facts.get("input"))
        found = [one for one in known.approvals.values() if (one.tool, one.input) == asked] if known else []
        return next((one for one in reversed(found) if one.state is ApprovalState.OPEN), None)

    async def answer(self, number: str, answer: Mapping[str, Any], by: str) -> Approval:
        """The first answer is the one that counts. Raises `AlreadyAnswered` for every other."""
        approval = self.approval(number)
        if approval.state is ApprovalState.ANSWERED:
            raise AlreadyAnswered(f"{approval.by} has answered it: {(approval.answer or {}).get('behavior')}")
        if approval.state is not ApprovalState.OPEN:
            raise AlreadyAnswered("it was answered at the terminal, or its turn is over")
        now = self.clock()
        answered = replace(approval, state=ApprovalState.ANSWERED, answer=answer, by=by, at=now)
        self._recall(approval.session_id)
        ended = Event(
            EventKind.ASK_ENDED,
            approval.session_id,
            max(now, approval.asked_at),
            Source.PROCESS,
            f"answer:{number}",
            {"ask": number, "why": "answered"},
        )
        await self._carry_out([self._roster.change_approval(answered), self._take(ended, now)])
        return self.approval(number)

    async def change_approval(self, approval: Approval) -> None:
        """What became of an answer: that it was delivered, and until when one can be."""
        await self._carry_out([self._roster.change_approval(approval)])

    # ── upkeep ──

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_INTERVAL)
            now = self.clock()
            for known in list(self._roster.known.values()):
                ended = known.session.ended
                if known.item is None and ended is not None and ended < now - _FORGET_AFTER:
                    self._roster.forget(known.session.id)
            try:
                await self.store.prune(now, keep=[item.session_id for item in self._roster.queue()])
            except StoreFailed as error:
                log.warning("cannot tidy up: %s", error)


def _which(sessions: list[Session]) -> str:
    begin = beginnings([session.id for session in sessions])
    told = (f"{begin[one.id]} ({one.pane or one.state})" for one in sessions)
    return f"say which: {', '.join(told)}"


def _check(event: Event) -> None:
    """What no source of ours tells: it would be in the way of everything that happens after."""
    if not event.session_id.isprintable() or not 0 < len(event.session_id) <= _MAX_ID:
        raise InvalidOptions(f"{event.session_id[:40]!r} cannot be the id of a session")
    if not math.isfinite(event.at) or event.at < 0:
        raise InvalidOptions(f"{event.at!r} is not a time")
