"""Kept sessions: each is followed through its keeper, as one who only watches.

Keepers come and go; their sockets appear in one folder. What already waits when the boss begins is found: the
state and its open questions are asked for, and the last words are read from the transcript.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from remuda.agents.attention import digest
from remuda.errors import RemudaError, SessionDead, SessionNotFound
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.keeper.claim import read_holder
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths, private_folder, sessions_folder

from ..attention.model import Event, EventKind, Origin, Session, Source
from ..desk import Desk
from ..http.events import read_hook, read_text
from . import kept_events
from .pace import Pace
from .transcripts import Tail, Transcripts, calls_in
from .watches import Watches, keep_telling, tell

log = logging.getLogger("remuda.boss.evidence.kept")

_PACE = Pace()
_FIRST_LOOK = 5.0
Document = dict[str, Any]


class Kept:
    name = "kept"

    def __init__(self, desk: Desk, folder: Path | None = None, pace: Pace = _PACE) -> None:
        self._desk = desk
        self._pace = pace
        self._folder = folder or sessions_folder()
        self._transcripts = Transcripts(desk)
        self._tails: dict[str, Tail] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._watches: Watches | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        private_folder(self._folder)
        self._watches = self._pace.watches()
        self._watches.folder(self._folder, self._on_change)
        begun = self._look()
        await asyncio.wait(
            [asyncio.ensure_future(one.wait()) for one in begun] or [_nothing()], timeout=_FIRST_LOOK
        )
        for session in self._left():
            await self._tell_end(session)
        self._looking = asyncio.create_task(self._look_at_times())

    async def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
        tasks = [*self._followers.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── who is there ──

    def _on_change(self, name: str) -> None:
        if not name or name.endswith(".sock"):
            self._look()

    def _look(self) -> list[asyncio.Event]:
        """Follow those who are new; returns what is set when they are known."""
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
        """A keeper that did not answer may do so later, and a folder may not tell of its changes."""
        while True:
            await asyncio.sleep(self._pace.look_interval)
            try:
                self._look()
            except OSError as error:
                log.warning("cannot look into %s: %s", self._folder, error)
            for session in self._desk.sessions():
                if session.origin is Origin.KEPT and session.ended is None and session.transcript_path:
                    await self._prove(session.id, session.transcript_path)

    async def _prove(self, session_id: str, path: str) -> None:
        """No hook tells of a call that was refused: the transcript does."""
        calls = {one.tool_use_id for one in self._desk.unproven(session_id)}
        if not calls:
            self._tails.pop(session_id, None)
            return
        tail = self._tails.setdefault(session_id, Tail(path))
        events = await asyncio.to_thread(calls_in, tail, session_id)
        await tell(self._desk, [one for one in events if one.facts.get("tool_use_id") in calls])

    async def _follow(self, name: str, known: asyncio.Event) -> None:
        try:
            await Follower(self._desk, self._transcripts, name, self._folder).run(known)
        except (SessionDead, SessionNotFound):
            pass
        except RemudaError as error:
            log.warning("cannot follow '%s': %s", name, error)
        finally:
            known.set()

    def _left(self) -> list[Session]:
        """Known to us, and without a keeper: they ended while nobody looked."""
        return [
            session
            for session in self._desk.sessions()
            if session.origin is Origin.KEPT
            and session.ended is None
            and session.name
            and read_holder(SessionPaths(self._folder, session.name)) is None
        ]

    async def _tell_end(self, session: Session) -> None:
        facts = {"name": session.name, "origin": "kept"}
        await tell(self._desk, [_end_of(self._folder, str(session.name), session.id, facts)])


async def _wait_for_nothing() -> None:
    return None


def _nothing() -> asyncio.Future[None]:
    return asyncio.ensure_future(_wait_for_nothing())


def _end_of(folder: Path, name: str, session_id: str, facts: Document) -> Event:
    """As its record tells; of a keeper that was killed there is nothing but that."""
    record = SessionRecord.load(SessionPaths(folder, name).record)
    end = asdict(record) if record is not None and record.ended_at is not None else {}
    return kept_events.end_event(session_id, {"ended_at": time.time(), **end}, facts)


class Follower:
    """One kept session, from the moment when it is found to its end."""

    def __init__(self, desk: Desk, transcripts: Transcripts, name: str, folder: Path) -> None:
        self._desk = desk
        self._transcripts = transcripts
        self._name = name
        self._folder = folder
        self._heard: asyncio.Queue[Document | None] = asyncio.Queue()
        self._session_id: str | None = None
        self._facts: Document = {}
        self._hooked = False
        self._asks: dict[str, Document] = {}

    async def run(self, known: asyncio.Event) -> None:
        """Raises what keeps us from it."""
        client = await AsyncKeeperClient.connect(
            self._name,
            self._folder,
            self._heard.put_nowait,
            lambda: self._heard.put_nowait(None),
            read_only=True,
        )
        try:
            if client.welcome.get("ephemeral"):  # a program's own, which waits for its answers itself
                known.set()
                await self._until_gone()
                return
            await self._begin(client)
            known.set()
            while (document := await self._heard.get()) is not None:
                await self._hear(document)
            await self._end()
        finally:
            client.close()

    async def _until_gone(self) -> None:
        while await self._heard.get() is not None:
            pass

    async def _begin(self, client: AsyncKeeperClient) -> None:
        hooks = list(kept_events.HOOKS)
        status = await client.request("watch", hooks=hooks, without=list(kept_events.WITHOUT))
        self._facts = kept_events.identity(status)
        self._hooked = bool(status.get("hooks"))
        self._session_id = kept_events.session_id_of(status)
        if self._session_id is None:
            return
        seen = Event(EventKind.SEEN, self._session_id, time.time(), Source.PROCESS, "", self._facts)
        await keep_telling(self._desk, [seen])
        if path := self._facts.get("transcript_path"):
            await self._transcripts.look(self._session_id, path)
        asks = (await client.request("asks")).get("asks", [])
        told = kept_events.state_events(self._session_id, status, self._facts, asked=bool(asks))
        await keep_telling(self._desk, told)
        for ask in asks:
            await self._on_ask(ask)

    # ── what it tells ──

    async def _hear(self, document: Document) -> None:
        handler = {
            "hook": self._on_hook,
            "state": self._on_state,
            "ask": self._on_ask,
            "ask_ended": self._on_ask_ended,
        }.get(str(document.get("event")))
        if handler is not None:
            await handler(document)

    async def _on_hook(self, document: Document) -> None:
        payload, at = document.get("payload"), float(document.get("at") or time.time())
        if not isinstance(payload, dict):  # too large, and fetched too late
            return
        if isinstance(told := payload.get("session_id"), str) and told:
            self._session_id = told
        event = payload.get("hook_event_name")
        if event == "PermissionRequest" and self._is_asked(payload):
            return
        number = f"hook:{self._name}:{event}:{at}"
        events = await read_hook(payload, at, number=number, env={"REMUDA_SESSION": self._name})
        await keep_telling(self._desk, events)

    def _is_asked(self, payload: Document) -> bool:
        """Told as a question that clients may answer: the same, and more."""
        key = digest(payload.get("tool_name"), payload.get("tool_input"))
        return any(digest(ask.get("tool"), ask.get("input")) == key for ask in self._asks.values())

    async def _on_state(self, document: Document) -> None:
        if self._session_id is not None:
            facts = {"name": self._name, "origin": "kept"}
            events = kept_events.state_events(self._session_id, document, facts, hooked=self._hooked)
            await keep_telling(self._desk, [event for event in events if event.kind is not EventKind.SEEN])

    async def _on_ask(self, ask: Document) -> None:
        if self._session_id is not None:
            self._asks[str(ask.get("id"))] = ask
            facts = {"name": self._name, "origin": "kept"}
            told = await asyncio.to_thread(kept_events.ask_event, self._session_id, ask, facts, read_text)
            await keep_telling(self._desk, [told])

    async def _on_ask_ended(self, document: Document) -> None:
        ask = self._asks.pop(str(document.get("id")), None)
        if ask is not None and self._session_id is not None:
            await keep_telling(self._desk, [kept_events.ask_ended_event(self._session_id, ask, time.time())])

    async def _end(self) -> None:
        """Its keeper is gone, or hung up on us: then it is still alive, and we come back."""
        gone = read_holder(SessionPaths(self._folder, self._name)) is None
        if self._session_id is not None and gone:
            facts = {key: value for key, value in self._facts.items() if key != "pid"}
            await keep_telling(self._desk, [_end_of(self._folder, self._name, self._session_id, facts)])
