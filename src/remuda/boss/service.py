"""The core of the boss: it takes events, and knows sessions, queue and permission requests.

An event counts when it is on disk; only then are its changes published. If the disk fails, nothing of it
counts: the state in memory is reloaded from disk, and the caller gets an error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

from remuda.agents import DEFAULT_AGENT
from remuda.agents.conversation import Tokens
from remuda.agents.state import State as AgentState
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, NotSafe, StoreFailed
from remuda.names import did_you_mean
from remuda.tasks import TaskSet
from remuda.untrusted import one_line

from .attention.display import beginnings, label
from .attention.model import Approval, ApprovalState, BossSession, Event, EventKind, Item, Source
from .attention.projection import Ask
from .attention.redate import AHEAD, UNSEEN
from .attention.rules import make_ask_id
from .attention.session_index import Changes, SessionEntry, SessionIndex
from .evidence.repository import Repositories
from .feed import Feed
from .records import figures
from .records.store import Store
from .session_details import LAST_MESSAGE, NOTHING, SessionDetails, add_tokens, evidence_of
from .state_history import StateHistory
from .wall_clock import WallClock

log = logging.getLogger("remuda.boss.service")

SKIP_COOLDOWN = 30.0
APPROVAL_ENDED = "it was decided in the terminal, or its turn has ended"
_FORGET_AFTER = 3600.0
_UPKEEP_INTERVAL = 600.0
_MAX_ID = 256
_CLOCK_NOTE = "clock"
_STATES_NOTE = "states_until"
_STATES_DELAY = 2.0
"""State changes are written together, this many seconds after the first."""
_STATES_INTERVAL = 60.0


class BudgetDesk(Protocol):
    """Counts budgets; `boss/evidence/spending` has it."""

    async def decide(self, approval: Approval, *, allow: bool) -> None:
        """Raise the limit of a request, or leave its session paused."""

    async def document(self) -> dict[str, Any]:
        """Return all limits with what is used of them."""


class BossService:
    """Use from one event loop. Not thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        boot: str = "",
    ) -> None:
        """`steady` is a clock that cannot be set, and `boot` identifies what it counts from."""
        self.store = store
        self._clock = WallClock(clock, steady, boot)
        self.feed = Feed(secrets.token_hex(4))
        self.started_at = clock()
        self.taken = 0
        self.repeated = 0
        self.has_begun = asyncio.Event()
        """Whether the sources of events have looked once, or may take longer."""
        self.has_begun.set()
        self.listeners: list[Callable[[Event], None]] = []
        """Called with every new event, when it is on disk."""
        self.on_clock_set: list[Callable[[float], None]] = []
        """Called with the number of seconds by which the clock was set, for those who store dates of their
        own."""
        self.catching_up: list[Callable[[], Coroutine[Any, Any, object]]] = []
        """Sources that read events with a delay: makes them read now."""
        self.warnings: list[Item] = []
        """What to notify about without an item in the queue. The notifier takes them."""
        self.budgets: BudgetDesk | None = None
        """None while no source counts budgets."""
        self._index = SessionIndex()
        self._repositories = Repositories()
        self._tasks = TaskSet()
        self._details: dict[str, SessionDetails] = {}
        self._messages: dict[str, str] = {}
        """The beginning of what each session said last, as it came."""
        self._states = StateHistory()
        self._state_changed = asyncio.Event()
        self._load()

    async def open(self) -> None:
        self._tasks.start(self._keep_up())
        for session_id, counts in self.store.usage_totals().items():
            self._details[session_id] = SessionDetails(tokens=Tokens(*counts))
        self._tasks.start(self._record_states())

    async def close(self) -> None:
        """All events taken are on disk. Nothing is published after this."""
        self.feed.close()
        await self._tasks.aclose()
        await self.write_states()
        self.store.close()

    def _load(self) -> None:
        now, _ = self._clock.look()
        self._index = SessionIndex()
        self._index.restore(*self.store.load(now))
        by = self._clock.set_since(self.store.note(_CLOCK_NOTE), self._index.newest())
        self._redate(by)

    def _redate(self, by: float) -> None:
        changes = self._index.redate(by) if by else Changes()
        if (note := self._clock.note()) and note != self.store.note(_CLOCK_NOTE):
            changes.notes[_CLOCK_NOTE] = note
        self._write_behind(changes)

    def clock(self) -> float:
        """Return the wall time. If the clock was set, all stored dates are moved first."""
        now, by = self._clock.look()
        if by:
            log.warning("the system clock was set by %+.0f s; all stored times were moved with it", by)
            self.started_at += by
            self._redate(by)
            for hear in list(self.on_clock_set):
                hear(by)
        return now

    def _write_behind(self, changes: Changes) -> None:
        """Write without waiting. Later changes are written after these."""
        if not changes:
            return
        done = self.store.submit([changes])

        async def finish() -> None:
            try:
                await done
            except StoreFailed as error:  # what comes next fails too: then everything is reloaded from disk
                log.warning("cannot write the moved times: %s", error)
            else:
                self._publish(changes)

        self._tasks.start(finish())

    # ── events ──

    async def take(self, *events: Event) -> int:
        """Take events; returns how many were new, when they are on disk.

        Raises `StoreFailed`: then none counts.
        """
        for event in events:
            check(event)
        now = self.clock()
        changes = [self._take(event, now) for event in events]
        await self._carry_out(changes)
        fresh = [change.event for change in changes if change.event is not None]
        self.taken += len(events)
        self.repeated += len(events) - len(fresh)
        if self.listeners:
            self._notify_listeners(fresh)
        return len(fresh)

    async def catch_up(self) -> None:
        """Take the events that happened before the one that the caller is about to report."""
        for take_now in list(self.catching_up):
            await take_now()

    def _notify_listeners(self, fresh: list[Event]) -> None:
        for event in fresh:
            for listener in list(self.listeners):
                listener(event)

    def _take(self, event: Event, now: float) -> Changes:
        self._recall(event.session_id)
        at = self._clock.corrected(float(event.at), now)
        if not event.id or type(event.at) is not float or at != event.at:
            event = replace(event, id=event.id or f"ours:{secrets.token_hex(8)}", at=at)
        # Only we give out that id.
        if event.kind in (EventKind.ASKED, EventKind.HELD) and "ask" in event.facts:
            event = replace(event, facts={key: one for key, one in event.facts.items() if key != "ask"})
        return self._index.take(self._with_repository(event), now)

    def _recall(self, session_id: str) -> SessionEntry | None:
        """Load a session that ended and was dropped from memory."""
        if session_id not in self._index.entries and (entry := self.store.fetch(session_id)) is not None:
            self._index.add(entry)
            ahead = self._index.newest([entry]) - self.clock()
            if ahead > AHEAD:
                self._write_behind(self._index.redate(-ahead - UNSEEN, [entry]))
        return self._index.entries.get(session_id)

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
        by_kind: tuple[tuple[str, Mapping[str, BossSession | Item | Approval]], ...] = (
            ("session", change.sessions),
            ("item", change.items),
            ("approval", change.approvals),
        )
        for session in change.sessions.values():
            self._note_session(session)
        for kind, changed in by_kind:
            for one in changed.values():
                self.feed.publish(kind, one)

    def _with_repository(self, event: Event) -> Event:
        cwd = event.facts.get("cwd")
        if not isinstance(cwd, str) or "repo" in event.facts:
            return event
        if not self._repositories.is_known(cwd):
            self._tasks.start(self._report_repository(event, cwd))
        repo = self._repositories.known(cwd)
        return replace(event, facts={**event.facts, "repo": repo}) if repo else event

    async def _report_repository(self, event: Event, cwd: str) -> None:
        repo = await self._repositories.find(cwd)
        if repo:
            facts = {"repo": repo, **({"hearsay": True} if event.facts.get("hearsay") else {})}
            await self.take(Event(EventKind.SEEN, event.session_id, event.at, Source.PROCESS, facts=facts))

    async def settled(self) -> None:
        """Wait until what is in memory is on disk too, or until the disk stalls.

        While the boss starts, wait for its sources first: what was true before would be shown as the present.
        """
        await self.has_begun.wait()
        await self.store.settled()

    # ── sessions ──

    def sessions(self) -> list[BossSession]:
        """Return all running sessions and those that ended recently, the last active first."""
        sessions = (entry.session for entry in self._index.entries.values())
        return sorted(sessions, key=lambda session: (-session.last_seen, session.id))

    def session(self, word: str) -> BossSession:
        """Find a session by id, name, pane, queue item, unique beginning of its id, or its folder if it is
        alone there.
        """
        if (entry := self._recall(word)) is not None:
            return entry.session
        here = [session for session in self.sessions() if session.replaced_by is None]
        for is_meant in (
            lambda one: word == one.name,
            lambda one: word == one.pane,
            lambda one: (item := self.item_of(one.id)) is not None and word == item.id,
            lambda one: len(word) >= 4 and one.id.startswith(word),
            lambda one: self._is_about(one) and word == label(None, one.repo or one.cwd, one.id),
        ):
            matches = [session for session in here if is_meant(session)]
            # A session that ended there and waits for nothing is not meant.
            matches = [session for session in matches if self._is_about(session)] or matches
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise InvalidOptions(f"'{word}' matches {len(matches)} sessions", hint=_which(matches))
        names = (label(one.name, one.repo or one.cwd, one.id) for one in here if self._is_about(one))
        near, hint = did_you_mean(word, names), "'remuda ls' lists all"
        raise NotInQueue(f"session '{word}' not found", hint=f"{near} {hint}" if near else hint)

    def agent_state(self, session: BossSession) -> AgentState | None:
        """Return its state in the words of `remuda ls`; `session.state` keeps the older words of the boss."""
        entry = self._index.entries.get(session.id)
        if session.ended is not None:
            return AgentState.DEAD
        if (state := self.details(session.id).state) is not None:
            return state
        return entry.event_log.projection.agent_state if entry is not None else None

    def state_source(self, session: BossSession) -> str | None:
        """Return the source of `agent_state`: that of its keeper, else that of its last change."""
        if (source := self.details(session.id).source) is not None:
            return source
        entry = self._index.entries.get(session.id)
        known = entry is not None and self.agent_state(session) is not None
        return entry.event_log.projection.by.label if entry is not None and known else None

    def evidence(self, session_id: str) -> list[dict[str, Any]]:
        """Return a row for each source of events, the most valuable first."""
        entry = self._index.entries.get(session_id)
        return evidence_of(entry, self.clock()) if entry is not None else []

    def recent_events(self) -> list[Event]:
        """Return the events that are still known one by one, in no order."""
        return [event for entry in self._index.entries.values() for event in entry.event_log.events]

    def last_event(self, session_id: str) -> str:
        """Return the id of the last event of a session."""
        entry = self._index.entries.get(session_id)
        return entry.event_log.events[-1].id if entry is not None and entry.event_log.events else ""

    def is_in_call(self, session_id: str) -> bool:
        """Whether a tool call has begun in the session that has not ended."""
        entry = self._index.entries.get(session_id)
        return entry is not None and bool(entry.event_log.projection.calls)

    def _is_about(self, session: BossSession) -> bool:
        return session.ended is None or self.item_of(session.id) is not None

    # ── details ──

    def details(self, session_id: str) -> SessionDetails:
        return self._details.get(session_id, NOTHING)

    def last_message(self, session_id: str) -> str | None:
        """Return the beginning of what a session said last, on one line."""
        message = self._messages.get(session_id)
        return None if message is None else one_line(message)[:LAST_MESSAGE]

    def set_details(self, session_id: str, details: SessionDetails) -> None:
        """Take what a source knows of a session besides its events, and publish the session if it differs."""
        if self._details.get(session_id, NOTHING) == details:
            return
        self._details[session_id] = details
        entry = self._index.entries.get(session_id)
        if entry is not None:
            self._note_session(entry.session)
            self.feed.publish("session", entry.session)

    def add_tokens(self, session_id: str, added: Mapping[str, int | None]) -> None:
        details = self.details(session_id)
        self.set_details(session_id, replace(details, tokens=add_tokens(details.tokens, added)))

    def tokens(self) -> dict[str, float]:
        """Return the tokens that all sessions used, by kind. A kind that no agent reports is missing."""
        sums: dict[str, float] = {}
        for details in self._details.values():
            for kind, count in asdict(details.tokens).items() if details.tokens else ():
                if count is not None:
                    sums[kind] = sums.get(kind, 0.0) + count
        return sums

    def _note_session(self, session: BossSession) -> None:
        """Remember its state for the history, and the last thing that it said."""
        now = self.clock()
        if session.replaced_by is not None:
            self._states.forget(session.id, now)
            return
        state = self.agent_state(session)
        if self._states.note(session.id, None if state is None else str(state), now):
            self._state_changed.set()
        entry = self._index.entries.get(session.id)
        if entry is not None and (message := entry.event_log.projection.message):
            self._messages[session.id] = message[: 4 * LAST_MESSAGE]

    async def _record_states(self) -> None:
        until = self.store.note(_STATES_NOTE)
        try:
            await self.store.run(lambda: figures.end_states(float(until or 0.0)))
        except (StoreFailed, ValueError) as error:
            log.warning("cannot end the states of the last run: %s", error)
        for session in self.sessions():
            self._note_session(session)
        while True:
            try:
                async with asyncio.timeout(_STATES_INTERVAL):
                    await self._state_changed.wait()
                await asyncio.sleep(_STATES_DELAY)
            except TimeoutError:
                pass
            await self.write_states()

    async def write_states(self) -> None:
        """Write all states up to now."""
        self._state_changed.clear()
        now = self.clock()
        changes, times = self._states.take(now)
        try:
            await self.store.run(lambda: figures.add_states(changes, times, _STATES_NOTE, now))
        except StoreFailed as error:  # a gap in a curve
            log.warning("cannot write the states of agents: %s", error)

    # ── queue ──

    def queue(self, *, hidden: bool = False) -> list[Item]:
        """Return the waiting items in order; with `hidden` also those that were skipped or snoozed."""
        now = self.clock()
        return [item for item in self._index.queue() if hidden or item.is_shown(now)]

    def item(self, item_id: str) -> Item:
        """Return an item, open or resolved."""
        item = self._open_item(item_id) or self.store.item(item_id)
        if item is None:
            raise NotInQueue(f"queue item '{item_id}' not found", hint="'remuda queue --all' lists all")
        return item

    def session_of(self, session_id: str) -> BossSession | None:
        """Return a session that `sessions` has, by its exact id."""
        entry = self._index.entries.get(session_id)
        return entry.session if entry else None

    def item_of(self, session_id: str) -> Item | None:
        entry = self._index.entries.get(session_id)
        return entry.item if entry else None

    def _open_item(self, item_id: str) -> Item | None:
        return next((item for item in self._index.queue() if item.id == item_id), None)

    def _must_be_open(self, item_id: str) -> Item:
        item = self._open_item(item_id)
        if item is None:
            resolution = self.item(item_id).resolution
            raise AlreadyAnswered(f"queue item '{item_id}' is already resolved: {resolution}")
        return item

    async def skip(self, item_id: str, cooldown: float = SKIP_COOLDOWN) -> Item:
        """Move an item to the end of the queue, and hide it for `cooldown` seconds."""
        now = self.clock()
        item = replace(self._must_be_open(item_id), skip_until=now + cooldown, skipped_at=now)
        await self._carry_out([self._index.change_item(item)])
        return item

    async def snooze(self, item_id: str, until: float) -> Item:
        """Hide an item until then; it keeps its place.

        A time in the past shows it again, also after a skip.
        """
        item = self._must_be_open(item_id)
        if until <= self.clock():
            item = replace(item, snooze_until=None, skip_until=None)
        else:
            item = replace(item, snooze_until=until)
        await self._carry_out([self._index.change_item(item)])
        return item

    async def dismiss(self, item_id: str) -> Item:
        """Remove an item from the queue, until its session waits for something new."""
        item = self._must_be_open(item_id)
        at = max(self.clock(), item.since)
        await self.take(Event(EventKind.DISMISSED, item.session_id, at, Source.PROCESS))
        return self.item(item_id)

    # ── ledger ──

    def approval(self, approval_id: str) -> Approval:
        for entry in self._index.entries.values():
            if approval_id in entry.approvals:
                return entry.approvals[approval_id]
        if (approval := self.store.approval(approval_id)) is None:
            for entry in self._index.entries.values():
                if any(ask.id == approval_id for ask in entry.event_log.projection.open_asks):
                    raise only_at_terminal(entry.session)
            raise NotInQueue(
                f"permission request '{approval_id}' not found", hint="'remuda approvals' lists all"
            )
        return approval

    def open_approval(self, approval_id: str) -> Approval:
        """Return a request that has no decision. Raises `NotInQueue`, `AlreadyAnswered`."""
        approval = self.approval(approval_id)
        if approval.state is ApprovalState.ANSWERED:
            behavior = (approval.answer or {}).get("behavior")
            raise AlreadyAnswered(f"{approval.by} has already decided: {behavior}")
        if approval.state is not ApprovalState.OPEN:
            raise AlreadyAnswered(APPROVAL_ENDED)
        return approval

    def open_approvals(self) -> list[Approval]:
        approvals = (one for entry in self._index.entries.values() for one in entry.approvals.values())
        return sorted(
            (one for one in approvals if one.state is ApprovalState.OPEN),
            key=lambda one: (one.asked_at, one.id),
        )

    def unproven(self, session_id: str) -> list[Approval]:
        """Return closed requests for which no source has reported yet whether the tool ran."""
        entry = self._index.entries.get(session_id)
        over = (
            (one for one in entry.approvals.values() if one.state is not ApprovalState.OPEN) if entry else ()
        )
        return [one for one in over if one.tool_use_id and "ran" not in (one.proof or {})]

    def approval_of(self, event: Event) -> Approval | None:
        """Return the open request that this event reported."""
        entry = self._index.entries.get(event.session_id)
        own = entry.approvals.get(make_ask_id(event)) if entry else None
        if own is not None and own.state is ApprovalState.OPEN:
            return own
        asked = (event.facts.get("tool"), event.facts.get("input"))
        alike = [one for one in entry.approvals.values() if (one.tool, one.input) == asked] if entry else []
        return next((one for one in reversed(alike) if one.state is ApprovalState.OPEN), None)

    async def answer(self, approval_id: str, answer: Mapping[str, Any], by: str) -> Approval:
        """Store a decision. The first one counts; raises `AlreadyAnswered` for every other."""
        approval = self.open_approval(approval_id)
        now = self.clock()
        answered = replace(approval, state=ApprovalState.ANSWERED, answer=answer, by=by, at=now)
        self._recall(approval.session_id)
        ended = Event(
            EventKind.ASK_ENDED,
            approval.session_id,
            max(now, approval.asked_at),
            Source.PROCESS,
            f"answer:{approval_id}",
            {"ask": approval_id, "why": "answered"},
        )
        await self._carry_out([self._index.change_approval(answered), self._take(ended, now)])
        return self.approval(approval_id)

    def hold_of(self, session_id: str) -> Ask | None:
        """Return the last request of a budget of the session; None while it gets messages."""
        entry = self._index.entries.get(session_id)
        return entry.event_log.projection.hold if entry is not None else None

    async def change_approval(self, approval: Approval) -> None:
        """Store that a decision was delivered, or until when one can be."""
        await self._carry_out([self._index.change_approval(approval)])

    # ── upkeep ──

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_INTERVAL)
            now = self.clock()
            for entry in list(self._index.entries.values()):
                ended = entry.session.ended
                if entry.item is None and ended is not None and ended < now - _FORGET_AFTER:
                    self._index.forget(entry.session.id)
                    self._messages.pop(entry.session.id, None)
                    self._details[entry.session.id] = SessionDetails(
                        tokens=self.details(entry.session.id).tokens
                    )
            try:
                await self.store.prune(now, keep=[item.session_id for item in self._index.queue()])
            except StoreFailed as error:
                log.warning("cannot remove old records: %s", error)


def only_at_terminal(session: BossSession) -> NotSafe:
    """Make the error for a dialog that no decision from elsewhere can reach."""
    hint = (
        f"go there with 'remuda attach {session.name}'"
        if session.name
        else "go there with 'remuda next'; the agent asked while no boss was running, or without the hooks "
        "that 'remuda setup boss' installs"
        if session.agent == DEFAULT_AGENT
        else f"go there with 'remuda next'; {session.agent} in a pane takes decisions only there"
    )
    return NotSafe("this request can only be decided in the agent's terminal", hint=hint)


def _which(sessions: list[BossSession]) -> str:
    begin = beginnings([session.id for session in sessions])
    candidates = (f"{begin[one.id]} ({one.pane or one.state})" for one in sessions)
    return f"use one of these ids: {', '.join(candidates)}"


def check(event: Event) -> None:
    """Raise `InvalidOptions` for an event that would break those after it."""
    if not event.session_id.isprintable() or not 0 < len(event.session_id) <= _MAX_ID:
        raise InvalidOptions(f"{event.session_id[:40]!r} is not a valid session id")
    if not math.isfinite(event.at) or event.at < 0:
        raise InvalidOptions(f"{event.at!r} is not a time")
