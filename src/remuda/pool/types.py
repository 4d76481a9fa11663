"""What goes into a request and what comes out of it. Pure: no asyncio, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from remuda.errors import RemudaError

BackendName = Literal["terminal", "stream", "print"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, each API message counted once."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


@dataclass(slots=True)
class RunResult:
    """What a request came to."""

    request_id: str
    text: str
    session_id: str
    """The warm session that served it, as the pool's events name it."""
    backend: BackendName
    duration: float = 0.0
    """Seconds from the call to the answer, waiting for a session included."""
    queue_wait: float = 0.0
    warm: bool = False
    """Whether a session stood ready for it."""
    usage: Usage | None = None
    """On the terminal backend a tenth of a second behind the answer: `await client.complete(result)`."""
    conversation_id: str | None = None
    """What the agent calls the conversation."""
    entrypoint: str | None = None
    """What the agent says of itself. Never set by us."""
    model: str | None = None
    num_turns: int | None = None
    permission_denials: list[dict[str, Any]] = field(default_factory=list)
    total_cost_usd: float | None = None


# ── permissions ──


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """The agent wants to use a tool that needs a human's word. `input` is whole."""

    id: str
    tool: str
    input: Mapping[str, Any]
    request_id: str = ""
    suggestions: tuple[Mapping[str, Any], ...] = ()
    type: Literal["permission"] = "permission"


@dataclass(frozen=True, slots=True)
class Allow:
    input: Mapping[str, Any] | None = None
    """What to run instead of what was asked."""
    always: bool = False
    """For all of this conversation. Such a session is not reused."""


@dataclass(frozen=True, slots=True)
class Deny:
    message: str = ""
    interrupt: bool = False
    """End the turn too."""


Decision = Allow | Deny
PermissionHandler = Callable[[PermissionRequest], Awaitable[Decision]]
Permissions = Literal["deny", "allow"] | PermissionHandler


# ── what a stream yields ──


@dataclass(frozen=True, slots=True)
class Token:
    """Text as it comes: true tokens on `stream` and `print`, what the agent shows on `terminal`."""

    text: str
    type: Literal["token"] = "token"


@dataclass(frozen=True, slots=True)
class ToolUse:
    id: str
    name: str
    input: Mapping[str, Any]
    type: Literal["tool_use"] = "tool_use"


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    content: Any
    is_error: bool = False
    type: Literal["tool_result"] = "tool_result"


@dataclass(frozen=True, slots=True)
class Done:
    result: RunResult
    type: Literal["done"] = "done"


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that failed; `error` is raised right behind it."""

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
    """A message in the shape of `claude -p --output-format stream-json`, for whoever prints such."""

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
