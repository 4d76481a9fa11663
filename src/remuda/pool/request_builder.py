"""Builds requests to a served pool, with the folder and the environment of the caller."""

from __future__ import annotations

import os
from collections.abc import Mapping

from remuda.errors import InputError
from remuda.keeper.environment import without_terminal

from .protocol import MAX_PROMPT_BYTES, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Set by the calling shell: they differ between calls and mean nothing to a worker that serves many.
_SHELL_VARIABLES = ("_", "SHLVL", "OLDPWD", "PWD")


def environment(inherited: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return the environment without shell and terminal, so that two terminals share a worker."""
    kept = {
        name: value for name, value in without_terminal(inherited).items() if name not in _SHELL_VARIABLES
    }
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
    """Return a `run` message.

    `options` are those of `Client.run`: a relative `cwd` in them starts at `cwd`; `env` changes `environ`.
    `requires` are facts of the pool (`backend`, `agent`, `claude_binary`); it refuses if they differ.

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
    """Return the options with the complete folder and environment, so that none of the server's is used."""
    folder = os.path.realpath(os.path.join(cwd, os.path.expanduser(_plain(options.get("cwd") or ""))))
    env = environment(environ, folder)
    for name, value in (options.get("env") or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    plain = {name: _plain(value) for name, value in options.items() if value is not None}
    return {**plain, "cwd": folder, "env": env}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value
