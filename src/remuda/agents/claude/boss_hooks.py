"""The boss's hooks in Claude Code's settings: how they are written, recognised, put in and taken out. Pure.

All but two are `async`: the CLI starts them and goes on (2.1.325). It waits for the one that tells the end of
a session, which would be killed with it otherwise, and for the one that asks leave: it shows its dialog all
the while, and takes the answer of whoever is first.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.errors import InvalidOptions

WAIT = 43_200
"""Seconds for which a request for leave can be answered from elsewhere. Then it is the terminal's alone."""
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
    """One of ours, as its command tells."""

    event: str
    interpreter: str
    script: str
    folder: str
    """The boss's, where its socket is."""


def make_hooks(interpreter: str, scripts: str, folder: str) -> dict[str, dict[str, Any]]:
    """By event, as the settings hold them. `scripts` is the folder of the programs that they run."""
    python, place = shlex.quote(interpreter), shlex.quote(folder)
    quick = f'h={shlex.quote(f"{scripts}/hook.sh")} p={python} b={place}; [ -f "$h" ] && . "$h"'
    asking = f'h={shlex.quote(f"{scripts}/hook.py")}; [ -f "$h" ] && exec {python} -I -S "$h" {place}'
    hook = {"type": "command", "command": quick, "timeout": _TIMEOUT}
    made: dict[str, dict[str, Any]] = {event: {**hook, "async": True} for event in ASYNC_EVENTS}
    made["SessionEnd"] = hook
    made["PermissionRequest"] = {**hook, "command": f"{asking} --wait {WAIT}", "timeout": WAIT + 60}
    return made


def read_hook(event: str, hook: object) -> BossHook | None:
    """None if it is not ours."""
    command = hook.get("command") if isinstance(hook, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return None
    found = _quick(words) or _asking(words)
    return BossHook(event, *found) if found and found[1].endswith(_SCRIPTS) else None


def _quick(words: list[str]) -> tuple[str, str, str] | None:
    """Interpreter, script and folder of a command of that form."""
    if [word[:2] for word in words[:3]] != ["h=", "p=", "b="] or words[3:] != [*_GUARD, ".", "$h"]:
        return None
    script, interpreter, folder = (word[2:] for word in words[:3])
    return interpreter, script, folder.removesuffix(";")


def _asking(words: list[str]) -> tuple[str, str, str] | None:
    if words[1:7] != [*_GUARD, "exec"] or words[8:11] != _FLAGS or len(words) < 12:
        return None
    return words[7], words[0].removeprefix("h=").removesuffix(";"), words[11]


def find_hooks(document: Mapping[str, Any]) -> list[BossHook]:
    events = document.get("hooks")
    return [
        found
        for event, groups in (events.items() if isinstance(events, dict) else ())
        for hook in _listed(groups)
        if (found := read_hook(event, hook))
    ]


def _listed(groups: object) -> list[Any]:
    found: list[Any] = []
    for group in groups if isinstance(groups, list) else ():
        hooks = group.get("hooks") if isinstance(group, dict) else None
        found += hooks if isinstance(hooks, list) else []
    return found


def put_hooks(document: dict[str, Any], hooks: Mapping[str, Mapping[str, Any]]) -> None:
    """Install them, in the place of ours that are there. Raises `InvalidOptions` where there is no place."""
    events = document.get("hooks", {})
    if not isinstance(events, dict):
        raise InvalidOptions("'hooks' in the settings is not what Claude Code expects", hint="fix it first")
    for event in hooks:
        if not isinstance(events.get(event, []), list):
            raise InvalidOptions(
                f"the hooks of {event} are not what Claude Code expects", hint="fix it first"
            )
    if _installed(document, hooks):
        return
    take_hooks(document)
    events = document.setdefault("hooks", {})
    for event, hook in hooks.items():
        events.setdefault(event, []).append({"hooks": [dict(hook)]})


def _installed(document: Mapping[str, Any], hooks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Each of them as it should be, once, and no other of ours."""
    events = document.get("hooks", {})
    ours = [(event, hook) for event in events for hook in _listed(events[event]) if read_hook(event, hook)]
    return len(ours) == len(hooks) and all(hooks.get(event) == hook for event, hook in ours)


def take_hooks(document: dict[str, Any]) -> list[BossHook]:
    """Take ours out, and what is empty for that reason. Returns what was taken."""
    taken = find_hooks(document)
    events = document.get("hooks")
    for event in {found.event for found in taken}:
        assert isinstance(events, dict)
        left = [kept for group in events[event] if (kept := _without_ours(event, group)) is not None]
        if left:
            events[event] = left
        else:
            del events[event]
    if taken and not events:
        del document["hooks"]
    return taken


def _without_ours(event: str, group: Any) -> Any:
    """None for a group that held nothing else."""
    listed = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(listed, list):
        return group
    left = [hook for hook in listed if read_hook(event, hook) is None]
    if len(left) == len(listed):
        return group
    return {**group, "hooks": left} if left else None
