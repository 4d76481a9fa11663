"""What the pool asks of an agent that serves many requests: options, requests and their events, workers.

`Agent.warm` is None for a program that cannot do this. The module is pure: no asyncio, no clock, no I/O.
The types of requests and events are public through `remuda.pool.types`. They are here because an agent's
workers produce them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol


class WorkerOptions(Protocol):
    """The options of a profile that become arguments of the agent."""

    @property
    def model(self) -> str | None: ...
    @property
    def allowed_tools(self) -> Sequence[str]: ...
    @property
    def disallowed_tools(self) -> Sequence[str]: ...
    @property
    def permission_mode(self) -> str | None: ...
    @property
    def settings(self) -> str | None: ...
    @property
    def setting_sources(self) -> str | None: ...
    @property
    def mcp_config(self) -> Sequence[str]: ...
    @property
    def system_prompt(self) -> str | None: ...
    @property
    def append_system_prompt(self) -> str | None: ...
    @property
    def add_dirs(self) -> Sequence[str]: ...
    @property
    def extra_args(self) -> Sequence[str]: ...


class WarmAgent(Protocol):
    clear_command: str
    """Starts a new conversation when it is typed as a command."""

    def check_prompt(self, prompt: str) -> None:
        """Raise `InputError` for a prompt that cannot be typed."""

    def refusals(self, options: WorkerOptions, *, terminal: bool = False) -> list[str]:
        """Return why no worker can honour `extra_args`, one reason each. `terminal`: on that backend."""

    def arguments(self, options: WorkerOptions) -> list[str]:
        """Return the words after the program's name. Raises `InvalidOptions` if one cannot be passed."""

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> list[str]:
        """Return the words for a terminal at which no human sits. `asks`: the caller answers questions."""

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the options of a profile that these words set, and the words that set none."""

    def is_denial(self, content: object) -> bool:
        """Return whether a tool's error says that its permission was denied because no one can decide."""

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        """Return what the running agent calls its kind of session, or None if it does not say."""


# ── requests ──


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one request used. Each API message counts once."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request has used so far. Only its limits see it."""

    usage: Usage


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


# ── what comes back ──


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


SessionEvent = Token | ToolUse | ToolResult | PermissionRequest | Raw | Spent | Answered


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as a worker gets it."""

    id: str
    prompt: str
    decide: PermissionHandler
    """Called for every permission request; returns in a bounded time."""
    raw: bool = False
    """Whether `Raw` events are wanted."""
    counted: bool = False
    """Whether `Spent` events are wanted, and the answer with its usage."""


# ── workers ──


class ExitListeners:
    """Those that hear, once, that a worker can no longer be used."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str], None]] = []
        self._is_over = False

    def add(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def report(self, detail: str) -> None:
        if not self._is_over:
            self._is_over = True
            for listener in self._listeners:
                listener(detail)

    def silence(self) -> None:
        """Report nothing from here on: the worker is being closed."""
        self._is_over = True


class WorkerProfile(WorkerOptions, Protocol):
    """What a worker is started with."""

    @property
    def program(self) -> Sequence[str]:
        """Return the words that start the agent, before its flags."""

    @property
    def binary(self) -> str: ...
    @property
    def cwd(self) -> str: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def asks(self) -> bool:
        """Whether permission requests go to the caller; else they are denied."""


class PoolWorker(Protocol):
    """One agent process. The pool calls `open` once, then `run` and `renew` in turn, and `close` in any case.

    Every wait here is bounded. Whatever a method leaves running when it raises, `close` ends.
    """

    id: str
    """`s_` and twelve hex digits."""

    async def open(self, timeout: float) -> None:
        """Start the agent and return when it is ready with a new conversation.

        Raises `SpawnTimeout`, `SpawnFailed`, `CommandNotFound` or `InvalidOptions`.
        """

    def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        """Run one turn and yield its events; `Answered` is the last.

        Raises `AgentError`, and `SessionCrashed` as soon as the process ends. The pool limits the time. If it
        stops iterating early, it calls `interrupt`.
        """

    async def interrupt(self, timeout: float) -> bool:
        """Stop the running turn. Return whether the agent confirmed that, so that `renew` may follow."""

    async def usage(self, timeout: float) -> Usage | None:
        """Return the usage of the last turn, if the answer came before it was known. Before `renew`."""

    async def renew(self, timeout: float) -> None:
        """Start a new conversation and return when the agent has confirmed it.

        Raises `SessionDirty` if something of the old conversation survives; `SessionCrashed`; `WaitTimeout`.
        """

    async def close(self, timeout: float) -> None:
        """End the agent and all processes it started. May be called at any time, repeatedly; never raises."""

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Call `listener` once when the worker can no longer be used, also between two requests.

        That is when its process exits by itself, with its last output, or when something happens between two
        requests that makes it unusable, with the reason. It is called at that moment.
        """
