"""The events of Claude Code's stream-json protocol (2.1.325). Pure.

The events of one prompt, in order: `Moved` queued and started, `Begun`, then `Said`, `ToolCalled`, `Asked`
and `ToolEnded` as they happen, and `Ended`. A prompt has an id of ours, which comes back in `Moved`, `Reset`
and `Ended`. A turn that the agent starts by itself has none, or another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

STATE_EVENTS: Final = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
"""The variable that makes the CLI report `StateChanged`."""


@dataclass(frozen=True, slots=True)
class Replied:
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
class Begun:
    """A turn begins. Commands of the CLI itself have turns too."""

    conversation_id: str
    surroundings: Surroundings


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Spoke:
    """A complete part of a message, with its model."""

    model: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    id: str
    name: str
    input: Mapping[str, Any]
    nested: bool = False
    """By a subagent."""


@dataclass(frozen=True, slots=True)
class ToolEnded:
    id: str
    content: Any
    is_error: bool = False
    nested: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A permission request. The agent waits for `allow`, `deny` or `refuse`, unless it is `Withdrawn`."""

    request_id: str
    tool: str
    input: Mapping[str, Any]
    suggestions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Withdrawn:
    request_id: str


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """A control request that this client does not support. The agent waits until `refuse` is sent."""

    request_id: str
    subtype: str


@dataclass(frozen=True, slots=True)
class Retrying:
    attempt: int
    status: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The conversation was cleared. The next `Begun` has the id of the new one."""

    command_id: str | None


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    kind: str


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """All tasks that run in the background now. Each will wake the agent when it ends."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class StateChanged:
    """`running`, or `idle`: nothing waits to be run. Reported only if STATE_EVENTS is set."""

    state: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A prompt is `queued`, `started`, `completed`, `cancelled`, …"""

    command_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Ended:
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
    Replied | Begun | Said | Spoke | ToolCalled | ToolEnded | Asked | Withdrawn | Unanswerable
    | Retrying | Reset | TasksChanged | StateChanged | Moved | Ended
)  # fmt: skip
