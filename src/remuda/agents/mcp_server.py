"""Our MCP server in the configuration of an agent: what runs it, and files with a JSON object of servers.

An agent starts it for each of its sessions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from remuda.errors import InvalidOptions
from remuda.paths import FOLDER_VARIABLE

from . import json_text
from .settings_file import SettingsText

NAME = "remuda"
_MODULE = ["-P", "-m", "remuda", "mcp"]
VARIABLES = ("REMUDA_SESSION", FOLDER_VARIABLE, "REMUDA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""What the server needs of the agent's environment. An agent may pass only what its configuration names."""


def server_command() -> list[str]:
    """Return the command. -P: a file of the working folder must not be imported in place of ours."""
    return [sys.executable, *_MODULE]


def is_ours(command: object, arguments: object) -> bool:
    """Return whether this runs our server: as we write it, or as a user would."""
    if arguments == _MODULE:
        return True
    return isinstance(command, str) and PurePath(command).name == "remuda" and arguments == ["mcp"]


class McpJsonFile(SettingsText):
    """A JSON file whose member `place` has the servers by name.

    A subclass says what an entry looks like. Everything else in the file is kept to the byte.
    """

    place: str
    remove_hint: str

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._wanted = self._text
        self._find(self._text)

    def entry(self) -> dict[str, Any]:
        """Return our entry."""
        raise NotImplementedError

    def command_of(self, entry: Mapping[str, Any]) -> tuple[object, object]:
        """Return command and arguments of an entry."""
        return entry.get("command"), entry.get("args")

    def _find(self, text: str | None) -> Mapping[str, Any] | None:
        """Return our entry; None if there is none. Raises `InvalidOptions` if the text is not valid."""
        if not (text or "").strip():
            return None
        try:
            document = json_text.parse(text or "").value
        except (ValueError, RecursionError) as error:
            hint = "fix it first; nothing was changed"
            raise InvalidOptions(f"{self.path} is not valid JSON: {error}", hint=hint) from None
        servers = document.get(self.place)
        entry = servers.get(NAME) if isinstance(servers, dict) else None
        return entry if isinstance(entry, dict) and is_ours(*self.command_of(entry)) else None

    @property
    def had_hooks(self) -> bool:
        return self._find(self._text) is not None

    @property
    def has_hooks(self) -> bool:
        return self._find(self._wanted) is not None

    has_mcp_server = has_hooks

    def texts(self) -> tuple[str | None, str | None]:
        return self._text, self._wanted

    def add_mcp_server(self) -> None:
        if self._find(self._wanted) == self.entry():
            return
        self.remove_mcp_server()
        text = self._wanted if (self._wanted or "").strip() else "{}\n"
        servers = json_text.parse(text or "").value.get(self.place, {})
        if not isinstance(servers, dict):
            raise InvalidOptions(f"{self.path}: '{self.place}' must be an object", hint="fix it first")
        if NAME in servers:
            raise InvalidOptions(
                f"{self.path}: '{self.place}.{NAME}' is another server", hint=self.remove_hint
            )
        self._wanted = json_text.add_member(text or "", (self.place, NAME), self.entry())

    def remove_mcp_server(self) -> bool:
        if self._wanted is None or self._find(self._wanted) is None:
            return False
        self._wanted = json_text.remove_member(self._wanted, (self.place, NAME))
        return True
