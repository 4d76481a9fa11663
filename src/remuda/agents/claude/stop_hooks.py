"""The Stop hook in Claude Code's settings: how ours is written, recognised, put in and taken out. Pure.

Its command is run by a shell. It is guarded: Python ends with 2 for a script that is gone, and the CLI takes
2 for a block, so without the guard an uninstalled Remuda would keep every session going for ever (2.1.325).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from remuda.errors import InvalidOptions

from .launch import BLOCK_CAP_VARIABLE

TIMEOUT = 600
DEFAULT_CAP = 8
_GUARD = ["[", "-f", "$h", "]", "&&", "exec"]
_FLAGS = ["-I", "-S"]
_SCRIPTS = ("remuda/inbox/stop.py", "remuda/inbox/stop_hook.py")


@dataclass(frozen=True, slots=True)
class StopHook:
    """A hook of ours, as its command tells."""

    command: str
    interpreter: str
    """Empty where the command names none by its path."""
    script: str
    words: tuple[str, ...]
    timeout: float = TIMEOUT

    @property
    def inbox(self) -> str:
        return self.option("--inbox")

    @property
    def mode(self) -> str:
        return self.option("--mode") or "drain"

    def option(self, name: str) -> str:
        for position, word in enumerate(self.words):
            if word == name and position + 1 < len(self.words):
                return self.words[position + 1]
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
        return ""


def make_command(interpreter: str, script: str, words: Sequence[str]) -> str:
    command = f'h={shlex.quote(script)}; [ -f "$h" ] && exec {shlex.quote(interpreter)} -I -S "$h" '
    return command + shlex.join(words)


def read_command(command: str, timeout: float = TIMEOUT) -> StopHook | None:
    """The hook in a command; None if it is not ours."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:1] and words[0].startswith("h=") and words[1:7] == _GUARD and words[8:11] == [*_FLAGS, "$h"]:
        script = words[0].removeprefix("h=").removesuffix(";")
        return StopHook(command, words[7], script, tuple(words[11:]), timeout) if _is_script(script) else None
    for position, word in enumerate(words):
        program = words[0] if words[0].startswith("/") else ""
        if _is_script(word):
            return StopHook(command, program, word, tuple(words[position + 1 :]), timeout)
        if PurePath(word).name == "remuda" and words[position + 1 : position + 2] == ["stop-hook"]:
            return StopHook(command, program, "", tuple(words[position + 2 :]), timeout)
    return None


def _is_script(word: str) -> bool:
    return word.startswith("/") and word.endswith(_SCRIPTS)


def runs_heartbeat_stop(command: str) -> bool:
    """heartbeat-rs's own program, or ours under its name: not ours to change, but the cap is for it too."""
    return re.search(r"(^|[/\s'\"])heartbeat-stop(['\"\s]|$)", command) is not None


def command_hooks(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every command hook with its event; whatever has another shape is passed over."""
    events = document.get("hooks")
    for event, groups in events.items() if isinstance(events, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            listed = group.get("hooks") if isinstance(group, dict) else None
            for hook in listed if isinstance(listed, list) else ():
                if isinstance(hook, dict) and isinstance(hook.get("command"), str):
                    yield event, hook


def _ours(hook: object) -> StopHook | None:
    if not isinstance(hook, dict) or not isinstance(hook.get("command"), str):
        return None
    limit = hook.get("timeout", TIMEOUT)
    return read_command(hook["command"], limit if isinstance(limit, (int, float)) else TIMEOUT)


def find_hooks(document: Mapping[str, Any]) -> list[StopHook]:
    return [found for event, hook in command_hooks(document) if event == "Stop" and (found := _ours(hook))]


def put_hook(document: dict[str, Any], command: str, timeout: float) -> None:
    """Install it, in the place of one of ours for the same inbox if there is one."""
    wanted = read_command(command)
    assert wanted is not None
    fields = {"type": "command", "command": command, "timeout": timeout}
    for event, hook in command_hooks(document):
        found = _ours(hook)
        if event == "Stop" and found and same_file(found.inbox, wanted.inbox):
            hook.update(fields)
            return
    events = _part(document, "hooks", dict)
    groups = _part(events, "Stop", list)
    groups.append({"hooks": [fields]})
    document["hooks"] = {**events, "Stop": groups}


def _part(document: Mapping[str, Any], name: str, kind: type) -> Any:
    found = document.get(name, kind())
    if not isinstance(found, kind):
        raise InvalidOptions(f"'{name}' in the settings is not what Claude Code expects", hint="fix it first")
    return found


def take_hooks(document: dict[str, Any], inbox: str | None = None) -> list[StopHook]:
    """Take ours out, or the one for `inbox`, and what is empty for that reason. Returns what was taken."""
    taken: list[StopHook] = []

    def stays(hook: object) -> bool:
        found = _ours(hook)
        if found is None or (inbox is not None and not same_file(found.inbox, inbox)):
            return True
        taken.append(found)
        return False

    events = document.get("hooks")
    if not isinstance(events, dict) or not isinstance(groups := events.get("Stop"), list):
        return []
    left = []
    for group in groups:
        listed = group.get("hooks") if isinstance(group, dict) else None
        kept = [hook for hook in listed if stays(hook)] if isinstance(listed, list) else None
        if kept is None or kept == listed:
            left.append(group)
        elif kept:
            left.append({**group, "hooks": kept})
    if taken:
        _put_back(document, events, left)
    return taken


def _put_back(document: dict[str, Any], events: dict[str, Any], groups: list[Any]) -> None:
    if groups:
        events["Stop"] = groups
        return
    del events["Stop"]
    if not events:
        del document["hooks"]


def same_file(one: str, other: str) -> bool:
    return bool(one) and os.path.normpath(one) == os.path.normpath(other)


# ── the cap on blocked stops ──


def block_cap(*environments: Mapping[str, Any]) -> int:
    """How many blocks in a row the CLI allows, by the first of these that says so; 0 for any number."""
    for env in environments:
        if BLOCK_CAP_VARIABLE in env:
            try:
                return max(0, int(str(env[BLOCK_CAP_VARIABLE])))
            except ValueError:
                return DEFAULT_CAP
    return DEFAULT_CAP


def settings_environment(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the CLI adds to its own environment."""
    found = document.get("env")
    return found if isinstance(found, dict) else {}


def lift_cap(document: dict[str, Any]) -> bool:
    """Let a Stop hook block any number of times, unless the user has said how often. Whether it was done."""
    env = _part(document, "env", dict)
    if BLOCK_CAP_VARIABLE in env:
        return False
    document["env"] = {**env, BLOCK_CAP_VARIABLE: "0"}
    return True


def restore_cap(document: dict[str, Any]) -> bool:
    """Undo `lift_cap`, if it stands as it was left."""
    env = settings_environment(document)
    if env.get(BLOCK_CAP_VARIABLE) != "0":
        return False
    del env[BLOCK_CAP_VARIABLE]
    if not env:
        del document["env"]
    return True
