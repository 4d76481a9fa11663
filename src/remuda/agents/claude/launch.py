"""How Claude Code is started as a kept session. Pure but for reading the user's settings.

What we add, and why:
- `--settings` with our hooks. The user's own hooks still run.
- `--permission-mode default`, the manual mode, if neither the arguments nor the settings of the user name a
  mode. With some gateways the CLI's own default opens a dialog that no hook reports. We never widen the mode.
  The name `manual` is known since 2.1.200 only; before that the CLI ends with an error.
- an environment without the identity of an agent that started us, with loopback excluded from proxies (else
  no http hook arrives), and without the cap on Stop-hook blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects, parse_json

from .files import find_transcript, has_messages, read_settings, user_settings
from .flags import split_arguments, without_flags, without_prompt

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

    from remuda.agents.base import Launch, LaunchContext


HTTP_EVENTS = (
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "MessageDisplay",
    "Notification",
    "Stop",
    "StopFailure",
    "SessionEnd",
)
TOOL_EVENTS = ("PostToolBatch",)
HOOK_TIMEOUT = 10
ASK_TIMEOUT = 24 * 3600
"""Seconds in which clients can decide a permission request. After that only the terminal can."""
MANUAL_MODE = "default"
"""The mode that requests every permission. Every version knows this name."""
TOKEN_HEADER = "X-Remuda-Token"  # noqa: S105  # the name of a header
_LATER_STARTS = "clear|compact|fork"
"""Starts of a conversation in a process that runs."""
_RESUMING = (
    "--resume",
    "-r",
    "--continue",
    "-c",
    "--session-id",
    "--from-pr",
    "--fork-session",
    "--resume-session-at",
    "--prefill",
)


def prepare(context: LaunchContext, program_words: int = 1) -> Launch:
    """`program_words` says how many words of the command name the program; the arguments follow them."""
    from remuda.agents.base import Launch

    program, arguments = _split(context.argv, program_words)
    settings, arguments = take_settings(arguments, context.cwd)
    overlay = context.scratch / "settings.json"
    written = _with_hooks(_with_permissions(settings, context), context)
    added = ["--settings", str(overlay)]
    if context.permission_mode:
        arguments = without_flags(arguments, ("--permission-mode",))
        added += ["--permission-mode", context.permission_mode]
    elif not _permission_mode_chosen(arguments, settings, context):
        added += ["--permission-mode", MANUAL_MODE]
    if context.model:
        arguments = without_flags(arguments, ("--model",))
        added += ["--model", context.model]
    transcript = find_transcript(context.env, context.conversation)
    if transcript is not None and has_messages(transcript):
        # Its first prompt was answered before, and flags for the start of a conversation no longer apply.
        arguments = without_flags(without_prompt(arguments), _RESUMING)
        added += ["--resume", str(context.conversation["session_id"])]
    return Launch(
        argv=[*program, *added, *arguments, *([] if context.prompt is None else ["--", context.prompt])],
        env=_without_questions(context) if context.woken else clean_environment(context.env),
        files={overlay: json.dumps(written, indent=1).encode()},
        degraded=_without_hooks(arguments, settings, context),
    )


# ── arguments ──


def _split(argv: Sequence[str], program_words: int) -> tuple[list[str], list[str]]:
    named = next((i for i, word in enumerate(argv) if PurePath(word).name == "claude"), 0)
    program_words = max(program_words, named + 1)  # `env X=1 claude`, `npx claude`
    return list(argv[:program_words]), list(argv[program_words:])


def own_arguments(argv: Sequence[str], cwd: Path, program_words: int = 1) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments without `--settings`, and the content of that."""
    _, arguments = _split(argv, program_words)
    settings, rest = take_settings(arguments, cwd)
    return rest, settings


