"""One request on a kept agent: what its keeper tells of it as the pool's events, its questions, its answer.

The agent's own Stop is the answer where nobody can send the agent on; else the end of its message is. What
the transcript has to tell, the usage, comes with that end, a moment later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from remuda.errors import Aborted, AgentError, AlreadyAnswered, RemudaError

from .types import (
    Allow,
    Answered,
    Decision,
    Deny,
    PermissionRequest,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)

Document = dict[str, Any]
Ask = Callable[..., Awaitable[Document]]
_FAILED = Deny("Permission was not granted: the permission handler failed.")
_COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TAILS = (64, 8, 1)
_PROVEN = frozenset(["answered", "failed", "interrupted", "refused", "cancelled"])
"""Ends of a message behind which the agent is known to rest."""


class KeptTurn:
    """Fed by `hear` whether or not anybody follows; `ask` is a request to its keeper."""

    def __init__(
        self, message_id: str, request: Request, ask: Ask, is_denial: Callable[[object], bool]
    ) -> None:
        self.id = message_id
        self.put: asyncio.Future[None] | None = None
        self.ended: Document | None = None
        """What became of its message, once that is written down."""
        self.stopped: Document | None = None
        self.always = False
        """Whether a permission was given for the rest of the conversation."""
        self._request = request
        self._ask = ask
        self._is_denial = is_denial
        self._loop = asyncio.get_running_loop()
        self._told: deque[SessionEvent] = deque()
        self._followed = True
        self._crash: RemudaError | None = None
        self._failure: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._stopped_by_decision = False
        self._shown = ""
        self._results = 0
        self._calls: dict[str, ToolUse] = {}
        self._denials: list[Mapping[str, Any]] = []

    # ── being told ──

    def hear(self, event: Document) -> None:
        kind = event["event"]
        if kind == "shown":
            self._shown += str(event["text"])
            self._tell(Token(str(event["text"])))
        elif kind == "tool":
            self._hear_tool(event)
        elif kind == "ask":
            self._hear_ask(event)
        elif kind == "ask_ended":
            self._withdraw(str(event["id"]))
        elif kind == "stopped" and event["id"] == self.id:
            self.stopped = event
        elif kind == "ended" and event["id"] == self.id:
            self.ended = event
        else:
            return
        self._wake()

    def crash(self, error: RemudaError) -> None:
        self._crash = self._crash or error
        self._wake()

    def _hear_tool(self, event: Document) -> None:
        number, name = str(event["id"]), str(event["name"])
        if event["what"] == "began":
            call = self._calls[number] = ToolUse(number, name, event.get("input") or {})
            self._tell(call)
            return
        self._results += 1
        content, is_error = event.get("content"), bool(event.get("is_error"))
        if is_error and self._is_denial(content):
            self._deny(number)
        self._tell(ToolResult(number, content, is_error))

    def _deny(self, number: str | None) -> None:
        call = self._calls.get(number or "")
        self._denials.append(
            {
                "tool_name": None if call is None else call.name,
                "tool_use_id": number,
                "tool_input": None if call is None else dict(call.input),
            }
        )

    def _tell(self, event: SessionEvent) -> None:
        if self._followed:
            self._told.append(event)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def until(self, look: Callable[[], bool]) -> None:
        """Raises `SessionCrashed` when the agent ends first."""
        while not look():
            if self._crash is not None:
                raise self._crash
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    # ── following ──

    async def events(self) -> AsyncGenerator[SessionEvent, None]:
        """Up to its end. Left early, the turn goes on with its questions unanswered."""
        try:
            while not self._is_over():
                await self.until(lambda: bool(self._told) or self._is_over() or self._failure is not None)
                while self._told:
                    yield self._told.popleft()
                if self._failure is not None:
                    raise self._failure
            for event in self._rest():
                yield event
        finally:
            self._followed = False
            self._told.clear()
            for question in self._questions.values():
                question.cancel()

    @property
    def end(self) -> str | None:
        """How it ended, once nobody can change that any more."""
        if self.stopped is not None and self.stopped["final"]:
            return str(self.stopped["end"])
        return None if self.ended is None else str(self.ended["end"])

    def _is_over(self) -> bool:
        return self.end is not None and (self.ended is not None or not self._request.raw)

    def _rest(self) -> list[SessionEvent]:
        """What the agent is about to show: the end of its turn may be told before its last words."""
        rest = [*self._told]
        text = self.text
        missing = text[overlap(self._shown, text) :]
        if missing.strip():
            rest.append(Token(missing))
        return rest

    @property
    def text(self) -> str:
        """The last that it said. The end of its message has it only where no stop had."""
        if self.ended is not None and "text" in self.ended:
            return str(self.ended["text"])
        return str((self.stopped or {}).get("text") or "")

    # ── questions ──

    def _hear_ask(self, event: Document) -> None:
        question = PermissionRequest(
            id=str(event["id"]),
            tool=str(event["tool"]),
            input=event.get("input") or {},
            request_id=self._request.id,
            suggestions=tuple(event.get("suggestions") or ()),
        )
        self._tell(question)
        if self._followed:
            task = self._loop.create_task(self._settle(question, event.get("tool_use_id")))
            self._questions[question.id] = task

    def _withdraw(self, number: str) -> None:
        if (task := self._questions.pop(number, None)) is not None:
            task.cancel()

    async def _settle(self, question: PermissionRequest, tool_use_id: str | None) -> None:
        try:
            decision = await self._request.decide(question)
        except Exception as error:  # noqa: BLE001  # it is the caller's code, and raised in its call
            self._failure, decision = error, _FAILED
        self._questions.pop(question.id, None)
        self._note(decision, tool_use_id)
        try:
            await self._ask("answer", id=question.id, **_ruling(decision))
        except AlreadyAnswered:  # by a human at its terminal
            pass
        except RemudaError as error:
            self._failure = self._failure or error
        self._wake()

    def _note(self, decision: Decision, tool_use_id: str | None) -> None:
        if isinstance(decision, Allow):
            self.always = self.always or decision.always
        else:
            self._stopped_by_decision = self._stopped_by_decision or decision.interrupt
            self._deny(tool_use_id)

    # ── the answer ──

    @property
    def proven(self) -> bool:
        """Whether the agent is known to rest behind it."""
        return self.ended is not None and self.ended["end"] in _PROVEN

    def usage(self) -> Usage | None:
        counted = (self.ended or {}).get("usage")
        if not isinstance(counted, dict):
            return None
        return Usage(**{name: int(counted.get(name) or 0) for name in _COUNTED})

    def answer(self) -> Answered:
        """Of a turn that is over. Raises what it came to, if that is no answer."""
        end = self.end
        if end == "interrupted" and self._stopped_by_decision:
            raise Aborted("a denied permission ended the turn")
        if end != "answered":
            raise self._error(str(end))
        known = self.stopped or {}
        return Answered(
            text=self.text,
            conversation_id=known.get("conversation") or (self.ended or {}).get("session_id"),
            usage=self.usage(),
            num_turns=1 + self._results,
            permission_denials=tuple(self._denials),
        )

    def _error(self, end: str) -> RemudaError:
        said = self.text if end == "failed" else ""
        reason = said or str((self.ended or {}).get("reason") or "") or f"the prompt ended as {end}"
        if end in ("failed", "interrupted", "refused"):
            return AgentError(reason)
        return Aborted(reason) if end == "cancelled" else RemudaError(f"the prompt was lost: {reason}")


def _ruling(decision: Decision) -> Document:
    if isinstance(decision, Deny):
        return {"behavior": "deny", "message": decision.message, "interrupt": decision.interrupt}
    given = None if decision.input is None else dict(decision.input)
    return {"behavior": "allow", "input": given, "always": decision.always}


def overlap(shown: str, text: str) -> int:
    """How much of the text's beginning stands at the end of what was shown."""
    shown, wanted = shown.rstrip(), text.rstrip()
    if shown.endswith(wanted):
        return len(text)
    longest = len(wanted)
    for size in _TAILS:  # a long end of it is rare in the text, a short one is looked for near its beginning
        tail = shown[-size:]
        end = wanted.rfind(tail, 0, longest) + len(tail) if tail else -1
        while end >= len(tail) > 0:
            if shown.endswith(wanted[:end]):
                return end
            end = wanted.rfind(tail, 0, end - 1) + len(tail)
        longest = size
    return 0
