"""What goes into a request and what comes out of it. Pure: no asyncio, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from remuda.errors import RemudaError

BackendName = Literal["terminal", "stream", "print"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one request used. Each API message counts once."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


@dataclass(slots=True)
class RunResult:
    """The answer to a request."""

    request_id: str
    text: str
    session_id: str
    """Id of the worker that served the request, as in the pool's events."""
    backend: BackendName
    duration: float = 0.0
    """Seconds from the request to the answer, including the wait for a worker."""
    queue_wait: float = 0.0
    """Seconds until the request had a worker."""
    warm: bool = False
    """Whether a worker was ready when the request arrived."""
    usage: Usage | None = None
    """None until it is known. The terminal backend knows it a tenth of a second after the answer: wait for it
    with `await client.complete(result)`."""
    conversation_id: str | None = None
    """The agent's own id of the conversation."""
    entrypoint: str | None = None
    """The entrypoint that the agent reports. Remuda never sets it."""
    model: str | None = None
    num_turns: int | None = None
    permission_denials: list[dict[str, Any]] = field(default_factory=list)
    """Tools that the agent was not allowed to use: `tool_name`, `tool_use_id` and `tool_input` of each."""
    total_cost_usd: float | None = None
    """None on the terminal backend."""


# ── permissions ──


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A tool that the agent wants to use and that needs a permission. `input` is complete."""

    id: str
    tool: str
    input: Mapping[str, Any]
    request_id: str = ""
    suggestions: tuple[Mapping[str, Any], ...] = ()
    type: Literal["permission"] = "permission"


@dataclass(frozen=True, slots=True)
class Allow:
    """The decision to allow a permission request."""

    input: Mapping[str, Any] | None = None
    """Replaces the input that the agent asked for; None keeps it."""
    always: bool = False
    """Also allow the tool for the rest of the conversation. The worker is then not reused."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The decision to deny a permission request."""

    message: str = ""
    """The reason, which the agent reads."""
    interrupt: bool = False
    """Also end the turn: the request raises `Aborted`."""


Decision = Allow | Deny
PermissionHandler = Callable[[PermissionRequest], Awaitable[Decision]]
Permissions = Literal["deny", "allow"] | PermissionHandler


# ── what a stream yields ──


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text: tokens on the backends `stream` and `print`, lines of the screen on `terminal`."""

    text: str
    type: Literal["token"] = "token"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The agent uses a tool."""

    id: str
    name: str
    input: Mapping[str, Any]
    type: Literal["tool_use"] = "tool_use"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool. `id` is that of its `ToolUse`."""

    id: str
    content: Any
    is_error: bool = False
    name: str = ""
    """Name of the tool; empty if its `ToolUse` was not seen."""
    type: Literal["tool_result"] = "tool_result"


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a request that was answered."""

    result: RunResult
    type: Literal["done"] = "done"


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that failed; `error` is raised right after it."""

    error: RemudaError
    type: Literal["error"] = "error"


StreamEvent = Token | ToolUse | ToolResult | PermissionRequest | Done | Failed


# ── what a warm session tells its pool ──


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn is over and this is its answer."""

    text: str
    conversation_id: str | None = None
    usage: Usage | None = None
    entrypoint: str | None = None
    model: str | None = None
    num_turns: int | None = None
    permission_denials: tuple[Mapping[str, Any], ...] = ()
    total_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """A message as `claude -p --output-format stream-json` prints it. Only with `raw=True`."""

    message: Mapping[str, Any]


SessionEvent = Token | ToolUse | ToolResult | PermissionRequest | Raw | Answered


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as a warm session gets it."""

    id: str
    prompt: str
    decide: PermissionHandler
    """Asked for every permission; answers in a bounded time."""
    raw: bool = False
    """Whether `Raw` events are wanted."""
