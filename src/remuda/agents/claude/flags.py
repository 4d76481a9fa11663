"""Claude Code's flags, as far as an argument must be distinguished from a prompt (2.1.325). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# `<value>`: the next word belongs to the flag. Flags that the help does not list are here too.
ONE_VALUE = frozenset(
    [
        "--agent",
        "--append-subagent-system-prompt",
        "--append-subagent-system-prompt-file",
        "--append-system-prompt-file",
        "--system-prompt-file",
        "--max-thinking-tokens",
        "--task-budget",
        "--thinking",
        "--thinking-display",
        "--advisor",
        "--teammate-mode",
        "--agent-id",
        "--agent-name",
        "--agent-color",
        "--agent-type",
        "--team-name",
        "--parent-session-id",
        "--resume-session-at",
        "--plan-mode-instructions",
        "--plugin-dir-no-mcp",
        "--managed-settings",
        "--prefill",
        "--agents",
        "--append-system-prompt",
        "--autocompact",
        "--debug-file",
        "--effort",
        "--environment",
        "--fallback-model",
        "--input-format",
        "--json-schema",
        "--max-budget-usd",
        "--max-turns",
        "--model",
        "-n",
        "--name",
        "--output-format",
        "--permission-mode",
        "--permission-prompts",
        "--permission-prompt-tool",
        "--plugin-dir",
        "--plugin-url",
        "--remote-control-session-name-prefix",
        "--session-id",
        "--setting-sources",
        "--settings",
        "--system-prompt",
        "--system-prompt-snapshot",
    ]
)
# `<values...>`: all words up to the next flag.
MANY_VALUES = frozenset(
    [
        "--add-dir",
        "--allowedTools",
        "--allowed-tools",
        "--betas",
        "--disallowedTools",
        "--disallowed-tools",
        "--file",
        "--mcp-config",
        "--tools",
    ]
)
# `[value]`: the next word, unless it is a flag.
OPTIONAL_VALUE = frozenset(
    [
        "--cloud",
        "-d",
        "--debug",
        "--from-pr",
        "--prompt-suggestions",
        "--remote-control",
        "-r",
        "--resume",
        "--teleport",
        "-w",
        "--worktree",
    ]
)

ALIASES = {
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


def split_arguments(arguments: Sequence[str]) -> Iterator[tuple[str | None, list[str]]]:
    """Yield each flag with its values, in order; a word of the prompt as (None, [word])."""
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        if word == "--":
            yield from ((None, [rest]) for rest in arguments[position:])
            return
        if not word.startswith("-") or word == "-":
            yield None, [word]
            continue
        values: list[str] = []
        if "=" not in word:
            while position < len(arguments) and takes(word, len(values), arguments[position]):
                values.append(arguments[position])
                position += 1
        yield word, values


def takes(flag: str, have: int, word: str) -> bool:
    """Whether the word is a value of this flag, which has `have` values already."""
    if flag in ONE_VALUE:
        return have == 0
    if flag in MANY_VALUES:
        return not word.startswith("-")
    return flag in OPTIONAL_VALUE and have == 0 and not word.startswith("-")


def without_prompt(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the prompt: a session that is restored must not get it again."""
    kept: list[str] = []
    for flag, values in split_arguments(arguments):
        if flag is not None:
            kept += [flag, *values]
    return kept


def without_flags(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the arguments without these flags and their values."""
    kept: list[str] = []
    for flag, values in split_arguments(arguments):
        if flag is None:
            if values[0].startswith("-") and values[0] != "-" and "--" not in kept:
                kept.append("--")  # a prompt that looks like a flag stays a prompt
            kept += values
        elif flag.partition("=")[0] not in names:
            kept += [flag, *values]
    return kept
