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

from remuda.agents.state import State as AgentState
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, NotSafe, StoreFailed
from remuda.names import did_you_mean

from .attention.model import Approval, ApprovalState, Event, EventKind, Item, Session, Source
from .attention.naming import beginnings, label
from .attention.redate import AHEAD, UNSEEN
from .attention.roster import Changes, Known, Roster
from .attention.rules import ask_number
from .clock import WallClock
from .evidence.repository import Repositories
from .feed import Feed
from .records.store import Store

log = logging.getLogger("remuda.boss.desk")

SKIP_COOLDOWN = 30.0
_FORGET_AFTER = 3600.0
_UPKEEP_INTERVAL = 600.0
_MAX_ID = 256
_CLOCK_NOTE = "clock"


class Desk:
    """Use from one event loop; nothing here is for other threads."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        boot: str = "",
    ) -> None:
        """`steady` is a clock that cannot be set, and `boot` says since when it counts."""
        self.store = store
        self._clock = WallClock(clock, steady, boot)
        self.feed = Feed(secrets.token_hex(4))
        self.started_at = clock()
        self.taken = 0
        self.repeated = 0
        self.listeners: list[Callable[[Event], None]] = []
        """Hear of every event that is news, when it is on the disk."""
        self.on_clock_set: list[Callable[[float], None]] = []
        """Hear by how many seconds the clock was set: for those who keep dates of their own."""
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
        now, _ = self._clock.look()
        self._roster = Roster()
        self._roster.restore(*self.store.load(now))
        by = self._clock.set_since(self.store.note(_CLOCK_NOTE), self._roster.newest())
        self._redate(by)

    def _redate(self, by: float) -> None:
        changes = self._roster.redate(by) if by else Changes()
        if (note := self._clock.note()) and note != self.store.note(_CLOCK_NOTE):
            changes.notes[_CLOCK_NOTE] = note
        self._write_behind(changes)

    def clock(self) -> float:
        """The time on the wall. If that clock was set, all that is known is dated anew first."""
        now, by = self._clock.look()
        if by:
            log.warning("the system clock was set by %+.0f s; all stored times were moved with it", by)
            self.started_at += by
            self._redate(by)
            for hear in list(self.on_clock_set):
                hear(by)
        return now

    def _write_behind(self, changes: Changes) -> None:
        """Write without waiting. What happens later is written after it."""
        if not changes:
            return
        done = self.store.submit([changes])

        async def finish() -> None:
            try:
                await done
            except StoreFailed as error:  # nor is what comes next: then all is read from the disk again
                log.warning("cannot write the moved times: %s", error)
            else:
                self._publish(changes)

        self._begin(finish())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── events ──

    async def take(self, *events: Event) -> int:
        """Returns when they are on the disk: how many were news. Raises `StoreFailed`: then none is taken."""
        for event in events:
            check(event)
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
        at = self._clock.corrected(float(event.at), now)
        if not event.id or type(event.at) is not float or at != event.at:
            event = replace(event, id=event.id or f"ours:{secrets.token_hex(8)}", at=at)
        if event.kind is EventKind.ASKED and "ask" in event.facts:  # that name is ours to give
            event = replace(event, facts={key: one for key, one in event.facts.items() if key != "ask"})
        return self._roster.take(self._with_repository(event), now)

    def _recall(self, session_id: str) -> Known | None:
        """A session that is over is not kept in memory for ever."""
        if session_id not in self._roster.known and (known := self.store.fetch(session_id)) is not None:
            self._roster.add(known)
            ahead = self._roster.newest([known]) - self.clock()
            if ahead > AHEAD:
                self._write_behind(self._roster.redate(-ahead - UNSEEN, [known]))
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
                self.store.epoch += 1
                self._load()
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
            self._begin(self._tell_repository(event, cwd))
        repo = self._repositories.known(cwd)
        return replace(event, facts={**event.facts, "repo": repo}) if repo else event

    async def _tell_repository(self, event: Event, cwd: str) -> None:
        repo = await self._repositories.find(cwd)
        if repo:
            facts = {"repo": repo, **({"hearsay": True} if event.facts.get("hearsay") else {})}
            await self.take(Event(EventKind.SEEN, event.session_id, event.at, Source.PROCESS, facts=facts))

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
                raise InvalidOptions(f"'{word}' matches {len(found)} sessions", hint=_which(found))
        names = (label(one.name, one.repo or one.cwd, one.id) for one in here if self._is_about(one))
        near, hint = did_you_mean(word, names), "'remuda ls' lists all"
        raise NotInQueue(f"session '{word}' not found", hint=f"{near} {hint}" if near else hint)

    def agent_state(self, session: Session) -> AgentState | None:
        """What it does, in the words of `remuda ls`; `session.state` keeps the older words of the boss."""
        known = self._roster.known.get(session.id)
        if session.ended is not None:
            return AgentState.DEAD
        return known.story.standing.agent_state if known is not None else None

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
            raise NotInQueue(f"queue item '{number}' not found", hint="'remuda queue --all' lists all")
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
            raise AlreadyAnswered(f"queue item '{number}' is already resolved: {resolution}")
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
            for known in self._roster.known.values():
                if any(ask.id == number for ask in known.story.standing.open_asks):
                    raise only_at_terminal(known.session)
            raise NotInQueue(f"permission request '{number}' not found", hint="'remuda approvals' lists all")
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
            raise AlreadyAnswered(
                f"{approval.by} has already decided: {(approval.answer or {}).get('behavior')}"
            )
        if approval.state is not ApprovalState.OPEN:
            raise AlreadyAnswered("it was decided in the terminal, or its turn has ended")
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
                log.warning("cannot remove old records: %s", error)


def only_at_terminal(session: Session) -> NotSafe:
    """The error for a dialog that is known, and that no answer from elsewhere reaches."""
    way = f"'remuda attach {session.name}'" if session.name else "'remuda next'"
    return NotSafe(
        "this request can only be decided in the agent's terminal",
        hint=f"go there with {way}; the agent asked while no boss was running, or without the hooks that "
        "'remuda setup boss' installs",
    )


def _which(sessions: list[Session]) -> str:
    begin = beginnings([session.id for session in sessions])
    told = (f"{begin[one.id]} ({one.pane or one.state})" for one in sessions)
    return f"use one of these ids: {', '.join(told)}"


def check(event: Event) -> None:
    """Raises `InvalidOptions` for what would be in the way of everything that happens after it."""
    if not event.session_id.isprintable() or not 0 < len(event.session_id) <= _MAX_ID:
        raise InvalidOptions(f"{event.session_id[:40]!r} is not a valid session id")
    if not math.isfinite(event.at) or event.at < 0:
        raise InvalidOptions(f"{event.at!r} is not a time")
