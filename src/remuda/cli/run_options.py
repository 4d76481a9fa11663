"""The options of `remuda run`: one table for whoever reads the words, the help and the completion.

Without click, which takes longer to load than a warm agent takes to answer.
"""

from __future__ import annotations

from remuda.errors import InputError, InvalidOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Given = dict[str, Any]

BACKENDS = ("terminal", "stream", "print")
PERMISSIONS = ("deny", "allow")
DEFAULT_TIMEOUT = 300.0

# name of the flag: (kind, what its value is called, help). Kinds: flag, text, many, seconds, or the choices.
OPTIONS: dict[str, tuple[str | tuple[str, ...], str, str]] = {
    "--socket": ("text", "PATH", "Socket of the pool.  [default: pool.sock under $REMUDA_HOME]"),
    "--no-fallback": ("flag", "", "Fail if no pool is served, instead of running cold."),
    "--backend": (BACKENDS, "", "Require this backend."),
    "--model": ("text", "NAME", "Model to use."),
    "--allowed-tools": ("many", "TOOLS", "Allow these tools without a permission request; repeatable."),
    "--disallowed-tools": ("many", "TOOLS", "Remove these tools; repeatable."),
    "--permission-mode": ("text", "MODE", "Permission mode of the agent."),
    "--permissions": (
        PERMISSIONS,
        "",
        "Allow or deny all permission requests.  [default: as the pool was started]",
    ),
    "--system-prompt": ("text", "TEXT", "Replace the system prompt of the agent."),
    "--append-system-prompt": ("text", "TEXT", "Append TEXT to the system prompt of the agent."),
    "--settings": ("text", "FILE|JSON", "Add settings for the agent."),
    "--setting-sources": ("text", "LIST", "Read only these settings files: user, project, local."),
    "--mcp-config": ("many", "FILE|JSON", "Add MCP servers; repeatable."),
    "--add-dir": ("many", "FOLDER", "Let the agent use FOLDER too; repeatable."),
    "--arg": ("many", "FLAG", "Pass any other flag to the agent, as in --arg=--effort=low; repeatable."),
    "--env": ("many", "NAME[=VALUE]", "Set a variable, or remove it (NAME alone); repeatable."),
    "--cwd": ("text", "FOLDER", "Run the agent in FOLDER.  [default: the current folder]"),
    "--timeout": ("seconds", "TIME", "Fail after TIME (90, 45m, 2h30m).  [default: 300]"),
    "--request-id": ("text", "ID", "Use ID as the id of the request."),
    "--stream": ("flag", "", "Print the answer as it arrives."),
    "--json": ("flag", "", "Print the result as JSON; with --stream, one event per line."),
    "--server-timeout": (
        "seconds",
        "TIME",
        "Fail if the server sends nothing for TIME.  [default: 20]",
    ),
    "--demo": ("flag", "", "Use the scripted agent: no account, no network."),
    "--claude-binary": ("text", "PATH", "Run the agent at PATH; a pool must use the same program."),
}
ALIASES = {
    "-m": "--model",
    "--allowedTools": "--allowed-tools",
    "--disallowedTools": "--disallowed-tools",
    "--add-dirs": "--add-dir",
}
PROFILE = {
    "--model": "model",
    "--allowed-tools": "allowed_tools",
    "--disallowed-tools": "disallowed_tools",
    "--permission-mode": "permission_mode",
    "--system-prompt": "system_prompt",
    "--append-system-prompt": "append_system_prompt",
    "--settings": "settings",
    "--setting-sources": "setting_sources",
    "--mcp-config": "mcp_config",
    "--add-dir": "add_dirs",
    "--arg": "extra_args",
}
"""What of them makes a profile, under the name that it has there."""


def parse(words: Sequence[str]) -> tuple[str | None, Given]:
    """The prompt and the options by their flags. None for a prompt when help is wanted. Raises
    `InvalidOptions`, or `InputError` for a prompt that is not one."""
    given: Given = {}
    prompts: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            prompts += rest
            break
        if word in ("-h", "--help"):
            return None, given
        if word == "-" or not word.startswith("-"):
            prompts.append(word)
        else:
            _take(given, word, rest)
    if "--demo" in given and "--claude-binary" in given:
        raise InvalidOptions("--demo and --claude-binary cannot be combined")
    if len(prompts) > 1:
        raise InputError(
            f"more than one prompt: {prompts[1][:40]!r} is the second", hint="put the prompt in quotes"
        )
    return (prompts or ["-"])[0], given


def _take(given: Given, word: str, rest: list[str]) -> None:
    flag, equals, value = word.partition("=")
    flag = ALIASES.get(flag, flag)
    if flag not in OPTIONS:
        from remuda.names import did_you_mean

        hint = did_you_mean(flag, [*OPTIONS, *ALIASES]) or "'remuda run --help' lists all options"
        raise InvalidOptions(f"unknown option {flag}", hint=hint)
    kind = OPTIONS[flag][0]
    if kind == "flag":
        if equals:
            raise InvalidOptions(f"{flag} takes no value")
        given[flag] = True
        return
    if not equals:
        if not rest:
            raise InvalidOptions(f"{flag} needs a value")
        value = rest.pop(0)
    if kind == "many":
        given.setdefault(flag, []).append(value)
    else:
        given[flag] = _seconds(flag, value) if kind == "seconds" else _checked(flag, value, kind)


def _checked(flag: str, value: str, kind: str | tuple[str, ...]) -> str:
    if isinstance(kind, tuple) and value not in kind:
        raise InvalidOptions(f"{flag} {value!r} is not one of {', '.join(kind)}")
    return value


def _seconds(flag: str, text: str) -> float:
    from remuda.oneshot.request import seconds

    given = seconds(flag, text)
    if not given:
        raise InvalidOptions(f"{flag} must be more than 0")
    return given


def variables(words: Sequence[str]) -> dict[str, str | None]:
    """Of `--env`: NAME=VALUE sets one, NAME takes it away."""
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise InvalidOptions(f"--env {word!r} has no variable name", hint="write NAME=VALUE or NAME")
        found[name] = value if equals else None
    return found
