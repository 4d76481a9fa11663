"""The events of Claude Code's stream-json protocol (2.1.325). Pure.

The events of one prompt, in order: `PromptMoved` queued and started, `StreamTurnBegun`, then `TextPiece`,
`ToolCalled`, `PermissionAsked` and `ToolReturned` as they happen, and `TurnResult`. A prompt has an id of
ours, which comes back in `PromptMoved`, `ConversationReset` and `TurnResult`. A turn that the agent starts by
itself has none, or another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

STATE_EVENTS: Final = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
"""The variable that makes the CLI report `StateChanged`."""


@dataclass(frozen=True, slots=True)
class ControlReply:
    """The answer to a control request of ours."""

    request_id: str
    payload: Mapping[str, Any]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the next conversation of the same process starts with."""

    cwd: str
    model: str
    permission_mode: str
    output_style: str
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamTurnBegun:
    """A turn begins. Commands of the CLI itself have turns too."""

    conversation_id: str
    surroundings: Surroundings


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A complete part of a message, with its model."""

    model: str


@dataclass(frozen=True, slots=True)
class MessageUsed:
    """What a message used that is complete."""

    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCalled:
    id: str
    name: str
    input: Mapping[str, Any]
    nested: bool = False
    """By a subagent."""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    id: str
    content: Any
    is_error: bool = False
    nested: bool = False


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """A permission request. The agent waits for `allow`, `deny` or `refuse`, or withdraws it."""

    request_id: str
    tool: str
    input: Mapping[str, Any]
    suggestions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PermissionWithdrawn:
    request_id: str


@dataclass(frozen=True, slots=True)
class UnsupportedRequest:
    """A control request that this client does not support. The agent waits until `refuse` is sent."""

    request_id: str
    subtype: str


@dataclass(frozen=True, slots=True)
class ApiRetry:
    attempt: int
    status: int | None
    error: str


@dataclass(frozen=True, slots=True)
class ConversationReset:
    """The conversation was cleared. The next `StreamTurnBegun` has the id of the new one."""

    command_id: str | None


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    id: str
    kind: str


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """All tasks that run in the background now. Each will wake the agent when it ends."""

    tasks: tuple[BackgroundTask, ...]


@dataclass(frozen=True, slots=True)
class StateChanged:
    """`running`, or `idle`: nothing waits to be run. Reported only if STATE_EVENTS is set."""

    state: str


@dataclass(frozen=True, slots=True)
class PromptMoved:
    """A prompt is `queued`, `started`, `completed`, `cancelled`, …"""

    command_id: str
    state: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn."""

    conversation_id: str
    command_id: str | None
    text: str
    is_error: bool
    subtype: str
    reason: str
    """How it came to its end: completed, api_error, aborted_streaming, max_turns, …"""
    errors: tuple[str, ...] = ()
    usage: Mapping[str, Any] | None = None
    num_turns: int | None = None
    denials: tuple[Mapping[str, Any], ...] = ()
    cost_usd: float | None = None

    @property
    def was_interrupted(self) -> bool:
        return self.reason.startswith("aborted") or (
            self.is_error and self.subtype == "error_during_execution" and not self.text
        )


Event: TypeAlias = (
    ControlReply | StreamTurnBegun | TextPiece | MessagePart | MessageUsed | ToolCalled | ToolReturned
    | PermissionAsked | PermissionWithdrawn | UnsupportedRequest | ApiRetry | ConversationReset | TasksChanged
    | StateChanged | PromptMoved | TurnResult
)  # fmt: skip
