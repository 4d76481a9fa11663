"""The boss's hooks for copilots that users start themselves, as an `AgentSetup`.

Copilot reads every file in `$COPILOT_HOME/hooks` (1.0.102). Ours is `remuda.json`, with nothing else in it.
A permission request is only reported: while a hook waits, copilot shows no dialog at the terminal.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.setup import (
    AddedInboxHook,
    BossHooks,
    Finding,
    InboxHook,
    RemovedInboxHooks,
    Scope,
)
from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects, parse_json

from .files import HOME_VARIABLE, copilot_home

EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolUseFailure",
    "Notification",
    "Stop",
    "SessionEnd",
)
FILE = "remuda.json"
_PROGRAM = Path(__file__).parents[2] / "boss" / "hook.py"
_TIMEOUT = 10
_NO_MCP = "this file is for hooks; add the server with 'copilot mcp'"
_NO_INBOX = "copilot has no inbox hook; messages need a session that Remuda keeps ('remuda start')"


def make_hooks(boss_folder: Path) -> dict[str, Any]:
    """Return the content of our file."""
    words = [sys.executable, "-I", "-S", str(_PROGRAM), str(boss_folder), "--agent", "copilot"]
    command = f"[ -f {shlex.quote(str(_PROGRAM))} ] && exec {shlex.join(words)} || exit 0"
    hook = {"type": "command", "bash": command, "timeoutSec": _TIMEOUT}
    return {"version": 1, "hooks": {event: [hook] for event in EVENTS}}


def _read_hooks(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the words of our hooks by event. Raises `InvalidOptions` if the file has another's."""
    found: dict[str, list[str]] = {}
    for event, hooks in as_object(document.get("hooks")).items():
        for hook in as_objects(hooks):
            words = shlex.split(str(hook.get("bash", "")))
            if words[11:] != ["--agent", "copilot", "||", "exit", "0"] or words[4:6] != ["&&", "exec"]:
                raise InvalidOptions(f"it has a hook for {event} that is not ours", hint="move it elsewhere")
            found[event] = words[6:11]
    return found


class CopilotHooksFile:
    """Our file in the folder of hooks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.real = Path(os.path.realpath(path))
        self._text = self._read()
        self._wanted = self._text
        self._hooks()

    def _read(self) -> str | None:
        try:
            return read_regular(self.real).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOptions(f"cannot read {self.path}: {error}", hint="nothing was changed") from error

    def _hooks(self) -> dict[str, list[str]]:
        try:
            document = parse_json(self._text) if self._text else {}
            return _read_hooks(as_object(document))
        except (ValueError, InvalidOptions) as error:
            raise InvalidOptions(f"{self.path}: {error}", hint="nothing was changed") from None

    @property
    def had_hooks(self) -> bool:
        return bool(self._hooks())

    @property
    def has_hooks(self) -> bool:
        return bool(self._wanted)

    def texts(self) -> tuple[str | None, str | None]:
        return self._text, self._wanted

    def save(self) -> bool:
        if self._wanted == self._text:
            return False
        self.write(self._wanted)
        return True

    def write(self, text: str | None) -> None:
        if self._read() != self._text:
            raise InvalidOptions(
                f"{self.path} was changed by another program at the same time", hint="try again"
            )
        if text is None:
            self.real.unlink(missing_ok=True)
        else:
            self.real.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.real, text.encode(), 0o600)
        self._text = text

    def add_inbox_hook(self, arguments: Sequence[str], *, timeout: float, keep_cap: bool) -> AddedInboxHook:
        raise InvalidOptions(_NO_INBOX)

    def remove_inbox_hooks(self, inbox: str | None, *, restore_cap: bool) -> RemovedInboxHooks:
        return RemovedInboxHooks([], is_last=False, restored_cap="")

    def add_boss_hooks(self, boss_folder: Path) -> int:
        self._wanted = json.dumps(make_hooks(boss_folder), indent=2) + "\n"
        return len(EVENTS)

    def remove_boss_hooks(self) -> int:
        count, self._wanted = len(self._hooks()), None
        return count

    has_mcp_server = False

    def add_mcp_server(self) -> None:
        raise InvalidOptions(_NO_MCP)

    def remove_mcp_server(self) -> bool:
        return False


class CopilotSetup:
    folder_variables: tuple[str, ...] = (HOME_VARIABLE,)

    def settings_path(self, scope: Scope) -> Path:
        """Return our file. It is for every session of the user: copilot asks before it trusts a project's."""
        return copilot_home(os.environ) / "hooks" / FILE

    def mcp_path(self) -> Path | None:
        return None

    def is_used(self) -> bool:
        """Return whether this user has copilot."""
        return copilot_home(os.environ).is_dir()

    def open_settings(self, path: Path) -> CopilotHooksFile:
        return CopilotHooksFile(path)

    def broken_settings(self, only: Path | None = None) -> list[Path]:
        return [path for path in self._files(only) if _is_broken(path)]

    def inbox_hooks(self, only: Path | None = None) -> list[InboxHook]:
        return []

    def boss_hooks(self, boss_folder: Path, only: Path | None = None) -> list[BossHooks]:
        groups = []
        for path in self._files(only):
            if not _is_broken(path) and (hooks := CopilotHooksFile(path)._hooks()):
                folder = next(iter(hooks.values()))[4]
                groups.append(
                    BossHooks(path, list(hooks), folder, list(_problems(hooks, folder, boss_folder)))
                )
        return groups

    def _files(self, only: Path | None) -> list[Path]:
        own = self.settings_path("user")
        return [own] if only is None or only == own else []

    def launch_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(environ)

    # ── what doctor checks ──

    def check_program(self) -> Iterator[Finding]:
        path = shutil.which("copilot")
        if path is None:
            return
        try:
            done = subprocess.run(
                [path, "--version", "--no-auto-update"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            version = done.stdout.strip().partition("\n")[0] or "of unknown version"
            yield Finding("ok", f"copilot: {version} at {path}")
        except (OSError, subprocess.TimeoutExpired) as error:
            yield Finding("fail", f"{path} does not answer: {error}", "reinstall GitHub Copilot CLI")

    def check_hooks(self, boss_folder: Path) -> Iterator[Finding]:
        for path in self.broken_settings():
            yield Finding("note", f"{path} cannot be read, so its hooks do not run", "remove the file")
        for group in self.boss_hooks(boss_folder):
            where = f"the boss's hooks in {group.path}"
            yield from (Finding("note", f"{where}: {problem}", group.fix) for problem in group.problems)
            if not group.problems:
                yield Finding("ok", where)


def _is_broken(path: Path) -> bool:
    try:
        CopilotHooksFile(path)
    except InvalidOptions:
        return True
    return False


def _problems(hooks: Mapping[str, list[str]], folder: str, boss_folder: Path) -> Iterator[str]:
    words = next(iter(hooks.values()))
    if not Path(words[0]).exists():
        yield f"its interpreter {words[0]} is gone"
    if not Path(words[3]).exists():
        yield f"its program {words[3]} is gone"
    if folder != str(boss_folder):
        yield f"it reports to another boss, in {folder}"
    if missing := [event for event in EVENTS if event not in hooks]:
        yield f"the hooks for {', '.join(missing)} are missing"
