"""What Claude Code's stream-json protocol tells, as events (2.1.325). Pure.

What is said of one prompt, in order: `Moved` queued and started, `Begun`, then `Said`, `ToolCalled`, `Asked`,
`ToolEnded` as it goes, and `Ended`. A prompt has an id of ours, which comes back in `Moved`, `Reset` and
`Ended`; what the agent begins by itself has none, or another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

STATE_EVENTS: Final = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
"""The variable that makes the CLI tell of `StateChanged`."""


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer to a control request of ours."""

    request_id: str
    payload: Mapping[str, Any]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the next conversation of the same process will find."""

    cwd: str
    model: str
    permission_mode: str
    output_style: str
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn begins, be it of a command of the CLI's own."""

    conversation_id: str
    surroundings: Surroundings


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Spoke:
    """A whole part of a message, and the model that made it."""

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
    """May it use this tool? It waits for `allow`, `deny` or `refuse`, unless the question is `Withdrawn`."""

    request_id: str
    tool: str
    input: Mapping[str, Any]
    suggestions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Withdrawn:
    request_id: str


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """It asks for what nobody here can do, and waits: `refuse` must be sent."""

    request_id: str
    subtype: str


@dataclass(frozen=True, slots=True)
class Retrying:
    attempt: int
    status: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The conversation is forgotten. The next one has its id at the next `Begun`."""

    command_id: str | None


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    kind: str


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """All that runs in the background now. Each will wake the agent at its end."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class StateChanged:
    """`running`, or `idle`: nothing waits to be run. Told only where STATE_EVENTS is set."""

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
