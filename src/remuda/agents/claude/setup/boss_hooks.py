"""The boss's hooks in the document of a settings file: make, recognise, add and remove them. Pure.

All but two are `async`: the CLI starts them and continues (2.1.325). It waits for the hook that reports the
end of a session, which would be killed with the session otherwise. It also waits for the hook that reports a
permission request. While it waits it shows its dialog, and it takes the first decision.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.agents import settings_file

WAIT = 43_200
"""Seconds in which a permission request can be decided elsewhere. After that only in the terminal."""
_TIMEOUT = 10
ASYNC_EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionDenied",
    "Notification",
    "Stop",
    "StopFailure",
)
EVENTS = (*ASYNC_EVENTS, "SessionEnd", "PermissionRequest")
_GUARD = ["[", "-f", "$h", "]", "&&"]
_FLAGS = ["-I", "-S", "$h"]
_SCRIPTS = ("remuda/boss/hook.py", "remuda/boss/hook.sh")


@dataclass(frozen=True, slots=True)
class BossHook:
    """One hook of ours, read from its command."""

    event: str
    interpreter: str
    script: str
    folder: str
    """The boss's folder, with its socket."""


def make_hooks(interpreter: str, scripts: str, folder: str) -> dict[str, dict[str, Any]]:
    """Return the hooks by event, as in the settings. `scripts`: the folder of the programs that they run."""
    python, place = shlex.quote(interpreter), shlex.quote(folder)
    quick = f'h={shlex.quote(f"{scripts}/hook.sh")} p={python} b={place}; [ -f "$h" ] && . "$h"'
    permission = f'h={shlex.quote(f"{scripts}/hook.py")}; [ -f "$h" ] && exec {python} -I -S "$h" {place}'
    hook = {"type": "command", "command": quick, "timeout": _TIMEOUT}
    hooks: dict[str, dict[str, Any]] = {event: {**hook, "async": True} for event in ASYNC_EVENTS}
    hooks["SessionEnd"] = hook
    hooks["PermissionRequest"] = {**hook, "command": f"{permission} --wait {WAIT}", "timeout": WAIT + 60}
    return hooks


def read_hook(event: str, hook: object) -> BossHook | None:
    """Return the parts of one of our hooks; None if it is not ours."""
    command = hook.get("command") if isinstance(hook, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return None
    parts = _read_quick(words) or _read_permission(words)
    return BossHook(event, *parts) if parts and parts[1].endswith(_SCRIPTS) else None


def _read_quick(words: list[str]) -> tuple[str, str, str] | None:
    """Return interpreter, script and folder; None for a command of another form."""
    if [word[:2] for word in words[:3]] != ["h=", "p=", "b="] or words[3:] != [*_GUARD, ".", "$h"]:
        return None
    script, interpreter, folder = (word[2:] for word in words[:3])
    return interpreter, script, folder.removesuffix(";")


def _read_permission(words: list[str]) -> tuple[str, str, str] | None:
    if words[1:7] != [*_GUARD, "exec"] or words[8:11] != _FLAGS or len(words) < 12:
        return None
    return words[7], words[0].removeprefix("h=").removesuffix(";"), words[11]


def find_hooks(document: Mapping[str, Any]) -> list[BossHook]:
    return [ours for event, hook in settings_file.listed_hooks(document) if (ours := read_hook(event, hook))]


def put_hooks(document: dict[str, Any], hooks: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the hooks in place of older ones of ours. Raises `InvalidOptions` if the document has no place."""
    settings_file.put_hooks(document, hooks, _is_ours)


def take_hooks(document: dict[str, Any]) -> list[BossHook]:
    """Remove our hooks. Return what was removed."""
    taken = find_hooks(document)
    settings_file.remove_hooks(document, _is_ours)
    return taken


def _is_ours(event: str, hook: object) -> bool:
    return read_hook(event, hook) is not None
