"""The Stop hook in the document of a settings file: make, recognise, add and remove ours. Pure.

Its command is run by a shell, and first checks that our program exists. Python exits with 2 if it does not,
and the CLI takes 2 for a block. So without the check an uninstalled Remuda would never let a session stop
(2.1.325).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from remuda.agents.claude.launch import BLOCK_CAP_VARIABLE
from remuda.agents.settings_file import command_hooks, remove_hooks
from remuda.agents.setup import same_path
from remuda.errors import InvalidOptions

TIMEOUT = 600
DEFAULT_CAP = 8
_GUARD = ["[", "-f", "$h", "]", "&&", "exec"]
_FLAGS = ["-I", "-S"]
_SCRIPTS = ("remuda/inbox/stop.py", "remuda/inbox/stop_hook.py")


@dataclass(frozen=True, slots=True)
class StopHook:
    """A hook of ours, read from its command."""

    command: str
    interpreter: str
    """Empty if the command has no path of one."""
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
    """Return the hook that a command runs; None if it is not ours."""
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
    """Whether it runs heartbeat-rs's program, or ours under that name. Not ours to change, but capped too."""
    return re.search(r"(^|[/\s'\"])heartbeat-stop(['\"\s]|$)", command) is not None


def _ours(hook: object) -> StopHook | None:
    if not isinstance(hook, dict) or not isinstance(hook.get("command"), str):
        return None
    limit = hook.get("timeout", TIMEOUT)
    return read_command(hook["command"], limit if isinstance(limit, (int, float)) else TIMEOUT)


def find_hooks(document: Mapping[str, Any]) -> list[StopHook]:
    return [ours for event, hook in command_hooks(document) if event == "Stop" and (ours := _ours(hook))]


def put_hook(document: dict[str, Any], command: str, timeout: float) -> None:
    """Add it, or replace ours for the same inbox."""
    wanted = read_command(command)
    assert wanted is not None
    fields = {"type": "command", "command": command, "timeout": timeout}
    for event, hook in command_hooks(document):
        ours = _ours(hook)
        if event == "Stop" and ours and same_path(ours.inbox, wanted.inbox):
            hook.update(fields)
            return
    events = _part(document, "hooks", dict)
    groups = _part(events, "Stop", list)
    groups.append({"hooks": [fields]})
    document["hooks"] = {**events, "Stop": groups}


def _part(document: Mapping[str, Any], name: str, kind: type) -> Any:
    part = document.get(name, kind())
    if not isinstance(part, kind):
        needed = "an object" if kind is dict else "a list"
        raise InvalidOptions(f"'{name}' must be {needed}", hint="fix it first")
    return part


def take_hooks(document: dict[str, Any], inbox: str | None = None) -> list[StopHook]:
    """Remove our hooks, or the one for `inbox`. Return what was removed."""
    taken: list[StopHook] = []

    def is_taken(event: str, hook: object) -> bool:
        ours = _ours(hook) if event == "Stop" else None
        if ours is None or (inbox is not None and not same_path(ours.inbox, inbox)):
            return False
        taken.append(ours)
        return True

    remove_hooks(document, is_taken)
    return taken


# ── the cap on blocked stops ──


def block_cap(*environments: Mapping[str, Any]) -> int:
    """Return how many blocks in a row the CLI allows, by the first environment that sets it; 0: no cap."""
    for env in environments:
        if BLOCK_CAP_VARIABLE in env:
            try:
                return max(0, int(str(env[BLOCK_CAP_VARIABLE])))
            except ValueError:
                return DEFAULT_CAP
    return DEFAULT_CAP


def settings_environment(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that the CLI adds to its own environment."""
    variables = document.get("env")
    return variables if isinstance(variables, dict) else {}


def lift_cap(document: dict[str, Any]) -> bool:
    """Remove the cap on blocked stops, unless the settings have one. Return whether it was removed."""
    env = _part(document, "env", dict)
    if BLOCK_CAP_VARIABLE in env:
        return False
    document["env"] = {**env, BLOCK_CAP_VARIABLE: "0"}
    return True


def restore_cap(document: dict[str, Any]) -> bool:
    """Undo `lift_cap`, if the value is unchanged. Return whether it was undone."""
    env = settings_environment(document)
    if env.get(BLOCK_CAP_VARIABLE) != "0":
        return False
    del env[BLOCK_CAP_VARIABLE]
    if not env:
        del document["env"]
    return True
