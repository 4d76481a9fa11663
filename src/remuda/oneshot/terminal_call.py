"""The terminal backend: a call as a session of its own, which ends with us.

The prompt goes through the session's inbox as any message does. This module reads its receipt, and the turn
in the agent's transcript. A keeper owns the agent, so the agent ends in order whatever happens to this
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.agents.headless import TurnEnd
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

from .keeper_probe import KeeperProbe, is_unreported, question_for_person, unanswerable, waited
from .output import warn
from .print_request import DEFAULT_TIMEOUT, PrintRequest
from .print_session import NEVER, CallSession

if TYPE_CHECKING:
    from remuda.agents.headless import Message

Record = Mapping[str, Any]
_POLL_INTERVAL = 0.5
_SETTLE_TIMEOUT = 2.0
# How often to look for a question, and how long the agent must have waited before the call ends. A request
# that a hook of ours answers is on the screen for half a second.
_QUESTION_INTERVAL = 1.0
_QUESTION_TIMEOUT = 4.0
# How long an agent at rest may take to go on after a background task has ended.
_WAKE_TIMEOUT = 10.0
_RESTING = ("idle", "interrupted", "error", "limited", "dead", None)
_CLI_REFUSED = 1
_EXIT_TIMEOUT = 10.0
_LOCK_TIMEOUT = 1.0


class TerminalCall:
    """`emit` gets the messages of the turn as they come; None if only the result is wanted."""

    def __init__(
        self,
        session: CallSession,
        request: PrintRequest,
        note: Callable[[str], None],
        emit: Callable[[Message], None] | None = None,
    ) -> None:
        self._session = session
        self._request = request
        self._note = note
        self._headless = session.headless
        self.turn = session.headless.print_turn(emit, partial=request.partial_messages)
        self._paths = session.paths
        self._keeper_lost = False
        self._probe: KeeperProbe | None = None
        self._has_transcript = False
        self._settled_by = 0.0
        self._read_at = 0.0
        self._timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout or NEVER
        self._deadline = time.monotonic() + self._timeout
        self._first_output_by = time.monotonic() + (request.first_output_timeout or NEVER)
        self._question_at = time.monotonic() + _QUESTION_INTERVAL
        limit = request.stream_json_timeout if request.output_format == "stream-json" else 0.0
        self._first_message_by = time.monotonic() + (limit or NEVER)
        self._warned_at = 0.0

    # ── start and end ──

    def run(self) -> TurnEnd:
        """Follow the turn to its end. Raises `WaitTimeout`, `CallFailed` and what a start can raise."""
        try:
            self._session.started()
            self._note(f"session {self._session.name} started")
            on_shown = self.turn.shown if self._request.partial_messages else None
            probe = KeeperProbe(self._session, on_shown, wants_output=self._request.show_child_output)
            self._probe = probe
            receipt = self._follow(probe)
            return TurnEnd(text=probe.answer) if receipt is None else self._ended(receipt)
        except SpawnFailed:
            self._keeper_lost = True
            raise
        except (SessionUnreachable, SessionDead, SessionNotFound):
            self._keeper_lost = True
            self.wait_gone(_LOCK_TIMEOUT)  # a killed process holds its locks for a moment longer
            if self.is_up():
                raise
            raise SessionUnreachable("the keeper of this session exited, and the agent with it") from None

    def close(self, *, in_order: bool = False) -> None:
        """Let the keeper end the agent: within two seconds, or at its own pace if `in_order`.

        The keeper does so too when we die. If the keeper was killed, what is left is ended here.
        """
        if self._probe is not None:
            self._probe.close()
        self._session.close(in_order=in_order)
        if self._keeper_lost and not self._request.keep and read_holder(self._paths) is None:
            from .leftovers import remove

            remove(self._paths)

    def is_up(self) -> bool:
        return read_holder(self._paths) is not None

    def wait_gone(self, timeout: float = _EXIT_TIMEOUT) -> None:
        """Wait until its keeper has ended."""
        deadline = time.monotonic() + timeout
        while self.is_up() and time.monotonic() < deadline:
            time.sleep(0.02)

    def last_output(self) -> str:
        """Return what the agent's terminal shows, or showed last."""
        return "" if self._probe is None else self._probe.last_output()

    # ── waiting ──

    def _follow(self, probe: KeeperProbe) -> Trace | None:
        """Return the receipt; None if the answer has come and nothing else is wanted."""
        noted = 0
        while probe.answer is None or self._request.output_format != "text":
            receipt = self._receipt()
            if receipt is None:
                raise CallFailed("the agent has exited, and the inbox of its session is gone")
            for step in receipt.steps[noted:]:
                self._note(str(step["stage"]))
            noted = len(receipt.steps)
            self._read_transcript(receipt, probe)
            if receipt.ended and not self._goes_on(probe) and self._has_all(receipt):
                return receipt
            if not receipt.ended or self.turn.facts.goes_on:
                self._check_time(receipt.stage, probe)
            self._wait(probe)
        return None

    def _receipt(self) -> Trace | None:
        return trace(self._paths.inbox, self._session.message_id)

    def _goes_on(self, probe: KeeperProbe) -> bool:
        """Whether the agent will go on after its answer. The wait is bounded: a user may have stopped it."""
        if not self.turn.facts.goes_on:
            return False
        if time.monotonic() < self._read_at + _WAKE_TIMEOUT:
            return True
        return (probe.status() or {}).get("state") not in _RESTING

    def _has_all(self, receipt: Trace) -> bool:
        """Whether the transcript has the end too, or did not get it in time. A hook may report it first."""
        self._settled_by = self._settled_by or time.monotonic() + _SETTLE_TIMEOUT
        kind = _end_of(receipt).get("end")
        facts = self.turn.facts
        if kind == "answered":
            known = facts.woken or facts.has(_answer(receipt))
        else:
            known = kind != "failed" or facts.is_api_error
        return known or time.monotonic() >= self._settled_by

    def _wait(self, probe: KeeperProbe) -> None:
        left = min(self._deadline - time.monotonic(), _POLL_INTERVAL)
        try:
            probe.wait(max(0.0, left))
        except SessionUnreachable:
            receipt = self._receipt()
            if receipt is None or not receipt.ended:
                raise

    def _check_time(self, stage: str, probe: KeeperProbe) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise WaitTimeout(f"--timeout: not finished after {self._timeout:g} s: {probe.why(stage)}")
        if now >= self._first_output_by:
            silent = probe.is_silent()
            if silent:
                limit = self._request.first_output_timeout
                raise WaitTimeout(f"--first-output-timeout: no output after {limit:g} s: {probe.why(stage)}")
            again = time.monotonic() + _QUESTION_INTERVAL  # waiting for the keeper may have taken a while
            self._first_output_by = again if silent is None else float("inf")
        if now >= self._first_message_by and self.turn.facts.model is None:
            limit = self._request.stream_json_timeout
            raise WaitTimeout(f"--stream-json-timeout: no message after {limit:g} s: {probe.why(stage)}")
        if now >= self._question_at:
            self._question_at = now + _QUESTION_INTERVAL
            if self._request.ask:
                self._show_question(probe)
            else:
                self._refuse_question(stage, probe)

    def _show_question(self, probe: KeeperProbe) -> None:
        """Print once per question what the agent asks, and how to answer."""
        now = time.monotonic()
        document = probe.status() or {}
        age = waited(document)
        if age is None:
            return
        what = question_for_person(document, probe.screen(), self._headless.dialogs)
        if what is None:
            return
        if now - age > self._warned_at:  # else it is the question of the last warning
            name = self._session.name
            warn(f"{what}; answer with 'remuda approve {name}' or 'remuda attach {name}'")
        self._warned_at = now

    def _refuse_question(self, stage: str, probe: KeeperProbe) -> None:
        """End the call at a question: no one is here to answer it. A user who has attached may answer."""
        document = probe.status() or {}
        begun = stage not in ("accepted", "written")
        # A dialog in a turn may blink. Before the turn only silence shows that something is asked.
        since = waited(document) if begun else document.get("idle")
        # Some agents take seconds to close a dialog that the keeper has answered by a call.
        limit = getattr(self._headless.dialogs, "question_timeout", _QUESTION_TIMEOUT)
        if (since or 0.0) < limit or document.get("clients", 0) > probe.subscriptions:
            return
        lines = probe.screen()
        dialogs = self._headless.dialogs
        if not begun and (refusal := dialogs.refusal(lines)) is not None:
            raise AgentRefused(refusal)
        if (text := unanswerable(lines, dialogs, begun=begun)) is not None:
            unreported = " (no hook reported it)" if is_unreported(document) else ""
            raise CallFailed(
                f"the agent asks a question that a one-shot run cannot answer{unreported}: {text}",
                hint=f"answer it once in {self._headless.program}, or pass --ask "
                "and answer with 'remuda attach'" + ("" if begun else "; --pretrust-cwd trusts this folder"),
            )

    # ── the transcript ──

    def _read_transcript(self, receipt: Trace, probe: KeeperProbe) -> None:
        if not self._has_transcript:
            submitted = next((step for step in receipt.steps if step["stage"] == "submitted"), None)
            path = self._transcript_path(submitted, probe) if submitted is not None else None
            if submitted is None or path is None:
                return
            self._has_transcript = True
            self.turn.follow(path, submitted.get("prompt_id"))
        if self.turn.read():
            self._read_at = time.monotonic()

    def _transcript_path(self, submitted: Record, probe: KeeperProbe) -> Path | None:
        """Return it from the receipt. If no hook had reported it by then, the session knows it later."""
        path = submitted.get("transcript_path")
        if not path:
            path = (probe.status() or {}).get("conversation", {}).get("transcript_path")
        return Path(path) if path else None

    # ── the end ──

    def _ended(self, receipt: Trace) -> TurnEnd:
        end, facts = _end_of(receipt), self.turn.facts
        kind = end.get("end")
        if kind == "answered" and end.get("recovered"):
            raise CallFailed("the agent exited before it reported the end of its turn")
        if kind == "answered" and facts.woken and facts.is_api_error:
            return TurnEnd("api_error", is_error=True, text=facts.text)
        if kind == "answered":
            answer = _answer(receipt)
            known = facts.woken or facts.has(answer)
            text = facts.text if known or not answer else answer
            return TurnEnd(text=text, usage_known=known or (not answer and facts.said_all))
        if kind == "failed":
            return TurnEnd("api_error", is_error=True, text=facts.text or receipt.reason)
        limit = self._request.max_turns
        if kind == "interrupted" and limit and receipt.reason == self._headless.max_turns_reason(limit):
            return TurnEnd("max_turns", "error_max_turns", True, errors=(receipt.reason,))
        if kind == "interrupted":
            return TurnEnd("aborted_streaming", "error_during_execution", True, errors=(receipt.reason,))
        if kind == "timeout":
            raise WaitTimeout(f"--stop-hook-timeout: {receipt.reason}")
        if kind == "died":
            raise self._died(receipt)
        raise CallFailed(receipt.reason or f"the request ended as {receipt.stage}")

    def _died(self, receipt: Trace) -> RemudaError:
        """Return an error with its last line, if it never took the prompt: no such conversation, or flag."""
        taken = any(step["stage"] == "submitted" for step in receipt.steps)
        lines = [line.strip() for line in self.last_output().splitlines() if line.strip()]
        status = self._probe.status() if self._probe is not None else None
        if lines and not taken and (status or {}).get("exit_code") == _CLI_REFUSED:
            return AgentRefused(lines[-1])
        code = (status or {}).get("exit_code")
        words = f"; exit code {code}; last output: {lines[-1]}" if lines and not taken and code else ""
        return CallFailed(f"the agent exited: {receipt.reason}{words}")


def _end_of(receipt: Trace) -> Record:
    return next((step for step in reversed(receipt.steps) if step["stage"] == "ended"), {})


def _answer(receipt: Trace) -> str:
    return str((receipt.answer or {}).get("text") or "")
