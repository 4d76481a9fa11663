"""What the pool asks of an agent whose process serves many requests on one terminal.

`Agent.warm` is None for a program that cannot do this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from remuda.arguments import shown
from remuda.errors import InvalidOptions

from . import agent_names, find_agent, is_agent


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


def find_warm(name: object) -> WarmAgent:
    """Return the part of an agent that a pool uses. Raises `InvalidOptions` if it has none."""
    warm = find_agent(str(name)).warm if is_agent(name) else None
    if warm is None:
        usable = [known for known in agent_names() if find_agent(known).warm is not None]
        raise InvalidOptions(f"agent must be one of {', '.join(usable)}, not {shown(name)}")
    return warm
