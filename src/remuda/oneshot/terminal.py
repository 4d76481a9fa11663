"""The terminal backend: a call as a kept session of its own, which ends with us.

The prompt goes through the session's inbox as any message does; what is told here is its receipt, and what
the transcript has of the turn. A keeper owns the agent, so whatever happens to this process, the agent is
ended in an orderly way.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents import find_agent
from remuda.agents.claude.answers import max_turns_reason
from remuda.errors import RemudaError, SessionUnreachable, WaitTimeout
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import Trace, trace
from remuda.inotify import CREATE, MODIFY, MOVED_TO, Inotify
from remuda.keeper.client import KeeperClient
from remuda.keeper.environment import session_environment
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import start_owned, start_session
from remuda.paths import SessionPaths, private_folder, sessions_folder
from remuda.wire.connection import EventReceived

from .conversation import Summary
from .hang import diagnose
from .request import DEFAULT_TIMEOUT, Request
from .result import Ended

Record = Mapping[str, Any]
_LOOK_INTERVAL = 0.5
_SETTLE_TIMEOUT = 2.0
_AGENT = "claude"


class CallFailed(RemudaError):
    """The call did not come to an end of the agent's own: nothing was answered, and nothing was refused."""

    code = "CALL_FAILED"
    exit_name = "INVALID_OPTIONS"


