"""Follow the inboxes of kept sessions: publish each new step of a receipt, and how many messages wait.

`receipts.jsonl` has a line for each step. Only what is appended is read.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError
from remuda.inbox.journal import Inbox
from remuda.jsonl_tail import JsonlTail
from remuda.names import is_name
from remuda.paths import SessionPaths, sessions_folder
from remuda.tasks import TaskSet
from remuda.untrusted import finite

from ..attention.model import BossSession, Origin
from ..service import BossService
from .watches import PollSettings, Watches

log = logging.getLogger("remuda.boss.evidence.messages")

_POLLING = PollSettings()
_STEPS = 200
"""Steps that are published at once. A client that needs more reads the messages."""
_FIELD = 500


class Messages:
    name = "messages"

    def __init__(
        self, service: BossService, folder: Path | None = None, polling: PollSettings = _POLLING
    ) -> None:
        self._service = service
        self._folder = folder or sessions_folder()
        self._polling = polling
        self._watches: Watches | None = None
        self._inboxes: dict[str, tuple[int | None, JsonlTail]] = {}
        self._tasks = TaskSet()
        self._busy: set[str] = set()
        self._again: set[str] = set()

    async def start(self) -> None:
        self._watches = self._polling.watches()
        self._tasks.start(self._hear())
        self._look()
        self._tasks.start(self._poll_forever())

    async def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
        await self._tasks.aclose()

    async def _hear(self) -> None:
        watcher = self._service.feed.watch()
        try:
            async for change in watcher:
                if isinstance(change.value, BossSession) and _has_inbox(change.value):
                    self._follow(str(change.value.name))
        finally:
            watcher.close()

    async def _poll_forever(self) -> None:
        """An inbox can be made after its session began, and a folder may not report its changes."""
        while True:
            await asyncio.sleep(self._polling.interval)
            self._look()

    def _look(self) -> None:
        names = {str(one.name) for one in self._service.sessions() if _has_inbox(one)}
        for name in names:
            self._follow(name)
        for name in self._inboxes.keys() - names:
            watch_id, _ = self._inboxes.pop(name)
            if self._watches is not None:
                self._watches.remove(watch_id)
        for name, (watch_id, tail) in self._inboxes.items():
            if watch_id is None and tail.has_changed():
                self._on_change(name)

    def _follow(self, name: str) -> None:
        if name in self._inboxes or self._watches is None:
            return
        inbox = SessionPaths(self._folder, name).inbox
        if not inbox.is_dir():
            return
        watch_id = self._watches.folder(inbox, lambda _file: self._on_change(name))
        self._inboxes[name] = (watch_id, JsonlTail.at_end(inbox / "receipts.jsonl"))
        self._on_change(name)

    def _on_change(self, name: str) -> None:
        if name in self._busy:
            self._again.add(name)
        elif name in self._inboxes:
            self._busy.add(name)
            self._tasks.start(self._read(name))

    async def _read(self, name: str) -> None:
        try:
            while name in self._inboxes:
                self._again.discard(name)
                tail = self._inboxes[name][1]
                inbox = SessionPaths(self._folder, name).inbox
                steps, waiting = await asyncio.to_thread(_look_at, inbox, tail)
                self._publish(name, steps, waiting)
                if name not in self._again:
                    return
        finally:
            self._busy.discard(name)

    def _publish(self, name: str, steps: list[dict[str, Any]], waiting: int | None) -> None:
        session = next(
            (one for one in self._service.sessions() if one.name == name and not one.replaced_by), None
        )
        if session is None:
            return
        for step in steps:
            document = {"session_id": session.id, "name": name, "id": step.pop("id"), "step": step}
            self._service.feed.publish("message", {**document, "waiting": waiting})
        self._service.set_details(session.id, replace(self._service.details(session.id), waiting=waiting))


def _has_inbox(session: BossSession) -> bool:
    kept = session.origin is Origin.KEPT and session.ended is None and session.replaced_by is None
    return kept and session.name is not None and is_name(session.name)


def _look_at(inbox: Path, tail: JsonlTail) -> tuple[list[dict[str, Any]], int | None]:
    steps = [short_step(one) for one in tail.read()][-_STEPS:]
    try:
        return [one for one in steps if one["id"]], Inbox(inbox).overview().waiting
    except (OSError, RemudaError):
        return [one for one in steps if one["id"]], None


def short_step(receipt: dict[str, Any]) -> dict[str, Any]:
    """Return a line of receipts as a step: flat, with texts of at most 500 characters."""
    step: dict[str, Any] = {
        "id": str(receipt.get("id") or "")[:_FIELD],
        "stage": str(receipt.get("stage"))[:40],
    }
    step["at"] = finite(receipt.get("at")) or None
    for key, value in list(receipt.items())[:30]:
        if key not in step and isinstance(value, str | int | float | bool | list):
            step[key] = value[:_FIELD] if isinstance(value, str) else value
    return step
