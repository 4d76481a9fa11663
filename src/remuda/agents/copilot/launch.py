"""How copilot is started as a kept session. Pure but for reading the user's settings.

Our hooks are in a plugin of this session's folder (`--plugin-dir`): nothing of the user's is changed.
They are commands, because copilot runs no http hook of a plugin. The user's setting `disableAllHooks` is for
hooks of users and repositories, and does not keep those of a plugin from running (1.0.102).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from remuda.agents.base import Launch, LaunchContext

from .files import events_file, has_prompts

EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "Notification",
    "Stop",
    "SessionEnd",
)
_REQUEST = "PermissionRequest"
HOOK_TIMEOUT = 10
ASK_TIMEOUT = 60
ASK_VARIABLE = "REMUDA_COPILOT_ASK_SECONDS"
"""Seconds in which clients can decide a permission request. Copilot shows no dialog before that (1.0.102)."""
_POST = Path(__file__).with_name("post_hook.py")
_ALLOWS_ALL = frozenset(("--allow-all-tools", "--allow-all", "--yolo"))
_ALLOWS = {"--allow-tool": "{}", "--allow-url": "url({})"}
_WITH_VALUE = ("-i", "--interactive", "-r", "--resume", "--session-id", "-n", "--name")
_WITHOUT = ("--continue",)
_NO_PROMPT = (
    "-i",
    "--interactive",
    "-p",
    "--prompt",
    "--acp",
    "--connect",
    "-h",
    "--help",
    "-v",
    "--version",
)
_COMMANDS = frozenset(
    ("app", "completion", "config", "help", "init", "instruction", "login", "lsp", "mcp", "memories")
) | {"plugin", "sandbox", "sessions", "skill", "update", "version", "workflow"}


def prepare(context: LaunchContext) -> Launch:
    program, arguments = _split(context.argv)
    scratch = context.scratch
    address = scratch / "hook.address"
    port = context.hook_url.removesuffix("/hook").rpartition(":")[2]
    events = [one for one in EVENTS if one != _REQUEST or not allows_all(arguments, context.env)]
    command = hook_command(str(address), *allow_rules(arguments))
    files = {
        scratch / "plugin.json": _json({"name": "remuda", "version": "1.0.0", "hooks": "hooks.json"}),
        scratch / "hooks.json": _json(_hooks(command, events, context)),
        address: f"{port} {context.hook_token}".encode(),
    }
    added = ["--plugin-dir", str(scratch)]
    session_id = context.conversation.get("session_id")
    if has_prompts(events_file(context.env, session_id)):
        arguments = _without_start(arguments)
        added.append(f"--resume={session_id}")
    if context.prompt is not None:
        added.append(f"--interactive={context.prompt}")
    return Launch([*program, *added, *arguments], _own_environment(context.env), files)


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode()


def hook_command(*words: str) -> str:
    """Return the command that runs `post_hook` with these words."""
    # Without `exec` it would run on after the agent has ended its shell.
    return "exec " + shlex.join([sys.executable, "-I", "-S", str(_POST), *words])


def _hooks(command: str, events: Sequence[str], context: LaunchContext) -> dict[str, Any]:
    hooks = {}
    for event in events:
        asks = context.asks and event == _REQUEST
        timeout = _ask_timeout(context.env) if asks else HOOK_TIMEOUT
        hooks[event] = [{"type": "command", "bash": command, "timeoutSec": timeout}]
    return {"version": 1, "hooks": hooks}


def _ask_timeout(env: Mapping[str, str]) -> int:
    given = env.get(ASK_VARIABLE, "")
    return min(86_400, max(1, int(given))) if given.isascii() and given.isdecimal() else ASK_TIMEOUT


# ── arguments ──


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    words = next((i for i, word in enumerate(argv) if PurePath(word).name == "copilot"), 0) + 1
    return list(argv[:words]), list(argv[words:])  # `env X=1 copilot`, `npx copilot`


def _without_start(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without those that start or choose a conversation."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        flag = word.partition("=")[0]
        if skip and not word.startswith("-"):
            skip = False
            continue
        skip = word in _WITH_VALUE
        if flag not in (*_WITH_VALUE, *_WITHOUT):
            kept.append(word)
    return kept


def allows_all(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether the user has allowed all tools."""
    given = env.get("COPILOT_ALLOW_ALL", "").strip().lower()
    return not _ALLOWS_ALL.isdisjoint(arguments) or given in ("true", "1", "yes", "on", "y")


def allow_rules(arguments: Sequence[str]) -> list[str]:
    """Return the rules by which the user has allowed tools, as `--allow-tool` has them."""
    rules: list[str] = []
    form: str | None = None
    for word in arguments:
        flag, joined, value = word.partition("=")
        if word.startswith("-"):
            form = _ALLOWS.get(flag)
        if form is not None and (joined or not word.startswith("-")):
            rules.append(form.format(value if flag in _ALLOWS and joined else word))
        if joined:
            form = None
    return rules


def takes_prompt(argv: Sequence[str]) -> bool:
    """Return whether a prompt can be added: there is none yet, and the command starts a conversation."""
    _, arguments = _split(argv)
    flags = [word.partition("=")[0] for word in arguments]
    return not any(flag in _NO_PROMPT for flag in flags) and not (arguments and arguments[0] in _COMMANDS)


# ── the environment ──


def _own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the identity of an agent that started us."""
    return {name: value for name, value in env.items() if name not in ("COPILOT_AGENT_SESSION_ID",)}
