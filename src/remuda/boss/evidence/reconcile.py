"""Compare the queue with agents' own files, processes and panes, for sessions without a keeper.

Items of agents that moved on are resolved, and missing ones are added. The kernel reports processes that end
and files that change at once; a file is read within `SETTLE`. Everything else is polled every `CYCLE`
seconds. A registry that contradicts the other sources for a full cycle is believed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.agents import all_sources, find_sources
from remuda.agents.sources import AgentSources, RegistryEntry, SharedTerminals
from remuda.errors import RemudaError
from remuda.keeper.claim import read_holder
from remuda.names import is_name
from remuda.paths import SessionPaths, sessions_folder
from remuda.proctree import is_alive, start_ticks, variable_of
from remuda.tasks import TaskSet
from remuda.tmux.address import Address, known_addresses
from remuda.tmux.command import Tmux
from remuda.tmux.panes import Snapshot, take_snapshot

from ..attention.identity import is_stand_in
from ..attention.model import Activity, BossSession, Event, EventKind, Origin, Source
from ..service import BossService
from .jobs import Jobs, rests_event
from .processes import Processes, started_at
from .registry import AgentRegistry
from .terminals import choose_terminal, list_terminals
from .transcripts import Transcripts
from .watches import PollSettings, report

log = logging.getLogger("remuda.boss.evidence.reconcile")

_POLLING = PollSettings()
CYCLE = _POLLING.interval
SETTLE = 0.2
# A process reports its end by a hook or its registry just before it exits.
_LAST_WORDS = 0.3
_LAST_WORDS_INTERVAL = 0.05
_CLOCK_SLACK = 2.0
_CONTRADICTIONS: dict[EventKind, frozenset[Activity]] = {
    EventKind.STOPPED: frozenset({Activity.WORKING, Activity.WAITING, Activity.HUNG}),
    EventKind.WORKING: frozenset({Activity.STOPPED, Activity.WAITING, Activity.FAILED, Activity.STARTED}),
    EventKind.ASKED: frozenset({Activity.WORKING}),
}
"""What a registry says, and the states that it contradicts."""


class Reconcile:
    name = "reconcile"

    def __init__(
        self, service: BossService, env: Mapping[str, str] | None = None, polling: PollSettings = _POLLING
    ) -> None:
        self._service = service
        self._polling = polling
        self._env = env if env is not None else os.environ
        self._transcripts = Transcripts(service)
        self._jobs = Jobs()
        self._tasks = TaskSet()
        self._files: dict[str, tuple[str, int | None, AgentSources]] = {}  # session → transcript, watch
        self._awaited: set[str] = set()  # sessions that have no transcript yet
        self._arrivals: dict[Path, int] = {}  # folders that are watched for a new transcript
        self._due: set[str] = set()
        self._doubts: dict[str, tuple[object, ...]] = {}
        self._proven: dict[str, int] = {}  # session → the process that was proven to be its own
        self._searched: set[int] = set()  # processes whose pane was searched
        self._kept_pids: dict[int, tuple[str | None, bool]] = {}
        self._reporting = asyncio.Lock()

    async def start(self) -> None:
        self._watches = self._polling.watches()
        self._processes = Processes(self._on_end, by_descriptor=self._polling.uses_events)
        self._registry = AgentRegistry(self._watches, self._on_registry, self._has_keeper)
        self._tasks.start(self._hear())  # before anything is reported
        for sources in all_sources():
            self._add_registry(sources)
        await self._poll()
        self._tasks.start(self._poll_forever())

    async def close(self) -> None:
        self._watches.close()
        self._processes.close()
        await self._tasks.aclose()
        await self._transcripts.save(set(self._files))

    def _find_session(self, session_id: str) -> BossSession | None:
        try:
            return self._service.session(session_id)
        except RemudaError:
            return None

    def _sessions(self) -> list[BossSession]:
        """Return the sessions to check: running, and without a keeper."""
        return [session for session in self._service.sessions() if _matters(session)]

    # ── changes that are reported ──

    async def _hear(self) -> None:
        """Follow sessions that are new or have moved."""
        watcher = self._service.feed.watch()
        try:
            async for change in watcher:
                if change.kind == "session":
                    session = self._find_session(change.value.id)
                    if session is not None and _matters(session):
                        await self._follow(session)
        finally:
            watcher.close()

    async def _follow(self, session: BossSession) -> None:
        if session.pid is not None and not self._processes.watch(session.pid):
            self._on_end(session.pid)
        if (sources := find_sources(session.agent)) is None:
            return
        path = session.transcript_path or (
            None if session.id in self._files else self._found_transcript(sources, session)
        )
        if path is None and session.id not in self._files:
            path = self._await_transcript(sources, session)
        if path is None:
            return
        self._awaited.discard(session.id)
        self._add_registry(sources, path)
        known = self._files.get(session.id)
        if known is None or known[0] != path or known[1] is None:
            watch_id = self._watches.file(Path(path), lambda _name: self._on_file(session.id))
            self._files[session.id] = (path, watch_id, sources)
            self._on_file(session.id)

    def _add_registry(self, sources: AgentSources, transcript: str | None = None) -> None:
        if (folder := sources.registry_folder(self._env, transcript)) is not None:
            self._registry.add_folder(folder, sources, time.time())
            self._jobs.add_registry(folder, sources)

    def _found_transcript(self, sources: AgentSources, session: BossSession) -> str | None:
        path = sources.find_transcript(self._env, session.id)
        return str(path) if path else None

    def _await_transcript(self, sources: AgentSources, session: BossSession) -> str | None:
        """Watch for the transcript: a quick first turn changes no other watched file.

        Returns its path if it exists by now.
        """
        for folder in sources.transcript_folders(self._env, Path(session.cwd or "/")):
            if folder in self._arrivals:
                break
            if (watch_id := self._watches.entries(folder, self._on_arrival)) is not None:
                self._arrivals[folder] = watch_id
                break
        self._awaited.add(session.id)
        return self._found_transcript(sources, session)

    def _on_arrival(self, _name: str) -> None:
        for session_id in list(self._awaited):
            session = self._find_session(session_id)
            if session is None or not _matters(session):
                self._awaited.discard(session_id)
            else:
                self._tasks.start(self._follow(session))

    def _on_file(self, session_id: str) -> None:
        if session_id not in self._due:
            self._due.add(session_id)
            self._tasks.start(self._read_soon(session_id))

    async def _read_soon(self, session_id: str) -> None:
        await asyncio.sleep(SETTLE)
        self._due.discard(session_id)
        await self._read_transcript(session_id)

    async def _read_transcript(self, session_id: str) -> None:
        if session_id in self._files:
            path, _, sources = self._files[session_id]
            await self._transcripts.read(sources, session_id, path)

    def _on_registry(self, events: list[Event]) -> None:
        for event in events:
            self._tasks.start(self._report_registry(event))

    async def _report_registry(self, event: Event) -> None:
        """Report an event. Before a stop, wait for the last words: its item would be without them."""
        session = self._find_session(event.session_id) if event.kind is EventKind.STOPPED else None
        if session is not None and _matters(session):
            await self._follow(session)
            await self._read_transcript(session.id)
            try:
                async with asyncio.timeout(self._polling.last_words_timeout):
                    await self._wait_for_last_words(session.id)
            except TimeoutError:  # a turn without an answer, or a transcript that cannot be read
                pass
        await self._report([event])

    async def _wait_for_last_words(self, session_id: str) -> None:
        """Wait until its transcript, or a hook, has reported the stop."""
        while (session := self._find_session(session_id)) is not None and _is_busy(session):
            await asyncio.sleep(_LAST_WORDS_INTERVAL)
            await self._read_transcript(session_id)

    async def _report(self, events: list[Event]) -> None:
        async with self._reporting:  # in order
            await report(self._service, events)

    # ── processes ──

    def _has_keeper(self, pid: int) -> bool:
        """Whether a keeper reports it."""
        known = self._kept_pids.get(pid)
        if known is None or known[0] != start_ticks(pid):
            kept = _ask_keeper(pid)
            if kept is None:
                return True  # it is asked again
            known = self._kept_pids[pid] = (start_ticks(pid), kept)
        return known[1]

    def _on_end(self, pid: int) -> None:
        self._tasks.start(self._report_end(pid))

    async def _report_end(self, pid: int) -> None:
        await asyncio.sleep(_LAST_WORDS)
        killed = self._registry.has_file(pid)
        self._registry.forget(pid)
        now = time.time()
        for session in self._sessions():
            if session.pid == pid and (event := self._end_of(session, pid, now, killed)) is not None:
                await self._report([event])

    def _end_of(self, session: BossSession, pid: int, now: float, killed: bool) -> Event | None:
        """Return None for a background agent at rest: it still waits for an answer."""
        job = self._jobs.of_session(session.id)
        if job is not None and job.state != "stopped":
            if not _is_busy(session):
                return None
            if job.rests and job.at > session.since:
                return rests_event(job)
        kind = EventKind.GONE if killed or _is_busy(session) else EventKind.ENDED
        facts: dict[str, Any] = {"origin": str(session.origin), "why": "its process ended"}
        facts |= {"pid": pid} if kind is EventKind.GONE else {}
        return Event(kind, session.id, now, Source.PROCESS, f"process:{pid}:{session.id}:{now}", facts)

    # ── looking ──

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(self._polling.interval)
            try:
                await self._poll()
            except (OSError, RemudaError) as error:
                log.warning("poll of all sources failed: %s", error)

    async def _poll(self) -> None:
        now = time.time()
        self._registry.poll(now)
        await self._report(self._jobs.poll(now, self._find_session, self._registry.has_session))
        self._processes.poll()
        for session in self._sessions():
            await self._poll_session(session, now)
        sessions = self._sessions()  # more may have come since
        self._forget({session.id for session in sessions})
        self._processes.keep({session.pid for session in sessions if session.pid is not None})
        await self._find_terminals(sessions)
        await self._find_panes(self._sessions())
        await self._transcripts.save(set(self._files))

    async def _poll_session(self, session: BossSession, now: float) -> None:
        if session.pid is not None and not self._is_same(session, session.pid):
            self._on_end(session.pid)
            return
        await self._follow(session)
        known = self._files.get(session.id)
        if known and self._transcripts.has_changed(session.id, known[0]):
            await self._read_transcript(session.id)
        if session.pid is not None and (entry := self._registry.entry(session.pid)):
            await self._weigh(session, entry, now)

    def _is_same(self, session: BossSession, pid: int) -> bool:
        """Whether the pid still means the session's process.

        The clock, which can be set, is compared only once.
        """
        if not is_alive(pid):
            return False
        if self._proven.get(session.id) == pid and self._processes.holds(pid):
            return True
        entry = self._registry.entry(pid)
        same = (entry is not None and entry.session_id == session.id) or _began_before(session, pid)
        if same:
            self._proven[session.id] = pid
        return same

    async def _weigh(self, session: BossSession, entry: RegistryEntry, now: float) -> None:
        """Believe a registry that has contradicted the other sources for a full cycle."""
        event = entry.event
        doubt = (entry.status, entry.status_since, session.state, session.since)
        if entry.session_id != session.id or session.state not in _CONTRADICTIONS.get(event.kind, ()):
            self._doubts.pop(session.id, None)
        elif self._doubts.get(session.id) != doubt:
            self._doubts[session.id] = doubt
        else:
            log.info("session %s is %s, not %s", session.id, entry.status, session.state)
            await self._report([replace(event, at=now, id=f"{event.id}:{now}")])

    def _forget(self, wanted: set[str]) -> None:
        for session_id in self._files.keys() - wanted:
            self._watches.remove(self._files.pop(session_id)[1])
        self._awaited &= wanted
        if not self._awaited:
            for folder in list(self._arrivals):
                self._watches.remove(self._arrivals.pop(folder))
        self._kept_pids = {pid: kept for pid, kept in self._kept_pids.items() if is_alive(pid)}
        self._doubts = {one: doubt for one, doubt in self._doubts.items() if one in wanted}
        self._proven = {one: pid for one, pid in self._proven.items() if one in wanted}

    # ── panes ──

    async def _find_terminals(self, sessions: list[BossSession]) -> None:
        """Find the terminals of sessions that a server of several terminals runs."""
        for sources in all_sources():
            kind: SharedTerminals | None = getattr(sources, "terminals", None)
            wanted = [one for one in sessions if kind is not None and _is_served(one, sources.agent, kind)]
            if kind is None or not wanted:
                continue
            terminals = await asyncio.to_thread(list_terminals, kind)
            for one in wanted:
                found = choose_terminal(terminals, one.id, one.cwd or "", kind.began(one.id))
                if found is not None:
                    facts = {"pid": found.pid, "origin": str(one.origin)}
                    event = Event(EventKind.SEEN, one.id, time.time(), Source.PROCESS, "", facts)
                    await self._report([event])

    async def _find_panes(self, sessions: list[BossSession]) -> None:
        """Find the panes of sessions whose hooks do not report them."""
        pids = {session.pid for session in sessions if session.pid is not None}
        self._searched &= pids
        wanted = [one for one in sessions if one.pane is None and one.pid and one.pid not in self._searched]
        if not wanted:
            return
        servers = {one.tmux for one in self._service.sessions() if one.tmux}
        wanted_pids = [one.pid for one in wanted if one.pid]
        snapshots = await asyncio.to_thread(_snapshots, self._env, servers, wanted_pids)
        for session in wanted:
            assert session.pid is not None
            self._searched.add(session.pid)
            for snapshot in snapshots:
                if (pane := snapshot.of_process(session.pid)) is not None:
                    facts = {"pane": pane.id, "tmux": snapshot.address.path, "pid": session.pid}
                    facts |= {"origin": str(session.origin)}
                    await self._report(
                        [Event(EventKind.SEEN, session.id, time.time(), Source.PROCESS, "", facts)]
                    )
                    break


def _ask_keeper(pid: int) -> bool | None:
    """Return None while its keeper has not written the pid of its agent yet: an agent may start faster."""
    name = variable_of(pid, "REMUDA_SESSION")
    holder = read_holder(SessionPaths(sessions_folder(), name)) if name and is_name(name) else None
    if holder is None:
        return False
    return None if holder.child_pid == 0 else holder.child_pid == pid


def _matters(session: BossSession) -> bool:
    return session.ended is None and session.origin is not Origin.KEPT and not is_stand_in(session.id)


def _is_served(session: BossSession, agent: str, kind: SharedTerminals) -> bool:
    """Whether a shared server runs it, and its terminal is not known."""
    return session.agent == agent and session.entrypoint == kind.entrypoint and session.pid is None


def _is_busy(session: BossSession) -> bool:
    return session.state in (Activity.WORKING, Activity.WAITING)


def _began_before(session: BossSession, pid: int) -> bool:
    """Whether the process was running when we first heard of it."""
    began = started_at(pid)
    return began is None or began <= session.dated.get("pid", session.last_seen) + _CLOCK_SLACK


def _snapshots(env: Mapping[str, str], servers: Collection[str], pids: Collection[int]) -> list[Snapshot]:
    """Read the servers at the usual place, those that hooks have named, and those that the processes name.

    A server of `tmux -S PATH` may listen anywhere.
    """
    named = {(variable_of(pid, "TMUX") or "").partition(",")[0] for pid in pids}
    others = [Address.of(path) for path in sorted({*servers, *named}) if os.path.isabs(path)]
    snapshots = []
    for address in dict.fromkeys([*known_addresses(env), *others]):
        try:
            snapshots.append(take_snapshot(Tmux(address, env)))
        except RemudaError:  # no tmux, or no server at that socket
            continue
    return snapshots
