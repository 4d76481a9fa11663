"""The boss's plugin for opencodes that users start themselves, and our MCP server, as an `AgentSetup`.

opencode has no hooks that run commands. It loads every file in `plugins/` of its configuration folder
(1.18.33); ours is `remuda.js`. It starts `boss/hook.py` for each event, and waits for none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.agents.hook_setup import BossCommand, HookSetup, OwnHookFile
from remuda.agents.mcp_server import McpJsonFile, server_command
from remuda.agents.setup import Scope
from remuda.errors import InvalidOptions
from remuda.untrusted import parse_json

_AGENT = "opencode"
_PLUGIN = Path(__file__).with_name("plugin.js")
_COMMAND = "const COMMAND = "
_MARK = "// Reports the sessions of opencode to the boss of Remuda."
EVENTS = ("plugin",)


def make_plugin(boss_folder: Path) -> str:
    """Return the text of our plugin."""
    words = json.dumps(BossCommand.own(boss_folder).words(_AGENT), ensure_ascii=False)
    return _PLUGIN.read_text().replace(f"{_COMMAND}[] // from here", f"{_COMMAND}{words}", 1)


def read_plugin(text: str) -> BossCommand | None:
    """Return what a plugin of ours runs; None if it is not ours."""
    if not text.startswith(_MARK):
        return None
    line = next((line for line in text.splitlines() if line.startswith(_COMMAND)), "")
    try:
        words = parse_json(line.removeprefix(_COMMAND))
    except ValueError:
        return None
    is_ours = isinstance(words, list) and len(words) == 7 and all(isinstance(word, str) for word in words)
    return BossCommand(words[0], words[3], words[4]) if is_ours else None


class OpencodePluginFile(OwnHookFile):
    agent = _AGENT
    events = EVENTS

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if self._text and not self.commands():
            raise InvalidOptions(f"{path} is not a plugin of ours", hint="move it elsewhere")

    def commands(self) -> dict[str, BossCommand]:
        ours = read_plugin(self._text or "")
        return {} if ours is None else dict.fromkeys(EVENTS, ours)

    def content(self, boss_folder: Path) -> str:
        return make_plugin(boss_folder)


class OpencodeMcpFile(McpJsonFile):
    """`opencode.json`, which opencode merges with `opencode.jsonc`. Both may have comments."""

    agent = _AGENT
    place = "mcp"
    remove_hint = "rename or remove that entry first"

    def entry(self) -> dict[str, Any]:
        return {"type": "local", "command": server_command(), "enabled": True}

    def command_of(self, entry: Mapping[str, Any]) -> tuple[object, object]:
        command = entry.get("command")
        return (command[0], command[1:]) if isinstance(command, list) and command else (None, None)


class OpencodeSetup(HookSetup):
    agent = _AGENT
    events = EVENTS
    folder_variables: tuple[str, ...] = ("XDG_CONFIG_HOME",)
    after_install = (
        "opencode installs its package for plugins when it starts the next time, which takes a while; "
        "without a network it waits up to two minutes"
    )

    def home(self) -> Path:
        own = os.environ.get("HOME") or os.path.expanduser("~")
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path(own, ".config")) / "opencode"

    def settings_path(self, scope: Scope) -> Path:
        return self.home() / "plugins" / "remuda.js"

    def mcp_path(self) -> Path:
        return self.home() / "opencode.json"

    def open_hooks(self, path: Path) -> OpencodePluginFile:
        return OpencodePluginFile(path)

    def open_mcp(self, path: Path) -> OpencodeMcpFile:
        return OpencodeMcpFile(path)
