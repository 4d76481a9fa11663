"""Claude Code's flags, as far as an argument must be distinguished from a prompt (2.1.325). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def _flags(names: str) -> frozenset[str]:
    return frozenset(names.split())


# `<value>`: the next word belongs to the flag. Flags that the help does not list are here too.
ONE_VALUE = _flags(
    """
    --advisor --agent --agent-color --agent-id --agent-name --agent-type --agents
    --append-subagent-system-prompt --append-subagent-system-prompt-file --append-system-prompt
    --append-system-prompt-file --autocompact --debug-file --effort --environment --fallback-model
    --input-format --json-schema --managed-settings --max-budget-usd --max-thinking-tokens --max-turns
    --model --name --output-format --parent-session-id --permission-mode --permission-prompt-tool
    --permission-prompts --plan-mode-instructions --plugin-dir --plugin-dir-no-mcp --plugin-url --prefill
    --remote-control-session-name-prefix --resume-session-at --session-id --setting-sources --settings
    --system-prompt --system-prompt-file --system-prompt-snapshot --task-budget --team-name
    --teammate-mode --thinking --thinking-display -n
    """
)
# `<values...>`: all words up to the next flag.
MANY_VALUES = _flags(
    """
    --add-dir --allowed-tools --allowedTools --betas --disallowed-tools --disallowedTools --file
    --mcp-config --tools
    """
)
# `[value]`: the next word, unless it is a flag.
OPTIONAL_VALUE = _flags(
    """
    --cloud --debug --from-pr --prompt-suggestions --remote-control --resume --teleport --worktree -d -r
    -w
    """
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
