"""The terminal backend: a call as a kept session of its own, which ends with us.

The prompt goes through the session's inbox as any message does; what is told here is its receipt, and what
the transcript has of the turn. A keeper owns the agent, so whatever happens to this process, the agent is
ended in an orderly way.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.claude.answers import max_turns_reason
from remuda.agents.claude.prompt import check
from remuda.agents.claude.screen import open_dialog
from remuda.errors import (
    InputError,
    RemudaError,
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    SpawnFailed,
    WaitTimeout,
)
from remuda.inbox.message import new_id
from remuda.inbox.receipts import Trace, trace
from remuda.inotify import CREATE, MODIFY, MOVED_TO, Inotify
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.keeper.environment import session_environment
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import start_owned, start_session
from remuda.paths import SessionPaths, private_folder, sessions_folder
from remuda.wire.connection import (
    ClientConnection,
    EventReceived,
    OutputReceived,
    RepaintReceived,
)

from .arguments import for_terminal
from .conversation import Summary
from .errors import AgentRefused, CallFailed
from .hang import diagnose, unanswerable
from .remains import call_name, remove
from .request import DEFAULT_TIMEOUT, Request
from .result import Ended
from .tail import Tail

Record = Mapping[str, Any]
_LOOK_INTERVAL = 0.5
_SETTLE_TIMEOUT = 2.0
# A question is looked for so often, and refused when the agent has been silent with it for so long: what is
# asked and answered by a hook of ours is on the screen for half a second.
_QUESTION_INTERVAL = 1.0
_QUESTION_PATIENCE = 4.0
_NEVER = 1e9
_START_SLACK = 0.05
_CLI_REFUSED = 1
_GONE_TIMEOUT = 10.0
_DYING = 1.0
_KEPT_OUTPUT_BYTES = 1 << 16
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x09\x0b-\x1f]"
)


class TerminalCall:
    """`on_record` gets every record of the turn as it is written down, `on_shown` text as it appears."""

    def __init__(
        self,
        request: Request,
        prompt: str,
        command: Sequence[str],
        note: Callable[[str], None],
        on_record: Callable[[Record], None],
        on_shown: Callable[[str], None],
        *,
        agent: str = "claude",
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._request = request
        self._prompt = prompt
        self._note = note
        self._on_record = on_record
        self._on_shown = on_shown
        self.summary = Summary()
        self.name = call_name(request.keep)
        self._paths = SessionPaths.of(self.name, folder or sessions_folder())
        self._message = new_id(time.time())
        self._cwd = cwd or Path.cwd()
        self._spec = self._make_spec(command, agent, os.environ if env is None else env)
        self._lifeline = -1
        self._keeper_lost = False
        self._output = bytearray()
        self._client: KeeperClient | None = None
        self._tail: Tail | None = None
        self._settled_by = 0.0
        self._timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout or _NEVER
        self._deadline = time.monotonic() + self._timeout
        self._first_output_by = time.monotonic() + (request.first_output_timeout or _NEVER)
        self._question_at = time.monotonic() + _QUESTION_INTERVAL

    def _make_spec(self, command: Sequence[str], agent: str, env: Mapping[str, str]) -> SessionSpec:
        request = self._request
        flags = for_terminal(request.passed, env, self._cwd)
        if request.inherit_hooks is False:
            flags.append("--setting-sources=")
        if not request.ask:
            flags += ["--disallowedTools=AskUserQuestion"]  # `claude -p` does not have it either
        return SessionSpec(
            name=self.name,
            folder=str(self._paths.folder),
            argv=[*command, *flags],
            cwd=str(self._cwd),
            env=session_environment(env, self.name, "REMUDA_SESSION", {}),
            agent=agent,
            classifier="claude",
            trust=True,
            once=True,
            ephemeral=not request.keep,
            deny_permissions=not request.ask,
            max_turns=request.max_turns or 0,
            stop_timeout=request.stop_hook_timeout or _NEVER,
            prompt=self._prompt,
            message_id=self._message,
        )

    # ── its life ──

    def run(self) -> Ended:
        """To the end of the turn. Raises `WaitTimeout`, `CallFailed` and what a start can raise."""
        self._check_prompt()
        private_folder(self._paths.folder)
        try:
            self._start()
            with KeeperClient.connect(self.name, self._paths.folder, read_only=True) as self._client:
                self._client.request("watch")
                if self._request.show_child_output:
                    self._client.send(ClientConnection.subscribe())
                return self._ended(self._follow())
        except SpawnFailed:
            self._keeper_lost = True
            raise
        except (SessionUnreachable, SessionDead, SessionNotFound):
            self._keeper_lost = True
            self.wait_gone(_DYING)  # a process that was killed holds its locks for a moment longer
            if self.is_up():
                raise
            raise SessionUnreachable("the keeper of this call is gone, and the agent with it") from None

    def _start(self) -> None:
        if self._request.keep:
            start_session(self._spec)
        else:
            self._lifeline = start_owned(self._spec).lifeline
        self._note(f"session {self.name} started")

    def _check_prompt(self) -> None:
        try:
            check(self._prompt, command=False, literal=False)
        except InputError as error:
            raise InputError(
                f"the terminal backend cannot take this prompt: {error.message}", hint="use --backend stream"
            ) from None

    def close(self) -> None:
        """The keeper ends the agent when this is closed, and in any case when we are gone.

        Where the keeper was killed, what is left is ended and removed here, within some seconds.
        """
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._keeper_lost and not self._request.keep and read_holder(self._paths) is None:
            remove(self._paths)

    def is_up(self) -> bool:
        return read_holder(self._paths) is not None

    def wait_gone(self, timeout: float = _GONE_TIMEOUT) -> None:
        """Until its keeper has ended, for a bounded while."""
        deadline = time.monotonic() + timeout
        while self.is_up() and time.monotonic() < deadline:
            time.sleep(0.02)

    # ── waiting ──

    def _follow(self) -> Trace:
        assert self._client is not None
        inotify = Inotify()
        try:
            inotify.add(self._paths.inbox, MODIFY | CREATE | MOVED_TO)
            told = 0
            while True:
                found = trace(self._paths.inbox, self._message)
                if found is None:
                    raise CallFailed("the agent is gone, and the inbox of its session too")
                for step in found.steps[told:]:
                    self._note(str(step["stage"]))
                told = len(found.steps)
                self._read_transcript(found, inotify)
                if found.ended and self._has_all(found):
                    return found
                if not found.ended:
                    self._check_time(found.stage)
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
                    elif isinstance(event, OutputReceived | RepaintReceived):
                        self._output += event.data
                        del self._output[:-_KEPT_OUTPUT_BYTES]
            except EOFError:
                found = trace(self._paths.inbox, self._message)
                if found is None or not found.ended:
                    raise SessionUnreachable("its keeper has hung up") from None

    def _check_time(self, stage: str) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise WaitTimeout(f"--timeout: no end after {self._timeout:g} s: {self._why(stage)}")
        if now >= self._first_output_by:
            self._first_output_by = float("inf")
            if self._is_silent(self._status(), self.screen()):
                limit = self._request.first_output_timeout
                raise WaitTimeout(f"--first-output-timeout: no output after {limit:g} s: {self._why(stage)}")
        if now >= self._question_at and not self._request.ask:
            self._question_at = now + _QUESTION_INTERVAL
            self._refuse_question(stage)

    def _refuse_question(self, stage: str) -> None:
        """Nobody is here to answer it, and nobody guesses. Whoever attached is left the time to."""
        document = self._status()
        begun = stage not in ("accepted", "written")
        if (
            document is None
            or document.get("idle", 0.0) < _QUESTION_PATIENCE
            or document.get("clients", 0) > int(self._request.show_child_output)
            or (begun and document.get("state") not in ("waiting_permission", "waiting_answer"))
        ):
            return
        lines = self.screen()
        dialog = open_dialog(lines)
        if (text := unanswerable(lines, dialog, begun=begun)) is not None:
            raise CallFailed(
                f"the agent asks something that nobody here may answer: {text}",
                hint="answer it once in claude itself, or use --ask and 'remuda attach'"
                + ("" if begun else "; --pretrust-cwd says that this folder is trusted"),
            )

    def _status(self) -> dict[str, Any] | None:
        assert self._client is not None
        try:
            return self._client.describe()
        except (RemudaError, EOFError, OSError):
            return None

    @staticmethod
    def _is_silent(document: Record | None, lines: Sequence[str]) -> bool:
        """Whether nothing has come since its start: what came at once, and was not seen coming, is shown."""
        return (
            document is not None
            and document.get("idle", 0.0) >= document.get("uptime", 0.0) - _START_SLACK
            and not any(line.strip() for line in lines)
        )

    def _why(self, stage: str) -> str:
        lines = self.screen()
        dialog = open_dialog(lines)
        document = self._status()
        silent = self._is_silent(document, lines)
        return diagnose(document and {**document, "silent_since_start": silent}, lines, dialog, stage)

    def last_output(self) -> str:
        """What the agent's terminal shows, or showed last."""
        if lines := self.screen():
            return "\n".join(lines).rstrip()
        return _ESCAPES.sub(b"", bytes(self._output)).decode(errors="replace").strip()

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
        end = _end_of(found)
        kind = end.get("end")
        if kind == "answered" and end.get("recovered"):
            raise CallFailed("the agent is gone: it ended before it said that its turn was over")
        if kind == "answered":
            answer = _answer(found)
            known = self.summary.has(answer) or not answer
            return Ended(text=self.summary.text if known else answer)
        if kind == "failed":
            return Ended("api_error", is_error=True, text=self.summary.text or found.reason)
        limit = self._request.max_turns
        if kind == "interrupted" and limit and found.reason == max_turns_reason(limit):
            return Ended("max_turns", "error_max_turns", True, errors=(found.reason,))
        if kind == "interrupted":
            return Ended("aborted_streaming", "error_during_execution", True, errors=(found.reason,))
        if kind == "timeout":
            raise WaitTimeout(f"--stop-hook-timeout: {found.reason}")
        if kind == "died":
            raise self._died(found)
        raise CallFailed(found.reason or f"the call ended as {found.stage}")

    def _died(self, found: Trace) -> RemudaError:
        """What it said last, if it never took the prompt: there is no such conversation, no such flag."""
        taken = any(step["stage"] == "submitted" for step in found.steps)
        said = [line.strip() for line in self.last_output().splitlines() if line.strip()]
        if said and not taken and (self._status() or {}).get("exit_code") == _CLI_REFUSED:
            return AgentRefused(said[-1])
        return CallFailed(f"the agent is gone: {found.reason}")


def _end_of(found: Trace) -> Record:
    return next((step for step in reversed(found.steps) if step["stage"] == "ended"), {})


def _answer(found: Trace) -> str:
    return str((found.answer or {}).get("text") or "")
