"""Follow kept sessions, each through a read-only connection to its keeper.

Keepers come and go; their sockets appear in one folder. When the boss starts it also finds what waits
already: it requests the state and the open requests, and reads the last message from the transcript.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_sources
from remuda.agents.attention import digest
from remuda.errors import InvalidOptions, RemudaError, SessionDead, SessionNotFound, SessionUnreachable
from remuda.frozen import fields_of
from remuda.jsonl_tail import JsonlTail
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.keeper.claim import read_holder
from remuda.keeper.record import SessionRecord
from remuda.keeper.restart import comes_back
from remuda.names import is_name
from remuda.paths import SessionPaths, private_folder, sessions_folder
from remuda.untrusted import BadJson, bounded, finite, one_line

from ..attention.model import BossSession, Event, EventKind, Origin
from ..http.event_routes import read_hook, read_text
from ..service import BossService
from ..session_details import SessionDetails
from . import kept_events
from .transcripts import Transcripts, ended_calls, open_tail
from .watches import PollSettings, Watches, report, report_until_written

log = logging.getLogger("remuda.boss.evidence.kept")

_POLLING = PollSettings()
_FIRST_LOOK = 5.0
_LOCK_CHECKS = 20
_LOCK_INTERVAL = 0.05
Document = dict[str, Any]
_BAD_DOCUMENT = (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidOptions)


class KeptSessions:
    name = "kept"

    def __init__(
        self, service: BossService, folder: Path | None = None, polling: PollSettings = _POLLING
    ) -> None:
        self._service = service
        self._polling = polling
        self._folder = folder or sessions_folder()
        self._transcripts = Transcripts(service)
        self._tails: dict[str, JsonlTail] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._watches: Watches | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        private_folder(self._folder)
        self._watches = self._polling.watches()
        self._watches.folder(self._folder, self._on_change)
        begun = self._look()
        await asyncio.wait(
            [asyncio.ensure_future(one.wait()) for one in begun] or [_nothing()], timeout=_FIRST_LOOK
        )
        await self._report_ends()
        self._looking = asyncio.create_task(self._look_at_times())

    async def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
        tasks = [*self._followers.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── which sessions there are ──

    def _on_change(self, name: str) -> None:
        if not name or name.endswith(".sock"):
            self._look()

    def _look(self) -> list[asyncio.Event]:
        """Follow new sessions. Return an event for each, which is set when the session is known."""
        begun: list[asyncio.Event] = []
        for entry in sorted(os.listdir(self._folder)):
            name = entry.removesuffix(".sock")
            if not entry.endswith(".sock") or entry.startswith(".") or name in self._followers:
                continue
            known = asyncio.Event()
            begun.append(known)
            task = self._followers[name] = asyncio.create_task(self._follow(name, known))
            task.add_done_callback(partial(self._forget, name))
        return begun

    def _forget(self, name: str, _done: asyncio.Task[None]) -> None:
        self._followers.pop(name, None)

    async def _look_at_times(self) -> None:
        """Scan again and again: a keeper may answer late, and a folder may not report its changes."""
        while True:
            await asyncio.sleep(self._polling.interval)
            try:
                self._look()
            except OSError as error:
                log.warning("cannot read %s: %s", self._folder, error)
            await self._report_ends()
            for session in self._service.sessions():
                if session.origin is Origin.KEPT and session.ended is None and session.transcript_path:
                    await self._prove(session.agent, session.id, session.transcript_path)

    async def _prove(self, agent: str, session_id: str, path: str) -> None:
        """Report denied calls from the transcript, since no hook reports them."""
        calls = {one.tool_use_id for one in self._service.unproven(session_id)}
        if not calls or (sources := find_sources(agent)) is None:
            self._tails.pop(session_id, None)
            return
        tail = self._tails.setdefault(session_id, open_tail(path))
        events = await asyncio.to_thread(ended_calls, sources, tail, session_id)
        await report(self._service, [one for one in events if one.facts.get("tool_use_id") in calls])

    async def _follow(self, name: str, known: asyncio.Event) -> None:
        try:
            await Follower(self._service, self._transcripts, name, self._folder).run(known)
        except (SessionDead, SessionNotFound):
            pass
        except (RemudaError, BadJson) as error:
            log.warning("cannot follow session '%s': %s", name, error)
        finally:
            known.set()

    def _is_left(self, session: BossSession) -> bool:
        """Whether we know the session and it has no keeper: it ended while no boss ran, or was killed."""
        if session.origin is not Origin.KEPT or session.ended is not None or not session.name:
            return False
        # Bosses before 0.2 took any text for a name.
        return not is_name(session.name) or read_holder(SessionPaths(self._folder, session.name)) is None

    async def _report_ends(self) -> None:
        """Report the end of sessions whose keepers are gone and did not report it."""
        for session in self._service.sessions():
            try:
                if self._is_left(session):
                    facts = {"name": session.name, "origin": "kept"}
                    end = _end_of(self._folder, str(session.name), session.id, facts)
                    await report(self._service, [end])
            except (ValueError, OSError, RemudaError) as error:
                log.warning("cannot find the keeper of session %r: %s", session.name, error)


async def _wait_for_nothing() -> None:
    return None


def _nothing() -> asyncio.Future[None]:
    return asyncio.ensure_future(_wait_for_nothing())


def _held(delivery: Document) -> str | None:
    return one_line(str(delivery.get("held") or "")) or None


def _end_of(folder: Path, name: str, session_id: str, facts: Document) -> Event:
    """Make the event of the end from the session's record. A killed keeper wrote no end: then it is now."""
    record = SessionRecord.load(SessionPaths(folder, name).record) if is_name(name) else None
    end = fields_of(record) if record is not None and record.ended_at is not None else {}
    is_wanted = record is not None and comes_back(record)
    return kept_events.end_event(session_id, {"ended_at": time.time(), **end}, facts, comes_back=is_wanted)


