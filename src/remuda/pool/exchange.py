"""One request on a talk: what comes of it as the pool's events, its questions, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from remuda.agents.claude import stream
from remuda.agents.claude.command import Command
from remuda.agents.claude.stream_events import Asked, Begun, Event, Said, ToolCalled, ToolEnded, Withdrawn
from remuda.errors import Aborted, AgentError

from .talk import Talk
from .types import (
    Allow,
    Answered,
    Decision,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)

_FAILED = "the permission request could not be decided"
_BETWEEN_US = frozenset(
    ["control_request", "control_response", "control_cancel_request", "command_lifecycle", "keep_alive"]
)
_OUR_FIELDS = frozenset(["user_message_uuid", "user_message_uuids"])


class Exchange:
    """`entrypoint` is asked once, while the agent runs."""

    def __init__(
        self, talk: Talk, command: Command, request: Request, entrypoint: Callable[[], str | None]
    ) -> None:
        self._talk = talk
        self._command = command
        self._request = request
        self._ask_entrypoint = entrypoint
        self._entrypoint: str | None = None
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._failure: Exception | None = None
        self._stopped_by_decision = False

    async def events(self, data: bytes, *, last: bool = False) -> AsyncGenerator[SessionEvent, None]:
        """Say it, and follow it to its answer. Left early, the turn goes on with its questions unanswered."""
        try:
            with self._talk.follow():
                self._talk.begin(self._command, data, last=last)
                while (heard := await self._talk.next()) is not None:
                    message, events = heard
                    if self._request.raw and (shown := _shown(message)):
                        yield Raw(shown)
                    for event in events:
                        for told in self._told(event):
                            yield told
                    if self._failure is not None:
                        raise self._failure
            yield self._answer()
        finally:
            for question in self._questions.values():
                question.cancel()

    def _told(self, event: Event) -> Iterator[SessionEvent]:
        match event:
            case Begun():
                self._entrypoint = self._entrypoint or self._ask_entrypoint()
            case Said(text):
                yield Token(text)
            case ToolCalled(tool_id, name, given, nested=False):
                yield ToolUse(tool_id, name, given)
            case ToolEnded(tool_id, content, is_error, nested=False):
                yield ToolResult(tool_id, content, is_error)
            case Asked():
                question = PermissionRequest(
                    event.request_id, event.tool, event.input, self._request.id, event.suggestions
                )
                yield question
                task = asyncio.get_running_loop().create_task(self._settle(event, question))
                self._questions[event.request_id] = task
            case Withdrawn(request_id) if request_id in self._questions:
                self._questions.pop(request_id).cancel()
            case _:
                pass

    # ── questions ──

    async def _settle(self, asked: Asked, question: PermissionRequest) -> None:
        try:
            line = self._line(asked, await self._request.decide(question))
        except Exception as error:  # noqa: BLE001  # it is the caller's code, and raised in its call
            self._failure = error
            line = stream.deny(asked.request_id, _FAILED)
        self._questions.pop(asked.request_id, None)
        self._talk.send(line)
        self._talk.wake()

    def _line(self, asked: Asked, decision: Decision) -> bytes:
        if isinstance(decision, Allow):
            lasting: list[dict[str, Any]] = []
            given = asked.input if decision.input is None else decision.input
            if decision.always:
                edited = decision.input is not None
                lasting = stream.for_conversation(asked.tool, given, asked.suggestions, edited=edited)
                self._talk.residue.add("a permission for the rest of the conversation")
            return stream.allow(asked.request_id, given, lasting)
        self._stopped_by_decision = self._stopped_by_decision or decision.interrupt
        return stream.deny(asked.request_id, decision.message, interrupt=decision.interrupt)

    # ── the answer ──

    def _answer(self) -> Answered:
        command = self._command
        if command.dropped:
            raise AgentError("the agent dropped the prompt")
        if command.last.was_interrupted and self._stopped_by_decision:
            raise Aborted("a denied permission ended the turn")
        if (error := command.error()) is not None:
            raise AgentError(error)
        return Answered(
            text=command.last.text,
            conversation_id=command.last.conversation_id,
            usage=Usage(**command.usage()),
            entrypoint=self._entrypoint,
            model=command.model,
            num_turns=command.num_turns(),
            permission_denials=command.denials(),
            total_cost_usd=command.last.cost_usd,
        )


def _shown(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """As `claude -p` would have printed it; None for what is between the CLI and us."""
    if message.get("type") in _BETWEEN_US or message.get("subtype") == "session_state_changed":
        return None
    return {key: value for key, value in message.items() if key not in _OUR_FIELDS}
