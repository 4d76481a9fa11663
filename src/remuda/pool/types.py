"""What goes into a request and what comes out of it. Pure: no asyncio, no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from remuda.agents.warm import Allow as Allow
from remuda.agents.warm import Answered as Answered
from remuda.agents.warm import Decision as Decision
from remuda.agents.warm import Deny as Deny
from remuda.agents.warm import PermissionHandler as PermissionHandler
from remuda.agents.warm import PermissionRequest as PermissionRequest
from remuda.agents.warm import Raw as Raw
from remuda.agents.warm import Request as Request
from remuda.agents.warm import SessionEvent as SessionEvent
from remuda.agents.warm import Spent as Spent
from remuda.agents.warm import Token as Token
from remuda.agents.warm import ToolResult as ToolResult
from remuda.agents.warm import ToolUse as ToolUse
from remuda.agents.warm import Usage as Usage
from remuda.errors import RemudaError

BackendName = Literal["terminal", "stream", "print"]


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


Permissions = Literal["deny", "allow"] | PermissionHandler


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
