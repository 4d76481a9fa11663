"""One request on a stream: its events, its permission requests, and its answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from remuda.agents.warm import (
    Allow,
    Answered,
    Decision,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Spent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.errors import Aborted, AgentError

from . import stream_protocol
from .prompt_progress import PromptProgress, count_usage
from .stream_client import StreamClient
from .stream_events import (
    Event,
    MessageUsed,
    PermissionAsked,
    PermissionWithdrawn,
    StreamTurnBegun,
    TextPiece,
    ToolCalled,
    ToolReturned,
)

_FAILED = "the permission request could not be decided"
_INTERNAL = frozenset(
    ["control_request", "control_response", "control_cancel_request", "command_lifecycle", "keep_alive"]
)
_OUR_FIELDS = frozenset(["user_message_uuid", "user_message_uuids"])


class StreamTurn:
    """`entrypoint` is called once, while the agent runs."""

    def __init__(
        self,
        client: StreamClient,
        progress: PromptProgress,
        request: Request,
        entrypoint: Callable[[], str | None],
    ) -> None:
        self._client = client
        self._progress = progress
        self._request = request
        self._find_entrypoint = entrypoint
        self._entrypoint: str | None = None
        self._permissions: dict[str, asyncio.Task[None]] = {}
        self._failure: Exception | None = None
        self._stopped_by_decision = False
        self._spent: Counter[str] = Counter()

    async def events(self, data: bytes, *, last: bool = False) -> AsyncGenerator[SessionEvent, None]:
        """Send the prompt and yield its events, the answer last.

        If the caller stops early, the turn goes on, and its permission requests are denied.
        """
        try:
            with self._client.follow():
                self._client.begin(self._progress, data, last=last)
                while (received := await self._client.next()) is not None:
                    message, events = received
                    if self._request.raw and (printed := _as_printed(message)):
                        yield Raw(printed)
                    for event in events:
                        for session_event in self._translated(event):
                            yield session_event
                    if self._failure is not None:
                        raise self._failure
            yield self._answer()
        finally:
            for task in self._permissions.values():
                task.cancel()

    def _translated(self, event: Event) -> Iterator[SessionEvent]:
        match event:
            case StreamTurnBegun():
                self._entrypoint = self._entrypoint or self._find_entrypoint()
            case TextPiece(text):
                yield Token(text)
            case MessageUsed(usage) if self._request.counted:
                self._spent.update(count_usage(usage))
                yield Spent(Usage(**self._spent))
            case ToolCalled(tool_id, name, tool_input, nested=False):
                yield ToolUse(tool_id, name, tool_input)
            case ToolReturned(tool_id, content, is_error, nested=False):
                yield ToolResult(tool_id, content, is_error)
            case PermissionAsked():
                permission = PermissionRequest(
                    event.request_id, event.tool, event.input, self._request.id, event.suggestions
                )
                yield permission
                task = asyncio.get_running_loop().create_task(self._decide(event, permission))
                self._permissions[event.request_id] = task
            case PermissionWithdrawn(request_id) if request_id in self._permissions:
                self._permissions.pop(request_id).cancel()
            case _:
                pass

    # ── permission requests ──

    async def _decide(self, asked: PermissionAsked, permission: PermissionRequest) -> None:
        try:
            line = self._line(asked, await self._request.decide(permission))
        except Exception as error:  # noqa: BLE001  # it is the caller's code, and raised in its call
            self._failure = error
            line = stream_protocol.deny(asked.request_id, _FAILED)
        self._permissions.pop(asked.request_id, None)
        self._client.send(line)
        self._client.wake()

    def _line(self, asked: PermissionAsked, decision: Decision) -> bytes:
        if isinstance(decision, Allow):
            rules: list[dict[str, Any]] = []
            tool_input = asked.input if decision.input is None else decision.input
            if decision.always:
                edited = decision.input is not None
                rules = stream_protocol.for_conversation(
                    asked.tool, tool_input, asked.suggestions, edited=edited
                )
                self._client.carry_over.add("a permission for the rest of the conversation")
            return stream_protocol.allow(asked.request_id, tool_input, rules)
        self._stopped_by_decision = self._stopped_by_decision or decision.interrupt
        return stream_protocol.deny(asked.request_id, decision.message, interrupt=decision.interrupt)

    # ── the answer ──

    def _answer(self) -> Answered:
        progress = self._progress
        if progress.dropped:
            raise AgentError("the agent dropped the prompt")
        if progress.last.was_interrupted and self._stopped_by_decision:
            raise Aborted("a denied permission ended the turn")
        if (error := progress.error()) is not None:
            raise AgentError(error)
        return Answered(
            text=progress.last.text,
            conversation_id=progress.last.conversation_id,
            usage=Usage(**progress.usage()),
            entrypoint=self._entrypoint,
            model=progress.model,
            num_turns=progress.num_turns(),
            permission_denials=progress.denials(),
            total_cost_usd=progress.last.cost_usd,
        )


def _as_printed(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a message as `claude -p` would have printed it; None for control messages."""
    if message.get("type") in _INTERNAL or message.get("subtype") == "session_state_changed":
        return None
    return {key: value for key, value in message.items() if key not in _OUR_FIELDS}