class TerminalCall:
    """`on_record` gets every record of the turn as it is written down, `on_shown` text as it appears."""

    def __init__(
        self,
        request: Request,
        prompt: str,
        binary: str,
        note: Callable[[str], None],
        on_record: Callable[[Record], None],
        on_shown: Callable[[str], None],
    ) -> None:
        self._request = request
        self._prompt = prompt
        self._note = note
        self._on_record = on_record
        self._on_shown = on_shown
        self.summary = Summary()
        self.name = f"print-{os.getpid()}-{secrets.token_hex(3)}"
        self._paths = SessionPaths.of(self.name, sessions_folder())
        self._spec = self._make_spec(binary)
        self._lifeline = -1
        self._message = ""
        self._client: KeeperClient | None = None
        self._tail: Tail | None = None
        self._settled_by = 0.0
        self._deadline = time.monotonic() + (request.timeout or DEFAULT_TIMEOUT)
        self._first_output_by = time.monotonic() + request.first_output_timeout

    def _make_spec(self, binary: str) -> SessionSpec:
        request = self._request
        flags = list(request.passed)
        if request.inherit_hooks is False:
            flags.append("--setting-sources=")
        if not request.ask:
            flags += ["--disallowedTools=AskUserQuestion"]  # `claude -p` does not have it either
        return SessionSpec(
            name=self.name,
            folder=str(self._paths.folder),
            argv=[binary, *flags],
            cwd=os.getcwd(),
            env=session_environment(os.environ, self.name, "REMUDA_SESSION", {}),
            agent=_AGENT,
            classifier="claude",
            trust=True,
            once=True,
            ephemeral=not request.keep,
            deny_permissions=not request.ask,
            max_turns=request.max_turns or 0,
        )

    # ── its life ──

    def run(self) -> Ended:
        """To the end of the turn. Raises `WaitTimeout`, `CallFailed` and what a start can raise."""
        speech = find_agent(_AGENT).speech
        assert speech is not None
        speech.check(self._prompt, command=False, literal=False)
        private_folder(self._paths.folder)
        self._message = Inbox(self._paths.inbox).put(self._prompt).id
        if self._request.keep:
            start_session(self._spec)
        else:
            self._lifeline = start_owned(self._spec).lifeline
        self._note("keeper started")
        with KeeperClient.connect(self.name, self._paths.folder, read_only=True) as self._client:
            self._client.request("watch")
            found = self._follow()
        return self._ended(found)

    def close(self) -> None:
        """The keeper ends the agent when this is closed, and in any case when we are gone."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    # ── waiting ──

    def _follow(self) -> Trace:
        assert self._client is not None
        inotify = Inotify()
        try:
            inotify.add(self._paths.inbox, MODIFY | CREATE | MOVED_TO)
            stage = ""
            while True:
                found = trace(self._paths.inbox, self._message)
                if found is None:
                    raise CallFailed("the session's inbox is gone")
                if found.stage != stage:
                    stage = found.stage
                    self._note(stage)
                self._read_transcript(found, inotify)
                if found.ended and self._has_all(found):
                    return found
                if not found.ended:
                    self._check_time(stage)
                self._wait(inotify)
        finally:
            inotify.close()

    def _has_all(self, found: Trace) -> bool:
        """Whether the transcript has the end too. A hook may tell of it first; it is not waited for long."""
        self._settled_by = self._settled_by or time.monotonic() + _SETTLE_TIMEOUT
        kind = _end_of(found).get("end")
        if kind == "answered":
            known = self.summary.has(_answer(found))
        else:
            known = kind != "failed" or self.summary.is_api_error
        return known or time.monotonic() >= self._settled_by

    def _wait(self, inotify: Inotify) -> None:
        assert self._client is not None
        left = min(self._deadline - time.monotonic(), _LOOK_INTERVAL)
        ready, _, _ = select.select([inotify.fd, self._client.fileno()], [], [], max(0.0, left))
        if inotify.fd in ready:
            inotify.drain()
        if self._client.fileno() in ready:
            try:
                for event in self._client.receive(0.0):
                    if isinstance(event, EventReceived) and event.document.get("event") == "shown":
                        self._on_shown(str(event.document.get("text")))
            except EOFError:
                found = trace(self._paths.inbox, self._message)
                if found is None or not found.ended:
                    raise SessionUnreachable("the keeper of this call is gone") from None

    def _check_time(self, stage: str) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise WaitTimeout(
                f"timed out after {self._request.timeout or DEFAULT_TIMEOUT:g} s: {self._why(stage)}"
            )
        if self._request.first_output_timeout and now >= self._first_output_by:
            self._first_output_by = float("inf")
            if self._silent():
                raise WaitTimeout(
                    f"no output within {self._request.first_output_timeout:g} s: {self._why(stage)}"
                )

    def _silent(self) -> bool:
        document = self._status()
        return document is not None and bool(document.get("silent_since_start"))

    def _status(self) -> dict[str, Any] | None:
        assert self._client is not None
        try:
            document = self._client.describe()
        except (RemudaError, EOFError, OSError):
            return None
        silent = document.get("idle", 0.0) >= document.get("uptime", 0.0) - 0.05
        return {**document, "silent_since_start": silent}

    def _why(self, stage: str) -> str:
        lines = self.screen()
        speech = find_agent(_AGENT).speech
        dialog = speech.dialog(lines) if speech is not None else None
        return diagnose(self._status(), lines, dialog, stage)

    def screen(self) -> list[str]:
        """What the agent's terminal shows now, as far as anybody can tell."""
        if self._client is None:
            return []
        try:
            return list(self._client.request("screen")["lines"])
        except (RemudaError, EOFError, OSError):
            return []

    # ── the transcript ──

    def _read_transcript(self, found: Trace, inotify: Inotify) -> None:
        if self._tail is None:
            submitted = next((step for step in found.steps if step["stage"] == "submitted"), None)
            document = self._status() if submitted is not None else None
            conversation = (document or {}).get("conversation", {})
            path = conversation.get("transcript_path")
            if submitted is None or not path:
                return
            self.summary.model = conversation.get("model")
            self._tail = Tail(Path(path), submitted.get("prompt_id"))
            inotify.add(Path(path).parent, MODIFY | CREATE)
        for record in self._tail.read():
            self.summary.take(record)
            self._on_record(record)

    # ── the end ──

    def _ended(self, found: Trace) -> Ended:
        kind = _end_of(found).get("end")
        if kind == "answered":
            answer = _answer(found)
            return Ended(text=self.summary.text if self.summary.has(answer) else answer)
        if kind == "failed":
            return Ended("api_error", is_error=True, text=self.summary.text or found.reason)
        limit = self._request.max_turns
        if kind == "interrupted" and limit and self.summary.api_messages >= limit:
            return Ended("max_turns", "error_max_turns", True, errors=(max_turns_reason(limit),))
        if kind == "interrupted":
            return Ended("aborted_streaming", "error_during_execution", True, errors=(found.reason,))
        raise CallFailed(found.reason or f"the call ended as {found.stage}")


def _end_of(found: Trace) -> Record:
    return next((step for step in reversed(found.steps) if step["stage"] == "ended"), {})


def _answer(found: Trace) -> str:
    return str((found.answer or {}).get("text") or "")


class Tail:
    """The records of one turn, from its prompt on, as they are appended."""

    def __init__(self, path: Path, prompt_id: str | None) -> None:
        self._path = path
        self._prompt_id = prompt_id
        self._offset = 0
        self._rest = b""
        self._begun = False

    def read(self) -> list[Record]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [record for line in lines if (record := self._ours(line)) is not None]

    def _ours(self, line: bytes) -> Record | None:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        if not self._begun and record.get("type") == "user":
            self._begun = self._prompt_id is None or record.get("promptId") == self._prompt_id
        return record if self._begun else None
