"""The CLI's arguments, where its terminal interface takes them otherwise than `claude -p` does (2.1.325)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.claude.files import newest_conversation, titled_conversations, user_settings
from remuda.agents.claude.flags import split_arguments
from remuda.agents.claude.launch import take_settings
from remuda.errors import AgentRefused

_BYPASS = ("--dangerously-skip-permissions", "--allow-dangerously-skip-permissions")
_BYPASS_MODE = "bypassPermissions"
_NO_DISCLAIMER = "skipDangerousModePermissionPrompt"


def for_terminal(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    return accept_bypass(name_conversation(flags, env, cwd), env, cwd)


def name_conversation(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """`--continue` as `--resume ID`, or left out where there is nothing to go on with; a title as its ID.

    The terminal passes over conversations that `claude -p` began, and refuses to begin a new one.
    """
    named: list[str] = []
    for flag, values in split_arguments(flags):
        name, equals, value = (flag or "").partition("=")
        if flag == "--continue":
            found = newest_conversation(env, cwd)
            named += ["--resume", found] if found else []
        elif name == "--resume" and (one := _titled(value if equals else "".join(values[:1]), env, cwd)):
            named += ["--resume", one, *values[1:]]
        else:
            named += [flag, *values] if flag is not None else values
    return named


def _titled(title: str, env: Mapping[str, str], cwd: Path) -> str | None:
    """None where no conversation has that title: it is an ID, or the CLI knows more of it."""
    found = titled_conversations(env, cwd, title)
    if len(found) > 1:
        raise AgentRefused(
            f"--resume {title!r} matches {len(found)} conversations: {', '.join(found)}",
            hint="pass one of these ids",
        )
    return found[0] if found else None


def accept_bypass(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """Whoever asks for no permission checks is not asked back: `claude -p` does not, and nobody is there."""
    settings, rest = take_settings(list(flags), cwd)
    if not _wants_bypass(rest, [settings, *user_settings(env, cwd)]):
        return list(flags)
    return [*rest, "--settings", json.dumps({**settings, _NO_DISCLAIMER: True})]


def _wants_bypass(flags: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> bool:
    given = [(flag or "", values) for flag, values in split_arguments(flags)]
    modes: list[object] = [values[0] for flag, values in given if flag == "--permission-mode" and values]
    modes += [flag.partition("=")[2] for flag, _ in given if flag.startswith("--permission-mode=")]
    for source in settings:
        permissions = source.get("permissions")
        modes += [permissions.get("defaultMode")] if isinstance(permissions, dict) else []
    return _BYPASS_MODE in modes or any(flag in _BYPASS for flag, _ in given)
