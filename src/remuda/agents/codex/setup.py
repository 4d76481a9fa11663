"""The boss's hooks in codex's `hooks.json`, and our MCP server in its `config.toml`, as an `AgentSetup`.

codex runs no hook that its user did not trust: it shows each that is new or changed, and asks (0.166.0). We
never write that a hook is trusted. A permission request is only reported: while a hook waits, codex shows no
dialog at the terminal.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remuda.agents.hook_setup import TIMEOUT, BossCommand, HookSettings, HookSetup, read_command
from remuda.agents.mcp_server import NAME, VARIABLES, is_ours, server_command
from remuda.agents.settings_file import SettingsFile, SettingsText, listed_hooks, put_hooks, remove_hooks
from remuda.agents.setup import Scope
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object

from .files import codex_home

_AGENT = "codex"
EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PermissionRequest",
    "Stop",
    "Interrupt",
    "SessionEnd",
)
_TABLE = re.compile(rf"""[ \t]*\[[ \t]*mcp_servers[ \t]*\.[ \t]*["']?{NAME}["']?[ \t]*[\].]""")
_BY_HAND = f"use codex itself: codex mcp add {NAME} -- remuda mcp; codex mcp remove {NAME}"


def _command_of(hook: object) -> BossCommand | None:
    return read_command(hook.get("command"), _AGENT) if isinstance(hook, dict) else None


def _is_ours(_event: str, hook: object) -> bool:
    return _command_of(hook) is not None


class CodexHooksFile(SettingsFile, HookSettings):
    agent = _AGENT

    def commands(self) -> dict[str, BossCommand]:
        return _commands(self.saved_document())

    @property
    def had_hooks(self) -> bool:
        return bool(self.commands())

    @property
    def has_hooks(self) -> bool:
        return bool(_commands(self.document))

    def add_boss_hooks(self, boss_folder: Path) -> int:
        command = BossCommand.own(boss_folder).shell(_AGENT)
        hook = {"type": "command", "command": command, "timeout": TIMEOUT}
        try:
            put_hooks(self.document, dict.fromkeys(EVENTS, hook), _is_ours)
        except InvalidOptions as error:
            raise InvalidOptions(f"{self.path}: {error.message}", hint=error.hint) from None
        return len(EVENTS)

    def remove_boss_hooks(self) -> int:
        count = len(_commands(self.document))
        remove_hooks(self.document, _is_ours)
        return count


def _commands(document: dict[str, Any]) -> dict[str, BossCommand]:
    return {event: ours for event, hook in listed_hooks(document) if (ours := _command_of(hook))}


# ── config.toml ──


def _toml_list(words: Sequence[str]) -> str:
    return f"[{', '.join(json.dumps(word, ensure_ascii=False) for word in words)}]"


def make_table() -> str:
    """Return our server as a table. codex passes only the variables that are named (0.166.0)."""
    program, *arguments = server_command()
    lines = [
        f"[mcp_servers.{NAME}]",
        f"command = {json.dumps(program, ensure_ascii=False)}",
        f"args = {_toml_list(arguments)}",
        f"env_vars = {_toml_list(VARIABLES)}",
    ]
    return "\n".join(lines) + "\n"


def without_table(text: str) -> str:
    """Return the text without the tables of our server, and without the empty line before each."""
    kept: list[str] = []
    in_table = False
    for line in text.splitlines(keepends=True):
        if _TABLE.match(line):
            in_table = True
            if kept and not kept[-1].strip():
                kept.pop()
        elif in_table and (not line.strip() or line.lstrip().startswith(("[", "#"))):
            in_table = False
        if not in_table:
            kept.append(line)
    return "".join(kept)


class CodexConfigFile(SettingsText):
    """`config.toml`. Our table is added at its end; everything else stays as it is, to the byte."""

    agent = _AGENT

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._wanted = self._text
        self._servers(self._text)

    def _document(self, text: str | None) -> dict[str, Any]:
        try:
            return tomllib.loads((text or "").removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            hint = "fix it first; nothing was changed"
            raise InvalidOptions(f"{self.path} is not valid TOML: {error}", hint=hint) from None

    def _servers(self, text: str | None) -> dict[str, Any]:
        return as_object(self._document(text).get("mcp_servers"))

    def _has_server(self, text: str | None) -> bool:
        entry = as_object(self._servers(text).get(NAME))
        return is_ours(entry.get("command"), entry.get("args"))

    @property
    def had_hooks(self) -> bool:
        return self._has_server(self._text)

    @property
    def has_hooks(self) -> bool:
        return self._has_server(self._wanted)

    has_mcp_server = has_hooks

    def texts(self) -> tuple[str | None, str | None]:
        return self._text, self._wanted

    def add_mcp_server(self) -> None:
        table = make_table()
        own = tomllib.loads(table)["mcp_servers"][NAME]
        if self._servers(self._wanted).get(NAME) == own:
            return
        self.remove_mcp_server()
        if NAME in self._servers(self._wanted):
            raise InvalidOptions(f"{self.path}: 'mcp_servers.{NAME}' is another server", hint=_BY_HAND)
        text = self._wanted or ""
        text += "\n" if text and not text.endswith("\n") else ""
        added = text + ("\n" if text else "") + table
        try:
            tomllib.loads(added.removeprefix("\ufeff"))
        except ValueError:  # a table in braces cannot be added to
            raise InvalidOptions(
                f"{self.path}: no table can be added to 'mcp_servers'", hint=_BY_HAND
            ) from None
        self._wanted = added

    def remove_mcp_server(self) -> bool:
        if self._wanted is None or not self._has_server(self._wanted):
            return False
        document, left = self._document(self._wanted), without_table(self._wanted)
        del document["mcp_servers"][NAME]
        if not document["mcp_servers"]:
            del document["mcp_servers"]
        try:
            is_right = tomllib.loads(left.removeprefix("\ufeff")) in (
                document,
                {**document, "mcp_servers": {}},
            )
        except ValueError:
            is_right = False
        if not is_right:
            raise InvalidOptions(f"{self.path}: 'mcp_servers.{NAME}' was written by hand", hint=_BY_HAND)
        self._wanted = left
        return True


class CodexSetup(HookSetup):
    agent = _AGENT
    events = EVENTS
    folder_variables: tuple[str, ...] = ("CODEX_HOME",)
    after_install = (
        "codex runs these hooks when you trust them: start codex, and review them or choose "
        "'Trust all and continue'"
    )

    def home(self) -> Path:
        return codex_home(os.environ)

    def settings_path(self, scope: Scope) -> Path:
        return self.home() / "hooks.json"

    def mcp_path(self) -> Path:
        return self.home() / "config.toml"

    def open_hooks(self, path: Path) -> CodexHooksFile:
        return CodexHooksFile(path)

    def open_mcp(self, path: Path) -> CodexConfigFile:
        return CodexConfigFile(path)
