"""Agents that are known only by their pane, as Trail Boss's detector finds them.

A pane takes part when its title begins with `@tb-`, or with ours, `@remuda-`. It is stuck when its text has
not changed for a while and its last line looks like a prompt. New output ends that, and the session ends with
its pane or its title. A session that reports itself in the same pane replaces the one that is made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.errors import RemudaError, TmuxTargetGone, WaitTimeout
from remuda.tasks import TaskSet
from remuda.tmux.address import Address, known_addresses
from remuda.tmux.command import Tmux
from remuda.tmux.panes import Pane, take_snapshot

from ..attention.model import Activity, Event, EventKind, Source
from ..service import BossService
from .watches import report

log = logging.getLogger("remuda.boss.evidence.detector")

OWN_PREFIX = "@remuda-"
# The end of a line that waits for input: a shell, a REPL, a question, a choice.
_PROMPT = re.compile(r"(?:[$>#?:@❯]|\[[^\]]*\]|>>>|\.\.\.)\s*$")
_MESSAGE_LINES = 20

Key = tuple[str, str]
"""Server and pane."""


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    poll_interval: float = 2.0
    quiet_threshold: float = 30.0
    prefixes: tuple[str, ...] = ("@tb-", OWN_PREFIX)

    @classmethod
    def of(cls, env: Mapping[str, str]) -> DetectorSettings:
        """Read Trail Boss's variables; one that is not a number is ignored."""
        return cls(
            _seconds(env.get("TRAILBOSS_POLL_INTERVAL_MS"), 2.0),
            _seconds(env.get("TRAILBOSS_QUIET_THRESHOLD_MS"), 30.0),
            (env.get("TRAILBOSS_OPT_IN_PREFIX") or "@tb-", OWN_PREFIX),
        )


def _seconds(text: str | None, default: float) -> float:
    return max(0.05, int(text) / 1000) if text and text.isdecimal() and len(text) < 12 else default


@dataclass(slots=True)
class Watched:
    """One pane that takes part."""

    session_id: str
    text: str | None
    """What it showed last; None if that is not known."""
    changed_at: float
    stuck: bool = False

    def see(self, text: str, now: float, threshold: float) -> EventKind | None:
        """Compare with the last scan; returns what to report, or None."""
        if self.text is None:
            self.text, self.changed_at = text, now
            was, self.stuck = self.stuck, self.stuck and waits(text)
            return EventKind.PROMPTED if was and not self.stuck else None
        if text != self.text:
            self.text, self.changed_at = text, now
            was, self.stuck = self.stuck, False
            return EventKind.PROMPTED if was else None
        if self.stuck or now - self.changed_at < threshold or not waits(text):
            return None
        self.stuck = True
        return EventKind.STOPPED


def waits(text: str) -> bool:
    """Whether the last line looks like a prompt."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and _PROMPT.search(lines[-1]) is not None


def message_of(text: str) -> str:
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-_MESSAGE_LINES:])


@dataclass(slots=True)
class PaneScan:
    """One scan of all servers: panes that take part, and what they show."""

    panes: dict[Key, tuple[Pane, str]] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    """Servers that are running and did not answer: the state of their panes is unknown."""

    def is_gone(self, key: Key) -> bool:
        return key not in self.panes and key[0] not in self.unreachable


class Detector:
    name = "detector"

    def __init__(self, service: BossService, env: Mapping[str, str] | None = None) -> None:
        self._service = service
        self._env = env if env is not None else os.environ
        self._settings = DetectorSettings.of(self._env)
        self._watched: dict[Key, Watched] = {}
        self._tasks = TaskSet()

    async def start(self) -> None:
        scan = await self._poll()
        for session in self._service.sessions():
            known = {watched.session_id for watched in self._watched.values()}
            if not session.id.startswith("tmux-") or session.ended is not None or session.id in known:
                continue
            key = (session.tmux or "", session.pane or "")
            if scan.is_gone(key):
                await self._report(EventKind.ENDED, session.id, {"why": "its pane is gone"})
            else:
                self._watched[key] = Watched(session.id, None, 0.0, session.state is Activity.STOPPED)
        self._tasks.start(self._run())

    async def close(self) -> None:
        """The next boss finds the watched panes again."""
        await self._tasks.aclose()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_interval)
            try:
                await self._poll()
            except (OSError, RemudaError) as error:
                log.warning("cannot read the tmux panes: %s", error)

    async def _poll(self) -> PaneScan:
        scan = await asyncio.to_thread(scan_panes, self._env, self._settings.prefixes)
        now = time.monotonic()
        for key, (pane, text) in scan.panes.items():
            watched = self._watched.get(key) or await self._begin(key, pane, text, now)
            if (kind := watched.see(text, now, self._settings.quiet_threshold)) is not None:
                more = {"message": message_of(text)} if kind is EventKind.STOPPED else {}
                await self._report(kind, watched.session_id, {**_facts(key, pane), **more})
        for key in [key for key in self._watched if scan.is_gone(key)]:
            watched = self._watched.pop(key)
            await self._report(EventKind.ENDED, watched.session_id, {"why": "its pane or its title is gone"})
        return scan

    async def _begin(self, key: Key, pane: Pane, text: str, now: float) -> Watched:
        """Return the same session as before, if the boss was only away for a moment."""
        for session in self._service.sessions():
            same = (session.tmux or key[0], session.pane) == key and session.id.startswith("tmux-")
            if same and session.ended is None:
                self._watched[key] = Watched(session.id, None, now, session.state is Activity.STOPPED)
                return self._watched[key]
        session_id = f"tmux-{pane.id}-{round(time.time() * 1000)}"
        self._watched[key] = Watched(session_id, text, now)
        await self._report(EventKind.REGISTERED, session_id, _facts(key, pane))
        return self._watched[key]

    async def _report(self, kind: EventKind, session_id: str, facts: dict[str, Any]) -> None:
        now = time.time()
        facts = {"agent": "other", "origin": "tmux", **facts}
        event_id = f"detector:{kind}:{now}"
        await report(self._service, [Event(kind, session_id, now, Source.HOOK, event_id, facts)])


def _facts(key: Key, pane: Pane) -> dict[str, Any]:
    return {"pane": pane.id, "tmux": key[0], "cwd": pane.cwd, "title": pane.title}


def scan_panes(env: Mapping[str, str], prefixes: tuple[str, ...]) -> PaneScan:
    """Blocking. A server that is gone, or a missing tmux, has no panes."""
    scan = PaneScan()
    for address in known_addresses(env):
        try:
            _scan_server(address, Tmux(address, env), prefixes, scan)
        except WaitTimeout:
            scan.unreachable.add(address.path)
        except RemudaError:
            continue
    return scan


def _scan_server(address: Address, tmux: Tmux, prefixes: tuple[str, ...], scan: PaneScan) -> None:
    for pane in take_snapshot(tmux).panes.values():
        if pane.title.startswith(prefixes) and not pane.is_dead:
            with contextlib.suppress(TmuxTargetGone):  # closed since the list was made
                shown = tmux.command("capture-pane", "-p", "-t", pane.id)
                scan.panes[(address.path, pane.id)] = (pane, "\n".join(shown))
