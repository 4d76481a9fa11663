"""The terminal backend: a call as a kept session of its own, which ends with us.

The prompt goes through the session's inbox as any message does; what is told here is its receipt, and what
the transcript has of the turn. A keeper owns the agent, so whatever happens to this process, the agent is
ended in an orderly way.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.unattended import max_turns_reason
from remuda.errors import (
    AgentRefused,
    CallFailed,
    RemudaError,
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    SpawnFailed,
    WaitTimeout,
)
from remuda.inbox.receipts import Trace, trace
from remuda.keeper.claim import read_holder

from .conversation import Summary
from .look import Look
from .output import warn
from .request import DEFAULT_TIMEOUT, Request
from .result import Ended
from .session import NEVER, CallSession
from .tail import Tail

Record = Mapping[str, Any]
_LOOK_INTERVAL = 0.5
_SETTLE_TIMEOUT = 2.0
# A question is looked for so often, and refused when the agent has waited for an answer for so long: what is
# asked and answered by a hook of ours is on the screen for half a second.
_QUESTION_INTERVAL = 1.0
_QUESTION_PATIENCE = 4.0
# So long may an agent that rests take to go on with what has ended in its background.
_WAKE_TIMEOUT = 10.0
_RESTING = ("idle", "interrupted", "error", "limited", "dead", None)
_CLI_REFUSED = 1
_GONE_TIMEOUT = 10.0
_DYING = 1.0


class TerminalCall:
    """`on_record` gets every record of the turn as it is written down, `on_shown` text as it appears."""

    def __init__(
        self,
        session: CallSession,
        request: Request,
        note: Callable[[str], None],
        on_record: Callable[[Record], None],
        on_shown: Callable[[str], None],
    ) -> None:
        self._session = session
        self._request = request
        self._note = note
        self._on_record = on_record
        self._on_shown = on_shown
        self.summary = Summary()
        self._paths = session.paths
        self._keeper_lost = False
        self._look: Look | None = None
        self._tail: Tail | None = None
        self._settled_by = 0.0
        self._heard_at = 0.0
        self._timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout or NEVER
        self._deadline = time.monotonic() + self._timeout
        self._first_output_by = time.monotonic() + (request.first_output_timeout or NEVER)
        self._question_at = time.monotonic() + _QUESTION_INTERVAL
        limit = request.stream_json_timeout if request.output_format == "stream-json" else 0.0
        self._first_message_by = time.monotonic() + (limit or NEVER)
        self._told_at = 0.0

    # ── its life ──

    def run(self) -> Ended:
        """To the end of the turn. Raises `WaitTimeout`, `CallFailed` and what a start can raise."""
        try:
            self._session.started()
            self._note(f"session {self._session.name} started")
            on_shown = self._on_shown if self._request.partial_messages else None
            self._look = Look(self._session, on_shown, wants_output=self._request.show_child_output)
            found = self._follow(self._look)
            return Ended(text=self._look.answer) if found is None else self._ended(found)
        except SpawnFailed:
            self._keeper_lost = True
            raise
        except (SessionUnreachable, SessionDead, SessionNotFound):
            self._keeper_lost = True
            self.wait_gone(_DYING)  # a process that was killed holds its locks for a moment longer
            if self.is_up():
                raise
            raise SessionUnreachable("the keeper of this session exited, and the agent with it") from None

    def close(self, *, in_order: bool = False) -> None:
        """The keeper ends the agent when this is closed, and in any case when we are gone: within two seconds
        where that was not `in_order`. Where the keeper was killed, what is left is ended here.
        """
        if self._look is not None:
            self._look.close()
        self._session.close(in_order=in_order)
        if self._keeper_lost and not self._request.keep and read_holder(self._paths) is None:
            from .remains import remove

            remove(self._paths)

    def is_up(self) -> bool:
        return read_holder(self._paths) is not None

    def wait_gone(self, timeout: float = _GONE_TIMEOUT) -> None:
        """Until its keeper has ended, for a bounded while."""
        deadline = time.monotonic() + timeout
        while self.is_up() and time.monotonic() < deadline:
            time.sleep(0.02)

    def last_output(self) -> str:
        """What the agent's terminal shows, or showed last."""
        return "" if self._look is None else self._look.last_output()

    # ── waiting ──

    def _follow(self, look: Look) -> Trace | None:
        """None when the answer is there, and nothing else is wanted."""
        told = 0
        while look.answer is None or self._request.output_format != "text":
            found = self._trace()
            if found is None:
                raise CallFailed("the agent has exited, and the inbox of its session is gone")
            for step in found.steps[told:]:
                self._note(str(step["stage"]))
            told = len(found.steps)
            self._read_transcript(found, look)
            if found.ended and not self._goes_on(look) and self._has_all(found):
                return found
            if not found.ended or self.summary.goes_on:
                self._check_time(found.stage, look)
            self._wait(look)
        return None

    def _trace(self) -> Trace | None:
        return trace(self._paths.inbox, self._session.message_id)

    def _goes_on(self, look: Look) -> bool:
        """Whether the agent is woken again behind its answer. Not for ever: somebody may have stopped it."""
        if not self.summary.goes_on:
            return False
        if time.monotonic() < self._heard_at + _WAKE_TIMEOUT:
            return True
        return (look.status() or {}).get("state") not in _RESTING

    def _has_all(self, found: Trace) -> bool:
        """Whether the transcript has the end too. A hook may tell of it first; it is not waited for long."""
        self._settled_by = self._settled_by or time.monotonic() + _SETTLE_TIMEOUT
        kind = _end_of(found).get("end")
        if kind == "answered":
            known = self.summary.woken or self.summary.has(_answer(found))
        else:
            known = kind != "failed" or self.summary.is_api_error
        return known or time.monotonic() >= self._settled_by

    def _wait(self, look: Look) -> None:
        left = min(self._deadline - time.monotonic(), _LOOK_INTERVAL)
        ready, _, _ = select.select(look.descriptors(), [], [], max(0.0, left))
        try:
            look.take(ready)
        except SessionUnreachable:
            found = self._trace()
            if found is None or not found.ended:
                raise

    def _check_time(self, stage: str, look: Look) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise WaitTimeout(f"--timeout: not finished after {self._timeout:g} s: {look.why(stage)}")
        if now >= self._first_output_by:
            silent = look.is_silent()
            if silent:
                limit = self._request.first_output_timeout
                raise WaitTimeout(f"--first-output-timeout: no output after {limit:g} s: {look.why(stage)}")
            again = time.monotonic() + _QUESTION_INTERVAL  # it may have taken its time not to answer
            self._first_output_by = again if silent is None else float("inf")
        if now >= self._first_message_by and self.summary.model is None:
            limit = self._request.stream_json_timeout
            raise WaitTimeout(f"--stream-json-timeout: no message after {limit:g} s: {look.why(stage)}")
        if now >= self._question_at:
            self._question_at = now + _QUESTION_INTERVAL
            if self._request.ask:
                self._tell_question(look)
            else:
                self._refuse_question(stage, look)

    def _tell_question(self, look: Look) -> None:
        """Say once per wait what a human is waited for, and where to answer."""
        from .hang import asked, waited

        now = time.monotonic()
        document = look.status() or {}
        age = waited(document)
        if age is None or (what := asked(document, look.screen())) is None:
            return
        if now - age > self._told_at:  # what was waited for by then has been told
            name = self._session.name
            warn(f"{what}; answer with 'remuda approve {name}' or 'remuda attach {name}'")
        self._told_at = now

    def _refuse_question(self, stage: str, look: Look) -> None:
        """Nobody is here to answer it, and nobody guesses. Whoever attached is left the time to."""
        from .hang import is_picker, is_unheard, unanswerable, waited

        document = look.status() or {}
        begun = stage not in ("accepted", "written")
        # A dialog in a turn may blink; before that nothing but silence tells that something is asked.
        since = waited(document) if begun else document.get("idle")
        if (since or 0.0) < _QUESTION_PATIENCE or document.get("clients", 0) > look.subscriptions:
            return
        from remuda.agents.claude.screen import open_dialog

        lines = look.screen()
        if not begun and is_picker(lines):
            raise AgentRefused("--resume: no conversation in this folder has that id or title")
        if (text := unanswerable(lines, open_dialog(lines), begun=begun)) is not None:
            unheard = " (no hook reported it)" if is_unheard(document) else ""
            raise CallFailed(
                f"the agent asks a question that a one-shot run cannot answer{unheard}: {text}",
                hint="answer it once in claude, or pass --ask and answer with 'remuda attach'"
                + ("" if begun else "; --pretrust-cwd trusts this folder"),
            )

    # ── the transcript ──

    def _read_transcript(self, found: Trace, look: Look) -> None:
        if self._tail is None:
            submitted = next((step for step in found.steps if step["stage"] == "submitted"), None)
            path = self._transcript_path(submitted, look) if submitted is not None else None
            if submitted is None or path is None:
                return
            self._tail = Tail(path, submitted.get("prompt_id"))
        for record in self._tail.read():
            self._heard_at = time.monotonic()
            self.summary.take(record)
            self._on_record(record)

    def _transcript_path(self, submitted: Record, look: Look) -> Path | None:
        """As the receipt has it; where no hook had told by then, the session knows it later."""
        path = submitted.get("transcript_path")
        if not path:
            path = (look.status() or {}).get("conversation", {}).get("transcript_path")
        return Path(path) if path else None

    # ── the end ──

    def _ended(self, found: Trace) -> Ended:
        end = _end_of(found)
        kind = end.get("end")
        if kind == "answered" and end.get("recovered"):
            raise CallFailed("the agent exited before it reported the end of its turn")
        if kind == "answered" and self.summary.woken and self.summary.is_api_error:
            return Ended("api_error", is_error=True, text=self.summary.text)
        if kind == "answered":
            answer = _answer(found)
            known = self.summary.woken or self.summary.has(answer)
            text = self.summary.text if known or not answer else answer
            return Ended(text=text, usage_known=known or (not answer and self.summary.said_all))
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
        raise CallFailed(found.reason or f"the request ended as {found.stage}")

    def _died(self, found: Trace) -> RemudaError:
        """What it said last, if it never took the prompt: there is no such conversation, no such flag."""
        taken = any(step["stage"] == "submitted" for step in found.steps)
        said = [line.strip() for line in self.last_output().splitlines() if line.strip()]
        status = self._look.status() if self._look is not None else None
        if said and not taken and (status or {}).get("exit_code") == _CLI_REFUSED:
            return AgentRefused(said[-1])
        code = (status or {}).get("exit_code")
        words = f"; exit code {code}; last output: {said[-1]}" if said and not taken and code else ""
        return CallFailed(f"the agent exited: {found.reason}{words}")


def _end_of(found: Trace) -> Record:
    return next((step for step in reversed(found.steps) if step["stage"] == "ended"), {})


def _answer(found: Trace) -> str:
    return str((found.answer or {}).get("text") or "")
