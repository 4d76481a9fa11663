"""One request on a terminal: turns the keeper's events into those of the pool, answers permission requests.

The answer is there at the agent's own Stop, if no other hook can make the agent continue; else at the end of
the message. The usage, which is in the transcript, comes with that end, a moment later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from remuda.errors import Aborted, AgentError, AlreadyAnswered, RemudaError
from remuda.tasks import Wakeup

from .types import (
    Allow,
    Answered,
    Decision,
    Deny,
    PermissionRequest,
    Request,
    SessionEvent,
    Spent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)

Document = dict[str, Any]
KeeperRequest = Callable[..., Awaitable[Document]]
_FAILED = Deny("Permission was not granted: the permission handler failed.")
_COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TAILS = (64, 8, 1)
_PROVEN = frozenset(["answered", "failed", "interrupted", "refused", "cancelled"])
"""Ends of a message after which the agent is known to be idle."""


class TerminalTurn:
    """Fed by `on_event`, whether or not its events are read. `ask_keeper` sends a request to the keeper."""

    def __init__(
        self,
        message_id: str,
        request: Request,
        ask_keeper: KeeperRequest,
        is_denial: Callable[[object], bool],
    ) -> None:
        self.id = message_id
        self.submitted: asyncio.Future[None] | None = None
        self.ended: Document | None = None
        """The end of its message, once that is recorded."""
        self.stopped: Document | None = None
        self.always = False
        """Whether a permission was given for the rest of the conversation."""
        self._request = request
        self._ask_keeper = ask_keeper
        self._is_denial = is_denial
        self._loop = asyncio.get_running_loop()
        self._events: deque[SessionEvent] = deque()
        self._is_read = True
        self._crash: RemudaError | None = None
        self._failure: Exception | None = None
        self._wakeup = Wakeup()
        self._deciding: dict[str, asyncio.Task[None]] = {}
        self._ended_by_denial = False
        self._shown = ""
        self._results = 0
        self._tool_uses: dict[str, ToolUse] = {}
        self._denials: list[Mapping[str, Any]] = []

    # ── events of the keeper ──

    def on_event(self, event: Document) -> None:
        kind = event["event"]
        if kind == "shown":
            self._shown += str(event["text"])
            self._yield(Token(str(event["text"])))
        elif kind == "tool":
            self._on_tool(event)
        elif kind == "ask":
            self._on_permission_request(event)
        elif kind == "ask_ended":
            self._withdraw(str(event["id"]))
        elif kind == "stopped" and event["id"] == self.id:
            self.stopped = event
        elif kind == "ended" and event["id"] == self.id:
            self.ended = event
        elif kind == "usage" and event["id"] == self.id:
            if (usage := _as_usage(event.get("usage"))) is not None and self._request.counted:
                self._yield(Spent(usage))
        else:
            return
        self._wakeup.notify()

    def crash(self, error: RemudaError) -> None:
        self._crash = self._crash or error
        self._wakeup.notify()

    def _on_tool(self, event: Document) -> None:
        tool_use_id, name = str(event["id"]), str(event["name"])
        if event["what"] == "began":
            tool_use = self._tool_uses[tool_use_id] = ToolUse(tool_use_id, name, event.get("input") or {})
            self._yield(tool_use)
            return
        self._results += 1
        content, is_error = event.get("content"), bool(event.get("is_error"))
        if is_error and self._is_denial(content):
            self._note_denial(tool_use_id)
        self._yield(ToolResult(tool_use_id, content, is_error))

    def _note_denial(self, tool_use_id: str | None) -> None:
        tool_use = self._tool_uses.get(tool_use_id or "")
        self._denials.append(
            {
                "tool_name": None if tool_use is None else tool_use.name,
                "tool_use_id": tool_use_id,
                "tool_input": None if tool_use is None else dict(tool_use.input),
            }
        )

    def _yield(self, event: SessionEvent) -> None:
        if self._is_read:
            self._events.append(event)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises `SessionCrashed` if the agent ends first."""
        while not condition():
            if self._crash is not None:
                raise self._crash
            await self._wakeup.wait()

    # ── reading it ──

    async def events(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield events up to the end. If left early, the turn goes on and permission requests stay open."""
        try:
            while not self._is_over():
                await self.until(lambda: bool(self._events) or self._is_over() or self._failure is not None)
                while self._events:
                    yield self._events.popleft()
                if self._failure is not None:
                    raise self._failure
            for event in self._remaining():
                yield event
        finally:
            self._is_read = False
            self._events.clear()
            for task in self._deciding.values():
                task.cancel()

    @property
    def end(self) -> str | None:
        """Return how the turn ended, once that is final."""
        if self.stopped is not None and self.stopped["final"]:
            return str(self.stopped["end"])
        return None if self.ended is None else str(self.ended["end"])

    def _is_over(self) -> bool:
        needs_end = self._request.raw or self._request.counted
        return self.end is not None and (self.ended is not None or not needs_end)

    def _remaining(self) -> list[SessionEvent]:
        """Return what was not shown yet: the end of a turn may be reported before its last text."""
        remaining = [*self._events]
        text = self.text
        missing = text[overlap(self._shown, text) :]
        if missing.strip():
            remaining.append(Token(missing))
        return remaining

    @property
    def text(self) -> str:
        """Return the last text of the agent. The end of the message has it only if no stop had it."""
        if self.ended is not None and "text" in self.ended:
            return str(self.ended["text"])
        return str((self.stopped or {}).get("text") or "")

    # ── permission requests ──

    def _on_permission_request(self, event: Document) -> None:
        permission = PermissionRequest(
            id=str(event["id"]),
            tool=str(event["tool"]),
            input=event.get("input") or {},
            request_id=self._request.id,
            suggestions=tuple(event.get("suggestions") or ()),
        )
        self._yield(permission)
        if self._is_read:
            task = self._loop.create_task(self._decide(permission, event.get("tool_use_id")))
            self._deciding[permission.id] = task

    def _withdraw(self, permission_id: str) -> None:
        if (task := self._deciding.pop(permission_id, None)) is not None:
            task.cancel()

    async def _decide(self, permission: PermissionRequest, tool_use_id: str | None) -> None:
        try:
            decision = await self._request.decide(permission)
        except Exception as error:  # noqa: BLE001  # it is the caller's code, and its request raises this
            self._failure, decision = error, _FAILED
        self._deciding.pop(permission.id, None)
        self._note(decision, tool_use_id)
        try:
            await self._ask_keeper("answer", id=permission.id, **_answer_document(decision))
        except AlreadyAnswered:  # by a user at the terminal
            pass
        except RemudaError as error:
            self._failure = self._failure or error
        self._wakeup.notify()

    def _note(self, decision: Decision, tool_use_id: str | None) -> None:
        if isinstance(decision, Allow):
            self.always = self.always or decision.always
        else:
            self._ended_by_denial = self._ended_by_denial or decision.interrupt
            self._note_denial(tool_use_id)

    # ── the answer ──

    @property
    def proven(self) -> bool:
        """Whether the agent is known to be idle after it."""
        return self.ended is not None and self.ended["end"] in _PROVEN

    def usage(self) -> Usage | None:
        return _as_usage((self.ended or {}).get("usage"))

    def answer(self) -> Answered:
        """Return the answer of a turn that is over. Raises an error if it ended in another way."""
        end = self.end
        if end == "interrupted" and self._ended_by_denial:
            raise Aborted("a denied permission ended the turn")
        if end != "answered":
            raise self._error(str(end))
        stopped = self.stopped or {}
        return Answered(
            text=self.text,
            conversation_id=stopped.get("conversation") or (self.ended or {}).get("session_id"),
            usage=self.usage(),
            num_turns=1 + self._results,
            permission_denials=tuple(self._denials),
        )

    def _error(self, end: str) -> RemudaError:
        text = self.text if end == "failed" else ""
        reason = text or str((self.ended or {}).get("reason") or "") or f"the prompt ended as {end}"
        if end in ("failed", "interrupted", "refused"):
            return AgentError(reason)
        return Aborted(reason) if end == "cancelled" else RemudaError(f"the prompt was lost: {reason}")


def _answer_document(decision: Decision) -> Document:
    if isinstance(decision, Deny):
        return {"behavior": "deny", "message": decision.message, "interrupt": decision.interrupt}
    new_input = None if decision.input is None else dict(decision.input)
    return {"behavior": "allow", "input": new_input, "always": decision.always}


def overlap(shown: str, text: str) -> int:
    """Return how many characters of the beginning of `text` are the end of `shown`."""
    shown, stripped = shown.rstrip(), text.rstrip()
    if shown.endswith(stripped):
        return len(text)
    longest = len(stripped)
    for size in _TAILS:  # a long end is rare in the text; a short one is searched near its beginning
        tail = shown[-size:]
        end = stripped.rfind(tail, 0, longest) + len(tail) if tail else -1
        while end >= len(tail) > 0:
            if shown.endswith(stripped[:end]):
                return end
            end = stripped.rfind(tail, 0, end - 1) + len(tail)
        longest = size
    return 0


def _as_usage(counted: object) -> Usage | None:
    if not isinstance(counted, dict):
        return None
    return Usage(**{name: int(counted.get(name) or 0) for name in _COUNTED})
