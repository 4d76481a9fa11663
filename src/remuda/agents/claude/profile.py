"""What a warm session is asked to be, as arguments of Claude Code (2.1.325). Pure.

Every value is written as `--flag=value`: so it stays one value, whatever it begins with, and a flag that
takes many values takes no word that follows. Flags that take many are given once for each.
"""

from __future__ import annotations

from collections.abc import Iterator

from remuda.agents.warm import WorkerOptions
from remuda.errors import InvalidOptions

from .flags import split_arguments

MAX_ARGUMENT_BYTES = 131_071
"""What Linux lets one argument have."""


def arguments(options: WorkerOptions) -> list[str]:
    """The words behind the program's name. What cannot be said in words raises `InvalidOptions`."""
    words = [f"{flag}={value}" for flag, value in _given(options)]
    words += options.extra_args
    for word in words:
        _check(word)
    return words


def _given(options: WorkerOptions) -> Iterator[tuple[str, str]]:
    once = {
        "--model": options.model,
        "--permission-mode": options.permission_mode,
        "--settings": options.settings,
        "--setting-sources": options.setting_sources,
        "--system-prompt": options.system_prompt,
        "--append-system-prompt": options.append_system_prompt,
    }
    yield from ((flag, value) for flag, value in once.items() if value is not None)
    many = {
        "--allowedTools": options.allowed_tools,
        "--disallowedTools": options.disallowed_tools,
        "--mcp-config": options.mcp_config,
        "--add-dir": options.add_dirs,
    }
    yield from ((flag, value) for flag, values in many.items() for value in values)


def _check(word: str) -> None:
    name = word.partition("=")[0]
    if "\0" in word:
        raise InvalidOptions(f"{name} has a NUL character, which an argument cannot have")
    if len(word.encode("utf-8", "surrogateescape")) > MAX_ARGUMENT_BYTES:
        raise InvalidOptions(
            f"{name} is longer than {MAX_ARGUMENT_BYTES} bytes, the maximum for an argument",
            hint="use the flag that takes a file, if the agent has one",
        )


# ── what a pool cannot honour ──

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
_ALIASES = {
    "--allowed-tools": "--allowedTools",
    "--background": "--bg",
    "--disallowed-tools": "--disallowedTools",
    "-c": "--continue",
    "-d": "--debug",
    "-h": "--help",
    "-n": "--name",
    "-p": "--print",
    "-r": "--resume",
    "-v": "--version",
    "-w": "--worktree",
}


def refusals(options: WorkerOptions, *, terminal: bool = False) -> list[str]:
    """Why `extra_args` cannot be honoured, one reason for each; empty when they can."""
    found = []
    once = {flag for flag, _ in _given(options)} - {"--allowedTools", "--disallowedTools"}
    once -= {"--mcp-config", "--add-dir"}
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
    flag = _ALIASES.get(flag, flag)
    if not flag.startswith("--"):
        return "use the long form of the flag"
    if flag in once:
        return "the options set it too, and the agent accepts one value"
    if terminal and flag in _PRINT_ONLY:
        return "the terminal backend does not support it; use stream or print"
    return _UNUSABLE.get(flag)
