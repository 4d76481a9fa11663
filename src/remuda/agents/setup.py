"""How Remuda is installed in an agent's own settings, and what `remuda doctor` checks about the agent.

An agent that has settings files returns an `AgentSetup` from `Agent.setup`. The commands `hooks`, `setup`,
`doctor` and `status` know nothing else about those files.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Scope = Literal["user", "project", "local"]
"""Whose settings: the user's for every project, the project's, or the user's for this project."""


class Finding(NamedTuple):
    """One result of a check of `remuda doctor`."""

    level: Literal["ok", "note", "fail"]
    what: str
    fix: str = ""


class InboxHook(NamedTuple):
    """A Stop hook of ours in a settings file, and what is wrong with it."""

    path: Path
    command: str
    inbox: str
    """Empty if the command names none."""
    mode: str
    interpreter: str
    """Empty if the command has no path of one."""
    script: str
    timeout: float
    problems: list[str]

    @property
    def fix(self) -> str:
        """Return the command that repairs the hook."""
        words = ["remuda", "hooks", "install", "--inbox", self.inbox or "PATH"]
        words += ["--mode", "persist"] if self.mode == "persist" else []
        return shlex.join([*words, "--settings", str(self.path)])


class BossHooks(NamedTuple):
    """The boss's hooks in one settings file, and what is wrong with them."""

    path: Path
    events: list[str]
    folder: str
    """The folder of the boss that they report to."""
    problems: list[str]

    @property
    def fix(self) -> str:
        """Return the command that repairs the hooks."""
        return f"remuda hooks install --boss --settings {self.path}"


class AddedInboxHook(NamedTuple):
    command: str
    lifted_cap: str
    """The name of the variable that was set to lift the agent's cap on blocked stops; empty if none was."""


class RemovedInboxHooks(NamedTuple):
    hooks: list[str]
    """The inbox of each removed hook, or its command if it names no inbox."""
    is_last: bool
    """Whether no Stop hook of ours is left."""
    restored_cap: str
    """The name of the variable that was removed to restore the cap; empty if none was."""


class AgentSettings(Protocol):
    """One settings file of an agent. Changes stay in memory until `save`."""

    path: Path
    real: Path
    """The file that is written, if `path` is a link."""

    @property
    def had_hooks(self) -> bool:
        """Whether the saved file has hooks of ours."""

    @property
    def has_hooks(self) -> bool:
        """Whether it has hooks of ours with the changes in memory."""

    def texts(self) -> tuple[str | None, str | None]:
        """Return the text of the file now and after `save`; None for a file that does not exist."""

    def save(self) -> bool:
        """Write the changes. Return whether there were any."""

    def write(self, text: str | None) -> None:
        """Replace the file; None removes it. Raises `InvalidOptions` if another program changed it first."""

    def add_inbox_hook(self, arguments: Sequence[str], *, timeout: float, keep_cap: bool) -> AddedInboxHook:
        """Add a Stop hook that runs our program with `arguments`, or replace the one for the same inbox.

        `timeout`: how long the hook may take, if that is longer than usual. `keep_cap`: do not lift the
        agent's cap on stops that a hook may block in a row. Raises `InvalidOptions`.
        """

    def remove_inbox_hooks(self, inbox: str | None, *, restore_cap: bool) -> RemovedInboxHooks:
        """Remove the Stop hook for this inbox, or all of ours. `restore_cap`: with the last one."""

    def add_boss_hooks(self, boss_folder: Path) -> int:
        """Add the boss's hooks in place of older ones. Return their number. Raises `InvalidOptions`."""

    def remove_boss_hooks(self) -> int:
        """Return how many were removed."""

    @property
    def has_mcp_server(self) -> bool:
        """Whether it has our MCP server with the changes in memory."""

    def add_mcp_server(self) -> None:
        """Add our MCP server (`remuda mcp`). Raises `InvalidOptions` if another one has its name."""

    def remove_mcp_server(self) -> bool:
        """Return whether there was one."""


class AgentSetup(Protocol):
    """The settings files of one agent, and what is checked about it."""

    folder_variables: tuple[str, ...]
    """Environment variables that move the agent's files. A service of the boss needs them."""

    def settings_path(self, scope: Scope) -> Path:
        """Return the file with our hooks."""

    def mcp_path(self) -> Path | None:
        """Return the file with the user's MCP servers; None if the agent has none that we know."""

    def open_settings(self, path: Path) -> AgentSettings:
        """Raises `InvalidOptions` for a file that cannot be read or is not valid."""

    def broken_settings(self, only: Path | None = None) -> list[Path]:
        """Return the settings files that apply here, or `only`, if the agent cannot read them."""

    def inbox_hooks(self, only: Path | None = None) -> list[InboxHook]:
        """Return our Stop hooks in the settings files that apply here, or in `only`."""

    def boss_hooks(self, boss_folder: Path, only: Path | None = None) -> list[BossHooks]:
        """Return the boss's hooks in the settings files that apply here, or in `only`.

        `boss_folder`: hooks that report to another boss have that as a problem.
        """

    def check_program(self) -> Iterator[Finding]:
        """Check whether the agent is installed, and in which version."""

    def check_hooks(self, boss_folder: Path) -> Iterator[Finding]:
        """Check the hooks in the settings that apply here: ours, and others whose program is missing."""

    def launch_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for a command of the user that may start this agent.

        It has no identity of an agent that runs us, and no cap on blocked stops.
        """


def same_path(one: str, other: str) -> bool:
    """Whether two names of an inbox mean the same file. An empty name means none."""
    return bool(one) and os.path.normpath(one) == os.path.normpath(other)
