"""The boss's hooks for copilots that users start themselves, and our MCP server, as an `AgentSetup`.

Copilot reads every file in `$COPILOT_HOME/hooks` (1.0.102). Ours is `remuda.json`, with nothing else in it.
A permission request is only reported: while a hook waits, copilot shows no dialog at the terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.agents.hook_setup import TIMEOUT, BossCommand, HookSetup, OwnHookFile, read_command
from remuda.agents.mcp_server import McpJsonFile, server_command
from remuda.agents.setup import Scope
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects, parse_json

from .files import HOME_VARIABLE, copilot_home

_AGENT = "copilot"
EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolUseFailure",
    "Notification",
    "Stop",
    "SessionEnd",
)


def make_hooks(boss_folder: Path) -> dict[str, Any]:
    """Return the content of our file."""
    command = BossCommand.own(boss_folder).shell(_AGENT)
    hook = {"type": "command", "bash": command, "timeoutSec": TIMEOUT}
    return {"version": 1, "hooks": {event: [hook] for event in EVENTS}}


def _read_hooks(document: Mapping[str, Any]) -> dict[str, BossCommand]:
    """Return our hooks by event. Raises `InvalidOptions` if the file has another's."""
    found: dict[str, BossCommand] = {}
    for event, hooks in as_object(document.get("hooks")).items():
        for hook in as_objects(hooks):
            ours = read_command(hook.get("bash"), _AGENT)
            if ours is None:
                raise InvalidOptions(f"it has a hook for {event} that is not ours", hint="move it elsewhere")
            found[event] = ours
    return found


class CopilotHooksFile(OwnHookFile):
    """Our file in the folder of hooks."""

    agent = _AGENT
    events = EVENTS

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commands()

    def commands(self) -> dict[str, BossCommand]:
        try:
            document = parse_json(self._text) if self._text else {}
            return _read_hooks(as_object(document))
        except (ValueError, InvalidOptions) as error:
            raise InvalidOptions(f"{self.path}: {error}", hint="nothing was changed") from None

    def content(self, boss_folder: Path) -> str:
        return json.dumps(make_hooks(boss_folder), indent=2) + "\n"


class CopilotMcpFile(McpJsonFile):
    """`mcp-config.json`; `copilot mcp add` writes the same (1.0.102)."""

    agent = _AGENT
    place = "mcpServers"
    remove_hint = "remove it first: copilot mcp remove remuda"

    def entry(self) -> dict[str, Any]:
        program, *arguments = server_command()
        return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}


class CopilotSetup(HookSetup):
    agent = _AGENT
    events = EVENTS
    folder_variables: tuple[str, ...] = (HOME_VARIABLE,)
    version_flags = ("--version", "--no-auto-update")

    def home(self) -> Path:
        return copilot_home(os.environ)

    def settings_path(self, scope: Scope) -> Path:
        """Return our file. It is for every session of the user: copilot asks before it trusts a project's."""
        return self.home() / "hooks" / "remuda.json"

    def mcp_path(self) -> Path:
        return self.home() / "mcp-config.json"

    def open_hooks(self, path: Path) -> CopilotHooksFile:
        return CopilotHooksFile(path)

    def open_mcp(self, path: Path) -> CopilotMcpFile:
        return CopilotMcpFile(path)
