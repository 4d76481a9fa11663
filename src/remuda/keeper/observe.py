"""Bringing an agent's evidence to its session: hooks, registry file, transcript, title and screen."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.agents.base import Observer, RecordOrder
from remuda.agents.events import Report
from remuda.agents.progress import Progress
from remuda.agents.state import Vote
from remuda.durable import open_regular, read_regular
from remuda.untrusted import parse_json

from .session import Session
from .watch import FileWatch, PolledWatch, watch

log = logging.getLogger("remuda.keeper.observe")

# A screen is read when the agent has finished drawing it.
_SCREEN_SETTLE = 0.05
_TAIL_CHUNK = 1 << 20
MAX_LINE_BYTES = 16 << 20
# An agent that suspends itself says so before it listens for being sent on.
_WAKE_INTERVAL = 0.1
_WAKE_TRIES = 50


class Observation:
    """Feeds one observer and passes its votes on. `changed` is called when the conversation is another."""

    def __init__(
        self, session: Session, observer: Observer, changed: Callable[[dict[str, Any]], None]
    ) -> None:
        self._session = session
        self._observer = observer
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._registry: FileWatch | PolledWatch | None = None
        self._registry_path: Path | None = None
        self._tail: Tail | None = None
        self._settle: asyncio.TimerHandle | None = None
        self._conversation: dict[str, Any] = {}
        self._awaited: object = None
        self._wakes = 0
        self.listeners: list[Callable[[], None]] = []
        """Called when there may be something new to see."""
        self.report_listeners: list[Callable[[Report], object]] = []
        """Called with what transcript and registry report."""
        self.progress = Progress()
        session.title_listeners.append(self._on_title)
        if session.screen is not None:
            session.output_listeners.append(self._on_output)
        self._follow()

    def take_hook(self, report: Report) -> None:
        log.debug("hook %s", report.name)
        self._take(report)
        text, tools = self.progress.take(report)
        self._session.tell_shown(text)
        for document in tools:
            if document["what"] == "began":
                self._session.processes.tool_started()
            self._session.tell_tool({"event": "tool", **document})
        self._follow()

    def _take(self, report: Report) -> None:
        self._vote(self._observer.take(report, self._session.now(), time.time()))

    def _vote(self, votes: list[Vote]) -> None:
        self._session.vote(votes)
        for listener in self.listeners:
            listener()

    @property
    def conversation(self) -> dict[str, Any]:
        return self._conversation

    @property
    def transcript_path(self) -> Path | None:
        """Also where no hook names it."""
        return self._tail.path if self._tail is not None else None

    @property
    def registry_path(self) -> Path | None:
        return self._registry_path

    def _follow(self) -> None:
        """Watch the files that belong to the conversation as it is now."""
        registry = self._observer.registry_path()
        if registry is not None and registry != self._registry_path:
            if self._registry is not None:
                self._registry.close()
            self._registry_path = registry
            self._registry = watch(registry, self._on_registry)
        transcript = self._observer.transcript_path()
        if transcript is not None and (self._tail is None or self._tail.path != transcript):
            if self._tail is not None:
                self._tail.close()
            self._tail = Tail(transcript, self._on_record, self._observer.order(), whole=self._is_awaited())
        if self._observer.conversation != self._conversation:
            self._conversation = dict(self._observer.conversation)
            self._changed(self._conversation)
        self._awaited = self._conversation.get("session_id") if transcript is None else None

    def _is_awaited(self) -> bool:
        """Whether the conversation was known before its transcript: then all of that is new to us."""
        session_id = self._observer.conversation.get("session_id")
        return session_id is not None and session_id == self._awaited

    def _on_registry(self) -> None:
        if self._registry_path is None:
            return
        try:
            document = parse_json(read_regular(self._registry_path))
        except (OSError, ValueError):  # not there yet, gone, or half written: its next change tells
            return
        if isinstance(document, dict):
            self._take_report(self._observer.read_registry(document))
            self._follow()

    def _on_record(self, record: dict[str, Any]) -> None:
        self._take_report(self._observer.read_record(record))

    def _take_report(self, report: Report) -> None:
        for listener in self.report_listeners:
            listener(report)
        self._take(report)

    def _on_title(self, title: str) -> None:
        self._vote(self._observer.title(title, self._session.now()))

    def _on_output(self) -> None:
        if self._settle is None:
            self._settle = self._loop.call_later(_SCREEN_SETTLE, self._read_screen)

    def _read_screen(self) -> None:
        self._settle = None
        if self._awaited is not None:  # without hooks nobody tells when the transcript is there
            self._follow()
        if self._session.screen is None:
            return
        lines = self._session.screen.lines()
        self._vote(self._observer.screen(lines, self._session.now()))
        if self._observer.suspended(lines):
            self._wake()
        else:
            self._wakes = 0

    def _wake(self) -> None:
        """Ctrl-Z: the agent waits for a shell's `fg`. Here is none, and it would wait for ever."""
        if self._wakes == _WAKE_TRIES or self._settle is not None:
            return
        if self._wakes == 0:
            log.info("the agent suspended itself; waking it")
        self._wakes += 1
        self._session.child.wake()
        self._settle = self._loop.call_later(_WAKE_INTERVAL, self._read_screen)

    def close(self) -> None:
        for closing in (self._registry, self._tail):
            if closing is not None:
                closing.close()
        if self._settle is not None:
            self._settle.cancel()


class Tail:
    """Every JSON object that is appended to a file from now on, or `whole` from its beginning.

    An unfinished line waits for its end.
    """

    def __init__(
        self,
        path: Path,
        on_record: Callable[[dict[str, Any]], None],
        order: RecordOrder | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self.path = path
        self._on_record = on_record
        self._order = order
        self._overdue: asyncio.TimerHandle | None = None
        self._rest = b""
        try:
            self._offset = 0 if whole else os.stat(path).st_size
        except OSError:
            self._offset = 0
        self._watch = watch(path, self._read)

    def _read(self) -> None:
        try:
            fd = open_regular(self.path)
        except OSError:
            return
        try:
            while data := os.pread(fd, _TAIL_CHUNK, self._offset):
                self._offset += len(data)
                self._take(data)
        finally:
            os.close(fd)

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
        for line in lines:
            try:
                record = parse_json(line)
            except ValueError:
                continue
            if not isinstance(record, dict):
                continue
            if self._order is None:
                self._take_record(record)
            else:
                self._take_in_order(self._order, record)

    def _take_in_order(self, order: RecordOrder, record: dict[str, Any]) -> None:
        for one in order.take(record):
            self._take_record(one)
        if self._overdue is not None and not order.holds:
            self._overdue.cancel()
            self._overdue = None
        elif self._overdue is None and order.holds:
            self._overdue = asyncio.get_running_loop().call_later(order.hold_seconds, self._flush, order)

    def _flush(self, order: RecordOrder) -> None:
        self._overdue = None
        for record in order.flush():
            self._take_record(record)

    def _take_record(self, record: dict[str, Any]) -> None:
        try:
            self._on_record(record)
        except Exception:  # one that we do not understand must not cost those after it
            log.exception("a record of %s was skipped", self.path)

    def close(self) -> None:
        self._watch.close()
        if self._overdue is not None:
            self._overdue.cancel()
