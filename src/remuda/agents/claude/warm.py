"""Claude Code as a worker of a pool (2.1.325): options as arguments, and which arguments a pool refuses.

Every value is written as `--flag=value`. It stays one value, whatever it begins with, and a flag that takes
many values does not take the words after it. A flag with many values is repeated.

What a short command such as `remuda ask` does not need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from remuda.errors import InputError, InvalidOptions

from .flags import ALIASES, split_arguments

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

    from remuda.agents.warm import WorkerOptions

MAX_ARGUMENT_BYTES = 131_071
"""Linux's limit for one argument."""
_ONE_VALUE = {
    "--model": "model",
    "--permission-mode": "permission_mode",
    "--settings": "settings",
    "--setting-sources": "setting_sources",
    "--system-prompt": "system_prompt",
    "--append-system-prompt": "append_system_prompt",
}
_MANY_VALUES = {
    "--allowedTools": "allowed_tools",
    "--disallowedTools": "disallowed_tools",
    "--mcp-config": "mcp_config",
    "--add-dir": "add_dirs",
}


def arguments(options: WorkerOptions) -> list[str]:
    """Return the words after the program's name. Raises `InvalidOptions` if one cannot be passed."""
    words = [f"{flag}={value}" for flag, value in _given(options)]
    words += options.extra_args
    for word in words:
        _check(word)
    return words


def _given(options: WorkerOptions) -> Iterator[tuple[str, str]]:
    for flag, name in _ONE_VALUE.items():
        if (value := getattr(options, name)) is not None:
            yield flag, value
    for flag, name in _MANY_VALUES.items():
        yield from ((flag, value) for value in getattr(options, name))


def _check(word: str) -> None:
    name = word.partition("=")[0]
    if "\0" in word:
        raise InvalidOptions(f"{name} has a NUL character, which an argument cannot have")
    if len(word.encode("utf-8", "surrogateescape")) > MAX_ARGUMENT_BYTES:
        raise InvalidOptions(
            f"{name} is longer than {MAX_ARGUMENT_BYTES} bytes, the maximum for an argument",
            hint="use the flag that takes a file, if the agent has one",
        )


# ── flags that a pool cannot honour ──

_FRESH = "every conversation of a pool begins fresh"
_FORM = "the pool sets how it talks to the agent"
_ELSEWHERE = "the agent would not run in the requested folder"
_COUNTED = "it applies to the process, which serves many requests"
_TEAM = "it makes the agent a part of another session"
_UNUSABLE = {
    **dict.fromkeys(
        ["--resume", "--continue", "--session-id", "--fork-session", "--from-pr", "--resume-session-at"],
        _FRESH,
    ),
    "--prefill": _FRESH,
    **dict.fromkeys(["--print", "--output-format", "--input-format", "--include-partial-messages"], _FORM),
    **dict.fromkeys(["--verbose", "--replay-user-messages", "--include-hook-events"], _FORM),
    **dict.fromkeys(["--forward-subagent-text", "--prompt-suggestions", "--json-schema"], _FORM),
    **dict.fromkeys(["--permission-prompt-tool", "--permission-prompts", "--ax-screen-reader"], _FORM),
    **dict.fromkeys(["--help", "--version"], "no agent would run"),
    **dict.fromkeys(["--bg", "--cloud", "--desktop", "--environment", "--teleport"], _ELSEWHERE),
    **dict.fromkeys(["--tmux", "--remote-control", "--worktree"], _ELSEWHERE),
    "--remote-control-session-name-prefix": _ELSEWHERE,
    **dict.fromkeys(["--max-turns", "--max-budget-usd", "--task-budget"], _COUNTED),
    **dict.fromkeys(["--agent-id", "--agent-name", "--agent-color", "--agent-type", "--team-name"], _TEAM),
    **dict.fromkeys(["--parent-session-id", "--teammate-mode"], _TEAM),
}
_PRINT_ONLY = frozenset(["--bare", "--safe-mode", "--no-session-persistence", "--plan-mode-instructions"])


def refusals(options: WorkerOptions, *, terminal: bool = False) -> list[str]:
    """Return why `extra_args` cannot be honoured, one reason for each; empty if they can."""
    found = []
    once = {flag for flag, _ in _given(options)} - _MANY_VALUES.keys()
    if "--" in options.extra_args:
        found.append("extra_args has `--`: prompts come with requests")
    for flag, values in split_arguments([word for word in options.extra_args if word != "--"]):
        if flag is None:
            found.append(f"extra_args has {values[0]!r}, which does not belong to a flag; write --flag=value")
        elif reason := _reason(flag, once, terminal=terminal):
            found.append(f"{flag.partition('=')[0]} cannot be used in a pool: {reason}")
    return found


def _reason(word: str, once: set[str], *, terminal: bool) -> str | None:
    flag = word.partition("=")[0]
    flag = ALIASES.get(flag, flag)
    if not flag.startswith("--"):
        return "use the long form of the flag"
    if flag in once:
        return "the options set it too, and the agent accepts one value"
    if terminal and flag in _PRINT_ONLY:
        return "the terminal backend does not support it; use stream or print"
    return _UNUSABLE.get(flag)


# ── the worker ──


class ClaudeWarm:
    clear_command = "/clear"
    arguments = staticmethod(arguments)
    refusals = staticmethod(refusals)

    def check_prompt(self, text: str) -> None:
        from . import prompt

        try:
            prompt.check(text, command=False, literal=False)
        except InputError as error:
            hint = "put a word before it" if prompt.looks_like_command(text) else error.hint
            raise InputError(error.message, hint=hint) from None

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> list[str]:
        from .launch import accept_bypass

        flags = accept_bypass(arguments(options), env, cwd)
        if not asks:
            flags.append("--disallowedTools=AskUserQuestion")  # `claude -p` does not have it either
        return flags

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        options: dict[str, Any] = {}
        rest: list[str] = []
        for word, following in split_arguments(arguments):
            flag, equals, value = (word or "").partition("=")
            values = [value] if equals else following
            if flag in _ONE_VALUE:
                options[_ONE_VALUE[flag]] = values[-1]
            elif flag in _MANY_VALUES:
                options.setdefault(_MANY_VALUES[flag], []).extend(values)
            else:
                rest += [word, *following] if word is not None else following
        return options, rest

    def is_denial(self, content: object) -> bool:
        from remuda.agents.unattended import DENIED

        return DENIED in str(content)

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        from .files import entrypoint

        return entrypoint(env, pid)
