"""What is asked of a served pool, made of the caller's own folder and environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from remuda.errors import InputError
from remuda.keeper.environment import without_terminal

from .protocol import MAX_PROMPT_BYTES, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of the shell that calls: they differ from call to call and mean nothing to a session that serves many.
_OF_A_SHELL = ("_", "SHLVL", "OLDPWD", "PWD")


def environment(inherited: Mapping[str, str], cwd: str) -> dict[str, str]:
    """The caller's, without what describes his shell and his terminal: two terminals can share a session."""
    kept = {name: value for name, value in without_terminal(inherited).items() if name not in _OF_A_SHELL}
    return {**kept, "PWD": cwd}


def run_message(
    prompt: str,
    options: Mapping[str, Any],
    *,
    cwd: str,
    environ: Mapping[str, str],
    stream: bool = False,
    raw: bool = False,
    permissions: str | None = None,
    requires: Mapping[str, str] | None = None,
) -> Message:
    """`options` are those of `Client.run`; a `cwd` in them is taken from `cwd`, an `env` laid over `environ`.
    `requires` is what the pool must be like (`backend`, `agent`, `claude_binary`), or it refuses.

    Raises `InputError` for a prompt that is too long.
    """
    if len(prompt.encode("utf-8", "surrogatepass")) > MAX_PROMPT_BYTES:
        raise InputError(f"the prompt is longer than {MAX_PROMPT_BYTES} bytes")
    return {
        "type": "run",
        "prompt": prompt,
        "options": whole_options(options, cwd=cwd, environ=environ),
        "stream": stream,
        "raw": raw,
        "permissions": permissions,
        "requires": dict(requires or {}),
    }


def prewarm_message(
    count: int | None,
    options: Mapping[str, Any],
    *,
    cwd: str,
    environ: Mapping[str, str],
    permissions: str | None = None,
) -> Message:
    return {
        "type": "prewarm",
        "count": count,
        "options": whole_options(options, cwd=cwd, environ=environ),
        "permissions": permissions,
    }


def whole_options(options: Mapping[str, Any], *, cwd: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """With a folder and an environment that are all of the caller's and nothing of the server's."""
    folder = os.path.realpath(os.path.join(cwd, os.path.expanduser(_plain(options.get("cwd") or ""))))
    env = environment(environ, folder)
    for name, value in (options.get("env") or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    given = {name: _plain(value) for name, value in options.items() if value is not None}
    return {**given, "cwd": folder, "env": env}


def _plain(value: Any) -> Any:
    """As JSON can have it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value