class Follower:
    """Follows one kept session, from when it is found to its end."""

    def __init__(self, service: BossService, transcripts: Transcripts, name: str, folder: Path) -> None:
        self._service = service
        self._transcripts = transcripts
        self._name = name
        self._folder = folder
        self._heard: asyncio.Queue[Document | None] = asyncio.Queue()
        self._session_id = ""
        self._facts: Document = {}
        self._name_facts: Document = {"name": name, "origin": "kept"}
        """Facts for every event: the name of the session, and whether a program reads its answers."""
        self._hooked = False
        self._unsaid: Event | None = None
        """The event of the start, held back until the agent reports its own id, or shows a dialog."""
        self._asks: dict[str, Document] = {}

    async def run(self, known: asyncio.Event) -> None:
        """Follow the session until it ends. Raises `RemudaError` if its keeper cannot be reached."""
        client = await AsyncKeeperClient.connect(
            self._name,
            self._folder,
            self._heard.put_nowait,
            lambda: self._heard.put_nowait(None),
            read_only=True,
        )
        try:
            if client.welcome.get("ephemeral") and not client.welcome.get("asks_human"):
                known.set()  # it belongs to a program, which answers its requests itself
                await self._until_gone()
                return
            try:
                await self._begin(client)
            except SessionUnreachable:  # it ended while it was asked, and may be listed already
                if self._session_id:
                    await self._end()
                raise
            known.set()
            while (document := await self._heard.get()) is not None:
                await self._hear(document)
            if client.fault:
                log.warning("reconnecting to the keeper of session '%s': %s", self._name, client.fault)
            await self._end()
        finally:
            client.close()
            if self._session_id:
                self._set_details(self._service.details(self._session_id).without_keeper())

    def _set_details(self, details: SessionDetails) -> None:
        self._service.set_details(self._session_id, details)

    async def _until_gone(self) -> None:
        while await self._heard.get() is not None:
            pass

    async def _begin(self, client: AsyncKeeperClient) -> None:
        at = time.time()  # before the answer: an event that comes after it is newer
        status = await client.request("watch", agent_events=True)
        if not status.get("agent_events"):  # a keeper of 0.1 sends hooks as they are
            hooks, without = list(kept_events.HOOKS), list(kept_events.WITHOUT)
            status = await client.request("watch", hooks=hooks, without=without)
        self._facts = kept_events.identity(status)
        self._name_facts |= {"scripted": True} if "scripted" in self._facts else {}
        self._hooked = kept_events.hooks_expected(status)
        self._session_id = kept_events.session_id_of(status)
        before = next((one for one in self._service.sessions() if one.id == self._session_id), None)
        ended = before.ended if before is not None else None
        first = kept_events.first_event(self._session_id, status, self._facts, at, ended)
        is_placeholder = self._session_id == f"kept:{self._name}"
        is_known = before is not None and (ended is None or not is_placeholder)
        if self._hooked and first.kind is EventKind.REGISTERED and not is_known:
            self._unsaid = first
        else:
            await self._report([first])
        sources = find_sources(str(self._facts.get("agent", DEFAULT_AGENT)))
        if sources is not None and (path := self._facts.get("transcript_path")):
            await self._transcripts.read(sources, self._session_id, path)
        self._on_status(status)
        asks = (await client.request("asks")).get("asks", [])
        await self._report(kept_events.state_events(self._session_id, status, self._facts, asked=bool(asks)))
        for ask in asks:
            await self._hear({"event": "ask", **ask})

    # ── reports of the keeper ──

    async def _hear(self, document: Document) -> None:
        handler = {
            "agent": self._on_agent_event,
            "hook": self._on_hook,
            "state": self._on_state,
            "source": self._on_source,
            "delivery": self._on_delivery,
            "ask": self._on_ask,
            "ask_ended": self._on_ask_ended,
        }.get(str(document.get("event")))
        if handler is not None:
            try:
                await handler(bounded(document))
            except _BAD_DOCUMENT as error:
                log.warning("session '%s' sent an event that cannot be read: %s", self._name, error)

    async def _on_agent_event(self, document: Document) -> None:
        if "kind" not in document or "facts" not in document:  # too large, and fetched too late
            return
        agent = str(self._facts.get("agent", DEFAULT_AGENT))
        event = await asyncio.to_thread(kept_events.agent_event, document, self._name, agent, read_text)
        await self._be_called(event.session_id, event.at)
        await self._report([event])

    async def _on_hook(self, document: Document) -> None:
        """Handle a hook from a keeper of 0.1."""
        payload, at = document.get("payload"), finite(document.get("at")) or time.time()
        if not isinstance(payload, dict):  # too large, and fetched too late
            return
        if isinstance(told := payload.get("session_id"), str) and told:
            await self._be_called(told, at)
        event = payload.get("hook_event_name")  # such a keeper has no other agent with hooks than Claude
        if event == "PermissionRequest" and self._is_asked(payload):
            return
        number = f"hook:{self._name}:{event}:{at}"
        await self._report(await read_hook(payload, at, number=number, env={"REMUDA_SESSION": self._name}))

    async def _be_called(self, session_id: str, at: float) -> None:
        """Take the id that the agent reported, and end the placeholder with its dialog."""
        before, self._session_id = self._session_id, session_id
        if before and before != session_id:
            keeper = self._service.details(before)
            own = self._service.details(session_id)
            self._service.set_details(before, keeper.without_keeper())
            self._set_details(replace(keeper, tokens=own.tokens))
        if before == f"kept:{self._name}" != session_id and self._unsaid is None:
            await self._report([kept_events.called_event(before, session_id, at)])
        self._unsaid = None

    def _is_asked(self, payload: Document) -> bool:
        """Whether the keeper reported the same permission request as one that clients can decide."""
        key = digest(payload.get("tool_name"), payload.get("tool_input"))
        return any(digest(ask.get("tool"), ask.get("input")) == key for ask in self._asks.values())

    def _on_status(self, status: Document) -> None:
        """Store what the keeper reports about the session and its inbox."""
        details = self._service.details(self._session_id).with_state(status)
        degraded = tuple(one_line(str(one)) for one in status.get("degraded") or ())
        delivery = status.get("delivery")
        if isinstance(delivery, dict):
            details = replace(details, held=_held(delivery))
        self._set_details(replace(details, degraded=degraded))

    async def _on_delivery(self, document: Document) -> None:
        self._set_details(replace(self._service.details(self._session_id), held=_held(document)))

    async def _on_state(self, document: Document) -> None:
        self._set_details(self._service.details(self._session_id).with_state(document))
        facts = dict(self._name_facts)
        events = kept_events.state_events(self._session_id, document, facts, hooked=self._hooked)
        await self._report([event for event in events if event.kind is not EventKind.SEEN])

    async def _on_source(self, document: Document) -> None:
        self._set_details(self._service.details(self._session_id).with_state(document))

    async def _on_ask(self, ask: Document) -> None:
        self._asks[str(ask.get("id"))] = ask
        # The agent says what its tools mean. A keeper of 0.1 does not say the folder.
        known: Document = {key: self._facts[key] for key in ("agent", "cwd") if key in self._facts}
        facts = {**self._name_facts, **known}
        told = await asyncio.to_thread(kept_events.ask_event, self._session_id, ask, facts, read_text)
        await self._report([told])

    async def _on_ask_ended(self, document: Document) -> None:
        ask = self._asks.pop(str(document.get("id")), None)
        if ask is not None:
            agent, undecided = str(self._facts.get("agent")), bool(document.get("undecided"))
            ended = kept_events.ask_ended_event(
                self._session_id, ask, time.time(), agent=agent, undecided=undecided
            )
            await self._report([ended])

    async def _end(self) -> None:
        """Report the end, unless the keeper lives and only closed the connection: then we reconnect."""
        if await self._is_gone() and self._unsaid is None:
            facts = {key: value for key, value in self._facts.items() if key != "pid"}
            await self._report([_end_of(self._folder, self._name, self._session_id, facts)])

    async def _is_gone(self) -> bool:
        """Whether the keeper has ended. A killed keeper loses its lock just after its connections."""
        for _ in range(_LOCK_CHECKS):
            if read_holder(SessionPaths(self._folder, self._name)) is None:
                return True
            await asyncio.sleep(_LOCK_INTERVAL)
        return False

    async def _report(self, events: list[Event]) -> None:
        """Report events; those of a session that a program uses are marked."""
        if self._unsaid is not None:
            if not any(one.kind is EventKind.ASKED for one in events):
                return
            events, self._unsaid = [self._unsaid, *events], None
        if "scripted" in self._name_facts:
            events = [replace(one, facts={**one.facts, "scripted": True}) for one in events]
        await report_until_written(self._service, events)
