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
    "--socket": ("text", "PATH", "Where the pool is served.  [default: pool.sock under $REMUDA_HOME]"),
    "--no-fallback": ("flag", "", "Refuse where no pool is served, instead of a cold run."),
    "--backend": (BACKENDS, "", "What the pool, or else the cold run, must use."),
    "--model": ("text", "NAME", "The model."),
    "--allowed-tools": ("many", "TOOLS", "Tools that need no permission; may be repeated."),
    "--disallowed-tools": ("many", "TOOLS", "Tools that are not there; may be repeated."),
    "--permission-mode": ("text", "MODE", "The agent's permission mode."),
    "--permissions": (
        PERMISSIONS,
        "",
        "What becomes of a tool that needs a permission.  [default: the pool's]",
    ),
    "--system-prompt": ("text", "TEXT", "In place of the agent's own."),
    "--append-system-prompt": ("text", "TEXT", "Behind the agent's own."),
    "--settings": ("text", "FILE|JSON", "Settings for the agent."),
    "--setting-sources": ("text", "LIST", "Which settings of the user's are read."),
    "--mcp-config": ("many", "FILE|JSON", "MCP servers; may be repeated."),
    "--add-dir": ("many", "FOLDER", "A folder that the agent may use too; may be repeated."),
    "--arg": ("many", "FLAG", "Any other flag of the agent's, as --arg=--effort=low; may be repeated."),
    "--env": ("many", "NAME[=VALUE]", "Set a variable, or take it away; may be repeated."),
    "--cwd": ("text", "FOLDER", "Where the agent works.  [default: here]"),
    "--timeout": ("seconds", "SECONDS", "For the whole call.  [default: 300]"),
    "--request-id": ("text", "ID", "What the call is to be called."),
    "--stream": ("flag", "", "Print as it comes."),
    "--json": ("flag", "", "Print JSON: the result, or with --stream each event in a line."),
    "--server-timeout": (
        "seconds",
        "SECONDS",
        "Give a server up that says nothing for so long.  [default: 20]",
    ),
    "--claude-binary": ("text", "PATH", "The agent's program, for a cold run."),
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
    if len(prompts) > 1:
        raise InputError(
            f"there is more than one prompt: {prompts[1][:40]!r} follows the first", hint="quote it"
        )
    return (prompts or ["-"])[0], given


def _take(given: Given, word: str, rest: list[str]) -> None:
    flag, equals, value = word.partition("=")
    flag = ALIASES.get(flag, flag)
    if flag not in OPTIONS:
        raise InvalidOptions(f"unknown option {flag}", hint="'remuda run --help' lists those there are")
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
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 < given < 1e9:
        raise InvalidOptions(f"{flag} {text!r} is not a number of seconds")
    return given


def variables(words: Sequence[str]) -> dict[str, str | None]:
    """Of `--env`: NAME=VALUE sets one, NAME takes it away."""
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise InvalidOptions(f"--env {word!r} names no variable")
        found[name] = value if equals else None
    return found