def takes_prompt(argv: Sequence[str], program_words: int = 1) -> bool:
    """Return whether a prompt can be added: there is none yet, and the command starts a conversation."""
    _, arguments = _split(argv, program_words)
    return (
        "--" not in arguments
        and all(flag is not None for flag, _ in split_arguments(arguments))
        and not _has_flag(
            arguments, ("-p", "--print", "--bg", "--prefill", "-h", "--help", "-v", "--version")
        )
    )


def _has_flag(arguments: Sequence[str], flags: Sequence[str]) -> bool:
    return any(arg == flag or arg.startswith(f"{flag}=") for arg in arguments for flag in flags)


def take_settings(arguments: list[str], cwd: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the user's own `--settings` and the rest. The CLI takes one file, so ours is merged into it."""
    rest: list[str] = []
    settings: dict[str, Any] = {}
    position = 0
    while position < len(arguments):
        arg = arguments[position]
        if arg == "--settings" and position + 1 < len(arguments):
            settings = _load_settings(arguments[position + 1], cwd)
            position += 1
        elif arg.startswith("--settings="):
            settings = _load_settings(arg.partition("=")[2], cwd)
        else:
            rest.append(arg)
        position += 1
    return settings, rest


def _load_settings(value: str, cwd: Path) -> dict[str, Any]:
    if not value.lstrip().startswith("{"):
        path = cwd / value
        if not path.exists():
            raise InvalidOptions(f"settings file not found: {value}")
        return read_settings(path)
    try:
        loaded = parse_json(value)
    except ValueError as error:
        raise InvalidOptions(f"--settings is not JSON: {error}") from error
    return loaded if isinstance(loaded, dict) else {}


def _permission_mode_chosen(
    arguments: Sequence[str], settings: Mapping[str, Any], context: LaunchContext
) -> bool:
    if _has_flag(arguments, ("--permission-mode", "--dangerously-skip-permissions")):
        return True
    sources = [settings, *user_settings(context.env, context.cwd)]
    return any(as_object(source.get("permissions")).get("defaultMode") for source in sources)


def _with_permissions(settings: Mapping[str, Any], context: LaunchContext) -> Mapping[str, Any]:
    """Add what was allowed for the conversation while an earlier process had it."""
    allowed = [
        _rule(rule)
        for update in context.permissions
        if update.get("behavior") == "allow"
        for rule in as_objects(update.get("rules"))
    ]
    folders = [one for update in context.permissions for one in _listed(update.get("directories"))]
    known = as_object(settings.get("permissions"))
    added = {
        key: [*_listed(known.get(key)), *more]
        for key, more in (("allow", allowed), ("additionalDirectories", folders))
        if more
    }
    return {**settings, "permissions": {**known, **added}} if added else settings


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _rule(rule: Mapping[str, Any]) -> str:
    """Return a rule as settings have it: `Bash(make test)`."""
    tool, content = str(rule.get("toolName")), rule.get("ruleContent")
    return f"{tool}({content})" if content else tool


# ── hooks ──


def _with_hooks(settings: Mapping[str, Any], context: LaunchContext) -> dict[str, Any]:
    hooks: dict[str, list[Any]] = {}
    for event, groups in as_object(settings.get("hooks")).items():
        if not isinstance(groups, list):
            raise InvalidOptions(f"--settings: the hooks of {event} must be a list, not {groups!r}")
        hooks[event] = list(groups)
    http = {
        "type": "http",
        "url": context.hook_url,
        # In a header and not in the URL: on a blocked stop the CLI shows the URL to the model.
        "headers": {TOKEN_HEADER: context.hook_token},
    }
    more = [*(["PostToolBatch"] if context.limits_turns else []), *(TOOL_EVENTS if context.tools else ())]
    wanted = dict.fromkeys((*HTTP_EVENTS, *more))
    for event in wanted:
        timeout = ASK_TIMEOUT if context.asks and event == "PermissionRequest" else HOOK_TIMEOUT
        hooks.setdefault(event, []).append({"hooks": [{**http, "timeout": timeout}]})
    # The CLI has no http form of SessionStart, and waits for its hooks before its first request.
    if context.emit_command:
        emit = {"type": "command", "command": context.emit_command, "timeout": HOOK_TIMEOUT}
        which = {"matcher": _LATER_STARTS} if context.is_known else {}
        hooks.setdefault("SessionStart", []).append({**which, "hooks": [emit]})
    return {**settings, "hooks": hooks}


def _without_hooks(
    arguments: Sequence[str], settings: Mapping[str, Any], context: LaunchContext
) -> list[str]:
    """Return why no hook will come, if so. Then registry, transcript and screen show the state."""
    for flag in ("--bare", "--safe-mode"):
        if _has_flag(arguments, (flag,)):
            return [f"no hooks: {flag} was given"]
    if any(source.get("disableAllHooks") for source in [settings, *user_settings(context.env, context.cwd)]):
        return ["no hooks: the settings have disableAllHooks"]
    return []


# ── no permission checks ──

_BYPASS = ("--dangerously-skip-permissions", "--allow-dangerously-skip-permissions")
_BYPASS_MODE = "bypassPermissions"
_NO_DISCLAIMER = "skipDangerousModePermissionPrompt"


def accept_bypass(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """Answer the question that follows a request for no permission checks.

    `claude -p` does not ask it, and here no human could answer.
    """
    settings, rest = take_settings(list(flags), cwd)
    if not wants_bypass(rest, settings, env, cwd):
        return list(flags)
    return [*rest, "--settings", json.dumps({**settings, _NO_DISCLAIMER: True})]


def wants_bypass(
    arguments: Sequence[str], settings: Mapping[str, Any], env: Mapping[str, str], cwd: Path
) -> bool:
    """Return whether arguments or settings ask for no permission checks."""
    return _wants_bypass(arguments, [settings, *user_settings(env, cwd)])


def _wants_bypass(flags: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> bool:
    given = [(flag or "", values) for flag, values in split_arguments(flags)]
    modes: list[object] = [values[0] for flag, values in given if flag == "--permission-mode" and values]
    modes += [flag.partition("=")[2] for flag, _ in given if flag.startswith("--permission-mode=")]
    for source in settings:
        permissions = source.get("permissions")
        modes += [permissions.get("defaultMode")] if isinstance(permissions, dict) else []
    return _BYPASS_MODE in modes or any(flag in _BYPASS for flag, _ in given)


# ── the environment ──

IDENTITY_VARIABLES = (
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SESSION_KIND",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_SKIP_PROMPT_HISTORY",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_PID",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_ENV_FILE",
    "AI_AGENT",
)

BLOCK_CAP_VARIABLE = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
"""How many stops in a row hooks may block: 8 by default, 0 for any number. After that a block is ignored."""

_LOOPBACK = ("127.0.0.1", "localhost")


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the identity of another agent, and without the block cap."""
    kept = {name: value for name, value in env.items() if name not in IDENTITY_VARIABLES}
    kept.setdefault(BLOCK_CAP_VARIABLE, "0")
    return kept


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    cleaned = own_environment(env)
    for name in ("NO_PROXY", "no_proxy"):
        cleaned[name] = _exclude_loopback(cleaned.get(name, ""))
    return cleaned


# Minutes after which a resumed conversation with many tokens opens a dialog that offers a summary. Not every
# account gets it (2.1.325). A message would wait at it for a human.
_SUMMARY_OFFERED_AFTER = "CLAUDE_CODE_RESUME_THRESHOLD_MINUTES"


def _without_questions(context: LaunchContext) -> dict[str, str]:
    return {_SUMMARY_OFFERED_AFTER: "1000000000", **clean_environment(context.env)}


def _exclude_loopback(value: str) -> str:
    hosts = [host.strip() for host in value.split(",") if host.strip()]
    if "*" in hosts:
        return value
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
