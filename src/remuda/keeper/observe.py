"""Bring an agent's evidence to its session: hooks, registry file, transcript, title and screen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.agents.base import Observer, RecordOrder
from remuda.agents.events import PromptSubmitted, Report
from remuda.agents.progress import Progress
from remuda.agents.state import Vote
from remuda.durable import read_regular
from remuda.jsonl_tail import JsonlTail
from remuda.untrusted import parse_json

from .session import Session
from .watch import FileWatch, PolledWatch, watch

log = logging.getLogger("remuda.keeper.observe")

# A screen is read when the agent has finished drawing it.
_SCREEN_SETTLE = 0.05
# A suspended agent says so before it can be woken. So it is woken several times.
_WAKE_INTERVAL = 0.1
_WAKE_TRIES = 50


class Observation:
    """Feeds one observer and passes on its votes. `changed` is called when the conversation changes."""

    def __init__(
        self, session: Session, observer: Observer, changed: Callable[[dict[str, Any]], None]
    ) -> None:
        self._session = session
        self._observer = observer
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._registry: FileWatch | PolledWatch | None = None
        self._registry_path: Path | None = None
        self._tail: RecordTail | None = None
        self._settle: asyncio.TimerHandle | None = None
        self._conversation: dict[str, Any] = {}
        self._awaited: object = None
        self._wakes = 0
        self.listeners: list[Callable[[], None]] = []
        """Called when something may have changed."""
        self.report_listeners: list[Callable[[Report], object]] = []
        """Called with reports of transcript and registry."""
        self.progress = Progress()
        session.title_listeners.append(self._on_title)
        if session.screen is not None:
            session.output_listeners.append(self._on_output)
        self._follow()

    def take_hook(self, report: Report) -> None:
        log.debug("hook %s", report.name)
        self._take(report)
        if any(isinstance(event, PromptSubmitted) for event in report.events):
            self._session.tell_tool({"event": "prompted"})
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
        self.look_again()

    def look_again(self) -> None:
        """Notify listeners of a change that no vote shows."""
        for listener in self.listeners:
            listener()

    @property
    def conversation(self) -> dict[str, Any]:
        return self._conversation

    @property
    def transcript_path(self) -> Path | None:
        """Return the transcript, also if no hook names it."""
        return self._tail.path if self._tail is not None else None

    @property
    def registry_path(self) -> Path | None:
        return self._registry_path

    def _follow(self) -> None:
        """Watch the files of the current conversation."""
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
            self._tail = RecordTail(
                transcript, self._on_record, self._observer.order(), from_start=self._is_awaited()
            )
        if self._observer.conversation != self._conversation:
            self._conversation = dict(self._observer.conversation)
            self._changed(self._conversation)
        self._awaited = self._conversation.get("session_id") if transcript is None else None

    def _is_awaited(self) -> bool:
        """Return whether the conversation was known before its transcript. Then all its records are new."""
        session_id = self._observer.conversation.get("session_id")
        return session_id is not None and session_id == self._awaited

    def _on_registry(self) -> None:
        if self._registry_path is None:
            return
        try:
            document = parse_json(read_regular(self._registry_path))
        except (OSError, ValueError):  # missing, or half written: the next change is read
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
        if self._session.screen is None:
            return
        lines = self._session.screen.lines()
        self._vote(self._observer.screen(lines, self._session.now()))
        # Without hooks, nothing else reports the conversation, or a new transcript.
        if self._awaited is not None or self._observer.conversation != self._conversation:
            self._follow()
        if self._observer.suspended(lines):
            self._wake()
        else:
            self._wakes = 0

    def _wake(self) -> None:
        """Wake an agent that Ctrl-Z suspended: it waits for `fg` of a shell, but no shell is there."""
        if self._wakes == _WAKE_TRIES or self._settle is not None:
            return
        if self._wakes == 0:
            log.info("the agent suspended itself; waking it")
        self._wakes += 1
        self._session.child.wake()
        self._settle = self._loop.call_later(_WAKE_INTERVAL, self._read_screen)

    def close(self) -> None:
        session = self._session
        session.title_listeners = [one for one in session.title_listeners if one != self._on_title]
        session.output_listeners = [one for one in session.output_listeners if one != self._on_output]
        for closing in (self._registry, self._tail):
            if closing is not None:
                closing.close()
        if self._settle is not None:
            self._settle.cancel()


class RecordTail:
    """Calls `on_record` for each JSON object that is appended to a file; perhaps from its beginning.

    An agent may write records out of order: `order` sorts them, and holds some for a while.
    """

    def __init__(
        self,
        path: Path,
        on_record: Callable[[dict[str, Any]], None],
        order: RecordOrder | None = None,
        *,
        from_start: bool = False,
    ) -> None:
        self.path = path
        self._on_record = on_record
        self._order = order
        self._overdue: asyncio.TimerHandle | None = None
        self._lines = JsonlTail(path) if from_start else JsonlTail.at_end(path)
        self._watch = watch(path, self._read)

    def _read(self) -> None:
        for record in self._lines.read():
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
        except Exception:  # a record that we do not understand must not stop the rest
            log.exception("a record of %s was skipped", self.path)

    def close(self) -> None:
        self._watch.close()
        if self._overdue is not None:
            self._overdue.cancel()
